"""The snapshot of an opened index: the generation that searches read, until it is refreshed."""

from __future__ import annotations

import math
import threading
import time
import warnings

from lexicept.checks import checked_arguments
from lexicept.errors import InputError, LexiceptWarning
from lexicept.index.reader import IndexReader

LOOK_SECONDS = 1.0
"""Seconds between looks of searches at whether the index on disk has changed."""


class Snapshot:
    """A generation of an index. Changes on disk show after ``refresh``."""

    @checked_arguments
    def __init__(self, reader: IndexReader) -> None:
        self._reader: IndexReader | None = reader
        self._changing, self._changer = threading.Lock(), 0
        self._next_look = 0.0

    @property
    def reader(self) -> IndexReader:
        """The snapshot that searches read. Raises InputError once the index is closed."""
        if self._reader is None:
            raise InputError("the index is closed")
        return self._reader

    @property
    def stale(self) -> bool:
        """True if the index on disk has changed since the snapshot; see ``refresh``."""
        return self.reader.stale()

    def _snapshot(self) -> IndexReader:
        """Return the snapshot. Warn once if the index on disk has changed since."""
        reader, now = self._reader, time.monotonic()
        if reader is None:
            raise InputError("the index is closed")
        if now >= self._next_look:
            self._next_look = now + LOOK_SECONDS
            if reader.missing and reader.stale():
                self.refresh()  # to what its build has added
                reader = self.reader
            # This object's own changes, in another thread, end with a new snapshot.
            if reader.stale() and not self._changing.locked() and reader is self._reader:
                self._next_look = math.inf
                problem = "has changed since it was opened: searches see it as it was"
                message = f"{reader.path} {problem}; refresh() reads it anew"
                warnings.warn(message, LexiceptWarning, stacklevel=3)
        return reader

    def refresh(self) -> bool:
        """Read the newest generation on disk; return True if the generation is new.

        Raises:
            IndexFormatError: the index is gone or damaged. The snapshot stays open.
            InputError: the index is closed.

        Examples:
            >>> index.refresh()
            False
        """
        reader = self.reader
        newest = IndexReader.open(reader.path)
        if newest.manifest == reader.manifest:
            return False
        newest.adopt(reader)
        self._reader, self._next_look = newest, 0.0
        return True

    def close(self) -> None:
        """Release the snapshot; changes may then remove the files. Idempotent.

        Examples:
            >>> index.close()
        """
        self._reader = None
