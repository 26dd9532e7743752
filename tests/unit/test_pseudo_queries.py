"""Pseudo-queries: their sources, and their seed."""

import os
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexicept.corpora import Document, Qrel, Query, read_qrels, read_queries
from lexicept.corpora.pseudo_queries import generate, write
from lexicept.errors import InputError

WORDS = [f"w{i}" for i in range(40)]
DOCUMENTS = [
    Document("d1", "One two three four five. Too short. Six seven eight nine ten!", "A title "),
    Document("d2", "", "Only a title"),
    Document("d3", "too short"),
    Document("d4", " ".join(WORDS) + "."),
]


def by_document(source: str, per_document: int = 100, seed: int = 0) -> dict[str, list[str]]:
    results: dict[str, list[str]] = {}
    for document, query in generate(DOCUMENTS, source, per_document, seed):
        results.setdefault(document, []).append(query)
    return results


def test_titles_sentences_and_spans():
    assert by_document("title") == {"d1": ["A title"], "d2": ["Only a title"]}
    documents = by_document("sentence")
    assert sorted(documents) == ["d1", "d4"]
    assert sorted(documents["d1"]) == ["One two three four five.", "Six seven eight nine ten!"]
    assert documents["d4"] == [" ".join(WORDS[:30])]
    documents = {query for seed in range(40) for query in by_document("span", seed=seed)["d4"]}
    starts, lengths = set(), set()
    words = DOCUMENTS[3].text.split()
    for query in documents:
        span = query.split()
        start = words.index(span[0])
        assert words[start : start + len(span)] == span
        starts.add(start)
        lengths.add(len(span))
    assert starts == set(range(36))
    assert lengths == set(range(5, 16))
    assert sorted(by_document("span")) == ["d1", "d4"]


def test_mixed_queries_are_of_every_kind_that_a_document_has():
    sources = Counter(
        "title" if query == "A title" else "sentence" if query[-1] in ".!" else "span"
        for seed in range(300)
        for query in by_document("mixed", 1, seed)["d1"]
    )
    assert sorted(sources) == ["sentence", "span", "title"]
    assert min(sources.values()) > 40
    assert sources.total() == 300
    documents = by_document("mixed")
    assert documents["d2"] == ["Only a title"]
    assert "d3" not in documents
    assert {"A title", "One two three four five.", "Six seven eight nine ten!"} < set(
        documents["d1"]
    )


@pytest.mark.parametrize("source", ["sentence", "span", "mixed"])
@pytest.mark.parametrize("per_document", [1, 2, 3])
def test_queries_of_a_document_differ(source, per_document):
    repeated = Document("r", "one two three four five. " * 5)
    for queries in by_document(source, per_document).values():
        assert len(set(queries)) == len(queries) <= per_document
    assert len(list(generate([repeated], "sentence", 9))) == 1


@given(
    st.lists(st.sampled_from(DOCUMENTS), unique_by=lambda document: document.id), st.integers(0, 3)
)
def test_other_documents_change_nothing(documents, seed):
    alone = [pair for d in documents for pair in generate([d], per_document=2, seed=seed)]
    assert list(generate(iter(documents), per_document=2, seed=seed)) == alone


def test_arguments_of_generate():
    with pytest.raises(InputError, match="no kind 'word' of pseudo-queries, only: title, sent"):
        next(generate(DOCUMENTS, "word"))
    with pytest.raises(InputError, match="at least 1, not 0"):
        next(generate(DOCUMENTS, per_document=0))


def test_pseudo_queries_become_a_beir_folder(tmp_path):
    folder = tmp_path / "new"
    assert write(folder, iter([("d1", "ä b"), ("d2", "c"), ("d1", "d")])) == 3
    assert list(read_queries(folder, "train")) == [
        Query("d1-1", "ä b"),
        Query("d2-1", "c"),
        Query("d1-2", "d"),
    ]
    assert list(read_qrels(folder, "train")) == [
        Qrel("d1-1", "d1", 1),
        Qrel("d2-1", "d2", 1),
        Qrel("d1-2", "d1", 1),
    ]
    assert sorted(os.listdir(folder)) == ["qrels", "queries.jsonl"]
    assert os.listdir(folder / "qrels") == ["train.tsv"]


def test_queries_that_exist_are_kept(tmp_path):
    for path in (tmp_path / "a" / "queries.jsonl", tmp_path / "b" / "qrels" / "train.tsv"):
        path.parent.mkdir(parents=True)
        path.write_text("precious")
        with pytest.raises(InputError, match=f"{path.name} exists already"):
            write(tmp_path / path.relative_to(tmp_path).parts[0], [("d", "q")])
        assert path.read_text() == "precious"
    with pytest.raises(InputError, match="there are no queries"):
        write(tmp_path / "c", [])
    assert [name for _, _, names in os.walk(tmp_path / "c") for name in names] == []
