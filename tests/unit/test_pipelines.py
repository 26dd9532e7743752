"""Pipelines from Python: opened indexes or paths, and what the command line gives."""

from pathlib import Path

import pytest

import lexicept
from lexicept.errors import InputError, require
from lexicept.evaluation.runs import read_run
from support.commands import Run


def test_evaluate(index: Path, beir: Path, tmp_path: Path, run: Run) -> None:
    found = lexicept.evaluate(index, beir, "train", measures=["P@1"], run=tmp_path / "run")
    # Two of three judged queries have a relevant document, and find it first.
    assert found.values["RR@10"] == found.values["P@1"] == 2 / 3
    assert {query: max(of, key=lambda d: of[d]) for query, of in found.run.items()}["q1"] == "d1"
    with lexicept.open(index) as opened:
        again = lexicept.evaluate(opened, beir, "train", measures=["P@1"])
    assert again == found
    assert run("evaluate", index, beir, "--split", "train", "--measure", "P@1", "--json").json == (
        found.values
    )
    assert read_run(tmp_path / "run").keys() == {q for q, of in found.run.items() if of}
    tested = lexicept.evaluate(index, beir, "train", compare=tmp_path / "run")
    assert tested.t_test is not None
    assert tested.t_test.difference == 0
    assert "run=" not in repr(found)


def test_report(index: Path, beir: Path, tmp_path: Path, run: Run) -> None:
    path = lexicept.report(index, tmp_path / "a.html", queries=beir, split="train", against=index)
    with lexicept.open(index) as opened:
        lexicept.report(
            opened, tmp_path / "b.html", queries=beir, split="train", against=opened, progress=True
        )
    options = ("--queries", beir, "--split", "train", "--against", index)
    assert run("report", index, "--out", tmp_path / "c.html", *options).code == 0
    assert path == tmp_path / "a.html"
    content = path.read_bytes()
    assert content == (tmp_path / "b.html").read_bytes() == (tmp_path / "c.html").read_bytes()


def test_missing_packages_are_named_before_any_work() -> None:
    require("report", "json")
    with pytest.raises(InputError, match=r"nonesuch missing: pip install 'lexicept\[report\]', or"):
        require("report", "json", "nonesuch", hint=", or not")
