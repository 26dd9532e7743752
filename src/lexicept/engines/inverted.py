"""Inversion of documents into posting lists and rows of a table, segment by segment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp

from lexicept.errors import InputError
from lexicept.kernels.posting_lists import MARGIN, fitting_widths, pack
from lexicept.segments import neighbours
from lexicept.storage.arrays import ArrayWriter, BlockWriter, save_array
from lexicept.vectors import Floats, Integers, indptr_of

SHARES: dict[np.dtype[Any], int] = {np.dtype(np.float32): 2, np.dtype(np.uint8): 3}
"""A dimension of more than 1/SHARES of a segment's documents is stored as a row of a table: at most
twice the space of a list, and several times faster to search."""

TOGETHER = 2**19
"""Most postings inverted at once, about 60 bytes for each, unless one dimension has more."""


class Inverted(NamedTuple):
    """Arrays of ``ExactEngine`` for neighbouring dimensions of a segment."""

    lengths: Integers
    widths: Integers
    gaps: Integers
    weights: Floats
    table: Floats
    df: Integers
    """Document frequency of each dimension [V]."""
    maxima: Floats
    """Largest weight of each dimension, like the weights [V]."""


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
            first: number of the first document in the segment.
        """
        by_column = sp.csc_array(documents)
        by_column.eliminate_zeros()
        in_segment = (by_column.indices + first).astype(np.uint16)
        return cls(by_column.indptr.astype(np.int64), in_segment, by_column.data)


def inverted_in_groups(
    documents: Iterable[sp.csr_array], scales: Floats, kind: np.dtype[Any]
) -> Iterator[tuple[slice, Inverted]]:
    """Invert the documents of a segment, blocks of CSR f32 [n, V], some neighbouring dimensions at
    a time; see ``inverted``."""
    blocks, count = [], 0
    for block in documents:
        blocks.append(ByDimension.of(block, count))
        count += block.shape[0]
    df = np.sum([np.diff(block.starts) for block in blocks], axis=0)
    for dimensions in neighbours(df, TOGETHER):
        yield dimensions, inverted(_joined(blocks, dimensions, count), scales[dimensions], kind)


def _joined(blocks: Sequence[ByDimension], dimensions: slice, count: int) -> sp.csc_array:
    """Return some dimensions of all blocks, CSC f32 [count, dimensions]."""
    bounds = [block.starts[dimensions.start : dimensions.stop + 1] for block in blocks]
    # One block has the postings in order.
    if len(blocks) == 1:
        ((starts,), (block,)) = bounds, blocks
        postings = slice(starts[0], starts[-1])
        documents = block.documents[postings].astype(np.int32)
        csc = block.weights[postings], documents, starts - starts[0]
        return sp.csc_array(csc, shape=(count, starts.size - 1))
    lengths = [np.diff(starts) for starts in bounds]
    indptr = indptr_of(np.sum(lengths, axis=0))
    documents, weights = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
    # Each block's postings of a dimension go behind those of earlier blocks.
    free = indptr[:-1].copy()
    for block, starts, length in zip(blocks, bounds, lengths, strict=True):
        postings = slice(starts[0], starts[-1])
        positions = np.repeat(free - starts[:-1], length) + np.arange(starts[0], starts[-1])
        documents[positions] = block.documents[postings]
        weights[positions] = block.weights[postings]
        free += length
    return sp.csc_array((weights, documents, indptr), shape=(count, indptr.size - 1))


def inverted(segment: sp.csc_array, scales: Floats, kind: np.dtype[Any]) -> Inverted:
    """Invert documents of a segment, CSC f32 [n, V] without zeros: all or some neighbouring
    dimensions, to weights of type ``kind``, f32 or u8, with scales [V]."""
    df, count = np.diff(segment.indptr), segment.shape[0]
    weights = segment.data
    if kind == np.uint8:
        # Whole steps of the dimension's scale.
        steps = np.rint(weights / np.repeat(scales, df))
        weights = np.clip(steps, 1, 255).astype(np.uint8)  # a weight of 0 would be no posting
    maxima = np.zeros(df.size, kind)
    if weights.size:
        maxima[df > 0] = np.maximum.reduceat(weights, segment.indptr[:-1][df > 0])
    tabled = df.astype(np.int64) * SHARES[kind] > count
    table = np.zeros((int(tabled.sum()), count), kind)
    for table_row, dimension in zip(table, np.flatnonzero(tabled).tolist(), strict=True):
        span = slice(segment.indptr[dimension], segment.indptr[dimension + 1])
        table_row[segment.indices[span]] = weights[span]
    widths = np.where(tabled, 0, fitting_widths(df, count)).astype(np.uint8)
    # The other dimensions are lists.
    listed = np.repeat(~tabled, df)
    lists = pack(
        segment.indices[listed], weights[listed], df[~tabled].astype(np.int64), widths[~tabled]
    )
    lengths = np.minimum(df, 2**16 - 1).astype(np.uint16)
    lengths[~tabled] = lists.lengths
    return Inverted(lengths, widths, lists.gaps, lists.weights, table.ravel(), df, maxima)


def check_weight_bits(weight_bits: int) -> None:
    """Raise InputError unless weights have 32 or 8 bits."""
    if weight_bits not in (32, 8):
        raise InputError(f"weights have 32 or 8 bits, not {weight_bits}")


class PostingsWriter(BlockWriter):
    """Writes inverted segments into memory or files of ``folder``, for ``ExactEngine.of``;
    ``largest`` is the largest weight of every dimension [V]. Raises InputError for another number
    of bits than 32 and 8."""

    def __init__(self, largest: Floats, weight_bits: int = 32, folder: Path | None = None) -> None:
        check_weight_bits(weight_bits)
        self.kind = np.dtype(np.float32 if weight_bits == 32 else np.uint8)
        """The type of weights."""
        self.scales = np.ones(largest.size, np.float32)
        """Scale of each dimension's weights [V]."""
        if weight_bits == 8:
            self.scales = (np.where(largest > 0, largest, 1) / 255).astype(np.float32)
        self.folder = folder
        self.num_documents = 0
        self._df = np.zeros(largest.size, np.int64)
        self._maxima = np.zeros(largest.size, self.kind)
        self._lengths: list[Integers] = []
        self._widths: list[Integers] = []
        self._kinds = {"gaps": np.dtype(np.uint8), "weights": self.kind, "table": self.kind}
        # Arrays grow group by group: lists of arrays, or files.
        self._arrays: dict[str, Any] = {name: [] for name in self._kinds}
        with ExitStack() as files:
            if folder is not None:
                for name, dtype in self._kinds.items():
                    writer = ArrayWriter(folder / f"{name}.npy", dtype)
                    self._arrays[name] = files.enter_context(writer)
            self._open = files.pop_all()

    def add(self, groups: Iterable[tuple[slice, Inverted]], count: int) -> slice:
        """Add a segment of ``inverted_in_groups``; return the numbers of its documents.

        Args:
            count: number of documents: ``SEGMENT``, or fewer in the last segment.
        """
        lengths = np.zeros(self.scales.size, np.uint16)
        widths = np.zeros(self.scales.size, np.uint8)
        for dimensions, group in groups:
            lengths[dimensions], widths[dimensions] = group.lengths, group.widths
            self._df[dimensions] += group.df
            self._maxima[dimensions] = np.maximum(self._maxima[dimensions], group.maxima)
            for name, array in self._arrays.items():
                array.append(getattr(group, name))
        self._lengths.append(lengths)
        self._widths.append(widths)
        self.num_documents += count
        return slice(self.num_documents - count, self.num_documents)

    @property
    def largest(self) -> Floats:
        """The largest weight of each dimension so far, f32 [V]."""
        return self._maxima * self.scales

    def finish(self, offsets: Floats) -> dict[str, Any]:
        """Complete the arrays of ``ExactEngine``, with an offset per document, f32 [N].

        Returns:
            The arrays by name; without a folder's arrays that have grown in files.
        """
        self._arrays["gaps"].append(np.zeros(MARGIN, np.uint8))
        shape = len(self._lengths), self.scales.size
        arrays: dict[str, Any] = {
            "lengths": np.array(self._lengths, np.uint16).reshape(shape),
            "widths": np.array(self._widths, np.uint8).reshape(shape),
            "df": self._df,
            "scales": self.scales,
            "offsets": offsets,
        }
        self._open.close()
        if self.folder is None:
            for name, dtype in self._kinds.items():
                arrays[name] = np.concatenate([np.empty(0, dtype), *self._arrays[name]])
            return arrays
        for name, values in arrays.items():
            save_array(self.folder / f"{name}.npy", values)
        return arrays
