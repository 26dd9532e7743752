"""A collection as shards of its documents: what is too large for memory is read shard by shard.

A pass over a collection is a function of a shard and of what all shards share, mapped over them; a
sum of the results where one is wanted is small. Functions, shards and results can be sent to
other processes.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
import scipy.sparse as sp

from lexicept.storage.arrays import StoredRows

SIZE = 2**21
"""Non-zeros and rows of a shard, up to one row more; a pass holds about 100 bytes for each, on
every thread."""

Rows: TypeAlias = sp.csr_array | StoredRows
"""Neighbouring rows of a CSR matrix, in memory or on disk."""

S = TypeVar("S")
R = TypeVar("R")


class Over(Protocol):
    """A map over shards: ``over`` here, ``cluster.Cluster.over`` on many machines."""

    def __call__(
        self, function: Callable[..., R], shards: Sequence[S], *shared: Any
    ) -> Iterator[R]:
        """``function(shard, *shared)`` of every shard, in order."""


class Shard(NamedTuple):
    """Neighbouring documents: the same rows of one matrix per vocabulary."""

    matrices: tuple[Rows, ...]

    def load(self) -> list[sp.csr_array]:
        """Memory-map what is on disk. Raises IndexFormatError where it is damaged."""
        return [rows.load() if isinstance(rows, StoredRows) else rows for rows in self.matrices]


def shards_of(matrices: Sequence[Rows]) -> list[Shard]:
    """All documents of matrices [N, V_i] in order, in at least one shard."""
    ends = np.sum([np.asarray(matrix.indptr, np.int64) for matrix in matrices], axis=0)
    ends += np.arange(ends.size)
    last = ends.size - 1
    inner = np.searchsorted(ends, np.arange(SIZE, ends[-1], SIZE))
    cuts = [0, *np.unique(inner[(inner > 0) & (inner < last)]).tolist(), last]
    return [Shard(tuple(_cut(m, start, stop) for m in matrices)) for start, stop in pairwise(cuts)]


def _cut(matrix: Rows, start: int, stop: int) -> Rows:
    if isinstance(matrix, StoredRows):
        return matrix[start:stop]
    first, last = matrix.indptr[start], matrix.indptr[stop]
    part = sp.csr_array((stop - start, matrix.shape[1]), dtype=matrix.dtype)
    part.data, part.indices = matrix.data[first:last], matrix.indices[first:last]
    part.indptr = matrix.indptr[start : stop + 1] - first
    return part  # made like this, it has views: SciPy's slices and constructor copy


def over(function: Callable[..., R], shards: Sequence[S], *shared: Any) -> Iterator[R]:
    """``function(shard, *shared)`` of every shard, in order, on all cores.

    However many shards there are, only a few results wait to be taken.
    """
    if len(shards) == 1:
        yield function(shards[0], *shared)
        return
    workers = os.cpu_count() or 1
    waiting: deque[Future[R]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        for shard in shards:
            waiting.append(pool.submit(function, shard, *shared))
            if len(waiting) > workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
