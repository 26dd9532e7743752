"""Sparse vectors: CSR matrices of non-negative weights [N, V], and operations on them.

The V dimensions are those of one or several vocabularies, side by side: words first, then concepts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp

from lexicept.checks import Count, check
from lexicept.errors import InputError

Floats = np.ndarray[Any, np.dtype[np.floating[Any]]]
Integers = np.ndarray[Any, np.dtype[np.integer[Any]]]

Pruning = Literal["weight", "impact"]
"""Order in which limits keep a query's dimensions: by weight (SPLARE, section 3.2; ESPLADE, section
3.4), or by impact, the weight times the dimension's largest document weight, which bounds the
dimension's part of a score."""


@dataclass(frozen=True)
class Vocabulary:
    """A range of dimensions with a name, such as ``words`` or ``concepts``. Raises InputError for
    another number of terms than of dimensions."""

    name: str
    size: int
    """Number of dimensions."""
    terms: Sequence[str] | None = None
    """Label of each dimension; None where its number is shown."""

    def __post_init__(self) -> None:
        if self.terms is not None and len(self.terms) != self.size:
            raise InputError(
                f"vocabulary {self.name!r}: {len(self.terms)} terms for {self.size} dimensions"
            )


class SparseVectors:
    """Documents or queries as sparse vectors.

    Args:
        weights: any SciPy sparse matrix [N, V] of finite, non-negative weights. It is stored as
            CSR with sorted indices, without duplicates or explicit zeros.
        ids: N distinct document or query ids.
        vocabularies: of the V dimensions, in order; the sizes add up to V.

    Raises:
        InputError: NaN, infinite or negative weights, duplicate ids, or sizes that disagree.
    """

    def __init__(
        self, weights: Any, ids: Sequence[str], vocabularies: Sequence[Vocabulary]
    ) -> None:
        for name, values, type_ in (("ids", ids, str), ("vocabularies", vocabularies, Vocabulary)):
            if not isinstance(values, Sequence) or not all(isinstance(v, type_) for v in values):
                raise InputError(f"{name} must be a list of {type_.__name__}, not {values!r:.80}")
        self.weights = canonical_csr(weights, ids)
        check_dimensions(self.weights)
        self.ids = list(ids)
        self.vocabularies = tuple(vocabularies)
        count, num_dimensions = self.weights.shape
        if len(self.ids) != count:
            raise InputError(f"{len(self.ids)} ids for {count} vectors")
        if len(set(self.ids)) != count:
            ((twice, _),) = Counter(self.ids).most_common(1)
            raise InputError(f"duplicate id {twice!r}")
        if sum(v.size for v in self.vocabularies) != num_dimensions:
            sizes = " + ".join(f"{v.name} {v.size}" for v in self.vocabularies)
            raise InputError(f"vocabularies ({sizes}) do not add up to {num_dimensions} dimensions")

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        names = ", ".join(f"{v.name}: {v.size:,}" for v in self.vocabularies)
        return f"SparseVectors({len(self):,} vectors, {{{names}}}, {self.weights.nnz:,} non-zeros)"

    def span(self, name: str) -> slice:
        """Return the dimensions of one vocabulary. Raises InputError for an unknown name."""
        start = 0
        for vocabulary in self.vocabularies:
            if vocabulary.name == name:
                return slice(start, start + vocabulary.size)
            start += vocabulary.size
        names = ", ".join(v.name for v in self.vocabularies)
        raise InputError(f"no vocabulary {name!r} here, only: {names}")

    def select(self, name: str) -> SparseVectors:
        """Return the same texts in one vocabulary. Raises InputError for an unknown one."""
        span = self.span(name)
        selected = [v for v in self.vocabularies if v.name == name]
        return SparseVectors(self.weights[:, span], self.ids, selected)


class Vector(NamedTuple):
    """The non-zeros of a document or a query, in the order of their dimensions."""

    dimensions: Integers
    weights: Any
    """f32, or whole numbers."""


def power_of_two(value: float) -> float:
    """Return the largest power of two that is not larger."""
    return float(2.0 ** np.floor(np.log2(value)))


def canonical_csr(weights: Any, ids: Sequence[str] | None = None) -> sp.csr_array:
    """Return CSR [n, V] with sorted indices and no duplicates or explicit zeros; ``ids`` are names
    of the rows in messages. Raises InputError for no sparse matrix, or weights that are NaN,
    infinite or negative."""
    if isinstance(weights, sp.csr_array):
        matrix = weights
    elif sp.issparse(weights):
        matrix = sp.csr_array(weights, copy=False)
    else:
        raise InputError(f"expected a SciPy sparse matrix, not {type(weights).__name__}")
    if matrix.data.dtype.kind != "f":
        matrix = matrix.astype(np.float32)
    # Reductions of ufuncs: methods of arrays and matrices are further calls in Python.
    smallest = np.minimum.reduce(matrix.data, initial=np.inf)
    largest = np.maximum.reduce(matrix.data, initial=0)
    if not (smallest >= 0 and largest < np.inf):  # true for NaN too
        bad = np.flatnonzero(~(np.isfinite(matrix.data) & (matrix.data >= 0)))
        index = int(np.searchsorted(matrix.indptr, bad[0], side="right")) - 1
        names = () if ids is None else ids
        name = f"{names[index]!r} (row {index})" if index < len(names) else f"row {index}"
        raise InputError(
            f"weight {matrix.data[bad[0]]} in {name}: weights must be finite and not negative"
        )
    if not matrix.has_canonical_format or smallest == 0:
        matrix = matrix.copy()
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        return canonical_csr(matrix, ids)  # sums may be infinite
    return matrix


def check_dimensions(matrix: sp.csr_array) -> None:
    """Raise InputError for a column outside of a matrix: kernels would read foreign memory."""
    lowest = np.minimum.reduce(matrix.indices, initial=0)
    highest = np.maximum.reduce(matrix.indices, initial=0)
    if lowest < 0 or (matrix.indices.size and highest >= matrix.shape[1]):
        wrong = lowest if lowest < 0 else highest
        raise InputError(f"dimension {wrong} in a matrix of {matrix.shape[1]} dimensions")


def stack_columns(matrices: Sequence[sp.csr_array]) -> sp.csr_array:
    """Concatenate matrices [N, V1], [N, V2], ... into one CSR matrix [N, V1 + V2 + ...]."""
    starts = np.cumsum([0, *(matrix.shape[1] for matrix in matrices)]).tolist()
    return place_columns(list(zip(starts[:-1], matrices, strict=True)), starts[-1])


def stack_rows(matrices: Iterable[sp.csr_array], num_columns: int) -> sp.csr_array:
    """Concatenate matrices [n_i, V] into one CSR matrix [sum of n_i, V]; none are no rows."""
    nothing = sp.csr_array((0, num_columns), dtype=np.float32)
    return sp.csr_array(sp.vstack([nothing, *matrices], format="csr"))


def place_columns(matrices: Sequence[tuple[int, sp.csr_array]], num_columns: int) -> sp.csr_array:
    """Place matrices [N, V_i] at their first columns in one CSR matrix [N, num_columns], in
    ascending order; the remaining columns are empty."""
    if len(matrices) == 1:
        ((start, matrix),) = matrices
        if matrix.shape[1] == num_columns:
            return matrix
        placed = canonical_entries(matrix.data, matrix.indices + start, matrix.indptr, num_columns)
        placed.has_canonical_format = matrix.has_canonical_format
        return placed
    if matrices[0][1].shape[0] == 1:
        data = np.concatenate([matrix.data for _, matrix in matrices])
        indices = np.concatenate([matrix.indices + start for start, matrix in matrices])
        indptr = np.array([0, data.size], indices.dtype)
        placed = canonical_entries(data, indices, indptr, num_columns)
        placed.has_canonical_format = all(matrix.has_canonical_format for _, matrix in matrices)
        return placed
    blocks, end, height = [], 0, matrices[0][1].shape[0]
    for start, matrix in [*matrices, (num_columns, sp.csr_array((height, 0), dtype=np.float32))]:
        blocks += [sp.csr_array((height, start - end), dtype=matrix.dtype), matrix]
        end = start + matrix.shape[1]
    return sp.csr_array(sp.hstack(blocks, format="csr"))


def run_starts(values: Integers) -> Integers:
    """Return the positions where runs of equal neighbours begin, in values [n]."""
    starts = np.ones(len(values), bool)
    np.not_equal(values[1:], values[:-1], out=starts[1:])
    return np.flatnonzero(starts)


def indptr_of(lengths: Integers) -> Integers:
    """Return where runs of ``lengths`` [n], one after another, begin, and where the last ends."""
    return np.concatenate([[0], np.cumsum(lengths)])


def with_entries(
    matrix: sp.csr_array, data: Floats, indices: Integers, indptr: Integers
) -> sp.csr_array:
    """Return a matrix of the same shape and format with new entries, without SciPy's checks, which
    take longer than a search."""
    copy = sp.csr_array.__new__(sp.csr_array)
    copy.__dict__.update(matrix.__dict__, data=data, indices=indices, indptr=indptr)
    return copy


def canonical_entries(
    data: Floats, indices: Integers, indptr: Integers, num_columns: int
) -> sp.csr_array:
    """Return CSR [n, num_columns] of canonical entries, without SciPy's checks."""
    return with_entries(_no_entries(indptr.size - 1, num_columns), data, indices, indptr)


def nonzeros(dense: Floats) -> sp.csr_array:
    """Return rows [n, V] as canonical CSR, without SciPy's checks."""
    stored = dense != 0
    indptr = indptr_of(stored.sum(axis=1)).astype(np.int32)
    indices = np.nonzero(stored)[1].astype(np.int32)
    return canonical_entries(dense[stored], indices, indptr, dense.shape[1])


@lru_cache(maxsize=16)
def _no_entries(num_rows: int, num_columns: int) -> sp.csr_array:
    empty = sp.csr_array((num_rows, num_columns), dtype=np.float32)
    empty.has_canonical_format = True
    return empty


def neighbouring_rows(matrix: sp.csr_array, start: int, stop: int) -> sp.csr_array:
    """Return the rows from ``start`` to ``stop``: views of the matrix, where slicing would copy,
    without SciPy's checks."""
    span = slice(matrix.indptr[start], matrix.indptr[stop])
    indptr = matrix.indptr[start : stop + 1] - matrix.indptr[start]
    joined = canonical_entries(matrix.data[span], matrix.indices[span], indptr, matrix.shape[1])
    joined.has_canonical_format = matrix.has_canonical_format
    return joined


def row_numbers(matrix: sp.csr_array) -> Integers:
    """Return the row of every stored value of a CSR matrix, in storage order."""
    return np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))


def unit_rows(joined: Floats) -> Floats:
    """Return rows [n, d] of unit length; zeros stay."""
    lengths = np.linalg.norm(joined, axis=1, keepdims=True)
    units: Floats = joined / np.maximum(lengths, np.finfo(np.float32).tiny)
    return units


def prune_rows(
    matrix: sp.csr_array, max_active_dims: int, importance: Floats | None = None
) -> sp.csr_array:
    """Keep the ``max_active_dims`` largest weights of every row; ties go to the lower dimension.

    Args:
        matrix: CSR [n, V].
        max_active_dims: non-zero dimensions left in a row, at least 1.
        importance: a factor per dimension [V] for the comparison only; the weights stay.

    Raises:
        InputError: ``max_active_dims`` below 1.
    """
    check("max_active_dims", max_active_dims, Count)
    lengths = np.diff(matrix.indptr)
    if not lengths.size or lengths.max() <= max_active_dims:
        return matrix
    row_indices = row_numbers(matrix)
    impact = matrix.data if importance is None else matrix.data * importance[matrix.indices]
    # The rank of an entry within its row, by impact; ``sort`` restores the order of storage.
    order = np.lexsort((matrix.indices, -impact, row_indices))
    rank = np.arange(row_indices.size) - matrix.indptr[row_indices[order]]
    largest = np.sort(order[rank < max_active_dims])
    indptr = np.zeros_like(matrix.indptr)
    np.cumsum(np.minimum(lengths, max_active_dims), out=indptr[1:])
    return with_entries(matrix, matrix.data[largest], matrix.indices[largest], indptr)


def largest_weights(matrix: sp.csr_array) -> Floats:
    """Return the largest weight of every dimension, f32 [V]; 0 for an empty one."""
    bounds = np.zeros(matrix.shape[1], np.float32)
    np.maximum.at(bounds, matrix.indices, matrix.data.astype(np.float32))
    return bounds
