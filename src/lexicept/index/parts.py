"""Parts: what an index stores of documents, in folders that never change.

``parts/000001`` and so on hold the ids, titles and texts of some rows, and their term frequencies
in each vocabulary. The rows of a generation are rows of its parts, in the order of ``rows.npy``;
without that file, all of them one after another. So a change writes a part for new documents, links
the other parts, and leaves out of the order what is deleted or replaced.

Parts are merged so that they stay few: ``FEW`` of a size become one of the next, as in Lucene's
merge policy by levels, and parts of which most rows are gone are written anew. A row is written at
most once for every level, ``log_FEW(N / SMALLEST)``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lexicept.errors import IndexFormatError, InputError
from lexicept.storage.arrays import CSRWriter, JoinedRows, StoredRows, load_array, save_array
from lexicept.storage.texts import JoinedTexts, TextStore, TextWriter
from lexicept.vectors import Integers

PARTS = "parts"
ORDER = "rows.npy"
TEXTS = ("ids", "titles", "texts")

FEW = 8
"""Number of parts of one level from which on they are merged."""

SMALLEST = 1024
"""Rows of a part below which it is of the lowest level."""

MOST_ROWS = 2**31 - 1
"""Most rows of an index: the engine and SciPy number them in 32 bits, with a sign."""

BLOCK = 2**14
"""Rows whose term frequencies are copied at once."""


def check_rows(rows: int) -> None:
    """Raise InputError for more documents, or passages, than one index can number."""
    if rows > MOST_ROWS:
        raise InputError(
            f"{rows:,} documents and passages; an index holds {MOST_ROWS:,} at most, whose numbers "
            "have 32 bits: make several indexes"
        )


def part_name(number: int) -> str:
    """Return the name of a part's folder."""
    return f"{number:06d}"


def frequencies(part: Path, vocabulary: str) -> Path:
    """Return the prefix of the files of a part's term frequencies; see ``load_csr``."""
    return part / f"{vocabulary}.frequencies"


@dataclass(frozen=True)
class Parts:
    """Parts, and rows of them in any order."""

    folders: tuple[Path, ...]
    stores: Mapping[str, Sequence[TextStore]]
    """By name, those of each part."""
    given: Integers | None = None
    """Numbers of the rows, counted through the parts; None for all rows one after another."""

    @classmethod
    def open(cls, folder: Path) -> Parts:
        """Open the parts of a generation. Raises IndexFormatError where they are damaged."""
        places = sorted((folder / PARTS).iterdir()) if (folder / PARTS).is_dir() else []
        if not places:
            raise IndexFormatError(f"{folder / PARTS}: missing")
        stores = {name: [TextStore(place / name) for place in places] for name in TEXTS}
        if len({tuple(map(len, own)) for own in stores.values()}) > 1:
            raise IndexFormatError(f"{folder / PARTS}: different numbers of ids, titles and texts")
        if not (folder / ORDER).exists():
            return cls(tuple(places), stores)
        parts = cls(tuple(places), stores, load_array(folder / ORDER, np.int64))
        if parts.order.min(initial=0) < 0 or parts.order.max(initial=-1) >= sum(parts.counts):
            raise IndexFormatError(f"{folder / ORDER}: rows that are in no part")
        return parts

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """The number of rows that each part holds."""
        return tuple(map(len, self.stores["ids"]))

    @cached_property
    def order(self) -> Integers:
        """Numbers of the rows, counted through the parts one after another [N]."""
        return np.arange(sum(self.counts)) if self.given is None else self.given

    def texts(self, name: str) -> TextStore | JoinedTexts:
        """Return the ids, titles or texts of the rows."""
        stores = self.stores[name]
        alone = len(stores) == 1 and self.given is None
        return stores[0] if alone else JoinedTexts(stores, self.order)

    def tf(self, vocabulary: str, size: int) -> StoredRows | JoinedRows:
        """Return the term frequencies of the rows in one vocabulary [N, size]."""
        prefixes = tuple(frequencies(folder, vocabulary) for folder in self.folders)
        if len(prefixes) == 1 and self.given is None:
            return StoredRows(prefixes[0], size)
        return JoinedRows(prefixes, self.counts, size, self.order)

    def __add__(self, other: Parts) -> Parts:
        """Return these parts and others, and all of their rows."""
        stores = {name: [*own, *other.stores[name]] for name, own in self.stores.items()}
        order = np.concatenate([self.order, sum(self.counts) + other.order])
        return Parts((*self.folders, *other.folders), stores, order)

    def __getitem__(self, rows: Integers) -> Parts:
        """Return these parts with some of their rows."""
        return replace(self, given=self.order[rows])


class Plan(NamedTuple):
    """The parts that a change keeps, and those that it merges."""

    kept: list[int]
    """Numbers of those that stay."""
    merged: list[list[int]]
    """Numbers of those that become one, for each new part."""


def plan(counts: Sequence[int], alive: Sequence[int]) -> Plan:
    """Decide which parts are merged.

    Args:
        counts: rows of each part.
        alive: how many of them are among the generation's; parts without any are in no list.
    """
    levels: dict[int, list[list[int]]] = defaultdict(list)
    emptied = {part for part, count in enumerate(counts) if 2 * alive[part] < count}
    for part, count in enumerate(counts):
        if alive[part]:
            levels[_level(alive[part] if part in emptied else count)].append([part])
    kept, merged, level = [], [], 0
    while level <= max(levels, default=-1):
        groups = levels[level]
        if len(groups) >= FEW:
            together = sorted(part for group in groups for part in group)
            levels[max(_level(sum(alive[p] for p in together)), level + 1)].append(together)
        else:
            for group in groups:
                anew = len(group) > 1 or group[0] in emptied
                merged.append(group) if anew else kept.extend(group)
        level += 1
    return Plan(sorted(kept), merged)


def _level(rows: int) -> int:
    level = 0
    while rows >= SMALLEST * FEW**level:
        level += 1
    return level


def write_parts(
    parts: Parts, folder: Path, sizes: Mapping[str, int], read: Callable[[Sequence[Path]], None]
) -> list[Path]:
    """Write what a generation stores of documents, but for the parts that stay as they are.

    Args:
        parts: with the rows of the generation.
        folder: of the generation.
        sizes: the dimensions of each vocabulary.
        read: called with the folders of parts before they are copied.

    Returns:
        The folders of the parts to link.
    """
    ends = np.cumsum(parts.counts)
    part_of = np.searchsorted(ends, parts.order, "right")
    alive = np.bincount(part_of, minlength=ends.size).tolist()
    kept, merged = plan(parts.counts, alive)
    counts = [parts.counts[part] for part in kept]
    order = np.empty(parts.order.size, np.int64)
    for part, end, count in zip(kept, np.cumsum(counts).tolist(), counts, strict=True):
        own = part_of == part
        order[own] = parts.order[own] - (ends[part] - parts.counts[part]) + end - count
    first = sum(counts)
    following = max(int(place.name) for place in parts.folders) + 1
    for number, group in enumerate(merged, following):
        read([parts.folders[part] for part in group])
        rows = np.flatnonzero(np.isin(part_of, group))
        _write_part(parts[rows], folder / PARTS / part_name(number), sizes)
        order[rows] = first + np.arange(rows.size)
        first += rows.size
    if not np.array_equal(order, np.arange(first)):
        save_array(folder / ORDER, order)
    return [parts.folders[part] for part in kept]


def _write_part(parts: Parts, target: Path, sizes: Mapping[str, int]) -> None:
    """Write the rows of some parts as one."""
    target.mkdir(parents=True)
    for name in TEXTS:
        with TextWriter(target / name) as writer:
            JoinedTexts(parts.stores[name], parts.order).write(writer)
    for name, size in sizes.items():
        rows = parts.tf(name, size)
        with CSRWriter(frequencies(target, name)) as written:
            for start in range(0, parts.order.size, BLOCK):
                written.append(rows[start : start + BLOCK].load())
