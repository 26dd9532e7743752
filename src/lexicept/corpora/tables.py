"""Documents in the rows of a table with a header, and of Parquet files (extra ``parquet``)."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import chain
from typing import Any

from lexicept.corpora.budgets import check_bytes
from lexicept.corpora.json_lines import DOCUMENT_TEXTS, RESERVED, to_document
from lexicept.corpora.records import Document, Place, Records, readable
from lexicept.errors import InputError, require

Rows = Iterator[tuple[Place, Callable[[], Sequence[str]]]]
"""The place of each non-blank row, and the function that reads the row."""

_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?([eE][+-]?[0-9]{1,2})?")
"""Numbers in JSON's notation: 007 is a text."""


@dataclass(frozen=True)
class Columns:
    """The columns of a table."""

    names: Sequence[str]
    numeric: Set[str]
    """Columns of numbers alone."""

    def document(self, place: Place, read: Callable[[], Sequence[str]]) -> Document:
        """Return the document of a row; see ``read_table``."""
        cells = read()
        if len(cells) != len(self.names):
            raise place.error(f"{len(cells)} values, the header has {len(self.names)}")
        try:
            "".join(cells).encode()
        except UnicodeEncodeError:
            raise place.error("not UTF-8") from None
        values = {
            name: json.loads(value) if name in self.numeric else value
            for name, value in zip(self.names, cells, strict=True)
            if value or name in DOCUMENT_TEXTS  # other empty values are missing
        }
        if not any(name in self.names for name in DOCUMENT_TEXTS):
            values["text"] = "\n".join(f"{name}: {value}" for name, value in values.items())
        return to_document(place, values, str(place.number))


def read_table(rows: Callable[[], Rows]) -> Records[Document]:
    """Yield the documents of a table, header first, whose header may name an id, a text and a
    title.

    Other columns are fields, numbers if every value is a number, else texts; an empty value is
    missing, and a column without a name is ``column 2`` by its place. The number of the line
    replaces an id, and all values, each after the column's name, replace a text. The rows are read
    once before to find the columns of numbers. Raises InputError for a repeated column; from the
    function of a row, for bad quotes, another number of values than the header's, or no UTF-8."""
    columns: Columns | None = None
    for place, read in rows():
        if columns is not None:
            yield place, partial(columns.document, place, read)
            continue
        names = _header(place, read())
        numeric = set() if RESERVED.issuperset(names) else _numeric(rows, names)
        columns = Columns(names, numeric)


def _numeric(rows: Callable[[], Rows], columns: Sequence[str]) -> set[str]:
    """Return the columns of numbers alone; unreadable rows do not count."""
    numeric = set(columns) - RESERVED
    following = rows()
    next(following, None)
    for _, read in following:
        try:
            cells = read()
        except InputError:
            continue
        if len(cells) == len(columns):
            for name, value in zip(columns, cells, strict=True):
                if value and name in numeric and not _NUMBER.fullmatch(value):
                    numeric.remove(name)
        if not numeric:
            break
    return numeric


def column_names(row: Sequence[str]) -> list[str]:
    """Return the names of a header; ids, texts and titles in lower case."""
    stripped = [name.strip() for name in row]
    return [name.lower() if name.lower() in RESERVED else name for name in stripped]


def _header(place: Place, row: Sequence[str]) -> list[str]:
    names = enumerate(column_names(row), 1)
    columns = [
        name if name and name.isprintable() else f"column {number}" for number, name in names
    ]
    for name, count in Counter(columns).items():
        if count > 1:
            raise place.error(f"the header has the column {name!r} twice")
    return columns


BATCH = 64
"""Rows in memory at once: few bytes of a file can stand for any number of equal long texts."""

_INDEX = "__index_level_"
"""Beginning of the names of columns that pandas adds."""


def read_parquet(path: str) -> Records[Document]:
    """Yield the documents of a file with the columns id, text and, optionally, title; other columns
    are fields, and a missing id is the row's number. Raises InputError if pyarrow is missing, or
    the file can't be read; from the function of a row, for a missing value or a value of the wrong
    type."""
    require("parquet", "pyarrow")
    parquet = import_module("pyarrow.parquet")
    with _sound(path), parquet.ParquetFile(path) as file:
        groups = map(file.metadata.row_group, range(file.num_row_groups))
        check_bytes(sum(group.total_byte_size for group in groups))
        for number, record in enumerate(chain.from_iterable(_batches(file)), 1):
            place = Place(path, number, "row")
            yield place, partial(_record, place, record)


def _batches(file: Any) -> Iterator[list[dict[str, Any]]]:
    """Yield rows, a batch at a time."""
    count = 0
    for batch in file.iter_batches(BATCH):
        count += batch.nbytes
        check_bytes(count)
        yield batch.to_pylist()


@contextmanager
def _sound(path: str) -> Iterator[None]:
    """Turn the errors of pyarrow into InputError."""
    arrow = import_module("pyarrow")
    try:
        with readable(path):
            yield
    except arrow.ArrowException as error:
        raise InputError(f"{path}: cannot be read: {' '.join(str(error).split())}") from None


def _record(place: Place, record: dict[str, Any]) -> Document:
    columns = {name: value for name, value in record.items() if not name.startswith(_INDEX)}
    return to_document(place, columns, str(place.number))
