"""Comma-separated values (RFC 4180) with a header, and other separators: documents."""

import codecs
import csv
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain, islice

from lexicept.corpora.budgets import LARGEST
from lexicept.corpora.json_lines import RESERVED
from lexicept.corpora.lines import open_bytes
from lexicept.corpora.records import MOST_CHARACTERS, Document, Place, Records
from lexicept.corpora.tables import Rows, column_names, read_table
from lexicept.corpora.text_encoding import likeliest, other_mark

SEPARATORS = ",;\t|"
"""Separators that a file may have without saying so, the likeliest first."""

UNUSED = "\x1f"
"""Separates nothing: a table of one column may have commas in its texts."""

SAMPLE = 200
"""Lines that decide on the separator."""

_STATED = re.compile(r'"?sep=(.)"?\s*', re.I)
"""The first line by which Excel is told the separator."""


def read_documents(path: str) -> Records[Document]:
    """Yield the documents of a file; errors are those of ``read_table``, and for an endless value.

    A value in quotes may hold separators and line breaks; lines end in LF, CR or both. The first
    line may state the separator (``sep=;``); else it is the one of ``SEPARATORS`` that divides the
    first lines most evenly."""
    # The module's own limit is 131,072 characters.
    csv.field_size_limit(max(csv.field_size_limit(), MOST_CHARACTERS))
    return read_table(partial(_rows, path, _encoding(path)))


def _rows(path: str, encoding: str) -> Rows:
    """Yield the rows that are not blank, each with the first line."""
    with _lines(path, encoding) as lines:
        start = list(islice(lines, SAMPLE))
        stated = _STATED.fullmatch(start[0]) if start else None
        blank = 0 if stated is None else 1
        while blank < len(start) and not start[blank].strip():
            blank += 1
        separator = stated[1] if stated else _separator(start[blank:], len(start) == SAMPLE)
        table = csv.reader(chain(start[blank:], lines), delimiter=separator, strict=True)
        while True:
            place = Place(path, blank + table.line_num + 1)
            try:
                values = next(table)
            except StopIteration:
                return
            except csv.Error as error:
                if "field larger" in str(error):  # quotes that may never end
                    raise place.error(f"a value of over {MOST_CHARACTERS:,} characters") from None
                yield place, partial(_refuse, place, f"not valid CSV: {error}")
            else:
                if values:
                    yield place, partial(list, values)


@contextmanager
def _lines(path: str, encoding: str) -> Iterator[Iterator[str]]:
    """Open the lines of a file, with line ends. Raises InputError for one that is too long."""

    def read() -> Iterator[str]:
        for number, line in enumerate(iter(partial(text.readline, LARGEST), ""), 1):
            if len(line) == LARGEST:
                raise Place(path, number).error(f"longer than {LARGEST / 2**20:.0f} MiB")
            yield line

    with (
        open_bytes(path) as file,
        # Without universal newlines a lone CR would end no line.
        io.TextIOWrapper(file, encoding, "replace", newline="") as text,  # type: ignore[type-var]
    ):
        yield read()


def _separator(lines: list[str], more: bool) -> str:
    """Return the separator of a table by its first lines: it divides most of them as the header."""
    best, best_score = UNUSED, (0.0, 0, 0)
    for separator in SEPARATORS:
        try:
            # The last row may go on after the sample.
            table = [row for row in csv.reader(lines, delimiter=separator) if row]
        except csv.Error:
            continue
        header, *rows = table[: -1 if more and len(table) > 2 else None] or [[]]
        if len(header) < 2:
            continue
        even = sum(len(row) == len(header) for row in rows) / max(len(rows), 1) if rows else 1.0
        names = len(RESERVED.intersection(column_names(header)))
        if (score := (even, names, len(header))) > best_score:
            best, best_score = separator, score
    return best


def _encoding(path: str) -> str:
    """Return the encoding of a file: UTF-8, or by its mark or its letters."""
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
                return "utf-8-sig"
            block = file.read(2**20)


def _refuse(place: Place, problem: str) -> list[str]:
    raise place.error(problem)
