"""Comma-separated values (RFC 4180) with a header: documents."""

import codecs
import csv
import io
from collections.abc import Iterable
from functools import partial
from itertools import chain

from lexicept.corpora.lines import LONGEST, open_bytes, raw_lines
from lexicept.corpora.records import Document, Place, Records
from lexicept.corpora.tables import Rows, read_table
from lexicept.corpora.text_encoding import likeliest, other_mark


def read_documents(path: str, *, anonymous: bool = False) -> Records[Document]:
    """Yield the documents of a file; see ``read_table``.

    A value in quotes may hold commas and line breaks. Semicolons separate values if the header has
    semicolons and no comma.

    Raises:
        InputError: an unreadable file, or a header without a column; from the function of a record,
            bad quotes, a number of values that differs from the header's, or no UTF-8.
    """
    # The module's own limit is 131,072 characters.
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST))
    return read_table(partial(_rows, path, anonymous), anonymous=anonymous)


def _rows(path: str, any_encoding: bool) -> Rows:
    """Yield the rows that are not blank, each with the first line."""
    if any_encoding and (encoding := _other_encoding(path)) is not None:
        with (
            open_bytes(path) as file,
            io.TextIOWrapper(file, encoding, "replace", newline="") as lines,  # type: ignore[type-var]
        ):
            yield from _read(path, lines)
        return
    # Bytes that are not UTF-8 become surrogates, so that the error names their record.
    yield from _read(path, (raw.decode(errors="surrogateescape") for _, raw in raw_lines(path)))


def _read(path: str, lines: Iterable[str]) -> Rows:
    following = iter(lines)
    start = []
    for line in following:
        start.append(line)
        if line.strip():
            break
    header = start[-1] if start else ""
    # Spreadsheets write semicolons where a comma is the decimal sign.
    delimiter = ";" if ";" in header and "," not in header else ","
    table = csv.reader(chain(start, following), delimiter=delimiter, strict=True)
    while True:
        place = Place(path, table.line_num + 1)
        try:
            values = next(table)
        except StopIteration:
            return
        except csv.Error as error:
            yield place, partial(_refuse, place, f"not valid CSV: {error}")
        else:
            if values:
                yield place, partial(list, values)


def _other_encoding(path: str) -> str | None:
    """Return the encoding of a file; None for UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    with open_bytes(path) as file:
        sample = file.read(2**20)
        if (encoding := other_mark(sample)) is not None:
            return encoding
        block = sample
        while True:
            try:
                decoder.decode(block, final=not block)
            except UnicodeDecodeError:
                return likeliest(block)
            if not block:
                return None
            block = file.read(2**20)


def _refuse(place: Place, problem: str) -> list[str]:
    raise place.error(problem)
