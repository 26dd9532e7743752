"""Text files read line by line, gzipped or not."""

import codecs
import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from io import BufferedIOBase, BufferedReader, RawIOBase
from typing import Any

from lexicept.corpora.budgets import LARGEST, check_bytes, check_time
from lexicept.corpora.records import Location, readable
from lexicept.corpora.text_encoding import decode_utf_8


class _Budgeted(RawIOBase):
    """The bytes of an open file, within the budget of the file."""

    def __init__(self, file: Any) -> None:
        self._file, self._count = file, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count: int = self._file.readinto(buffer)
        self._count += count
        check_bytes(self._count)
        check_time()
        return count


@contextmanager
def open_bytes(path: str) -> Iterator[BufferedIOBase]:
    """Open a file, gzipped or not. Raises InputError if it can't be read, now or in the block."""
    with (
        readable(path),
        gzip.open(path, "rb") if path.lower().endswith(".gz") else open(path, "rb", 0) as file,
    ):
        yield BufferedReader(_Budgeted(file), 2**16)


def filled_lines(path: str, longest: int = LARGEST) -> Iterator[tuple[Location, bytes]]:
    """Yield the lines that are not blank, with line ends, without a byte order mark. Raises
    InputError for a file that can't be read, or a line longer than ``longest``."""
    # Bytes, because text mode would hide the line of a decoding error and split at a lone CR.
    with open_bytes(path) as file:
        for line_number, raw in enumerate(iter(partial(file.readline, longest), b""), 1):
            if len(raw) == longest:
                raise Location(path, line_number).error(f"longer than {longest / 2**20:.0f} MiB")
            raw = raw.removeprefix(codecs.BOM_UTF8) if line_number == 1 else raw
            # A file whose lines are ended by CR alone is a single line.
            alone = line_number == 1 and not raw.endswith(b"\n")
            for number, line in enumerate(raw.split(b"\r") if alone else [raw], line_number):
                if line.strip():
                    yield Location(path, number), line


def decode(location: Location, raw: bytes) -> str:
    """Return a line without the line end. Raises InputError if the line is not nearly UTF-8."""
    try:
        return decode_utf_8(raw).removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise location.error(f"not UTF-8: {error.reason}") from error


def read_lines(path: str) -> Iterator[tuple[Location, str]]:
    """Yield the lines that are not blank, without line ends; see ``filled_lines``, ``decode``."""
    return ((location, decode(location, raw)) for location, raw in filled_lines(path))
