"""Budgets: the processor time, records and bytes that a file may take, by its size on disk.
Strangers' files may be made to take hours, or all memory. Every reader runs within a budget."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeVar

from lexicept.errors import InputError, LexiceptError, message_of

LARGEST = 2**26
"""Most bytes of a file that is one document, and of a line of other files."""

LARGEST_ARRAY = 2**28
"""Most bytes of a JSON array, which is in memory as a whole."""

SECONDS = 5.0
"""Processor time for a small file."""

BYTES_A_SECOND = 50_000
"""Size of a file for a further second."""

MOST_SECONDS = 120.0
"""Processor time for a file that is one document."""

RECORDS = 1_000
"""Records of a small file."""

BYTES_A_RECORD = 2
"""Size of a file for a further record: gzipped lists of words take little more."""

EXPANDED = 2**20
"""Decompressed bytes of a small file."""

EXPANSION = 100
"""Further decompressed bytes for each byte of a file: texts take 3 to 20."""

NESTING = 100
"""Most blocks inside one another in Markdown."""

NESTED_TEXTS = 20
"""Most texts inside one another, each parsed again, such as directives of MyST."""

FRONT_MATTER = 2**16
"""Most characters of front matter, whose parsers never check the time."""

Result = TypeVar("Result")


class NothingToRead(Exception):  # noqa: N818
    """Raised for a file without a document, or over its budget; the text is the reason."""


class Budget:
    """What reading a file may take.

    Args:
        path: the file.
        most_seconds: most processor time, however large the file.
    """

    def __init__(self, path: str, most_seconds: float = math.inf) -> None:
        size = os.path.getsize(path)
        self.path = path
        self.seconds = self._allowed = min(SECONDS + size / BYTES_A_SECOND, most_seconds)
        self.records = RECORDS + size // BYTES_A_RECORD
        self.bytes = EXPANDED + EXPANSION * size
        self.flaws: list[str] = []
        """What was ignored of the file."""
        self.end = self.earliest = 0.0

    def run(self, source: object, read: Callable[[], Result]) -> Result:
        """Return what a function returns that reads ``source``, the file or a record of it.

        The functions of this module look at the budget meanwhile. Raises NothingToRead if the
        budget is spent, LexiceptErrors of the function, and InputError for all other errors.
        """
        token = _RUNNING.set(self)
        start = time.thread_time()
        self.end, self.earliest = start + self.seconds, time.perf_counter() + self.seconds
        try:
            return read()
        except (LexiceptError, NothingToRead):
            raise
        except Exception as error:  # of any library: one file never ends the reading of others
            cause = f"{type(error).__name__}: {message_of(error, 200)}"
            raise InputError(f"{source}: can't be read: {cause}") from error
        finally:
            self.seconds -= time.thread_time() - start
            _RUNNING.reset(token)

    def check_record(self) -> None:
        """Count a record. Raises NothingToRead if there are too many, or the time is spent."""
        self.records -= 1
        if self.records < 0:
            raise NothingToRead("too many records for the size")
        if self.seconds < 0:
            raise self.slow()

    def slow(self) -> NothingToRead:
        """Return the error of a file that takes too long."""
        return NothingToRead(f"slow, over {self._allowed:.0f} seconds of processor time")


_RUNNING: ContextVar[Budget | None] = ContextVar("running", default=None)
"""The budget of the file that is read."""


def check_time(*_: object) -> bool:
    """Raise NothingToRead if the file that is read has taken too much processor time. Returns False
    otherwise, as rules of parsers do that don't apply."""
    budget = _RUNNING.get()
    # Processor time takes ten times as long to ask for as time, and never runs ahead.
    late = budget is not None and time.perf_counter() > budget.earliest
    if budget is not None and late and time.thread_time() > budget.end:
        raise budget.slow()
    return False


def check_bytes(count: int) -> None:
    """Raise NothingToRead for too many decompressed bytes of the file that is read."""
    if (budget := _RUNNING.get()) is not None and count > budget.bytes:
        raise NothingToRead("too many decompressed bytes for the size")


def note(flaw: str) -> None:
    """Note what is ignored of the file that is read."""
    if (budget := _RUNNING.get()) is not None and flaw not in budget.flaws:
        budget.flaws.append(flaw)
