"""lexicept.Index: searched by threads while it changes in place."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import lexicept
from lexicept.corpora import Document
from lexicept.errors import InputError
from lexicept.storage.generations import generations

TEXTS = ["Cats sleep all day.", "Dogs bark.", "A kitten naps on the sofa."]


@pytest.fixture
def index(tmp_path: Path) -> lexicept.Index:
    return lexicept.build(TEXTS, tmp_path / "index", vocabulary="words")


def ids(index: lexicept.Index, query: str) -> list[str]:
    return [hit.id for hit in index.search(query)]


def test_changes_show_at_once_and_elsewhere_after_refresh(index: lexicept.Index) -> None:
    other = lexicept.open(index.path)
    assert index.add(["A lion sleeps.", {"id": "2", "text": "Wolves howl."}]) == (1, 1)
    assert ids(index, "lion") == ["4"]
    assert ids(index, "howl") == ["2"]
    assert ids(other, "lion") == []
    assert other.refresh()
    assert not other.refresh()
    assert ids(other, "lion") == ["4"]
    assert index.delete(["1", "4"]) == 2
    assert len(index) == 2
    assert "1" not in index
    assert "2" in index
    # A number that is free: the index has two documents, of which one is "3".
    assert index.add(["Owls hoot."]) == (1, 0)
    assert ids(index, "owls") == ["4"]
    with pytest.raises(InputError, match="no document '9'"):
        index.delete(["9"])
    with pytest.raises(InputError, match="must be a list"):
        index.delete("2")


def test_a_hit_outlives_its_generation(index: lexicept.Index) -> None:
    (hit,) = index.search("bark")
    for _ in range(3):
        index.add([Document("2", "Owls hoot.")])
    assert hit.text == "Dogs bark."
    assert index.document("2").text == "Owls hoot."


def test_only_one_generation_stays(index: lexicept.Index) -> None:
    for number in range(4):
        index.add([f"Owl {number}"])
    folders = generations(index.path)
    assert folders == [index.reader.folder]


def test_searches_in_threads_see_one_generation_or_the_next(index: lexicept.Index) -> None:
    states = {("1",), ("1", "4"), ("1", "4", "5"), ("1", "4", "5", "6")}

    def search(_: int) -> tuple[str, ...]:
        return tuple(sorted(ids(index, "sleep cats")))

    with ThreadPoolExecutor(3) as pool:
        seen = pool.map(search, range(60))
        for _ in range(3):
            index.add(["Cats sleep."])
        assert set(seen) <= states
    assert search(0) == ("1", "4", "5", "6")


@pytest.mark.parametrize("threads", [None, 1, 3])
def test_many_queries(index: lexicept.Index, threads: int | None) -> None:
    queries = ["cats", "", "dogs bark", "sofa kitten"]
    assert index.search_many(queries, 2, threads=threads) == [
        index.search(query, 2) for query in queries
    ]
    assert index.search_many([], threads=threads) == []
    with pytest.raises(InputError, match="threads must be at least 1"):
        index.search_many(queries, threads=0)


def test_reweight_in_place_and_as_a_copy(index: lexicept.Index, tmp_path: Path) -> None:
    before = index.search("cats sleep dogs")
    copy = index.reweight(1.5, out=tmp_path / "copy")
    assert index.search("cats sleep dogs") == before
    assert index.reweight(1.5) is index
    assert index.search("cats sleep dogs") == copy.search("cats sleep dogs") != before
    assert index.info()["rra"] == {"alpha": 1.5, "iterations": 1, "transform": "1+x"}
    alpha, tried = index.choose_alpha()
    assert index.reweight("auto").info()["rra"]["alpha"] == alpha
    assert tried[alpha] == max(tried.values())
    with pytest.raises(InputError, match='alpha must be a number or "auto"'):
        index.reweight("best")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="ray requires out"):
        index.reweight(1.0, ray="local")


def test_a_closed_index_says_so(index: lexicept.Index) -> None:
    assert repr(index) == f"Index({str(index.path)!r}: 3 documents, 9 words)"
    with index as opened:
        assert opened.verify().problems == []
    assert repr(index) == "Index(closed)"
    with pytest.raises(InputError, match="the index is closed"):
        index.search("cats")
    index.close()


def test_an_explanation_is_readable(index: lexicept.Index) -> None:
    explanation = index.explain("sleeping cats", "1")
    (hit,) = index.search("sleeping cats", 1, explain=True)
    assert hit.explanation == explanation
    lines = repr(explanation).splitlines()
    assert lines[0] == f"Explanation of '1' for 'sleeping cats': {explanation.score:.4f}"
    assert lines[1].split() == [
        "score",
        "share",
        "term",
        "in",
        "the",
        "query",
        "in",
        "the",
        "document",
    ]
    assert lines[2].split()[1:] == ["50.0%", "word", "cat", "cats", "Cats"]
    assert lines[3].split()[1:] == ["50.0%", "word", "sleep", "sleeping", "sleep"]
    html = explanation._repr_html_()
    assert "<mark>sleeping</mark>" in html
    assert "<style>" in html


def test_evaluate(beir: Path, tmp_path: Path) -> None:
    index = lexicept.build(beir, tmp_path / "built", vocabulary="words")
    found = index.evaluate(beir, "dev", run=tmp_path / "run")
    assert found == lexicept.evaluate(index.path, beir, "dev")
    assert (tmp_path / "run").exists()
