"""Bad input from Python gets one clear error and leaves nothing behind."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import lexicept
from lexicept import Document
from lexicept.errors import InputError, LexiceptWarning
from lexicept.storage.files import replace_file

TEXTS = ["Cats sleep all day.", "Dogs bark at night.", "A kitten naps in the sun."]


@pytest.fixture
def pets(tmp_path):
    return lexicept.build(TEXTS, tmp_path / "pets.index", vocabulary="words")


class NA:
    """A missing value whose comparisons are neither true nor false, as pandas.NA."""

    def __ne__(self, other: object) -> "NA":
        return self

    def __bool__(self) -> bool:
        raise TypeError("boolean value of NA is ambiguous")


class Frame:
    """A data frame with one column."""

    columns = ("text",)

    def __init__(self, *cells: object) -> None:
        self.cells = cells

    def itertuples(self, index: bool, name: None) -> Iterator[tuple[object]]:
        return ((cell,) for cell in self.cells)


class Columns:
    """An object that has columns and no rows."""

    columns = ("text",)


@pytest.mark.parametrize(
    ("documents", "problem"),
    [
        (Frame("a cat", NA()), "the documents, document 2: the text must be a string, not null"),
        (Columns(), "documents must be a list, a data frame or a path, not one Columns"),
        (b"a cat", "documents must be a list, a data frame or a path, not one bytes"),
        ([b"a cat"], "the documents, document 1: a document is a text, a dict or a Document"),
        ([Document("1", "\ud800")], "the documents, document 1: lone surrogate"),
        ([], "the corpus has no documents"),
    ],
)
def test_bad_documents(documents, problem, tmp_path):
    with pytest.raises(InputError, match=f"^{re.escape(problem)}"):
        lexicept.build(documents, tmp_path / "new.index", vocabulary="words")
    assert list(tmp_path.iterdir()) == []


def test_places_that_cannot_be_written(tmp_path):
    file = tmp_path / "file"
    file.write_text("kept")
    with pytest.raises(InputError, match=r"new\.partial can't be created: Not a directory"):
        lexicept.build(TEXTS, file / "new", vocabulary="words")
    with pytest.raises(InputError, match="a folder, not a file to write"):
        replace_file(tmp_path, b"")
    with pytest.raises(InputError, match="can't be written"):
        replace_file(file / "new", b"")
    assert file.read_text() == "kept"
    assert list(tmp_path.iterdir()) == [file]


def test_errors_of_documents_are_skipped_where_asked(tmp_path):
    items: list[Any] = ["a cat", 5, {"id": "x"}, {"id": "dog {0}", "text": "x"}, "a kitten"]
    problem = "the documents, document 2: a document is a text, a dict or a Document, not 5"
    hint = "; skip_errors skips documents that can't be read"
    with pytest.raises(InputError, match=f"^{re.escape(problem + hint)}$"):
        lexicept.build(items, tmp_path / "index", vocabulary="words")
    with pytest.warns(LexiceptWarning) as caught:
        index = lexicept.build(items, tmp_path / "index", vocabulary="words", skip_errors=True)
    assert [document.id for document in index.documents()] == ["1", "5"]
    (warning,) = caught
    head, *lines = str(warning.message).splitlines()
    assert head == "the documents: 3 documents skipped after an error"
    assert lines[0] == f"  {problem}"
    assert lines[2].startswith("  the documents, document 4: bad id 'dog {0}'")
    with pytest.raises(InputError, match=re.escape("bad id 'dog {0}'") + ".*; skip_errors skips"):
        index.add(items[3:])
    with pytest.warns(LexiceptWarning, match="3 documents skipped"):
        assert index.add([*items[1:4], "an owl"], skip_errors=True) == (1, 0)


CALLS: dict[str, tuple[Callable[[lexicept.Index], object], str]] = {
    "top_k text": (lambda i: i.search("cat", "3"), "top_k must be a whole number, not '3'"),
    "top_k float": (lambda i: i.search("cat", 2.0), r"top_k must be a whole number, not 2\.0"),
    "top_k 0": (lambda i: i.search("cat", 0), "top_k must be at least 1, not 0"),
    "vocabulary": (lambda i: i.search("cat", vocabulary=["words"]), "has no vocabulary"),
    "one text": (lambda i: i.search_many("cat"), "queries are a list of texts, not 'cat'"),
    "no queries": (lambda i: i.search_many(None), "queries are a list of texts"),
    "threads": (lambda i: i.search_many(["cat"], threads=2.5), "threads must be a whole number"),
    "threads 0": (lambda i: i.search_many(["cat"], threads=0), "threads must be at least 1"),
    "steering": (lambda i: i.search("cat", steering=[1]), "steering maps"),
    "key": (lambda i: i.search("cat", steering={"cat": 0}), "a key is"),
    "dimension": (
        lambda i: i.search("cat", steering={("words", "cat"): 0}),
        "words has no dimension 'cat'",
    ),
    "factor": (
        lambda i: i.search("cat", steering={("words", 0): "2"}),
        "the factor on words 0 must be from 0 to 1,000,000, not '2'",
    ),
    "document": (lambda i: i.explain("cat", ["1"]), "no document"),
    "ids": (lambda i: i.delete(5), "ids must be a list of texts, not 5"),
    "nested ids": (lambda i: i.delete([["1"]]), "no document"),
    "alpha": (lambda i: i.reweight(None), "alpha must be a number"),
    "iterations": (lambda i: i.reweight(1.0, iterations=1.5), "iterations must be a whole number"),
    "measures": (
        lambda i: lexicept.evaluate(i, "x", measures="AP"),
        "measures must be a list, each item a text",
    ),
    "split": (lambda i: lexicept.evaluate(i, "x", None), "split must be a text, not None"),
    "port": (lambda i: lexicept.serve(i, port=99999), r"can't serve at 127\.0\.0\.1:99999"),
    "layout": (
        lambda i: lexicept.convert("nosuch", "x", to="foo"),
        "to must be 'lexicept', 'saelens'",
    ),
    "source": (lambda i: lexicept.convert("nosuch", "x", to="splade"), "nosuch: no such folder"),
    "index": (lambda i: lexicept.evaluate(5, "x"), "an index is an opened one or its path"),
}


@pytest.mark.parametrize("name", CALLS)
def test_bad_arguments(name, pets):
    call, problem = CALLS[name]
    with pytest.raises(InputError, match=problem):
        call(pets)
    assert [hit.id for hit in pets.search("kitten")] == ["3"]


def test_queries_may_be_any_iterable(pets):
    queries = ["kitten", "dogs", "", "cats sleep"] * 5
    one = [[(hit.id, hit.score) for hit in hits] for hits in pets.search_many(queries, threads=1)]
    lazily = pets.search_many((query for query in queries), threads=2)
    assert [[(hit.id, hit.score) for hit in hits] for hits in lazily] == one
    assert [[document for document, _ in hits] for hits in one[:4]] == [["3"], ["2"], [], ["1"]]
