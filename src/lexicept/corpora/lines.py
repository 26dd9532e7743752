"""Text files read line by line, gzipped or not."""

import codecs
import gzip
from collections.abc import Iterator
from functools import partial

from lexicept.corpora.records import Place, readable

LONGEST = 2**28
"""Bytes of the longest line read: a small gzipped file may hold a line larger than memory."""


def read_lines(path: str) -> Iterator[tuple[Place, str]]:
    """Yield the lines that are not blank, without their line ends.

    Raises:
        InputError: the file cannot be read, or a line is not UTF-8 or longer than ``LONGEST``.
    """
    # Bytes, because text mode would hide the line of a decoding error and split at a lone CR.
    with (
        readable(path),
        gzip.open(path, "rb") if path.lower().endswith(".gz") else open(path, "rb") as file,
    ):
        for number, raw in enumerate(iter(partial(file.readline, LONGEST), b""), 1):
            place = Place(path, number)
            if len(raw) == LONGEST:
                raise place.error(f"longer than {LONGEST / 2**20:.0f} MiB")
            try:
                line = (raw.removeprefix(codecs.BOM_UTF8) if number == 1 else raw).decode()
            except UnicodeDecodeError as error:
                raise place.error(f"not UTF-8: {error.reason}") from error
            if line.strip():
                yield place, line.removesuffix("\n").removesuffix("\r")
