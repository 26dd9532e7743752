"""Sequences that read items on demand."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TypeVar, overload

import numpy as np

Item = TypeVar("Item", covariant=True)


class LazySequence(Sequence[Item]):
    """A sequence that reads an item by number, from 0 on; slices are lists."""

    @abstractmethod
    def _read(self, index: int) -> Item: ...

    @overload
    def __getitem__(self, position: int) -> Item: ...
    @overload
    def __getitem__(self, position: slice) -> list[Item]: ...
    def __getitem__(self, position: int | slice) -> Item | list[Item]:
        if isinstance(position, slice):
            return [self._read(index) for index in range(*position.indices(len(self)))]
        index = position + len(self) if position < 0 else position
        if not 0 <= index < len(self):
            raise IndexError(position)
        return self._read(index)

    def select(self, indices: Sequence[int]) -> list[Item]:
        """Return the items of numbers."""
        return [self._read(index) for index in indices]

    def __iter__(self) -> Iterator[Item]:
        return map(self._read, range(len(self)))


class NumberOf:
    """The number of each text of a sequence of distinct texts, found by a hash of 64 bits.

    The hashes take 16 bytes a text; a dictionary of eight million ids takes a gigabyte.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        hashes = np.fromiter(map(_hash, texts), np.uint64, len(texts))
        self._order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._order]

    def find(self, text: str) -> int | None:
        """Return the number of a text; None for an unknown text."""
        # Different texts may share a hash: all texts of the hash are compared.
        digest = np.uint64(_hash(text))
        position = int(np.searchsorted(self._hashes, digest))
        while position < self._hashes.size and self._hashes[position] == digest:
            index = int(self._order[position])
            if self._texts[index] == text:
                return index
            position += 1
        return None


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
