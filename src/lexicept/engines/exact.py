"""The exact engine: term-at-a-time search over inverted lists in plain, memory-mappable arrays."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from lexicept.errors import InputError
from lexicept.ops.postings import search_postings
from lexicept.vectors import Floats, Integers, canonical_csr


@dataclass(frozen=True)
class ExactEngine:
    """Postings of N documents over V dimensions, and an optional offset per document.

    A score is ``Σ_t w_t(q) w_t(d) + offset(d) · query_offset``. Documents that score 0 are not
    results, and neither is anything for a query that matches no posting at all.
    """

    indptr: Integers
    """Where each dimension's postings start [V + 1]."""
    documents: Integers
    """Document numbers, ascending within a dimension [non-zeros]."""
    weights: Floats
    """f32 [non-zeros]."""
    offsets: Floats
    """f32 [N]."""

    @classmethod
    def build(cls, documents: Any, offsets: npt.ArrayLike | None = None) -> ExactEngine:
        """Invert a SciPy sparse matrix [N, V]. Raises InputError for NaN or negative weights."""
        matrix = _single_precision(documents)
        postings = sp.csc_array(matrix)
        prior = np.zeros(matrix.shape[0]) if offsets is None else np.asarray(offsets)
        if prior.shape != (matrix.shape[0],):
            raise InputError(f"offsets of shape {prior.shape} for {matrix.shape[0]} documents")
        if not np.isfinite(prior).all():
            raise InputError("document offsets must be finite")
        return cls(
            postings.indptr.astype(np.int64),
            postings.indices.astype(np.int32),
            postings.data,
            prior.astype(np.float32),
        )

    def __post_init__(self) -> None:
        # The compiled search trusts these numbers: a damaged file must not write out of bounds.
        sound = (
            self.indptr.size > 0
            and self.indptr[0] == 0
            and self.indptr[-1] == self.documents.size == self.weights.size
            and bool((np.diff(self.indptr) >= 0).all())
            and (
                not self.documents.size
                or (self.documents.min() >= 0 and self.documents.max() < self.offsets.size)
            )
        )
        if not sound:
            raise InputError("postings whose parts do not fit together")

    @property
    def num_documents(self) -> int:
        return int(self.offsets.size)

    @property
    def num_dimensions(self) -> int:
        return int(self.indptr.size) - 1

    def matrix(self) -> sp.csr_array:
        """The document weights as CSR [N, V], without the offsets."""
        parts = (self.weights, self.documents, self.indptr)
        shape = (self.num_documents, self.num_dimensions)
        return sp.csr_array(sp.csc_array(parts, shape=shape))

    def search(
        self, queries: Any, top_k: int = 10, query_offsets: npt.ArrayLike | None = None
    ) -> list[tuple[Integers, Floats]]:
        """Document numbers and scores for each query, best first, ties in document order.

        Args:
            queries: SciPy sparse matrix [n, V] of query weights.
            top_k: results per query, at least 1; fewer where fewer documents match.
            query_offsets: the factor of each query on the documents' offsets [n]; 0 by default.

        Raises:
            InputError: NaN or negative weights, another V, or ``top_k`` below 1.
        """
        matrix = _single_precision(queries)
        if matrix.shape[1] != self.num_dimensions:
            raise InputError(
                f"queries of {matrix.shape[1]} dimensions for an index of {self.num_dimensions}"
            )
        if top_k < 1:
            raise InputError(f"top_k must be at least 1, not {top_k}")
        count = matrix.shape[0]
        factors = np.zeros(count) if query_offsets is None else np.asarray(query_offsets)
        if factors.shape != (count,) or not np.isfinite(factors).all():
            raise InputError(f"query offsets must be {count} finite numbers, one for each query")
        if count < 2 or (workers := min(os.cpu_count() or 1, count)) < 2:
            return self._search_rows(matrix, factors, top_k, range(count))
        # The kernel releases the GIL, so that threads share one set of postings.
        bounds = np.linspace(0, count, 4 * workers + 1).astype(int)
        parts = [range(a, b) for a, b in pairwise(bounds)]
        with ThreadPoolExecutor(workers) as pool:
            found = pool.map(lambda rows: self._search_rows(matrix, factors, top_k, rows), parts)
        return [result for part in found for result in part]

    def _search_rows(
        self, matrix: sp.csr_array, factors: Floats, top_k: int, rows: Sequence[int]
    ) -> list[tuple[Integers, Floats]]:
        return [
            self._search_one(
                matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]],
                matrix.data[matrix.indptr[row] : matrix.indptr[row + 1]],
                float(factors[row]),
                top_k,
            )
            for row in rows
        ]

    def _search_one(
        self, dimensions: Integers, weights: Floats, factor: float, top_k: int
    ) -> tuple[Integers, Floats]:
        if not self.matches(dimensions):
            return np.empty(0, np.int64), np.empty(0, np.float32)
        found: tuple[Integers, Floats] = search_postings(
            self.indptr,
            self.documents,
            self.weights,
            self.offsets,
            dimensions.astype(np.int64),
            weights,
            factor,
            top_k,
        )
        return found

    def matches(self, dimensions: Integers) -> bool:
        """Whether any document has any of these dimensions."""
        return bool((self.indptr[dimensions + 1] > self.indptr[dimensions]).any())

    def document_weights(self, document: int, dimensions: Integers) -> Floats:
        """The weights of one document on some dimensions, f64 [dimensions]."""
        found = np.zeros(len(dimensions))
        for i, dimension in enumerate(dimensions):
            start, end = self.indptr[dimension], self.indptr[dimension + 1]
            position = start + np.searchsorted(self.documents[start:end], document)
            if position < end and self.documents[position] == document:
                found[i] = self.weights[position]
        return found


def _single_precision(weights: Any) -> sp.csr_array:
    matrix = canonical_csr(weights)
    if matrix.dtype == np.float32:
        return matrix
    with np.errstate(over="ignore"):
        single = matrix.astype(np.float32)
    if not np.isfinite(single.data).all():
        raise InputError(f"weight {matrix.data.max()} is too large for single precision")
    return single
