"""Sequences whose items are read when they are asked for."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TypeVar, overload

Item = TypeVar("Item", covariant=True)


class LazySequence(Sequence[Item]):
    """A sequence that reads an item by its number, from 0 on; slices are lists."""

    @abstractmethod
    def _read(self, number: int) -> Item:
        """Read the item of that number."""

    @overload
    def __getitem__(self, position: int) -> Item: ...
    @overload
    def __getitem__(self, position: slice) -> list[Item]: ...
    def __getitem__(self, position: int | slice) -> Item | list[Item]:
        if isinstance(position, slice):
            return [self._read(number) for number in range(*position.indices(len(self)))]
        number = position + len(self) if position < 0 else position
        if not 0 <= number < len(self):
            raise IndexError(position)
        return self._read(number)

    def __iter__(self) -> Iterator[Item]:
        return map(self._read, range(len(self)))
