"""A segment of documents, inverted into posting lists and rows of a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp

from lexicept.errors import InputError
from lexicept.ops.lists import MARGIN, fitting_widths, marks_of, pack, unpack
from lexicept.segments import neighbours
from lexicept.vectors import Floats, Integers

SHARES: dict[np.dtype[Any], int] = {np.dtype(np.float32): 2, np.dtype(np.uint8): 3}
"""A dimension of more than 1/SHARES of a segment's documents is stored as a row of a table: that
takes twice the space of a list at most, and is several times faster to search."""

TOGETHER = 2**19
"""Postings that are inverted at once, but for one dimension's: about 60 bytes for each."""


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
        """Return the same after so many entries, where it was inverted after none."""
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
        first: entries of the segments, and of the segment's dimensions, before.
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
    """Raises InputError for others than 32 and 8."""
    if weight_bits not in (32, 8):
        raise InputError(f"weights have 32 or 8 bits, not {weight_bits}")
