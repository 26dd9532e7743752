"""Operations on sorted groups of entries, and on the rows of a CSR matrix."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from lexicept.vectors import Floats, Integers, indptr_of, row_numbers, run_starts

Booleans = np.ndarray[Any, np.dtype[np.bool_]]


def firsts(*groups: Integers) -> Booleans:
    """Return whether each entry is the first of its group; groups are contiguous."""
    new = np.ones(groups[0].size, bool)
    new[1:] = np.any([np.diff(group) != 0 for group in groups], axis=0)
    return new


def ranks(groups: Integers) -> Integers:
    """Return the rank of every entry within its group, from 0; groups are contiguous."""
    starts = run_starts(groups)
    return np.arange(groups.size) - np.repeat(starts, np.diff(starts, append=groups.size))


def csr_of_rows(
    data: Floats, columns: Integers, lengths: Integers, shape: tuple[int, int]
) -> sp.csr_array:
    """Return CSR [M, N] of entries in row order, ``lengths`` [M] of them in each row."""
    return sp.csr_array((data, columns, indptr_of(lengths)), shape=shape)


def first_of_rows(matrix: sp.csr_array, count: int) -> sp.csr_array:
    """Return the first ``count`` stored entries of every row of CSR [M, N]."""
    leading = ranks(row_numbers(matrix)) < count
    lengths = np.minimum(np.diff(matrix.indptr), count)
    return csr_of_rows(matrix.data[leading], matrix.indices[leading], lengths, matrix.shape)


def neighbours(counts: Integers, most: int) -> Iterator[slice]:
    """Yield slices of neighbours with ``counts`` [n] that add up to at most ``most``, or of a
    single larger count."""
    ends, start, taken = np.cumsum(counts), 0, 0
    while start < ends.size:
        stop = max(int(np.searchsorted(ends, taken + most, "right")), start + 1)
        yield slice(start, stop)
        start, taken = stop, int(ends[stop - 1])
