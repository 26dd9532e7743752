"""Parts: the stored documents of an index, in folders that never change.

``parts/000001`` and so on hold the ids, titles and texts of documents, and their term frequencies
in each vocabulary; a passage counts as a document here. A generation has the documents of its parts
in the order of ``order.npy``, or one after another without that file. A change therefore writes a
part of new documents, links the other parts, and leaves deleted and replaced documents out of the
order.

Merging keeps the parts few: ``MERGED_TOGETHER`` parts of a size become one of the next, as in
Lucene's merge policy by levels, and parts that lost most documents are written anew. A document is
written at most once for every level, ``log(N / LOWEST_LEVEL)`` to the base ``MERGED_TOGETHER``.
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
from lexicept.storage.arrays import CSRWriter, StoredRows, load_array, save_array
from lexicept.storage.texts import JoinedTexts, TextStore, TextWriter
from lexicept.vectors import Integers

PARTS = "parts"
ORDER = "order.npy"
TEXTS = ("ids", "titles", "texts")

MERGED_TOGETHER = 8
"""Number of parts of one level from which on they are merged."""

LOWEST_LEVEL = 1024
"""Documents of a part below which it is of the lowest level."""

MOST_DOCUMENTS = 2**31 - 1
"""Most documents of an index: the engine and SciPy number them in 32 bits, with a sign."""

COPIED_TOGETHER = 2**14
"""Documents whose term frequencies are copied at once."""


def check_number(num_documents: int) -> None:
    """Raise InputError for more documents and passages than one index can number."""
    if num_documents > MOST_DOCUMENTS:
        raise InputError(
            f"{num_documents:,} documents and passages; an index holds {MOST_DOCUMENTS:,} at most, "
            "whose numbers have 32 bits: make several indexes"
        )


def part_name(number: int) -> str:
    return f"{number:06d}"


def part_number(folder: Path) -> int:
    return int(folder.name)


def frequencies(part: Path, vocabulary: str) -> Path:
    """Return the prefix of the files of a part's term frequencies; see ``load_csr``."""
    return part / f"{vocabulary}.frequencies"


@dataclass(frozen=True)
class Parts:
    """Parts, and a selection of their documents in any order."""

    folders: tuple[Path, ...]
    stores: Mapping[str, Sequence[TextStore]]
    """The ids, titles and texts of each part, by name."""
    selection: Integers | None = None
    """Numbers of the documents, counted through the parts; None for all in order."""

    @classmethod
    def open(cls, folder: Path) -> Parts:
        """Open the parts of a generation. Raises IndexFormatError for damaged ones."""
        found = (folder / PARTS).iterdir() if (folder / PARTS).is_dir() else ()
        folders = sorted(found, key=lambda part: (len(part.name), part.name))
        if not folders:
            raise IndexFormatError(f"{folder / PARTS}: missing")
        stores = {name: [TextStore(part / name) for part in folders] for name in TEXTS}
        if len({tuple(map(len, of_parts)) for of_parts in stores.values()}) > 1:
            raise IndexFormatError(f"{folder / PARTS}: different numbers of ids, titles and texts")
        if not (folder / ORDER).exists():
            return cls(tuple(folders), stores)
        parts = cls(tuple(folders), stores, load_array(folder / ORDER, np.int64))
        if parts.order.min(initial=0) < 0 or parts.order.max(initial=-1) >= sum(parts.counts):
            raise IndexFormatError(f"{folder / ORDER}: documents that are in no part")
        return parts

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Number of documents in each part."""
        return tuple(map(len, self.stores["ids"]))

    @cached_property
    def order(self) -> Integers:
        """Numbers of the documents, counted through the parts one after another [N]."""
        return np.arange(sum(self.counts)) if self.selection is None else self.selection

    def part_of(self, numbers: Integers) -> Integers:
        """Return the part of each document, by numbers that are counted through the parts."""
        return np.searchsorted(np.cumsum(self.counts), numbers, "right")

    def texts(self, name: str) -> TextStore | JoinedTexts:
        """Return the ids, titles or texts of the documents."""
        stores = self.stores[name]
        is_one_file = len(self.folders) == 1 and self.selection is None
        return stores[0] if is_one_file else JoinedTexts(stores, self.order)

    def tf(self, vocabulary: str, size: int) -> StoredRows:
        """Return the term frequencies of the documents in one vocabulary [N, size]."""
        prefixes = tuple(frequencies(folder, vocabulary) for folder in self.folders)
        return StoredRows(prefixes, size, self.selection)

    def __add__(self, other: Parts) -> Parts:
        stores = {name: [*texts, *other.stores[name]] for name, texts in self.stores.items()}
        order = np.concatenate([self.order, sum(self.counts) + other.order])
        return Parts((*self.folders, *other.folders), stores, order)

    def __getitem__(self, documents: Integers) -> Parts:
        """Return the same parts with some of the documents."""
        return replace(self, selection=self.order[documents])


class MergePlan(NamedTuple):
    """Numbers of the parts that a change leaves, and of those that it merges."""

    unchanged: list[int]
    merged: list[list[int]]
    """The parts that become one, for each new part."""


def plan_merges(counts: Sequence[int], remaining: Sequence[int]) -> MergePlan:
    """Decide which parts are merged, by the documents of each part, and by those of them that the
    generation has; a part with none remaining is in no list."""
    levels: dict[int, list[list[int]]] = defaultdict(list)
    emptied = {part for part, count in enumerate(counts) if 2 * remaining[part] < count}
    for part, count in enumerate(counts):
        if remaining[part]:
            levels[_level(remaining[part] if part in emptied else count)].append([part])
    unchanged, merged, level = [], [], 0
    # Merged parts go up a level at least, where they may complete another group.
    while level <= max(levels, default=-1):
        groups = levels[level]
        if len(groups) >= MERGED_TOGETHER:
            together = sorted(part for group in groups for part in group)
            merged_level = _level(sum(remaining[part] for part in together))
            levels[max(merged_level, level + 1)].append(together)
        else:
            for group in groups:
                if len(group) > 1 or group[0] in emptied:
                    merged.append(group)
                else:
                    unchanged.extend(group)
        level += 1
    return MergePlan(sorted(unchanged), merged)


def _level(count: int) -> int:
    level = 0
    while count >= LOWEST_LEVEL * MERGED_TOGETHER**level:
        level += 1
    return level


def write_parts(
    parts: Parts,
    folder: Path,
    sizes: Mapping[str, int],
    check: Callable[[Sequence[Path]], None],
    write_more: Callable[[Parts, Path], None],
) -> list[Path]:
    """Merge parts for a new generation, and write the order of its documents.

    Returns the folders of the parts to link.

    Args:
        sizes: the dimensions of each vocabulary.
        check: called with the folders of parts before these are copied.
        write_more: called with the documents and the folder of each new part, for further files.
    """
    part_of = parts.part_of(parts.order)
    remaining = np.bincount(part_of, minlength=len(parts.counts)).tolist()
    unchanged, merged = plan_merges(parts.counts, remaining)
    old_starts = np.cumsum([0, *parts.counts])
    order = np.empty(parts.order.size, np.int64)
    start = 0
    # Linked parts come first, with gaps of documents that have left; new parts follow.
    for part in unchanged:
        in_part = part_of == part
        order[in_part] = parts.order[in_part] - old_starts[part] + start
        start += parts.counts[part]
    next_number = max(map(part_number, parts.folders)) + 1
    for number, group in enumerate(merged, next_number):
        check([parts.folders[part] for part in group])
        documents = np.flatnonzero(np.isin(part_of, group))
        new = folder / PARTS / part_name(number)
        _write_part(parts[documents], new, sizes)
        write_more(parts[documents], new)
        order[documents] = start + np.arange(documents.size)
        start += documents.size
    if not np.array_equal(order, np.arange(start)):
        save_array(folder / ORDER, order)
    return [parts.folders[part] for part in unchanged]


def _write_part(parts: Parts, target: Path, sizes: Mapping[str, int]) -> None:
    """Write the documents of some parts as one part."""
    target.mkdir(parents=True)
    for name in TEXTS:
        with TextWriter(target / name) as writer:
            JoinedTexts(parts.stores[name], parts.order).write(writer)
    for name, size in sizes.items():
        tf = parts.tf(name, size)
        with CSRWriter(frequencies(target, name)) as tf_writer:
            for start in range(0, parts.order.size, COPIED_TOGETHER):
                tf_writer.append(tf[start : start + COPIED_TOGETHER].load())
