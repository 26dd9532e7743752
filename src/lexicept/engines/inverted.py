"""A segment of documents, inverted into posting lists and rows of a table."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from lexicept.errors import InputError
from lexicept.ops.lists import fitting_widths, pack
from lexicept.vectors import Floats, Integers

SHARES: dict[np.dtype[Any], int] = {np.dtype(np.float32): 2, np.dtype(np.uint8): 3}
"""A dimension of more than 1/SHARES of a segment's documents is stored as a row of a table: that
takes twice the space of a list at most, and is several times faster to search."""


class Inverted(NamedTuple):
    """Parts of ``ExactEngine`` that one segment adds, and its document frequencies [V]."""

    lengths: Integers
    widths: Integers
    maxima: Floats
    gaps: Integers
    weights: Floats
    marks: Integers
    table: Floats
    df: Integers


def inverted(segment: sp.csc_array, scales: Floats, kind: np.dtype[Any], first: int) -> Inverted:
    """Invert a segment.

    Args:
        segment: its documents, CSC f32 [n, V].
        scales: of the dimensions' weights, if these are rounded to 8 bits [V].
        kind: type of weights, f32 or u8.
        first: entries of the segments before.
    """
    segment.eliminate_zeros()
    df, count = np.diff(segment.indptr), segment.shape[0]
    weights = segment.data.astype(np.float32)
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
