"""Mining: lists by hand, random negatives, suspects left out, and going on after a kill."""

import os
from pathlib import Path
from typing import Any

import pytest

import lexicept
from lexicept.candidates import mining
from lexicept.candidates.lists import CandidateList
from lexicept.candidates.mining import MiningSettings
from lexicept.corpora import Document
from lexicept.corpora.records import Passage
from lexicept.errors import InputError
from lexicept.index.impacts import RRASettings
from lexicept.index.reader import IndexReader
from lexicept.index.updates import reweight
from lexicept.progress import silent
from support.indexes import build
from support.processes import KilledError


def mine(
    index: IndexReader,
    queries: Any,
    relevant: Any,
    out: Path,
    *,
    restart: bool = False,
    progress: Any = silent,
    **settings: Any,
) -> Any:
    """``mining.mine`` with settings by name."""
    chosen = MiningSettings(**settings)
    return mining.mine(index, queries, relevant, out, chosen, restart=restart, progress=progress)


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
    lists = mine(index, QUERIES, RELEVANT, tmp_path / "out")
    assert list(lists) == [
        CandidateList("q1", ("d3", "d5", "d4", "d1", "d2"), 2),
        CandidateList("q2", ("d2", "d3"), 1),
        CandidateList("q3", ("d1",), 1),
        CandidateList("q4", ("d5",), 0),
    ]
    assert sorted(os.listdir(tmp_path)) == ["index", "out"]


@pytest.mark.parametrize(("depth", "expected"), [(1, ["d4"]), (2, ["d4", "d1"]), (0, [])])
def test_depth_counts_without_the_relevant(index, tmp_path, depth, expected):
    relevant = {"q1": ["d2", "d3"]}
    random = 0 if depth else 1
    (item,) = mine(
        index, {"q1": "apple"}, relevant, tmp_path / "out", depth=depth, random_negatives=random
    )
    assert item.documents[: 2 + depth] == ("d2", "d3", *expected)


def test_suspects_are_left_out(index, tmp_path):
    scores = {hit.id: hit.score for hit in index.search(["apple"])[0]}
    share = (scores["d1"] + scores["d2"]) / 2 / scores["d3"]
    queries, out = {"q1": "apple", "q2": "quince"}, tmp_path / "out"
    relevant = {"q1": ["d3", "d5"]}
    lists = mine(index, queries, relevant, out, max_positive_share=share)
    # The best relevant document, d3, sets the limit; a query without one has none.
    assert list(lists) == [
        CandidateList("q1", ("d3", "d5", "d2"), 2),
        CandidateList("q2", ("d5",), 0),
    ]


def test_the_score_of_a_relevant_document_is_that_of_a_search(index, tmp_path):
    for name, opened in (
        ("plain", index),
        ("rra", reweight(index.path, tmp_path / "rra", RRASettings(1.25))),
    ):
        vectors = opened.query_vectors(["apple banana", "cherry quince"])
        for row, hits in enumerate(opened.rank(vectors)):
            assert hits
            for hit in hits:
                score = mining._score(opened, vectors, row, hit.id)
                assert score == pytest.approx(hit.score, rel=1e-5), name


def test_one_vocabulary(index, tmp_path):
    with pytest.raises(InputError, match="no vocabulary 'concepts'"):
        mine(index, QUERIES, RELEVANT, tmp_path / "out", vocabulary="concepts")
    assert len(mine(index, QUERIES, RELEVANT, tmp_path / "out", vocabulary="words")) == 4


# Random negatives


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    documents = {f"d{i}": f"word{i} {'apple' if i < 10 else 'pear'}" for i in range(100)}
    return build(tmp_path_factory.mktemp("large") / "index", documents)


def random_part(
    index: IndexReader, out: Path, queries: dict[str, str], **arguments: Any
) -> list[Any]:
    """The documents of each list that are not apples."""
    lists = mine(index, queries, {"q": ["d3", "d50"]}, out, depth=4, **arguments)
    return [item.documents[item.relevant + 4 :] for item in lists]


def test_random_negatives(large, tmp_path):
    queries = {"q": "apple", "r": "apple"}
    drawn = random_part(large, tmp_path / "a", queries, random_negatives=20)
    assert [len(set(part)) for part in drawn] == [20, 20]
    assert "d50" not in drawn[0]
    # q finds d0 to d5, r d0 to d5 too (as many as the batch needs); none of them is drawn.
    assert not set(drawn[0] + drawn[1]) & {f"d{i}" for i in range(6)}
    assert set(drawn[0]) != set(drawn[1])
    # The same whatever other queries there are, another for another seed.
    alone = random_part(large, tmp_path / "b", {"q": "apple"}, random_negatives=20)
    assert alone == drawn[:1]
    other = random_part(large, tmp_path / "c", {"q": "apple"}, random_negatives=20, seed=1)
    assert other != alone
    # All are drawn in the end, each as good as another.
    counts = [0] * 100
    for seed in range(50):
        path = tmp_path / f"seed{seed}"
        for name in random_part(large, path, {"q": "apple"}, random_negatives=30, seed=seed)[0]:
            counts[int(name[1:])] += 1
    drawable = [count for number, count in enumerate(counts) if number > 5 and number != 50]
    assert min(drawable) > 3  # mean 50 · 30 / 93 = 16, deviation 3.3
    assert max(drawable) < 30
    (drawn,) = random_part(large, tmp_path / "a2", {"q": "apple"}, random_negatives=1000)
    assert sorted(drawn) == sorted({f"d{i}" for i in range(6, 100)} - {"d50"})


def test_documents_in_passages_are_mined_whole(tmp_path):
    long = Document("long", "", passages=tuple(Passage(text) for text in ("pear", "apple", "fig")))
    short = [Document(name, f"fig {name}") for name in ("a", "b", "c")]
    lexicept.build([long, *short], tmp_path / "index", vocabulary="words")
    index = IndexReader.open(tmp_path / "index")
    (found,) = mine(index, {"q": "apple"}, {}, tmp_path / "found", random_negatives=9)
    assert found.documents[0] == "long"
    assert sorted(found.documents[1:]) == ["a", "b", "c"]
    # Its score is that of its best passage.
    vectors = index.query_vectors(["apple"])
    (hits,) = index.rank(vectors)
    assert mining._score(index, vectors, 0, "long") == pytest.approx(hits[0].score, rel=1e-5)


# What is refused


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"depth": -1}, "depth -1"),
        ({"depth": 0}, "nothing to mine"),
        ({"random_negatives": -1}, "-1 random negatives"),
        ({"max_positive_share": 0.0}, "max_positive_share must be above 0"),
        ({"max_positive_share": float("nan")}, "max_positive_share"),
    ],
)
def test_arguments(index, tmp_path, arguments, problem):
    with pytest.raises(InputError, match=problem):
        mine(index, QUERIES, RELEVANT, tmp_path / "out", **arguments)
    assert os.listdir(tmp_path) == ["index"]


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


@pytest.mark.parametrize("torn", [b"", b'{"query_id": "q', b'{"query_id": "other"}\n' * 3])
def test_killed_mining_goes_on(index, tmp_path, monkeypatch, torn):
    whole = tmp_path / "whole"
    mine(index, QUERIES, RELEVANT, whole, random_negatives=2)
    out = tmp_path / "out"
    for position in (2, 4):
        with pytest.raises(KilledError):
            mine(index, QUERIES, RELEVANT, out, random_negatives=2, progress=kill_at(position))
        with (tmp_path / "out.partial" / "lists.jsonl").open("ab") as file:
            file.write(torn)  # of a batch that was being written
    assert not out.exists()
    searched: list[str] = []
    vectors = index.query_vectors
    monkeypatch.setattr(index, "query_vectors", lambda q, v: (searched.extend(q), vectors(q, v))[1])
    mine(index, QUERIES, RELEVANT, out, random_negatives=2)
    assert out.read_bytes() == whole.read_bytes()
    assert searched == ["the"]
    assert sorted(os.listdir(tmp_path)) == ["index", "out", "whole"]


@pytest.mark.parametrize(
    "change", ["depth", "seed", "queries", "relevant", "max_positive_share", "index"]
)
def test_other_work_is_refused_until_it_restarts(index, tmp_path, change):
    out = tmp_path / "out"
    with pytest.raises(KilledError):
        mine(index, QUERIES, RELEVANT, out, random_negatives=1, progress=kill_at(2))
    queries, relevant, arguments = dict(QUERIES), dict(RELEVANT), {"random_negatives": 1}
    match change:
        case "queries":
            queries["q1"] = "pears"
        case "relevant":
            relevant["q1"] = ["d1"]
        case "index":
            index = build(tmp_path / "other", {**DOCUMENTS, "d4": "pear"})
        case _:
            arguments[change] = 1
    with pytest.raises(InputError, match=rf"out\.partial: .* {change} was .* and is now .*restart"):
        mine(index, queries, relevant, out, **arguments)
    restarted = mine(index, queries, relevant, out, restart=True, **arguments)
    fresh = mine(index, queries, relevant, tmp_path / "fresh", **arguments)
    assert list(restarted) == list(fresh)


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"bytes": -1, "done": 2}'])
def test_damaged_work_is_done_again(index, tmp_path, damage):
    out = tmp_path / "out"
    with pytest.raises(KilledError):
        mine(index, QUERIES, RELEVANT, out, progress=kill_at(2))
    name = "lists.jsonl.state.json" if damage else "lists.jsonl"
    (tmp_path / "out.partial" / name).write_bytes(damage)
    done: list[int] = []
    resumed = mine(index, QUERIES, RELEVANT, out, progress=lambda *report: done.append(report[1]))
    assert done == [2, 4, 5]
    assert list(resumed) == list(mine(index, QUERIES, RELEVANT, tmp_path / "fresh"))


# Real text
