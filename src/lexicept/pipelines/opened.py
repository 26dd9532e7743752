"""Accept an opened index or its path."""

from __future__ import annotations

import os
from typing import Protocol, TypeAlias

from lexicept.errors import InputError
from lexicept.index.reader import IndexReader


class Opened(Protocol):
    """An object that reads an index, such as ``lexicept.Index``."""

    @property
    def reader(self) -> IndexReader:
        """The snapshot to read."""


IndexLike: TypeAlias = Opened | IndexReader | str | os.PathLike[str]
"""An opened index, or the path of one."""


def reader_of(index: IndexLike, *, engine: str = "exact") -> IndexReader:
    """Return the snapshot that an opened index holds, or open the one at a path.

    Args:
        engine: the engine that searches a path; an opened index keeps its own.

    Raises:
        IndexFormatError: the path holds no index, or a damaged one.
        InputError: the index has no such engine, or this is neither.
    """
    if isinstance(index, str | os.PathLike):
        return IndexReader.open(index, engine=engine)
    if isinstance(index, IndexReader):
        return index
    if not hasattr(index, "reader"):
        raise InputError(f"an index is an opened one or its path, not {index!r:.80}")
    return index.reader
