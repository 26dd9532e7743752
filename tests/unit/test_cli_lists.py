"""Training data on the command line: from documents to scored lists."""

import os

import numpy as np
import pytest

from lexicept.candidates.lists import CandidateList, Lists
from lexicept.cli.declarations import declared
from lexicept.corpora import pseudo_queries, read_qrels, read_queries
from support.collections import DOCUMENTS
from support.commands import assert_error


@pytest.fixture
def mined(index, beir, tmp_path, run):
    out = tmp_path / "mined.jsonl"
    report = run("data", "mine", index, beir, "--out", out, "--json").json
    assert report == {"lists": 3, "file": str(out)}
    assert sorted(os.listdir(tmp_path)) == ["beir", "index", "mined.jsonl"]
    return out


def test_pseudo_queries(beir, tmp_path, run):
    out = tmp_path / "queries"
    arguments = ("--kind", "span", "--per-document", 2, "--seed", 3)
    report = run("data", "pseudo-queries", beir, "--out", out, *arguments, "--json").json
    texts = {query.id: query.text for query in read_queries(out, "train")}
    assert report == {"queries": len(texts), "folder": str(out)}
    results = {}
    for qrel in read_qrels(out, "train"):
        results.setdefault(qrel.document_id, []).append(texts[qrel.query_id])
    assert {name: len(queries) for name, queries in results.items()} == dict.fromkeys(DOCUMENTS, 2)
    for document, queries in results.items():
        assert all(query in DOCUMENTS[document] for query in queries)
    (option,) = (o for o in declared("lexicept.cli.data:pseudo_queries") if o.name == "kind")
    assert option.choices == [*pseudo_queries._SOURCES, "mixed"]


def test_mine(mined, index, beir, tmp_path, run):
    assert list(Lists.open(mined)) == [
        CandidateList("q1", ("d1", "d2"), 1),
        CandidateList("q2", ("d3", "d4"), 1),
        CandidateList("q3", ("d4",), 0),
    ]
    out = tmp_path / "out"
    arguments = ("--split", "dev", "--depth", 1, "--vocabulary", "words")
    assert run("data", "mine", index, beir, "--out", out, *arguments).code == 0
    (item,) = Lists.open(out)
    assert item == CandidateList("q4", ("d2",), 1)
    for option, value, message in (("--depth", 0, "depth"), ("--split", "test", "no split 'test'")):
        refused = run("data", "mine", index, beir, option, value, "--out", tmp_path / "none")
        assert_error(refused, message)
    assert not (tmp_path / "none").exists()


def test_score_in_half_precision_by_small_batches(mined, beir, tmp_path, run, cross_encoder):
    def scores(name, *options):
        out = tmp_path / name
        teacher = ("--teacher", cross_encoder, "--out", out)
        done = run("data", "score", mined, beir, beir, *teacher, *options, "--json")
        assert done.json == {"lists": 3, "file": str(out)}
        scored = list(Lists.open(out))
        assert [item._replace(scores=None) for item in scored] == list(Lists.open(mined))
        return np.concatenate([item.scores for item in scored])

    whole = scores("whole")
    half = scores("half", "--dtype", "bfloat16")
    assert scores("parts", "--batch-size", 1) == pytest.approx(whole, abs=1e-3)
    assert half == pytest.approx(whole, rel=0.1, abs=0.1)
    assert (half != whole).any()
