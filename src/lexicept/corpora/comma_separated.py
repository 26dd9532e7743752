"""Comma-separated values (RFC 4180) with a header: documents."""

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from functools import partial

from lexicept.corpora.json_lines import DOCUMENT_IDS, DOCUMENT_TEXTS, RESERVED, to_document
from lexicept.corpora.lines import LONGEST, raw_lines
from lexicept.corpora.records import Document, Place, Records
from lexicept.errors import InputError

_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?([eE][+-]?[0-9]{1,2})?")
"""Numbers as JSON writes them: 007 is a text."""


def read_documents(path: str) -> Records[Document]:
    """Yield the documents of a file whose header names an id, a text and, optionally, a title.

    Other columns with names are fields: numbers where every value is one, else texts; an empty
    value is a missing one. The file is read once more for that, before. A value in quotes may hold
    commas and line breaks.

    Raises:
        InputError: the file can't be read, or its header lacks a column; from the function of a
            record, bad quotes, another number of values than in the header, or no UTF-8.
    """
    # The module's own limit is 131,072 characters.
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST))
    columns: list[str] = []
    numeric: Set[str] = frozenset()
    for place, read in _rows(path):
        if columns:
            yield place, partial(_document, place, columns, numeric, read)
        else:
            columns = _header(place, read())
            if not RESERVED.issuperset(columns):
                numeric = _numeric(path, columns)


def _numeric(path: str, columns: Sequence[str]) -> set[str]:
    """Return the columns whose values are all numbers. Rows that can't be read do not count."""
    numeric = set(columns) - RESERVED
    rows = _rows(path)
    next(rows, None)
    for _, read in rows:
        try:
            row = read()
        except InputError:
            continue
        if len(row) == len(columns):
            for name, value in zip(columns, row, strict=True):
                if value and name in numeric and not _NUMBER.fullmatch(value):
                    numeric.remove(name)
        if not numeric:
            break
    return numeric


def _rows(path: str) -> Iterator[tuple[Place, Callable[[], list[str]]]]:
    """Yield the rows that are not blank, each with its first line."""
    # Bytes that are not UTF-8 become surrogates, so that the error names their record.
    lines = (raw.decode(errors="surrogateescape") for _, raw in raw_lines(path))
    rows = csv.reader(lines, strict=True)
    while True:
        place = Place(path, rows.line_num + 1)
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            yield place, partial(_refuse, place, f"not valid CSV: {error}")
        else:
            if row:
                yield place, partial(list, row)


def _refuse(place: Place, problem: str) -> list[str]:
    raise place.error(problem)


def _header(place: Place, row: Iterable[str]) -> list[str]:
    stripped = [name.strip() for name in row]
    columns = [name.lower() if name.lower() in RESERVED else name for name in stripped]
    for names in (DOCUMENT_IDS, DOCUMENT_TEXTS, ("title",)):
        present = [name for name in columns if name in names]
        if len(present) > 1 and len(set(present)) < len(present):
            raise place.error(f"the header has the column {present[0]!r} twice")
        if not present and names != ("title",):
            known = ", ".join(names)
            raise place.error(f"the header has none of the columns {known}: {', '.join(row)}")
    for name, count in Counter(filter(None, columns)).items():
        if count > 1 and name not in RESERVED:
            raise place.error(f"the header has the column {name!r} twice")
    return columns


def _document(
    place: Place, columns: Sequence[str], numeric: Set[str], read: Callable[[], list[str]]
) -> Document:
    row = read()
    if len(row) != len(columns):
        raise place.error(f"{len(row)} values, the header has {len(columns)}")
    try:
        "".join(row).encode()
    except UnicodeEncodeError:
        raise place.error("not UTF-8") from None
    values = {
        name: json.loads(value) if value and name in numeric else value
        for name, value in zip(columns, row, strict=True)
        if name
    }
    return to_document(place, values)
