"""Comma-separated values (RFC 4180) with a header, and other separators: documents."""

import csv
import io
import re
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain, islice, product
from typing import Any

from lexicept.corpora.budgets import LARGEST
from lexicept.corpora.json_lines import RESERVED
from lexicept.corpora.lines import open_bytes
from lexicept.corpora.records import MOST_CHARACTERS, Document, Location, Records
from lexicept.corpora.tables import Rows, column_names, read_table
from lexicept.corpora.text_encoding import UTF_8, encoding_of, other_mark

SEPARATORS = ",;\t|"
"""Separators that a file may have without saying so, the likeliest first."""

UNUSED = "\x1f"
"""Separates nothing: a table of one column may have commas in its texts."""

BYTES = "latin-1"
"""Decodes each byte to the character of its number."""

SAMPLE = 200
"""Lines that decide on the separator."""

_END = "end"
"""The line after the last; part of the row before only if a quote there never closes."""

_STATED = re.compile(r'"?sep=(.)"?\s*', re.I)
"""The first line by which Excel is told the separator."""


def read_documents(path: str) -> Records[Document]:
    """Yield the documents of a file; errors are those of ``read_table``, and for an endless value.

    A value in quotes may hold separators and line breaks; lines end in LF, CR or both. Quotes that
    RFC 4180 forbids are read as Python's csv module does. The first line may state the separator
    (``sep=;``); else it is the one of ``SEPARATORS`` that divides the first lines most evenly."""
    # The module's own limit is 131,072 characters.
    csv.field_size_limit(max(csv.field_size_limit(), MOST_CHARACTERS))
    return read_table(partial(_rows, path, _encoding(path)))


def _rows(path: str, encoding: str) -> Rows:
    """Yield the rows that are not blank, each with its starting line."""
    with _lines(path, encoding) as lines:
        start = list(islice(lines, SAMPLE))
        stated = _STATED.fullmatch(start[0]) if start else None
        blank = 0 if stated is None else 1
        while blank < len(start) and not start[blank].strip():
            blank += 1
        dialect = _dialect(start[blank:], len(start) == SAMPLE)
        dialect |= {"delimiter": stated[1]} if stated else {}
        for line, values in _read_rows(chain(start[blank:], lines), dialect):
            if values is None or any(map(str.strip, values)):
                location = Location(path, blank + line)
                yield location, partial(_values, location, values)


def _read_rows(
    lines: Iterator[str], dialect: dict[str, Any]
) -> Iterator[tuple[int, list[str] | None]]:
    """Yield the number of the starting line and the values of each row; None for a value of over
    ``MOST_CHARACTERS``. After a quote that never closes, the row ends with its starting line."""
    taken: list[str] = []
    again: deque[str] = deque()
    lines = chain(lines, [_END])

    def take() -> Iterator[str]:
        while line := again.popleft() if again else next(lines, ""):
            taken.append(line)
            yield line

    reader, line_number = _parsed(take(), dialect), 1
    while True:
        taken.clear()
        values = next(reader)
        if taken[0] is _END:
            return
        if len(taken) > 1 and (values is None or taken[-1] is _END):
            again.extendleft(reversed(taken[1:]))
            del taken[1:]
            values = next(_parsed(taken, dialect | {"quoting": csv.QUOTE_NONE}))
            reader = _parsed(take(), dialect)
        yield line_number, values
        line_number += len(taken)


def _parsed(lines: Iterable[str], dialect: dict[str, Any]) -> Iterator[list[str] | None]:
    """Yield rows as the module csv reads them; None for a value over the limit."""
    table = csv.reader(lines, **dialect)
    while True:
        try:
            yield next(table)
        except csv.Error:
            yield None
        except StopIteration:
            return


def _values(location: Location, values: list[str] | None) -> list[str]:
    if values is None:
        raise location.error(f"a value of over {MOST_CHARACTERS:,} characters")
    return values


@contextmanager
def _lines(path: str, encoding: str) -> Iterator[Iterator[str]]:
    """Open the lines of a file, with line ends. Raises InputError for one that is too long."""

    def read() -> Iterator[str]:
        for line_number, line in enumerate(iter(partial(text.readline, LARGEST), ""), 1):
            if len(line) == LARGEST:
                raise Location(path, line_number).error(f"longer than {LARGEST / 2**20:.0f} MiB")
            yield line.encode(BYTES).decode(encoding, "replace") if codec == BYTES else line

    # Lines of encodings without an incremental decoder are decoded one by one.
    codec = encoding if encoding.startswith("utf") else BYTES
    codec = "utf-8-sig" if encoding == UTF_8 else codec
    with (
        open_bytes(path) as file,
        # Without universal newlines a lone CR would end no line.
        io.TextIOWrapper(file, codec, "replace", newline="") as text,  # type: ignore[type-var]
    ):
        yield read()


def _dialect(lines: list[str], more: bool) -> dict[str, Any]:
    """Return a table's separator, and the backslash if quotes are escaped, from the first lines:
    the dialect that divides most lines as the header."""

    def score(dialect: dict[str, Any]) -> tuple[float, int, int]:
        # The last row may go on after the sample.
        table = [cells for cells in _parsed(lines, dialect) if cells]
        header, *body = table[: -1 if more and len(table) > 2 else None] or [[]]
        even = sum(len(cells) == len(header) for cells in body) / len(body) if body else 1.0
        names = len(RESERVED.intersection(column_names(header)))
        return (even, names, len(header)) if len(header) > 1 else (0.0, 0, 0)

    choices = product([UNUSED, *SEPARATORS], (None, "\\"))
    return max(({"delimiter": sign, "escapechar": escape} for sign, escape in choices), key=score)


def _encoding(path: str) -> str:
    """Return the encoding of a file: UTF-8, or by its mark or its letters."""
    with open_bytes(path) as file:
        sample = file.read(2**20)
        blocks = chain([sample], iter(partial(file.read, 2**20), b""))
        return other_mark(sample) or encoding_of(blocks)
