"""A collection as shards of documents, which need not fit in memory together.

A pass over a collection maps a function of a shard and shared arguments over the shards. Functions,
shards and results can be sent to other processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
import scipy.sparse as sp

from lexicept.kernels.compiled import in_order, num_processors
from lexicept.storage.arrays import StoredRows

SIZE = 2**20
"""Non-zeros plus rows of a shard, up to one row more. A pass takes about 100 bytes for each, on
every thread."""

Rows: TypeAlias = sp.csr_array | StoredRows
"""Rows of a CSR matrix in memory, or of one or several on disk."""

S = TypeVar("S")
R = TypeVar("R")


class Over(Protocol):
    """A map over shards: ``over`` on this machine, ``ray.Cluster.over`` on many."""

    def __call__(
        self, function: Callable[..., R], shards: Sequence[S], *shared: Any
    ) -> Iterator[R]:
        """Yield ``function(shard, *shared)`` for every shard, in order."""


class Shard(NamedTuple):
    """Consecutive documents: the same rows of one matrix per vocabulary."""

    matrices: tuple[Rows, ...]

    def load(self) -> list[sp.csr_array]:
        """Memory-map the rows on disk. Raises IndexFormatError for damaged files."""
        return [m if isinstance(m, sp.csr_array) else m.load() for m in self.matrices]


def shards_of(matrices: Sequence[Rows]) -> list[Shard]:
    """Split the documents of matrices [N, V_i] into shards in order, at least one."""
    # A shard ends where rows and their non-zeros in all matrices have grown by SIZE.
    ends = np.sum([np.asarray(matrix.indptr, np.int64) for matrix in matrices], axis=0)
    ends += np.arange(ends.size)
    num_rows = ends.size - 1
    inner = np.searchsorted(ends, np.arange(SIZE, ends[-1], SIZE))
    cuts = [0, *np.unique(inner[(inner > 0) & (inner < num_rows)]).tolist(), num_rows]
    return [Shard(tuple(_cut(m, start, stop) for m in matrices)) for start, stop in pairwise(cuts)]


def _cut(matrix: Rows, start: int, stop: int) -> Rows:
    if not isinstance(matrix, sp.csr_array):
        return matrix[start:stop]
    begin, end = matrix.indptr[start], matrix.indptr[stop]
    view = sp.csr_array((stop - start, matrix.shape[1]), dtype=matrix.dtype)
    view.data, view.indices = matrix.data[begin:end], matrix.indices[begin:end]
    view.indptr = matrix.indptr[start : stop + 1] - begin
    return view  # SciPy's slices and constructor copy the arrays


def over(function: Callable[..., R], shards: Sequence[S], *shared: Any) -> Iterator[R]:
    """Yield ``function(shard, *shared)`` for every shard, in order; see ``in_order``."""
    if len(shards) == 1:
        yield function(shards[0], *shared)
        return
    yield from in_order(lambda shard: function(shard, *shared), shards, num_processors())
