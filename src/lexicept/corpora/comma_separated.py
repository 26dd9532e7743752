"""Comma-separated values (RFC 4180) with a header, and other separators: documents."""

import csv
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain, islice

from lexicept.corpora.json_lines import RESERVED
from lexicept.corpora.lines import LONGEST, open_bytes
from lexicept.corpora.records import MOST_CHARACTERS, Document, Place, Records
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
        for number, line in enumerate(iter(partial(text.readline, LONGEST), ""), 1):
            if len(line) == LONGEST:
                raise Place(path, number).error(f"longer than {LONGEST / 2**20:.0f} MiB")
            yield line.encode(BYTES).decode(encoding, "replace") if codec == BYTES else line

    # Lines of encodings without an incremental decoder are decoded one by one.
    codec = "utf-8-sig" if encoding == UTF_8 else encoding if encoding[:3] == "utf" else BYTES
    with (
        open_bytes(path) as file,
        # Without universal newlines a lone CR would end no line.
        io.TextIOWrapper(file, codec, "replace", newline="") as text,  # type: ignore[type-var]
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
    with open_bytes(path) as file:
        sample = file.read(2**20)
        blocks = chain([sample], iter(partial(file.read, 2**20), b""))
        return other_mark(sample) or encoding_of(blocks)


def _refuse(place: Place, problem: str) -> list[str]:
    raise place.error(problem)
