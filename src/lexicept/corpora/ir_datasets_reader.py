"""Datasets that the optional package ir_datasets knows by name.

Readers open the dataset at once: they raise InputError if ir_datasets is missing, does not know the
name, or has no documents, queries or judgements for it.
"""

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any, TypeVar

from lexicept.corpora.records import Document, Location, Qrel, Query, Records, readable
from lexicept.errors import InputError, message_of, require
from lexicept.fields.values import fields_in

T = TypeVar("T")


def read_documents(name: str) -> Records[Document]:
    dataset = load(name)
    if not dataset.has_docs():
        raise InputError(f"{name}: ir_datasets has no documents for it")
    return _records(name, "document", dataset.docs_iter, _document)


def read_queries(name: str, split: str) -> Records[Query]:
    queries = _load_split(name, split, "queries").queries_iter
    return _records(name, "query", queries, lambda query: Query(query.query_id, _text(query)))


def read_qrels(name: str, split: str) -> Iterator[Qrel]:
    qrels = _load_split(name, split, "qrels").qrels_iter
    records = _records(name, "judgement", qrels, lambda q: (q.query_id, q.doc_id, int(q.relevance)))
    return (Qrel(*read()) for _, read in records)


def load(name: str) -> Any:
    """Return the dataset of a name. Raises InputError for an unknown name, or a missing package."""
    require("ir-datasets", "ir_datasets")
    try:
        return import_module("ir_datasets").load(name)
    except KeyError as error:
        raise InputError(f"ir_datasets knows no {name!r}") from error


def _load_split(name: str, split: str, records: str) -> Any:
    """Load ``name/split`` or else ``name``. Raises InputError for a dataset without ``records``."""
    try:
        dataset = load(f"{name}/{split}")
    except InputError:
        dataset = load(name)
    if getattr(dataset, f"has_{records}")():
        return dataset
    below = sorted(
        key for key in import_module("ir_datasets").registry if key.startswith(f"{name}/")
    )
    names = ", ".join(below) or "nothing"
    raise InputError(
        f"{name}: no {records} for the split {split!r}; ir_datasets has below it: {names}"
    )


def _records(
    name: str, unit: str, iterate: Callable[[], Any], convert: Callable[[Any], T]
) -> Iterator[tuple[Location, Callable[[], T]]]:
    """Yield converted records. Raises InputError for any error of ir_datasets: of downloads, of
    parsers, and for missing packages."""
    try:
        with readable(name):
            for position, record in enumerate(map(convert, iterate()), 1):
                yield Location(name, position, unit), partial(lambda each: each, record)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{name}: ir_datasets can't read it: {message_of(error)}") from error


def _document(document: Any) -> Document:
    title = getattr(document, "title", None) or ""
    text = _without(title, _text(document))
    return Document(document.doc_id, text, title, _fields(document, f"{title}\n{text}"))


def _fields(document: Any, indexed_text: str) -> dict[str, Any]:
    """Return the attributes of a document beside id, title, text and texts in ``indexed_text``."""
    attributes = document._asdict() if hasattr(document, "_asdict") else vars(document)
    fields = fields_in(attributes, {"doc_id", "title", "text", "default_text"}).items()
    shown = {name: value for name, value in fields if not isinstance(value, bytes)}
    return {n: v for n, v in shown.items() if not (isinstance(v, str) and v in indexed_text)}


def _without(title: str, text: str) -> str:
    """Remove the title from the start of a text, so that the title's words do not count twice."""
    remainder = text.removeprefix(title)
    return remainder.lstrip() if not remainder or remainder[0].isspace() else text


def _text(record: Any) -> str:
    text: str = record.default_text() if hasattr(record, "default_text") else record.text
    return text
