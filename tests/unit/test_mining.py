"""Mining: lists by hand, and going on after a kill."""

import os
from typing import Any

import pytest

import lexicept
from lexicept.candidates import mining
from lexicept.candidates.lists import CandidateList
from lexicept.candidates.mining import mine
from lexicept.corpora import Document
from lexicept.corpora.records import Passage
from lexicept.errors import InputError
from lexicept.index.reader import IndexReader
from support.indexes import build
from support.processes import KilledError

DOCUMENTS = {
    "d1": "apple",
    "d2": "apple banana",
    "d3": "apple banana cherry",
    "d4": "apple apple",
    "d5": "quince",
}
QUERIES = {"q1": "apples", "q2": "banana cherry", "q3": "unknown", "q4": "quince", "q5": "the"}
RELEVANT = {"q1": ["d3", "d5", "d3"], "q2": ["d2"], "q3": ["d1"]}


@pytest.fixture
def index(tmp_path):
    return build(tmp_path / "index", DOCUMENTS)


def test_lists_by_hand(index, tmp_path):
    # Repeated, then shorter documents first for apple: d4, d1, d2, d3.
    assert [hit.id for hit in index.search(["apples"])[0]] == ["d4", "d1", "d2", "d3"]
    assert list(mine(index, QUERIES, RELEVANT, tmp_path / "out")) == [
        CandidateList("q1", ("d3", "d5", "d4", "d1", "d2"), 2),
        CandidateList("q2", ("d2", "d3"), 1),
        CandidateList("q3", ("d1",), 1),
        CandidateList("q4", ("d5",), 0),
    ]
    assert sorted(os.listdir(tmp_path)) == ["index", "out"]


@pytest.mark.parametrize(("depth", "expected"), [(1, ("d4",)), (2, ("d4", "d1"))])
def test_depth_counts_without_the_relevant(index, tmp_path, depth, expected):
    (item,) = mine(index, {"q1": "apple"}, {"q1": ["d2", "d3"]}, tmp_path / "out", depth)
    assert item.documents == ("d2", "d3", *expected)


def test_documents_in_passages_are_mined_whole(tmp_path):
    long = Document("long", "", passages=tuple(Passage(text) for text in ("pear", "apple", "fig")))
    short = [Document(name, f"fig {name}") for name in ("a", "b", "c")]
    lexicept.build([long, *short], tmp_path / "index", vocabulary="words")
    index = IndexReader.open(tmp_path / "index")
    (results,) = mine(index, {"q": "apple pear fig"}, {"q": ["b"]}, tmp_path / "found")
    assert results.documents[0] == "b"
    assert sorted(results.documents[1:]) == ["a", "c", "long"]


# What is refused


def test_what_is_refused_leaves_nothing(index, tmp_path):
    with pytest.raises(InputError, match="query 'q2': no document 'x' in"):
        mine(index, QUERIES, {"q2": ["d1", "x"]}, tmp_path / "out")
    assert os.listdir(tmp_path) == ["index"]
    for queries in ({}, {"q": "unknown"}):
        with pytest.raises(InputError, match="nothing to write"):
            mine(index, queries, {}, tmp_path / "out2")
    assert not (tmp_path / "out2").exists()
    (tmp_path / "kept").write_text("precious")
    with pytest.raises(InputError, match="exists already"):
        mine(index, QUERIES, RELEVANT, tmp_path / "kept")
    assert (tmp_path / "kept").read_text() == "precious"
    assert sorted(os.listdir(tmp_path)) == ["index", "kept"]


# KilledError and started again


def kill_at(position: int) -> Any:
    def progress(stage: str, done: int, total: int, detail: str = "") -> None:
        assert (stage, total) == ("mining", 5)
        if done == position:
            raise KilledError

    return progress


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch):
    monkeypatch.setattr(mining, "BATCH", 2)


def test_killed_mining_goes_on(index, tmp_path, monkeypatch):
    whole = tmp_path / "whole"
    mine(index, QUERIES, RELEVANT, whole)
    out = tmp_path / "out"
    for position in (2, 4):
        with pytest.raises(KilledError):
            mine(index, QUERIES, RELEVANT, out, progress=kill_at(position))
        with (tmp_path / "out.partial" / "lists.jsonl").open("ab") as file:
            file.write(b'{"query_id": "q')  # of a batch that was being written
    assert not out.exists()
    searched: list[str] = []
    vectors = index.query_vectors
    monkeypatch.setattr(index, "query_vectors", lambda q, v: (searched.extend(q), vectors(q, v))[1])
    mine(index, QUERIES, RELEVANT, out)
    assert out.read_bytes() == whole.read_bytes()
    assert searched == ["the"]
    assert sorted(os.listdir(tmp_path)) == ["index", "out", "whole"]


@pytest.mark.parametrize("change", ["depth", "vocabulary", "queries", "relevant", "index"])
def test_other_work_is_refused_until_it_restarts(index, tmp_path, change):
    out = tmp_path / "out"
    with pytest.raises(KilledError):
        mine(index, QUERIES, RELEVANT, out, progress=kill_at(2))
    queries, relevant, arguments = dict(QUERIES), dict(RELEVANT), {}
    match change:
        case "queries":
            queries["q1"] = "pears"
        case "relevant":
            relevant["q1"] = ["d1"]
        case "index":
            index = build(tmp_path / "other", {**DOCUMENTS, "d4": "pear"})
        case _:
            arguments[change] = {"depth": 1, "vocabulary": "words"}[change]
    with pytest.raises(InputError, match=rf"out\.partial: .* {change} was .* and is now .*restart"):
        mine(index, queries, relevant, out, **arguments)
    restarted = mine(index, queries, relevant, out, restart=True, **arguments)
    fresh = mine(index, queries, relevant, tmp_path / "fresh", **arguments)
    assert list(restarted) == list(fresh)
