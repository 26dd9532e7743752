"""A segment of documents, inverted into posting lists and rows of a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp

from lexicept.errors import InputError
from lexicept.ops.lists import MARGIN, fitting_widths, marks_of, pack, unpack
from lexicept.segments import neighbours
from lexicept.storage.arrays import ArrayWriter
from lexicept.vectors import Floats, Integers, neighbouring_rows

SEGMENT = 2**16
"""Documents of a segment: their numbers fit 16 bits, their scores a processor's cache."""

SHARES: dict[np.dtype[Any], int] = {np.dtype(np.float32): 2, np.dtype(np.uint8): 3}
"""A dimension of more than 1/SHARES of a segment's documents is stored as a row of a table: that
takes twice the space of a list at most, and is several times faster to search."""

TOGETHER = 2**19
"""Most postings inverted at once, unless one dimension has more: about 60 bytes for each."""


class Inverted(NamedTuple):
    """Parts of ``ExactEngine`` that neighbouring dimensions of a segment add, and their document
    frequencies [V]."""

    lengths: Integers
    widths: Integers
    maxima: Floats
    gaps: Integers
    weights: Floats
    marks: Integers
    table: Floats
    df: Integers

    def after(self, first: int) -> Inverted:
        """Return the same with the marks that it has after ``first`` entries of other segments; it
        was inverted as if there were none."""
        listed = self.widths > 0
        lengths = self.lengths[listed].astype(np.int64)
        gaps = np.concatenate([self.gaps, np.zeros(MARGIN, np.uint8)])
        documents = unpack(gaps, lengths, self.widths[listed])
        marks = marks_of(documents, np.cumsum(lengths) - lengths, first)
        return self._replace(marks=marks)


class ByDimension(NamedTuple):
    """Neighbouring documents of a segment, by dimension."""

    starts: Integers
    """The first posting of each dimension, and the end of the last [V + 1]."""
    documents: Integers
    """Numbers in the segment, u16."""
    weights: Floats
    """f32."""

    @classmethod
    def of(cls, documents: sp.csr_array, first: int) -> Self:
        """Sort the postings of documents, CSR f32 [n, V].

        Args:
            first: the number of the first one in its segment.
        """
        by_column = sp.csc_array(documents)
        by_column.eliminate_zeros()
        numbers = (by_column.indices + first).astype(np.uint16)
        return cls(by_column.indptr.astype(np.int64), numbers, by_column.data)


def inverted_in_groups(
    blocks: Sequence[ByDimension], count: int, scales: Floats, kind: np.dtype[Any], first: int
) -> Iterator[tuple[slice, Inverted]]:
    """Invert a segment, some neighbouring dimensions at a time.

    Args:
        blocks: its documents, in order.
        count: their number.
        scales: as of ``inverted``, for all dimensions [V].
        kind: as of ``inverted``.
        first: as of ``inverted``.
    """
    df = np.sum([np.diff(block.starts) for block in blocks], axis=0)
    for group in neighbours(df, TOGETHER):
        own = inverted(_joined(blocks, group, count), scales[group], kind, first)
        first += own.weights.size
        yield group, own


def _joined(blocks: Sequence[ByDimension], group: slice, count: int) -> sp.csc_array:
    """Return some dimensions of all blocks, CSC f32 [count, dimensions]."""
    if len(blocks) == 1:
        starts = blocks[0].starts[group.start : group.stop + 1]
        documents, weights = (each[starts[0] : starts[-1]] for each in blocks[0][1:])
        entries = weights, documents.astype(np.int32), starts - starts[0]
        return sp.csc_array(entries, shape=(count, starts.size - 1))
    bounds = [block.starts[group.start : group.stop + 1] for block in blocks]
    lengths = [np.diff(own) for own in bounds]
    indptr = np.concatenate([[0], np.cumsum(np.sum(lengths, axis=0))])
    documents, weights = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
    free = indptr[:-1].copy()
    for block, own, length in zip(blocks, bounds, lengths, strict=True):
        part = slice(own[0], own[-1])
        places = np.repeat(free - own[:-1], length) + np.arange(own[0], own[-1])
        documents[places], weights[places] = block.documents[part], block.weights[part]
        free += length
    return sp.csc_array((weights, documents, indptr), shape=(count, indptr.size - 1))


def inverted(segment: sp.csc_array, scales: Floats, kind: np.dtype[Any], first: int) -> Inverted:
    """Invert a segment, or some neighbouring dimensions of one.

    Args:
        segment: its documents, CSC f32 [n, V], without zeros.
        scales: of the dimensions' weights, if these are rounded to 8 bits [V].
        kind: type of weights, f32 or u8.
        first: number of entries in earlier segments, and in this segment's earlier dimensions.
    """
    df, count = np.diff(segment.indptr), segment.shape[0]
    weights = segment.data
    if kind == np.uint8:
        steps = np.rint(weights / np.repeat(scales, df))
        weights = np.clip(steps, 1, 255).astype(np.uint8)  # not 0: it would be no posting
    maxima = np.zeros(df.size, kind)
    if weights.size:
        maxima[df > 0] = np.maximum.reduceat(weights, segment.indptr[:-1][df > 0])
    tabled = df.astype(np.int64) * SHARES[kind] > count
    table = np.zeros((int(tabled.sum()), count), kind)
    for row, column in zip(table, np.flatnonzero(tabled).tolist(), strict=True):
        span = slice(segment.indptr[column], segment.indptr[column + 1])
        row[segment.indices[span]] = weights[span]
    widths = np.where(tabled, 0, fitting_widths(df, count)).astype(np.uint8)
    listed = np.repeat(~tabled, df)
    postings = segment.indices[listed], weights[listed], df[~tabled].astype(np.int64)
    lists = pack(*postings, widths[~tabled], first)
    lengths = np.minimum(df, 2**16 - 1).astype(np.uint16)
    lengths[~tabled] = lists.lengths
    packed = lists.gaps, lists.weights, lists.marks
    return Inverted(lengths, widths, maxima, *packed, table.ravel(), df)


def check_weight_bits(weight_bits: int) -> None:
    """Raise InputError unless weights have 32 or 8 bits."""
    if weight_bits not in (32, 8):
        raise InputError(f"weights have 32 or 8 bits, not {weight_bits}")


class SegmentWriter:
    """Writes inverted segments into memory or files; see ``exact.PostingsWriter``."""

    def __init__(self, largest: Floats, weight_bits: int = 32, folder: Path | None = None) -> None:
        check_weight_bits(weight_bits)
        self.kind = np.dtype(np.float32 if weight_bits == 32 else np.uint8)
        """The type of weights."""
        self.scales = np.ones(largest.size, np.float32)
        """Scale of each dimension's weights [V]."""
        if weight_bits == 8:
            self.scales = (np.where(largest > 0, largest, 1) / 255).astype(np.float32)
        self._folder = folder
        self._added = 0
        self._waiting: list[ByDimension] = []
        self._entries = 0
        self._df = np.zeros(largest.size, np.int64)
        self._rows: dict[str, list[Any]] = {"lengths": [], "widths": [], "maxima": []}
        self._kinds = {
            "gaps": np.dtype(np.uint8),
            "weights": self.kind,
            "marks": np.dtype(np.uint16),
            "table": self.kind,
        }
        self._parts: dict[str, Any] = {name: [] for name in self._kinds}
        with ExitStack() as files:
            if folder is not None:
                for name, kind in self._kinds.items():
                    writer = ArrayWriter(folder / f"{name}.npy", kind)
                    self._parts[name] = files.enter_context(writer)
            self._open = files.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.__exit__(*error)

    def add(self, block: sp.csr_array) -> int:
        """Add the next documents, CSR f32 [n, V]; return the number of their first."""
        first, start = self._added, 0
        while start < block.shape[0]:
            stop = min(block.shape[0], start + SEGMENT - self._added % SEGMENT)
            own = neighbouring_rows(block, start, stop)
            self._waiting.append(ByDimension.of(own, self._added % SEGMENT))
            self._added += stop - start
            start = stop
            if self._added % SEGMENT == 0:
                self._invert(SEGMENT)
        return first

    def add_segment(self, groups: Iterable[tuple[slice, Inverted]], count: int) -> int:
        """Add a segment that was inverted on its own; return the number of its first document.

        Args:
            groups: what ``inverted_in_groups`` yields.
            count: number of its documents: ``SEGMENT``, or fewer in the last segment.
        """
        first = self._added
        self._added += count
        self._write((group, own.after(self._entries)) for group, own in groups)
        return first

    def _invert(self, count: int) -> None:
        """Write the segment that is complete, of ``count`` documents."""
        blocks, self._waiting = self._waiting, []
        self._write(inverted_in_groups(blocks, count, self.scales, self.kind, self._entries))

    def _write(self, groups: Iterable[tuple[slice, Inverted]]) -> None:
        """Write a segment."""
        size = self.scales.size
        kinds = {"lengths": np.uint16, "widths": np.uint8, "maxima": self.kind, "df": np.int64}
        rows: dict[str, Any] = {name: np.zeros(size, kind) for name, kind in kinds.items()}
        for group, own in groups:
            for name, row in rows.items():
                row[group] = getattr(own, name)
            for name, parts in self._parts.items():
                parts.append(getattr(own, name))
            self._entries += own.weights.size
        self._df += rows.pop("df")
        for name, row in rows.items():
            self._rows[name].append(row)
