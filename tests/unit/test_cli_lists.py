"""Training data on the command line: from documents to scored lists."""

import os

import numpy as np
import pytest

from lexicept.candidates.lists import CandidateList, Lists
from lexicept.candidates.teachers import standardised
from lexicept.cli.declarations import declared
from lexicept.corpora import pseudo_queries, read_qrels, read_queries
from lexicept.index.reader import IndexReader
from support.collections import DOCUMENTS
from support.commands import assert_error


@pytest.fixture
def mined(index, beir, tmp_path, run):
    out = tmp_path / "mined.jsonl"
    report = run("data", "mine", index, beir, "--out", out, "--json").json
    assert report == {"lists": 3, "file": str(out)}
    assert sorted(os.listdir(tmp_path)) == ["beir", "index", "mined.jsonl"]
    return out


@pytest.fixture
def score(mined, beir, tmp_path, run):
    """Scores the mined lists by teachers, into a file of a name."""

    def call(name, *teachers, options=()):
        out = tmp_path / name
        named = [text for teacher in teachers for text in ("--teacher", teacher)]
        done = run("data", "score", mined, beir, beir, *named, "--out", out, *options, "--json")
        assert done.json == {"lists": 3, "file": str(out)}
        return Lists.open(out)

    return call


def test_pseudo_queries(beir, tmp_path, run):
    out = tmp_path / "queries"
    arguments = ("--kind", "span", "--per-document", 2, "--seed", 3)
    report = run("data", "pseudo-queries", beir, "--out", out, *arguments, "--json").json
    texts = {query.id: query.text for query in read_queries(out, "train")}
    assert report == {"queries": len(texts), "folder": str(out)}
    found = {}
    for qrel in read_qrels(out, "train"):
        found.setdefault(qrel.document_id, []).append(texts[qrel.query_id])
    assert {name: len(queries) for name, queries in found.items()} == dict.fromkeys(DOCUMENTS, 2)
    for document, queries in found.items():
        assert all(query in DOCUMENTS[document] for query in queries)
    (kind,) = (o for o in declared("lexicept.cli.data:pseudo_queries") if o.name == "kind")
    assert kind.choices == [*pseudo_queries._SOURCES, "mixed"]


def test_mine(mined, index, beir, tmp_path, run):
    assert list(Lists.open(mined)) == [
        CandidateList("q1", ("d1", "d2"), 1),
        CandidateList("q2", ("d3", "d4"), 1),
        CandidateList("q3", ("d4",), 0),
    ]
    out = tmp_path / "out"
    arguments = ("--depth", 0, "--random-negatives", 9, "--seed", 1, "--vocabulary", "words")
    assert run("data", "mine", index, beir, "--split", "dev", "--out", out, *arguments).code == 0
    (item,) = Lists.open(out)
    assert (item.documents[0], item.relevant) == ("d2", 1)
    assert sorted(item.documents) == sorted(DOCUMENTS)
    out.unlink()
    # d2 has one of the two words of q1: more than a tenth of the score of d1.
    assert run("data", "mine", index, beir, "--out", out, "--max-positive-share", 0.1).code == 0
    assert [item.documents for item in Lists.open(out)] == [("d1",), ("d3",), ("d4",)]
    refused = run("data", "mine", index, beir, "--out", tmp_path / "none", "--split", "test")
    assert_error(refused, "no split 'test'")
    assert not (tmp_path / "none").exists()


def test_score_by_bm25_and_by_a_blend(score, mined, index, tmp_path, dense_encoder):
    words = score("bm25", "bm25")
    hits = {hit.id: hit.score for hit in IndexReader.open(index).search(["sleeping cats"])[0]}
    assert words[0]._replace(scores=None) == Lists.open(mined)[0]
    assert words[0].scores == pytest.approx([hits["d1"], hits["d2"]])
    dense, cache = f"dense:{dense_encoder}", tmp_path / "cache"
    vectors = score("dense", dense, options=("--cache", cache))
    assert len(list(cache.glob("*.npy"))) == 2
    both = score("both", "bm25=0.25", dense, options=("--cache", cache))
    assert len(list(cache.glob("*.npy"))) == 2
    assert len(both) == 3
    for a, b, c in zip(words, vectors, both, strict=True):
        expected = 0.25 * standardised(np.array(a.scores)) + standardised(np.array(b.scores))
        assert c.scores == pytest.approx(expected.tolist(), abs=1e-6)


@pytest.mark.parametrize("kind", ["cross-encoder", "dense"])
def test_score_in_half_precision_by_small_batches(score, cross_encoder, dense_encoder, kind):
    teacher = f"{kind}:{cross_encoder if kind == 'cross-encoder' else dense_encoder}"

    def scores(name, *options):
        lists = score(name, teacher, options=options)
        assert all(len(item.scores) == len(item.documents) for item in lists)
        return np.concatenate([item.scores for item in lists])

    whole = scores("whole")
    half = scores("half", "--dtype", "bfloat16")
    assert scores("parts", "--batch-size", 1) == pytest.approx(whole, abs=1e-3)
    assert half == pytest.approx(whole, rel=0.1, abs=0.1)
    assert (half != whole).any()


@pytest.mark.parametrize(
    ("teachers", "problem"),
    [
        (["x"], "--teacher 'x': only bm25"),
        (["cross-encoder"], "--teacher 'cross-encoder': only bm25"),
        (["bm25=a"], "--teacher 'bm25=a': the weight 'a' is not a number"),
        (["bm25", "bm25=2"], "--teacher 'bm25' is given twice"),
        (["bm25", "bm25:de=nan"], "finite weights"),
    ],
)
def test_teachers_that_are_refused(mined, beir, tmp_path, run, teachers, problem):
    named = [text for teacher in teachers for text in ("--teacher", teacher)]
    refused = run("data", "score", mined, beir, beir, *named, "--out", tmp_path / "out")
    assert_error(refused, problem)
    assert not (tmp_path / "out").exists()
