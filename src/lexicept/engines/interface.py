"""The interface of search engines over sparse vectors, and checks of queries and documents."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from lexicept.checks import Count, check
from lexicept.engines.mask import Mask
from lexicept.errors import InputError
from lexicept.vectors import Floats, Integers, canonical_csr, check_dimensions, stack_rows

Ranking = tuple[Integers, Floats]
"""Document numbers and scores, best first, ties in document order."""


class PostingLists(NamedTuple):
    """Postings of dimensions, one dimension after another, each in document order."""

    documents: Integers
    """Indexes of documents, i64 [postings]."""
    weights: Floats
    """Their weights, f32 [postings]."""
    sizes: Integers
    """Number of postings of each dimension [dimensions]."""


class PostingsEngine(ABC):
    """Postings of N documents over V dimensions, and an offset per document, for exact search.

    A score is ``Σ_t w_t(q) w_t(d) + offset(d) · query_offset`` (RRA's prior is such an offset).
    Documents with score 0 are not results. A query that matches no document in any dimension has no
    results, whatever the offsets. Reading raises IndexFormatError for damaged postings: of a
    document that does not exist, or with a weight that is not finite.
    """

    df: Integers
    """Document frequency of each dimension, i64 [V]."""
    offsets: Floats
    """Offset of each document, f32 [N]."""

    def search(
        self,
        queries: Any,
        top_k: int = 10,
        query_offsets: npt.ArrayLike | None = None,
        threads: int | None = None,
        mask: Mask | None = None,
    ) -> list[Ranking]:
        """Return document numbers and scores for each query, best first, ties in document order.

        Args:
            queries: SciPy sparse matrix [n, V] of query weights; a query may be empty.
            top_k: results per query, at least 1; fewer if fewer documents match.
            query_offsets: each query's factor on the documents' offsets [n], 0 by default,
                possibly negative.
            threads: threads for the queries, or for the documents if a query reads many postings;
                by default the number of processors.
            mask: the documents that may be results, by default all; scores stay the same.

        Raises:
            InputError: NaN, infinite or negative weights, another V, ``top_k`` below 1, bad query
                offsets, a product of weights that is not finite, or a mask of another N.
        """
        matrix = checked_queries(queries, self.num_dimensions)
        check("top_k", top_k, Count)
        factors = checked_factors(query_offsets, matrix.indptr.size - 1)
        if mask is not None and mask.allowed.shape != (self.num_documents,):
            raise InputError(f"a mask of {mask.allowed.shape} for {self.num_documents} documents")
        return self.rank(matrix, factors, top_k, threads, mask)

    @abstractmethod
    def rank(
        self,
        queries: sp.csr_array,
        factors: Floats,
        top_k: int,
        threads: int | None,
        mask: Mask | None,
    ) -> list[Ranking]:
        """Do as ``search``, for valid queries and finite factors on offsets [n]."""

    @property
    def num_documents(self) -> int:
        return int(self.offsets.size)

    @property
    def num_dimensions(self) -> int:
        return int(self.df.size)

    @property
    def num_postings(self) -> int:
        return int(self.df.sum())

    @property
    @abstractmethod
    def num_segments(self) -> int: ...

    @property
    @abstractmethod
    def weight_bits(self) -> int: ...

    @property
    @abstractmethod
    def largest(self) -> float:
        """The largest document weight."""

    @abstractmethod
    def let_go(self) -> None:
        """Give the memory of postings on disk back to the system, after all of them were read."""

    @abstractmethod
    def scores(self, queries: Any, query_offsets: npt.ArrayLike | None = None) -> Floats:
        """Return the scores of all documents for one query [1, V], 0 for documents that are no
        results [N]; see ``search``."""

    @abstractmethod
    def posting_lists(self, dimensions: Integers) -> PostingLists:
        """Return the documents that have each of some dimensions, and their weights."""

    @abstractmethod
    def segment(self, segment: int) -> sp.csr_array:
        """Return the weights of documents from ``segment * SEGMENT`` on, ``SEGMENT`` at most."""

    def matrix(self) -> sp.csr_array:
        """Return the document weights as CSR [N, V], in memory, without the offsets."""
        return stack_rows(map(self.segment, range(self.num_segments)), self.num_dimensions)

    @abstractmethod
    def document_weights(self, document: int, dimensions: Integers) -> Floats:
        """Return the weights of one document on some dimensions, f64 [dimensions]."""


def check_finite(rankings: list[Ranking]) -> list[Ranking]:
    """Return the rankings. Raises InputError for an infinite score."""
    for _, scores in rankings:
        if not scores.max(initial=0) < np.inf:
            problem = "weights of the query or of documents are too large, or damaged"
            raise InputError(f"a score is not a finite number: {problem}")
    return rankings


def checked_queries(queries: Any, num_dimensions: int) -> sp.csr_array:
    """Return query weights [n, V] in single precision. Raises InputError for NaN, infinite or
    negative weights, another V, or a dimension outside of it."""
    matrix = single_precision(queries)
    check_dimensions(matrix)
    width = matrix.shape[1]
    if width != num_dimensions:
        raise InputError(f"queries of {width} dimensions for an index of {num_dimensions}")
    return matrix


def checked_factors(query_offsets: npt.ArrayLike | None, count: int) -> Floats:
    """Return each query's factor on offsets [n]; zeros for None. Raises InputError for a number
    that is not finite, or another n."""
    if query_offsets is None:
        return np.zeros(count)
    factors = np.asarray(query_offsets)
    if factors.shape != (count,) or not np.isfinite(factors).all():
        raise InputError(f"query offsets must be {count} finite numbers, one for each query")
    return factors


def checked_offsets(offsets: npt.ArrayLike | None, num_documents: int) -> Floats:
    """Return an offset per document [N], f32; zeros for None. Raises InputError for a number that
    is not finite, or another N."""
    prior = np.zeros(num_documents) if offsets is None else np.asarray(offsets)
    if prior.shape != (num_documents,):
        raise InputError(f"offsets of shape {prior.shape} for {num_documents} documents")
    if not np.isfinite(prior).all():
        raise InputError("document offsets must be finite")
    return prior.astype(np.float32)


def single_precision(weights: Any) -> sp.csr_array:
    """Return ``canonical_csr`` in f32. Raises InputError for weights that ``canonical_csr`` refuses
    or that are too large for f32."""
    matrix = canonical_csr(weights)
    if matrix.data.dtype == np.float32:
        return matrix
    with np.errstate(over="ignore"):
        single = matrix.astype(np.float32)
    if not np.isfinite(single.data).all():
        raise InputError(f"weight {matrix.data.max()} is too large for single precision")
    return single
