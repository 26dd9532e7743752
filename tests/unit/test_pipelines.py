"""Pipelines from Python: opened indexes or paths, with the results of the command line."""

import pytest

import lexicept
from lexicept.errors import InputError, require
from support.commands import assert_error


def test_evaluate(index, beir, tmp_path, run):
    scores = lexicept.evaluate(index, beir, "train", measures=["P@1"], out=tmp_path / "out")
    # Two of three judged queries have a relevant document, and find it first.
    assert scores.values["RR@10"] == scores.values["P@1"] == 2 / 3
    assert {query: max(of, key=lambda d: of[d]) for query, of in scores.run.items()}["q1"] == "d1"
    with lexicept.open(index) as opened:
        again = lexicept.evaluate(opened, beir, "train", measures=["P@1"])
    assert again == scores
    output = run("evaluate", index, beir, "--split", "train", "--measure", "P@1", "--json").json
    assert output == {**scores.to_json(), "ignore_identical_ids": False}
    written = tmp_path / "out" / "runs" / "words.run.gz"
    tested = lexicept.evaluate(index, beir, "train", systems=["words", written])
    assert {comparison.difference for comparison in tested.comparisons} == {0}
    assert "systems=" not in repr(scores)


def test_report(index, beir, tmp_path, run):
    path = lexicept.report(index, tmp_path / "a.html", queries=beir, split="train")
    with lexicept.open(index) as opened:
        lexicept.report(opened, tmp_path / "b.html", queries=beir, split="train", progress=True)
    out = tmp_path / "new" / "c.html"
    arguments = ("report", index, "--out", out, "--queries", beir, "--json")
    report = run(*arguments, "--split", "train").json
    assert report == {"file": str(out), "bytes": out.stat().st_size}
    assert_error(run(*arguments, "--split", "none"), "no split 'none'")
    assert path == tmp_path / "a.html"
    assert path.read_bytes() == (tmp_path / "b.html").read_bytes() == out.read_bytes()


def test_missing_packages_are_named_before_any_work():
    require("report", "json")
    with pytest.raises(InputError, match=r"nonesuch missing: pip install 'lexicept\[report\]', or"):
        require("report", "json", "nonesuch", hint=", or not")
