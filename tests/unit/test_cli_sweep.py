"""Sweeps on the command line: what is printed and written, what is refused, what is imported."""

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from lexicept.corpora import read_qrels, read_queries
from lexicept.evaluation.effectiveness import JudgedQueries
from lexicept.evaluation.sweep import SweepGrid, read_points, sweep
from lexicept.index.reader import IndexReader
from support.commands import assert_error
from support.processes import HEAVY, MAIN, command, loaded_after, wait_and_kill


def test_sweep(index, beir, tmp_path, run):
    out = tmp_path / "out"
    arguments = (
        "--query-max-active-dims",
        "1, none",
        "--document-max-active-dims",
        "2",
        "--alpha",
        "none,1.25",
    )
    found = run(
        "index", "sweep", index, beir, "--split", "train", "--out", out, *arguments, "--json"
    ).json
    queries, qrels = list(read_queries(beir, "train")), list(read_qrels(beir, "train"))
    grid = SweepGrid((1, None), (2,), (None,), (None, 1.25))
    points = sweep(
        IndexReader.open(index), JudgedQueries(queries, qrels), grid, tmp_path / "expected"
    )
    assert read_points(out / "points.jsonl") == points
    assert found["points"] == 4
    assert found["folder"] == str(out)
    assert found["front"]
    assert all(row in [point.to_json() for point in points] for row in found["front"])
    assert (out / "pareto.png").read_bytes().startswith(b"\x89PNG")
    table = run("index", "sweep", index, beir, "--split", "train", "--out", out, *arguments).out
    first, *_ = found["front"]
    assert f"{len(found['front'])} of 4 points" in table
    rows = [line.split("│")[1:-1] for line in table.splitlines() if line.startswith("│")]
    assert [cell.strip() for cell in rows[0]] == [
        f"{first['qd_flops']:.4f}",
        f"{first['nDCG@10']:.4f}",
        f"{first['RR@10']:.4f}",
        f"{first['e2']:.4f}",
        str(first["query_max_active_dims"] or "none"),
        "2",
        "none",
        str(first["alpha"] or "none"),
        "1",
        "none",
    ]
    assert len(rows) == len(found["front"])


def test_the_split_is_dev_and_the_grid_has_a_default(index, beir, tmp_path, run):
    out = tmp_path / "out"
    assert run("index", "sweep", index, beir, "--out", out, "--vocabulary", "words", "--json").json
    settings = [point.setting for point in read_points(out / "points.jsonl")]
    dims = ((8, 16, 32, None), (50, 100, 200, None))
    assert settings == SweepGrid(*dims, (None,), (None, 1.0, 1.25)).settings()
    state = json.loads((out / "settings.json").read_text())
    expected = tmp_path / "expected"
    queries, qrels = list(read_queries(beir, "dev")), list(read_qrels(beir, "dev"))
    sweep(IndexReader.open(index), JudgedQueries(queries, qrels), SweepGrid(), expected)
    assert state == json.loads((expected / "settings.json").read_text())


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (
            ["--query-max-active-dims", "8,x"],
            ["--query-max-active-dims: 'x' is not a whole number or none"],
        ),
        (["--query-max-active-dims", "8,,9"], ["'' is not a whole number or none"]),
        (
            ["--document-max-active-dims", "1.5"],
            ["--document-max-active-dims: '1.5' is not a whole number"],
        ),
        (["--document-max-active-dims", "0"], ["document_max_active_dims", "at least 1, not 0"]),
        (["--k", "x"], ["--k: 'x' is not a whole number or all or none"]),
        (["--k", "8"], ["words have none"]),
        (["--alpha", "own"], ["--alpha: 'own' is not a number or none"]),
        (["--alpha", "1,nan"], ["alpha must be a finite number above 0, not nan"]),
        (["--alpha", "1,1.0"], ["alpha: a value is there twice"]),
        (["--split", "test"], ["no split 'test'"]),
        (["--vocabulary", "all"], ["has no concepts, only words"]),
    ],
)
def test_what_is_refused(arguments, parts, index, beir, tmp_path, run):
    out = tmp_path / "out"
    code = 2 if "is not a" in parts[-1] else 1
    assert_error(run("index", "sweep", index, beir, "--out", out, *arguments), *parts, code=code)
    assert not out.exists()


def test_other_errors(index, beir, tmp_path, run, monkeypatch):
    def sweep_to(out, *arguments):
        return run(
            "index", "sweep", index, beir, "--out", out, "--query-max-active-dims", 1, *arguments
        )

    assert_error(run("index", "sweep", beir, beir, "--out", tmp_path / "out"), "no index")
    assert_error(sweep_to(beir), "not unfinished work of lexicept")
    assert_error(sweep_to(beir / "corpus.jsonl"), "not unfinished work of lexicept")
    assert sweep_to(tmp_path / "out").code == 0
    assert_error(sweep_to(tmp_path / "out", "--split", "train"), "dataset was", "--restart")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert_error(sweep_to(tmp_path / "out"), "matplotlib missing: pip install 'lexicept[report]'")


def has_points(out: Path, count: int) -> Callable[[], bool]:
    def reached() -> bool:
        path = out / "points.jsonl"
        return path.exists() and len(path.read_bytes().splitlines()) >= count

    return reached


def test_a_killed_sweep_can_be_run_again(index, beir, tmp_path, run):
    out = tmp_path / "out"
    alphas = ",".join(str(number / 100) for number in range(1, 201))
    arguments = ("index", "sweep", index, beir, "--query-max-active-dims", "1,2", "--alpha", alphas)
    status = wait_and_kill(command(*arguments, "--out", out), has_points(out, 5))
    assert status == -signal.SIGKILL
    # The last point may have been written without its mark: it is measured again.
    before = read_points(out / "points.jsonl")[:-1]
    assert 4 <= len(before) < 1600
    few = ("index", "sweep", index, beir, "--query-max-active-dims", "1,2", "--alpha", "0.01,0.02")
    assert run(*few, "--out", out).code == 0
    after = read_points(out / "points.jsonl")
    assert after[: len(before)] == before
    assert run(*few, "--out", tmp_path / "whole").code == 0
    whole = read_points(tmp_path / "whole" / "points.jsonl")
    assert len(whole) == 16
    assert all(point in after for point in whole)


def test_help_says_what_to_sweep_on(run):
    text = " ".join(run("index", "sweep", "--help").out.split())
    assert "Choose settings on a dev or train split, never on test" in text


def test_start_up(index, beir, tmp_path):
    for arguments in (["--help"], ["index", "sweep", "--help"]):
        loaded = loaded_after(MAIN, *arguments)
        assert "lexicept" in loaded
        assert not loaded & (HEAVY | {"numpy", "scipy", "matplotlib"})
    loaded = loaded_after(MAIN, "index", "sweep", index, beir, "--out", tmp_path / "out")
    assert "matplotlib" in loaded
    assert not loaded & HEAVY
