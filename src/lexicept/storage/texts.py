"""Texts on disk, read one at a time."""

from __future__ import annotations

import mmap
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from lexicept.errors import IndexFormatError
from lexicept.storage.arrays import ArrayWriter, BlockWriter, are_offsets, let_go, load_array
from lexicept.storage.files import beside, disk_errors
from lexicept.storage.sequences import LazySequence
from lexicept.vectors import Integers

MANY = 2**16
"""Number of offsets written together, and of texts read together."""

SHORT = 2**22
"""Bytes of ``MANY`` texts up to which decoding all together is faster, as for ids."""


class TextStore(LazySequence[str]):
    """Texts on disk, ``<prefix>.offsets.npy`` and ``<prefix>.bin``, read one at a time. Raises
    IndexFormatError for missing or damaged files; on reading, a text that is not UTF-8."""

    def __init__(self, prefix: Path) -> None:
        self._offsets = load_array(beside(prefix, ".offsets.npy"), np.int64)
        path = beside(prefix, ".bin")
        if not path.is_file():
            raise IndexFormatError(f"{path}: missing")
        if not are_offsets(self._offsets, path.stat().st_size):
            raise IndexFormatError(f"{path}: its size does not match its offsets")
        self._path = path
        self._bytes: bytes | mmap.mmap = b""  # an empty file can't be mapped
        if self._offsets[-1]:
            with disk_errors(path), path.open("rb") as file:
                self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    @staticmethod
    def write(prefix: Path, texts: Iterable[str]) -> int:
        """Write texts and return the number of texts."""
        with TextWriter(prefix) as writer:
            for text in texts:
                writer.append(text)
        return writer.count

    def __len__(self) -> int:
        return int(self._offsets.size) - 1

    def __iter__(self) -> Iterator[str]:
        return self.between(0, len(self))

    def between(self, start: int, stop: int) -> Iterator[str]:
        """Yield neighbouring texts, from ``start`` to ``stop``, and release the memory of many."""
        for block in range(start, stop, MANY):  # offsets as Python's numbers are faster to use
            offsets = self._offsets[block : min(block + MANY, stop) + 1].tolist()
            low, high = offsets[0], offsets[-1]
            # In ASCII offsets count characters too: all texts are decoded together.
            if high - low <= SHORT and (encoded := self._bytes[low:high]).isascii():
                texts = encoded.decode()
                for begin, end in pairwise(offsets):
                    yield texts[begin - low : end - low]
            else:
                for index, (begin, end) in enumerate(pairwise(offsets), block):
                    yield self._decoded(index, begin, end)
            if len(offsets) > MANY:
                let_go(self._bytes)
                let_go(self._offsets)

    def encoded(self, start: int, stop: int) -> tuple[bytes, Integers]:
        """Return texts from ``start`` to ``stop`` in UTF-8, and their lengths [stop - start]."""
        offsets = self._offsets[start : stop + 1]
        return self._bytes[offsets[0] : offsets[-1]], np.diff(offsets)

    def _read(self, index: int) -> str:
        return self._decoded(index, self._offsets[index], self._offsets[index + 1])

    def select(self, indices: Sequence[int]) -> list[str]:
        """Return the texts of numbers."""
        positions = np.asarray(indices, np.int64)
        starts, ends = self._offsets[positions].tolist(), self._offsets[positions + 1].tolist()
        try:
            return [self._bytes[a:b].decode() for a, b in zip(starts, ends, strict=True)]
        except UnicodeDecodeError:
            return super().select(indices)  # whose error names the text

    def _decoded(self, index: int, start: int, end: int) -> str:
        try:
            return self._bytes[start:end].decode()
        except UnicodeDecodeError as error:
            raise IndexFormatError(f"{self._path}: text {index}: {error}") from None


class JoinedTexts(LazySequence[str]):
    """Texts of several stores in any ``order``: positions in all stores, one after another [n]."""

    def __init__(self, stores: Sequence[TextStore], order: Integers) -> None:
        self._stores, self._order = stores, order
        self._starts = [0, *accumulate(map(len, stores))]

    def __len__(self) -> int:
        return int(self._order.size)

    def _read(self, index: int) -> str:
        position = int(self._order[index])
        store = bisect_right(self._starts, position) - 1
        return self._stores[store][position - self._starts[store]]

    def __iter__(self) -> Iterator[str]:
        for store, run in self._runs():
            yield from store.between(run.start, run.stop)

    def write(self, writer: TextWriter) -> None:
        """Append the encoded texts to a writer."""
        for store, run in self._runs():
            for block in range(run.start, run.stop, MANY):
                texts, lengths = store.encoded(block, min(block + MANY, run.stop))
                writer.append_encoded(texts, lengths)

    def _runs(self) -> Iterator[tuple[TextStore, range]]:
        """Yield the texts in order, as neighbours in one store."""
        breaks = np.flatnonzero(np.diff(self._order) != 1) + 1
        for run_start, run_end in pairwise([0, *breaks.tolist(), len(self)]):
            if run_start == run_end:  # no texts at all
                return
            start, stop = int(self._order[run_start]), int(self._order[run_end - 1]) + 1
            while start < stop:
                store = bisect_right(self._starts, start) - 1
                end = min(stop, self._starts[store + 1])
                before = self._starts[store]
                yield self._stores[store], range(start - before, end - before)
                start = end


class TextWriter(BlockWriter):
    """Writes a ``TextStore``, text by text."""

    def __init__(self, prefix: Path) -> None:
        self.count = 0
        with ExitStack() as files:
            offsets = ArrayWriter(beside(prefix, ".offsets.npy"), np.int64)
            self._offsets = files.enter_context(offsets)
            self._path = beside(prefix, ".bin")
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

    def append_encoded(self, texts: bytes, lengths: Integers) -> None:
        """Add texts in UTF-8 with these lengths [n]."""
        self._file.write(texts)
        self._flush()
        self._offsets.append(self._end + np.cumsum(lengths))
        self._end += len(texts)
        self.count += lengths.size

    def _flush(self) -> None:
        self._offsets.append(self._ends)
        self._ends = array("q")

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, *trace: Any
    ) -> None:
        with disk_errors(self._path):
            try:
                if error_type is None:
                    self._flush()
            finally:
                super().__exit__(error_type, error, *trace)
            if isinstance(error, OSError):
                raise error
