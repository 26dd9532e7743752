"""Parquet files: documents, one in a row (extra ``parquet``)."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from itertools import chain
from typing import Any

from lexicept.corpora.json_lines import to_document
from lexicept.corpora.records import Document, Place, Records, readable
from lexicept.errors import InputError, require

BATCH = 1_024
"""Rows in memory at once."""

_INDEX = "__index_level_"
"""Beginning of the names of columns that pandas adds."""


def read_documents(path: str) -> Records[Document]:
    """Yield the documents of a file with the columns id, text and, optionally, title; other columns
    are fields, and a missing id is the row's number. Raises InputError if pyarrow is missing, or
    the file can't be read; from the function of a row, for a missing value or a value of the wrong
    type."""
    require("parquet", "pyarrow")
    parquet = import_module("pyarrow.parquet")
    with _sound(path), parquet.ParquetFile(path) as file:
        batches = (batch.to_pylist() for batch in file.iter_batches(BATCH))
        for number, record in enumerate(chain.from_iterable(batches), 1):
            place = Place(path, number, "row")
            yield place, partial(_document, place, record)


@contextmanager
def _sound(path: str) -> Iterator[None]:
    """Turn the errors of pyarrow into InputError."""
    arrow = import_module("pyarrow")
    try:
        with readable(path):
            yield
    except arrow.ArrowException as error:
        raise InputError(f"{path}: cannot be read: {' '.join(str(error).split())}") from None


def _document(place: Place, record: dict[str, Any]) -> Document:
    columns = {name: value for name, value in record.items() if not name.startswith(_INDEX)}
    return to_document(place, columns, str(place.number))
