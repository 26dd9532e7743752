"""Texts on disk, read one at a time."""

from __future__ import annotations

import mmap
from array import array
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from lexicept.errors import IndexFormatError
from lexicept.storage.arrays import ArrayWriter, BlockWriter, load_array
from lexicept.storage.files import disk_errors
from lexicept.storage.sequences import LazySequence

MANY = 2**16
"""Small numbers that are written together."""


class TextStore(LazySequence[str]):
    """Texts on disk, ``<prefix>.offsets.npy`` and ``<prefix>.bin``, read one at a time."""

    def __init__(self, prefix: Path) -> None:
        self._offsets = load_array(prefix.with_name(f"{prefix.name}.offsets.npy"), np.int64)
        path = prefix.with_name(f"{prefix.name}.bin")
        if not path.is_file():
            raise IndexFormatError(f"{path}: missing")
        sound = (
            self._offsets.size > 0
            and self._offsets[0] == 0
            and self._offsets[-1] == path.stat().st_size
            and bool((np.diff(self._offsets) >= 0).all())
        )
        if not sound:
            raise IndexFormatError(f"{path}: its size does not match its offsets")
        self._path = path
        self._bytes: bytes | mmap.mmap = b""  # an empty file can't be mapped
        if self._offsets[-1]:
            with disk_errors(path), path.open("rb") as file:
                self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    @staticmethod
    def write(prefix: Path, texts: Iterable[str]) -> int:
        """Write texts as they come and return their number."""
        with TextWriter(prefix) as writer:
            for text in texts:
                writer.append(text)
        return writer.count

    def __len__(self) -> int:
        return int(self._offsets.size) - 1

    def _read(self, number: int) -> str:
        start, end = self._offsets[number], self._offsets[number + 1]
        try:
            return self._bytes[start:end].decode()
        except UnicodeDecodeError as error:
            raise IndexFormatError(f"{self._path}: text {number}: {error}") from None


class TextWriter(BlockWriter):
    """Writes a ``TextStore``, text by text."""

    def __init__(self, prefix: Path) -> None:
        self.count = 0
        with ExitStack() as files:
            offsets = ArrayWriter(prefix.with_name(f"{prefix.name}.offsets.npy"), np.int64)
            self._offsets = files.enter_context(offsets)
            self._path = prefix.with_name(f"{prefix.name}.bin")
            self._file = files.enter_context(self._path.open("wb"))
            self._open = files.pop_all()
        self._end = 0
        self._ends = array("q", [0])

    def append(self, text: str) -> None:
        self._end += self._file.write(text.encode())
        self._ends.append(self._end)
        self.count += 1
        if len(self._ends) == MANY:
            self._flush()

    def _flush(self) -> None:
        self._offsets.append(self._ends)
        self._ends = array("q")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, *trace: Any
    ) -> None:
        with disk_errors(self._path):
            try:
                if kind is None:
                    self._flush()
            finally:
                super().__exit__(kind, error, *trace)
            if isinstance(error, OSError):
                raise error
