"""Documents in the forms of callers: texts, dicts, a data frame, a path or a data set's name."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from lexicept.corpora import Document, is_folder_of_files, read_documents, read_folder
from lexicept.corpora.folder import KINDS, Folder
from lexicept.corpora.json_lines import DOCUMENT_TEXTS, to_document
from lexicept.corpora.records import DocumentStream, Location, Records
from lexicept.corpora.skipped import Skipped
from lexicept.errors import InputError, ParameterError
from lexicept.fields.values import as_typed

Documents: TypeAlias = Iterable[str | Mapping[str, Any] | Document] | str | os.PathLike[str] | Any
"""Texts, dicts (``text``, and optionally ``id``, ``title`` and fields), ``Document`` tuples, a data
frame with these columns, or a corpus by its path or data set name."""

_ROWS = ("iter_rows", "itertuples")
"""Methods of Polars' and pandas' data frames that yield rows."""


def as_documents(
    documents: Documents, *, first: int = 1, taken: Collection[str] = (), strict: bool = False
) -> DocumentStream:
    """Return documents one by one. An item without an id gets a number: "1", "2", and so on.

    Args:
        documents: see ``Documents``.
        first: the number of the first item.
        taken: numbers to leave out, the ids of other documents.
        strict: raise the error of the first item that is no document; else a warning at the end
            lists these.

    Raises:
        InputError: no such corpus (now), or an item that is no document (while iterating).
    """
    if isinstance(documents, Folder):
        return read_folder(documents, strict=strict)
    if isinstance(documents, str | os.PathLike):
        return read_documents(documents, strict=strict)
    if hasattr(documents, "columns") and any(hasattr(documents, name) for name in _ROWS):
        documents = _rows(documents)
    elif hasattr(documents, "column_names"):
        documents = _data_set(documents)
    elif isinstance(documents, Mapping | Document | bytes) or not isinstance(documents, Iterable):
        kind = type(documents).__name__
        raise InputError(f"documents must be a list, a data frame or a path, not one {kind}")
    skipped = Skipped("the documents")
    return DocumentStream(_numbered(documents, first, taken), skipped, strict=strict)


def folder_of(
    documents: Documents, without: Collection[str], include: Sequence[str] = ()
) -> Folder | None:
    """Return the folder of files of these documents, less the folders ``without``; None for
    documents of another kind. Raises InputError for patterns without a folder."""
    if isinstance(documents, Folder):
        return documents
    if not isinstance(documents, str | os.PathLike) or not is_folder_of_files(documents):
        if include:
            raise ParameterError("{0} chooses among files, and this is no folder", "include")
        return None
    name = os.fspath(documents)
    return Folder(name, Skipped(name, KINDS), without, include)


def _rows(frame: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a pandas or Polars frame as dicts, without the index."""
    columns = [str(column) for column in frame.columns]
    if not set(columns) & set(DOCUMENT_TEXTS):
        raise InputError(f"the data frame has no column 'text', only: {', '.join(columns)}")
    frame_records = (
        frame.iter_rows() if hasattr(frame, "iter_rows") else frame.itertuples(False, None)
    )
    records = (dict(zip(columns, values, strict=True)) for values in frame_records)
    yield from as_typed(records, dict(zip(columns, getattr(frame, "dtypes", ()), strict=False)))


def _data_set(data: Any) -> Iterable[Mapping[str, Any]]:
    """Return the rows of a data set of Hugging Face as dicts."""
    columns = data.column_names
    if isinstance(columns, Mapping):
        splits = ", ".join(columns)
        raise InputError(f"a dictionary of data sets: choose one of its splits: {splits}")
    if columns is not None and not set(columns) & {*DOCUMENT_TEXTS, "passages"}:
        raise InputError(f"the data set has no column 'text', only: {', '.join(columns)}")
    return as_typed(data, getattr(data, "features", None) or {})


def _numbered(items: Iterable[Any], first: int, taken: Collection[str]) -> Records[Document]:
    number = first
    for position, item in enumerate(items, 1):
        while str(number) in taken:
            number += 1
        location = Location("the documents", position, "document")
        yield location, partial(_document, item, location, str(number))
        number += 1


def _document(item: Any, location: Location, default_id: str) -> Document:
    if isinstance(item, Document):
        return item
    if isinstance(item, str):
        return Document(default_id, item)
    if isinstance(item, Mapping):
        return to_document(location, item, default_id)
    raise location.error(f"a document is a text, a dict or a Document, not {item!r:.80}")
