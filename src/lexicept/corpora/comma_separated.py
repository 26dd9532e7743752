"""Comma-separated values (RFC 4180) with a header: documents."""

import csv
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from lexicept.corpora.json_lines import DOCUMENT_IDS, DOCUMENT_TEXTS, to_document
from lexicept.corpora.lines import LONGEST, raw_lines
from lexicept.corpora.records import Document, Place, Records


def read_documents(path: str) -> Records[Document]:
    """Yield the documents of a file whose header names an id, a text and, optionally, a title.

    Other columns are left out. A value in quotes may hold commas and line breaks.

    Raises:
        InputError: the file can't be read, or its header lacks a column; from the function of a
            record, bad quotes, another number of values than in the header, or no UTF-8.
    """
    # The module's own limit is 131,072 characters.
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST))
    # Bytes that are not UTF-8 become surrogates, so that the error names their record.
    lines = (raw.decode(errors="surrogateescape") for _, raw in raw_lines(path))
    rows = csv.reader(lines, strict=True)
    columns: list[str] = []
    for place, read in _rows(path, rows):
        if columns:
            yield place, partial(_document, place, columns, read)
        else:
            columns = _header(place, read())


def _rows(path: str, rows: Iterator[list[str]]) -> Iterator[tuple[Place, Callable[[], list[str]]]]:
    """Yield the rows that are not blank, each with its first line."""
    while True:
        place = Place(path, rows.line_num + 1)  # type: ignore[attr-defined]
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
    columns = [name.strip().lower() for name in row]
    for names in (DOCUMENT_IDS, DOCUMENT_TEXTS, ("title",)):
        present = [name for name in columns if name in names]
        if len(present) > 1 and len(set(present)) < len(present):
            raise place.error(f"the header has the column {present[0]!r} twice")
        if not present and names != ("title",):
            known = ", ".join(names)
            raise place.error(f"the header has none of the columns {known}: {', '.join(row)}")
    return columns


def _document(place: Place, columns: list[str], read: Callable[[], list[str]]) -> Document:
    row = read()
    if len(row) != len(columns):
        raise place.error(f"{len(row)} values, the header has {len(columns)}")
    try:
        "".join(row).encode()
    except UnicodeEncodeError:
        raise place.error("not UTF-8") from None
    return to_document(place, dict(zip(columns, row, strict=True)))
