"""Training data on the command line: from documents to scored lists, and what is refused."""

import os

import numpy as np
import pytest

from lexicept.cli.declarations import declared
from lexicept.corpora import pseudo_queries, read_qrels, read_queries
from lexicept.index.reader import IndexReader
from lexicept.training.candidates.lists import CandidateList, Lists
from lexicept.training.candidates.teachers import standardised
from support.collections import DOCUMENTS
from support.commands import assert_error
from support.processes import HEAVY, MAIN, loaded_after


@pytest.fixture
def mined(index, beir, tmp_path, run):
    out = tmp_path / "mined.jsonl"
    report = run("data", "mine", index, beir, "--out", out, "--json").json
    assert report == {"lists": 3, "file": str(out)}
    return out


def test_pseudo_queries(beir, tmp_path, run):
    out = tmp_path / "queries"
    arguments = ("--kind", "span", "--per-document", 2, "--seed", 3)
    report = run("data", "pseudo-queries", beir, "--out", out, *arguments, "--json").json
    texts = {query.id: query.text for query in read_queries(out, "train")}
    assert report == {"queries": len(texts), "folder": str(out)}
    found: dict[str, list[str]] = {}
    for qrel in read_qrels(out, "train"):
        found.setdefault(qrel.document_id, []).append(texts[qrel.query_id])
    assert {document: len(queries) for document, queries in found.items()} == dict.fromkeys(
        DOCUMENTS, 2
    )
    for document, queries in found.items():
        assert all(query in DOCUMENTS[document] for query in queries)
    assert_error(run("data", "pseudo-queries", beir, "--out", out), "queries.jsonl exists already")
    assert_error(
        run("data", "pseudo-queries", beir, "--out", tmp_path / "none", "--kind", "title"),
        "there are no queries",
    )
    assert run("data", "pseudo-queries", beir, "--out", tmp_path / "x", "--kind", "word").code == 2
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


def test_what_mine_refuses(mined, index, beir, tmp_path, run):
    def mine(*arguments):
        return run("data", "mine", index, beir, "--out", tmp_path / "out", *arguments)

    assert_error(run("data", "mine", index, beir, "--out", mined), "mined.jsonl exists already")
    assert_error(mine("--split", "test"), "no split 'test'")
    assert_error(mine("--vocabulary", "x"), "no vocabulary 'x'")
    assert_error(mine("--max-positive-share", "-1"), "max_positive_share must be above 0")
    assert_error(run("data", "mine", beir, beir, "--out", tmp_path / "out"), "no index")
    (beir / "qrels" / "train.tsv").write_text("q1 0 nope 1\n")
    assert_error(mine(), "query 'q1': no document 'nope'")
    assert_error(mine("--depth", "-1"), "depth -1 and 0 random negatives: nothing to mine")
    assert not (tmp_path / "out").exists()


def test_score_by_bm25(mined, index, beir, tmp_path, run):
    out = tmp_path / "scored.jsonl"
    arguments = ("data", "score", mined, beir, beir, "--teacher", "bm25", "--out", out)
    assert run(*arguments, "--json").json == {"lists": 3, "file": str(out)}
    hits = {hit.id: hit.score for hit in IndexReader.open(index).search(["sleeping cats"])[0]}
    first = Lists.open(out)[0]
    assert first._replace(scores=None) == Lists.open(mined)[0]
    assert first.scores == pytest.approx([hits["d1"], hits["d2"]])
    assert_error(run(*arguments), "scored.jsonl exists already")


def test_score_by_a_blend(mined, beir, tmp_path, dense_encoder, run):
    def score(name, *teachers):
        out = tmp_path / name
        options = [text for teacher in teachers for text in ("--teacher", teacher)]
        cache = ("--cache", tmp_path / "cache")
        assert run("data", "score", mined, beir, beir, *options, "--out", out, *cache).code == 0
        return [item.scores or () for item in Lists.open(out)]

    words, vectors = score("a", "bm25"), score("b", f"dense:{dense_encoder}")
    assert len(list((tmp_path / "cache").glob("*.npy"))) == 2
    both = score("c", "bm25=0.25", f"dense:{dense_encoder}")
    assert len(list((tmp_path / "cache").glob("*.npy"))) == 2
    assert len(both) == 3
    for a, b, c in zip(words, vectors, both, strict=True):
        expected = 0.25 * standardised(np.array(a)) + standardised(np.array(b))
        assert c == pytest.approx(expected.tolist(), abs=1e-6)


def test_score_by_a_cross_encoder(mined, beir, tmp_path, cross_encoder, run):
    out = tmp_path / "out"
    options = ("--teacher", f"cross-encoder:{cross_encoder}", "--out", out)
    assert run("data", "score", mined, beir, beir, *options).code == 0
    assert all(len(item.scores or ()) == len(item.documents) for item in Lists.open(out))


def test_score_in_half_precision_by_small_batches(
    mined, beir, tmp_path, cross_encoder, dense_encoder, run
):
    def score(name, teacher, *options):
        out = tmp_path / name
        arguments = ("data", "score", mined, beir, beir, "--teacher", teacher, "--out", out)
        assert run(*arguments, *options).code == 0
        return np.concatenate([item.scores or () for item in Lists.open(out)])

    for kind, model in (("cross-encoder", cross_encoder), ("dense", dense_encoder)):
        teacher = f"{kind}:{model}"
        whole = score(f"{kind}-whole", teacher)
        parts = score(f"{kind}-parts", teacher, "--batch-size", 1)
        half = score(f"{kind}-half", teacher, "--dtype", "bfloat16")
        assert parts == pytest.approx(whole, abs=1e-3)
        assert half == pytest.approx(whole, rel=0.1, abs=0.1)
        assert (half != whole).any()
    assert run("data", "score", mined, beir, beir, "--teacher", "bm25", "--dtype", "int8").code == 2


@pytest.mark.parametrize(
    ("teachers", "problem"),
    [
        (["x"], "--teacher 'x': only bm25"),
        (["cross-encoder"], "--teacher 'cross-encoder': only bm25"),
        (["bm25:xx"], "no language 'xx'"),
        (["bm25=a"], "--teacher 'bm25=a': the weight 'a' is not a number"),
        (["bm25", "bm25=2"], "--teacher 'bm25' is given twice"),
        (["bm25", "bm25:de=nan"], "finite weights"),
        (["dense:/nowhere/x"], "teacher '/nowhere/x' can't be loaded"),
    ],
)
def test_teachers_that_are_refused(mined, beir, tmp_path, run, teachers, problem):
    options = [text for teacher in teachers for text in ("--teacher", teacher)]
    assert_error(
        run("data", "score", mined, beir, beir, *options, "--out", tmp_path / "out"), problem
    )
    assert not (tmp_path / "out").exists()


def test_lists_that_are_not_scored(mined, beir, tmp_path, run):
    def score(lists, corpus=beir, split="train"):
        options = ("--teacher", "bm25", "--out", tmp_path / "out", "--split", split)
        return run("data", "score", lists, corpus, beir, *options)

    assert_error(score(beir / "corpus.jsonl"), "corpus.jsonl, line 1: not a line of lists")
    assert_error(score(mined, split="dev"), "list 1: no text for the query 'q1'")
    other = tmp_path / "other.jsonl"
    other.write_text('{"_id": "d1", "text": "x"}\n')
    assert_error(score(mined, other), "list 1: no text for the document 'd2'")
    assert not (tmp_path / "out").exists()


def test_words_need_no_model(beir, tmp_path):
    index, queries, lists = (tmp_path / name for name in ("index", "queries", "lists"))
    for arguments in (
        ["build", beir, "--vocabulary", "words", "--out", index],
        ["data", "pseudo-queries", beir, "--out", queries],
        ["data", "mine", index, queries, "--out", lists],
        ["data", "score", lists, beir, queries, "--teacher", "bm25", "--out", tmp_path / "scored"],
    ):
        assert not loaded_after(MAIN, *arguments) & HEAVY
    assert (tmp_path / "scored").exists()
    loaded = loaded_after(MAIN, "data", "score", "--help")
    assert not loaded & (HEAVY | {"numpy", "scipy", "numba"})


def test_nothing_is_left_behind(mined, tmp_path):
    assert sorted(os.listdir(tmp_path)) == ["beir", "index", "mined.jsonl"]
