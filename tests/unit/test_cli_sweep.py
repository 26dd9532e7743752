"""Sweeps on the command line: output, files, refusals."""

import pytest

from lexicept.corpora import read_qrels, read_queries
from lexicept.evaluation.effectiveness import JudgedQueries
from lexicept.evaluation.sweep import SweepGrid, read_points, sweep
from lexicept.index.reader import IndexReader
from support.commands import assert_error


def test_sweep(index, beir, tmp_path, run):
    out = tmp_path / "out"
    limits = ("--query-max-active-dims", "1, none", "--document-max-active-dims", "2")
    swept = ("index", "sweep", index, beir, "--split", "train", "--out", out, *limits)
    output = run(*swept, "--alpha", "none,1.25", "--json").json
    queries, qrels = list(read_queries(beir, "train")), list(read_qrels(beir, "train"))
    grid = SweepGrid((1, None), (2,), (None, 1.25))
    judged = JudgedQueries(queries, qrels)
    points = sweep(IndexReader.open(index), judged, grid, tmp_path / "expected")
    assert read_points(out / "points.jsonl") == points
    assert output["points"] == 4
    assert output["folder"] == str(out)
    assert output["front"]
    assert all(
        point_json in [point.to_json() for point in points] for point_json in output["front"]
    )
    table = run(*swept, "--alpha", "none,1.25").out
    first, *_ = output["front"]
    assert f"{len(output['front'])} of 4 points" in table
    table_lines = [line.split() for line in table.splitlines()[2:]]
    assert table_lines[0] == [
        *(f"{first[name]:.4f}" for name in ("qd_flops", "nDCG@10", "RR@10", "e2")),
        *(str(first["query_max_active_dims"] or "none"), "2"),
        *(str(first["alpha"] or "none"), "1"),
    ]
    assert len(table_lines) == len(output["front"])


def test_the_split_is_dev_and_the_grid_has_a_default(index, beir, tmp_path, run):
    swept = ("index", "sweep", index, beir, "--out", tmp_path / "out", "--vocabulary", "words")
    assert run(*swept, "--ignore-identical-ids", "--json").json["ignore_identical_ids"] is True
    settings = [point.setting for point in read_points(tmp_path / "out" / "points.jsonl")]
    dims = ((8, 16, 32, None), (50, 100, 200, None))
    assert settings == SweepGrid(*dims, (None, 1.0, 1.25)).settings()
    assert_error(run(*swept), "ignore_identical_ids was", "--restart")
    assert_error(run(*swept, "--alpha", "1,1.0"), "alpha: a value is there twice")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--query-max-active-dims", "8,x"], "dims: 'x' is not a whole number or none"),
        (["--query-max-active-dims", "8,,9"], "'' is not a whole number or none"),
        (["--document-max-active-dims", "1.5"], "dims: '1.5' is not a whole number"),
        (["--alpha", "own"], "--alpha: 'own' is not a number or none"),
    ],
)
def test_lists_of_values_that_are_refused(arguments, message, index, beir, tmp_path, run):
    refused = run("index", "sweep", index, beir, "--out", tmp_path / "out", *arguments)
    assert_error(refused, message, code=2)
    assert not (tmp_path / "out").exists()
