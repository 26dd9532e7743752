"""Sequences that read items on demand."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TypeVar, overload

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
        return [self._read(index) for index in indices]

    def __iter__(self) -> Iterator[Item]:
        return map(self._read, range(len(self)))
