"""Documents in passages: cut and stored, and found once by a search."""

import json
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st

import lexicept
from lexicept.corpora import Document, Passage, read_documents
from lexicept.corpora.passages import (
    MOST_WORDS,
    Section,
    from_rows,
    num_words,
    pieces,
    rows,
    with_passages,
)
from lexicept.errors import IndexFormatError, InputError
from lexicept.index.passages import Passages
from lexicept.queries.syntax import ParsedQuery
from lexicept.server.app import create_app
from support.collections import write_beir

GUIDE = Document(
    "guide.md",
    "",
    "Guide",
    {"year": 2024},
    (
        Passage("Welcome, cats."),
        Passage("Cats install with a paw.", "Install", "install"),
        Passage("More cats and dogs.", "Install", "install.2"),
    ),
)
OTHER = {"id": "other", "text": "A dog barks at the cats.", "year": 2020}
BOOK = {"id": "book", "title": "Book", "passages": [{"text": "One owl."}, "Two owls and a dog."]}


def build(path: Path) -> lexicept.Index:
    return lexicept.build([GUIDE, OTHER, BOOK], path, vocabulary="words")


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    return build(tmp_path_factory.mktemp("passages") / "index")


@pytest.fixture
def changing(tmp_path):
    return build(tmp_path / "index")


# Cutting


words = st.text("abc.!\n 。", max_size=60)


@given(text=words, most=st.integers(1, 5))
def test_pieces_hold_all_words_in_order_and_no_more_than_asked(text, most):
    result = list(pieces(text, most))
    assert all(chunk.strip() == chunk and 0 < num_words(chunk) <= most for chunk in result)
    assert "".join("".join(result).split()) == "".join(text.split())


def test_pieces_and_passages_by_hand():
    assert list(pieces("a b\n\nc d\n\ne", 3)) == ["a b", "c d\n\ne"]
    assert list(pieces("One two. Three four! Five.", 3)) == ["One two.", "Three four! Five."]
    assert list(pieces("a b c d e", 2)) == ["a b", "c d", "e"]
    assert list(pieces("x" * 30, 1)) == ["x" * 12, "x" * 12, "x" * 6]
    assert list(pieces(" \n")) == []
    short = Document("a", "few words")
    assert with_passages(short, [Section("few"), Section("words")]) is short
    long = " ".join(["word"] * MOST_WORDS)
    sections = [Section("start"), Section(f"{long} more", "T", "t"), Section("x", "T", "t")]
    divided = with_passages(Document("a", f"start {long} more x", "Title"), sections)
    assert [p.anchor for p in divided.passages] == ["1", "t", "t.2", "t-2"]
    assert [p.title for p in divided.passages] == ["", "T", "T", "T"]
    assert divided.text == f"start\n\nT\n\n{long}\n\nmore\n\nx"


passages = st.lists(st.builds(Passage, words, words, st.just("")), min_size=1, max_size=4)


@given(title=words, parts=passages)
def test_rows_become_their_document_again(title, parts):
    named = tuple(text._replace(anchor=str(n)) for n, text in enumerate(parts, 1))
    document = from_rows("a#b", title, list(rows(Document("a#b", "", title, {}, named))))
    assert (document.id, document.title, document.passages) == ("a#b", title, named)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"passages": 5}, "the passages must be a list, not int"),
        ({"passages": [5]}, "a passage must be an object or a string, not int"),
        ({"passages": [{"title": "T"}]}, "the text, title and anchor of a passage must be strings"),
        (
            {"passages": [{"text": "x", "anchor": "a"}, {"text": "y", "anchor": "a"}]},
            "two passages have the anchor 'a'",
        ),
        ({"passages": [{"text": "x", "anchor": "a b"}]}, "bad id 'a b'"),
        ({"passages": [{"text": "\ud800"}]}, "lone surrogate"),
    ],
)
def test_bad_passages(tmp_path, value, message):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"id": "a", **value}))
    with pytest.raises(InputError, match=message):
        list(read_documents(path, strict=True))


@pytest.mark.parametrize("reverse", [False, True])
def test_an_id_that_looks_like_a_passage_is_refused(tmp_path, reverse):
    documents = [GUIDE, Document("guide.md#install", "x")][:: -1 if reverse else 1]
    with pytest.raises(InputError, match="looks like one of"):
        lexicept.build(documents, tmp_path / "x", vocabulary="words", strict=True)
    assert not (tmp_path / "x").exists()


# Searching


def test_documents_are_found_read_and_counted_whole(index):
    assert len(index) == 3
    assert index.info()["passages"] == 6
    hits = index.search("cats install")
    assert [hit.id for hit in hits] == ["guide.md", "other"]
    best = hits[0]
    assert (best.passage, best.title) == ("guide.md#install", "Guide › Install")
    assert best.text == "Cats install with a paw."
    assert best.fields == {"year": 2024}
    assert (hits[1].passage, hits[1].title) == (None, "")
    assert [hit.id for hit in index.search("cats", 1)] == ["guide.md"]
    assert [hit.id for hit in index.search("cats", filter="year < 2022")] == ["other"]
    guide = index.document("guide.md")
    assert guide.text == (
        "Welcome, cats.\n\nInstall\n\nCats install with a paw.\n\nMore cats and dogs."
    )
    assert guide.passages == (GUIDE.passages[0]._replace(anchor="1"), *GUIDE.passages[1:])
    assert index.document("book#2") == Document("book#2", "Two owls and a dog.", "Book")
    assert [document.id for document in index.documents()] == ["guide.md", "other", "book"]
    assert "guide.md" in index
    assert "guide.md#install" in index
    assert "guide.md#no" not in index
    assert index.facets(["year"], query="cats") == {"year": [(2020, 1), (2024, 1)]}
    assert index.reader.masks.having("year") == 2


def test_the_passage_that_was_found_is_explained(index, tmp_path):
    best = index.search("cats install", explain=True)[0]
    explained = index.explain("cats install", "guide.md")
    assert explained == best.explanation
    assert (explained.document_id, explained.passage) == ("guide.md", "guide.md#install")
    assert explained.content == "Guide › Install Cats install with a paw."
    assert explained.score == pytest.approx(best.score)
    other = index.explain("cats install", "guide.md#1")
    assert (other.passage, other.content) == ("guide.md#1", "Guide Welcome, cats.")
    assert index.explain("nothing", "guide.md").passage == "guide.md#1"
    assert index.explain("dog", "other").passage is None
    passages = (Passage("Cats, cats, cats."), Passage("Red mice hide from one of many cats."))
    documents = [Document("d", "", "", {}, passages), Document("e", "Red mice.")]
    with lexicept.build(documents, tmp_path / "phrase", vocabulary="words") as index:
        query = 'cats cats cats "red mice" -dogs'
        hit = index.search(query)[0]
        explanation = index.explain(query, "d")
        assert hit.passage == explanation.passage == "d#2"
        assert explanation.score == pytest.approx(hit.score)
        assert index.explain("cats cats cats red mice", "d").passage == "d#1"
        assert index.explain('cats "no such phrase"', "d").passage == "d#1"


collections = st.lists(
    st.lists(st.text("abc ", max_size=8), min_size=1, max_size=5), min_size=1, max_size=12
)


@pytest.mark.filterwarnings("ignore:no words in any document")
@settings(max_examples=12)
@given(collection=collections, query=st.text("abc ", max_size=6), top_k=st.integers(1, 4))
def test_the_results_are_the_best_documents_exactly(tmp_path_factory, collection, query, top_k):
    folder = tmp_path_factory.mktemp("exact")
    documents = [
        Document(str(n), "", "", {}, tuple(map(Passage, texts)))
        for n, texts in enumerate(collection)
    ]
    flat = [i for document in documents for i in rows(document)]
    options = {"vocabulary": "words"}
    divided = lexicept.build(documents, folder / "divided", **options)
    whole = lexicept.build(flat, folder / "flat", **options)
    expected: dict[str, float] = {}
    for hit in whole.search(query, len(flat)):
        expected.setdefault(hit.id.partition("#")[0], hit.score)
    hits = [(hit.id, hit.score) for hit in divided.search(query, top_k)]
    assert hits == list(expected.items())[:top_k]
    (batch,) = divided.search_many([query], top_k)
    assert [(hit.id, hit.score) for hit in batch] == hits


# Changing


def contents(index: lexicept.Index) -> list[object]:
    reader = index.reader
    (vocabulary,) = reader.vocabularies
    columns = reader.engine.matrix().toarray().T.tolist()
    weights = {t: w for t, w in zip(vocabulary.terms or (), columns, strict=True) if any(w)}
    return [list(reader.documents()), list(reader.ids), weights]


def test_an_update_equals_a_new_index(changing, tmp_path):
    shorter = GUIDE._replace(passages=GUIDE.passages[:2], fields={"year": 2025})
    longer = Document("other", "", "O", {"year": 2019}, (Passage("a dog"), Passage("an emu")))
    fresh = Document("new", "whole")
    assert changing.add([longer, fresh, shorter]) == (1, 2)
    expected = [shorter, longer, BOOK, fresh]
    assert contents(changing) == contents(
        lexicept.build(expected, tmp_path / "again", vocabulary="words")
    )
    assert changing.delete(["guide.md", "new"]) == 2
    assert contents(changing) == contents(
        lexicept.build([longer, BOOK], tmp_path / "third", vocabulary="words")
    )
    assert changing.verify().problems == []


def test_changes_that_are_refused(index):
    with pytest.raises(InputError, match="'book#1' is a passage of document 'book'"):
        index.delete(["book#1"])
    with pytest.raises(InputError, match="'book#2' looks like one of a passage"):
        index.add([Document("book#2", "x")])


@pytest.mark.parametrize("change", [lambda s: s[:1], lambda s: s + 1, lambda s: s[::-1]])
def test_damaged_rows_are_refused(changing, change):
    folder = changing.reader.folder
    path = folder / "passages" / "spans.npy"
    np.save(path, np.ascontiguousarray(change(np.load(path))))
    with pytest.raises(IndexFormatError, match="passages"):
        Passages(folder, changing.reader.ids)


# Elsewhere


def test_the_server_answers_with_documents(index):
    with TestClient(create_app(index.path), base_url="http://127.0.0.1") as client:

        def get(path, **parameters):
            answer = client.get(path, params=parameters)
            assert answer.status_code == 200, answer.text
            data: dict[str, object] = answer.json()
            return data

        top, second = get("/search", query="cats install")["results"]
        assert (top["id"], top["passage"]) == ("guide.md", "guide.md#install")
        assert (top["title"], top["excerpt"]) == ("Guide › Install", "Cats install with a paw.")
        assert (second["id"], second["passage"]) == ("other", None)
        why = get("/explain", query="cats install", document_id="guide.md")
        assert (why["passage"], why["title"]) == ("guide.md#install", "Guide › Install")
        refused = client.get("/explain", params={"query": '"the"', "document_id": "guide.md"})
        assert (refused.status_code, "the phrase 'the'" in refused.text) == (422, True)
        book = get("/document", document_id="book")
        assert book["passages"] == [
            {"text": "One owl.", "title": "", "anchor": "1"},
            {"text": "Two owls and a dog.", "title": "", "anchor": "2"},
        ]
        assert get("/document", document_id="book#2")["text"] == "Two owls and a dog."
        health = get("/health")
        assert (health["documents"], health["unit"]) == (3, "passages")


def test_evaluation_judges_documents(index, tmp_path):
    judged = {"test": "q 0 other 1\n"}
    folder = write_beir(tmp_path / "judged", {}, {"q": "cats install"}, judged)
    scores = lexicept.evaluate(index, folder)
    assert list(scores.run["q"]) == ["guide.md", "other"]
    assert scores.values["RR@10"] == 0.5


def test_conditions_of_queries_are_on_documents(index):
    assert [hit.id for hit in index.search("dogs -install")] == ["other", "book"]
    assert [hit.passage for hit in index.search('"install with"')] == ["guide.md#install"]
    phrase = ParsedQuery("", phrases=("cats and",))
    assert [(hit.score, hit.passage) for hit in index.search(phrase)] == [(0, "guide.md#install.2")]
    everything = index.search("year:2024")
    assert [(hit.id, hit.passage) for hit in everything] == [("guide.md", "guide.md#1")]
    assert everything.total == 1
    assert index.search("cats dogs", 1).total == 3
    assert next(iter(index.search("dogs", feedback=["book"]))).id == "book"
