"""Documents in the rows of a table with a header, and of Parquet files (extra ``parquet``)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from itertools import chain, islice
from typing import Any

from lexicept.corpora.budgets import check_bytes
from lexicept.corpora.json_lines import DOCUMENT_TEXTS, RESERVED, to_document
from lexicept.corpora.records import Document, Location, Records
from lexicept.errors import InputError, require
from lexicept.fields.values import as_typed

Rows = Iterator[tuple[Location, Callable[[], Sequence[str]]]]
"""The location of each non-blank row, and the function that reads the row."""

_NUMBER = re.compile(r" *-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?([eE][+-]?[0-9]{1,2})? *")
"""Numbers in JSON's notation: 007 is a text."""

_NO_NUMBER = {"", "na", "n/a", "#n/a", "<na>", "nan", "-nan", "null", "none"}
"""Missing values in a column of numbers, as pandas reads and writes them."""


def _document(
    names: Sequence[str], numeric: set[str], location: Location, read: Callable[[], Sequence[str]]
) -> Document:
    """Return the document of a row; see ``read_table``."""
    cells = read()
    texts = [index for index, name in enumerate(names) if name in DOCUMENT_TEXTS]
    # Values that are missing at the end are empty; a row without its text may be a part of one.
    if any(cells[len(names) :]) or len(cells) <= max(texts, default=0):
        raise location.error(f"{len(cells)} values, the header has {len(names)}")
    try:
        "".join(cells).encode()
    except UnicodeEncodeError:
        raise location.error("not UTF-8") from None
    record = dict(zip(names, cells, strict=False))
    values: dict[str, Any] = {name: value for name, value in record.items() if value}
    for name in numeric.intersection(values):
        missing = record[name].strip().lower() in _NO_NUMBER
        values[name] = None if missing else json.loads(record[name])
    text = "\n".join(f"{name}: {record[name]}" for name in values)
    values |= {names[index]: cells[index] for index in texts} or {"text": text}
    return to_document(location, values, str(location.position))


def read_table(rows: Callable[[], Rows]) -> Records[Document]:
    """Yield the documents of a table, header first, which may name an id, a text and a title.

    Other columns are fields, numbers if every value is a number, else texts; an empty value, and
    NA or the like among numbers, is missing. A nameless column is ``column 2`` by its position, a
    repeated name ``name.1``. The number of the line replaces an id, and all values,
    each after the column's name, replace a text. The rows are read once before to find the columns
    of numbers. Raises InputError for a repeated id, text or title; from the function of a row, for
    more values than the header's, no text, or no UTF-8."""
    following = rows()
    for location, read in islice(following, 1):
        names = _header(location, read())
        numeric = set() if RESERVED.issuperset(names) else _numeric(rows, names)
    for location, read in following:
        yield location, partial(_document, names, numeric, location, read)


def _numeric(rows: Callable[[], Rows], columns: Sequence[str]) -> set[str]:
    """Return the columns of numbers alone; unreadable rows do not count."""
    numeric, with_numbers = set(columns) - RESERVED, set()
    for _, read in islice(rows(), 1, None):
        try:
            cells = read()
        except InputError:
            continue
        if any(cells[len(columns) :]):
            continue
        for name, value in zip(columns, cells, strict=False):
            if _NUMBER.fullmatch(value):
                with_numbers.add(name)
            elif value.strip().lower() not in _NO_NUMBER:
                numeric.discard(name)
        if not numeric:
            break
    return numeric & with_numbers


def column_names(row: Sequence[str]) -> list[str]:
    """Return the names of a header; ids, texts and titles in lower case."""
    stripped = [name.strip() for name in row]
    return [name.lower() if name.lower() in RESERVED else name for name in stripped]


def _header(location: Location, cells: Sequence[str]) -> list[str]:
    columns: list[str] = []
    for position, name in enumerate(column_names(cells), 1):
        base = name = name if name and name.isprintable() else f"column {position}"
        if base in columns and base in RESERVED:
            raise location.error(f"the header has the column {base!r} twice")
        repeats = 0
        while name in columns:
            repeats += 1
            name = f"{base}.{repeats}"
        columns.append(name)
    return columns


BATCH = 64
"""Rows in memory at once: few bytes of a file can stand for any number of equal long texts."""

_INDEX = "__index_level_"
"""Beginning of the names of columns that pandas adds."""


def read_parquet(path: str) -> Records[Document]:
    """Yield the documents of a file with the columns id, text and, optionally, title; other columns
    are fields, and a missing id is the row's number. Raises InputError if pyarrow is missing, and
    pyarrow's errors; from the function of a row, for a missing or mistyped value."""
    require("parquet", "pyarrow")
    parquet = import_module("pyarrow.parquet")
    with parquet.ParquetFile(path) as file:
        groups = map(file.metadata.row_group, range(file.num_row_groups))
        check_bytes(sum(group.total_byte_size for group in groups))
        records = chain.from_iterable(_batches(file))
        types = dict(zip(file.schema_arrow.names, file.schema_arrow.types, strict=True))
        for position, record in enumerate(as_typed(records, types), 1):
            location = Location(path, position, "row")
            yield location, partial(_record, location, record)


def _batches(file: Any) -> Iterator[list[dict[str, Any]]]:
    count = 0
    for batch in file.iter_batches(BATCH):
        count += batch.nbytes
        check_bytes(count)
        yield batch.to_pylist()


def _record(location: Location, record: Mapping[str, Any]) -> Document:
    columns = {name: value for name, value in record.items() if not name.startswith(_INDEX)}
    return to_document(location, columns, str(location.position))
