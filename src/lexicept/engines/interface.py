"""The interface of search engines over sparse vectors, and their checks of input."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from lexicept.engines.mask import Mask
from lexicept.errors import InputError, check_count
from lexicept.vectors import Floats, Integers, canonical_csr, check_dimensions


class Engine(ABC):
    """N documents over V dimensions, and an offset per document, opened for search.

    A score is ``Σ_t w_t(q) w_t(d) + offset(d) · query_offset`` (RRA's prior is such an offset).
    Documents that score 0 are not results, and neither is anything for a query that matches no
    document in any dimension, whatever the offsets.
    """

    name: ClassVar[str]
    exact: bool
    """True if the results are those of exact search, up to the precision of the weights."""

    @property
    @abstractmethod
    def num_documents(self) -> int: ...

    @property
    def deepest(self) -> int:
        """Most results that the engine gives for a query."""
        return self.num_documents

    @property
    @abstractmethod
    def num_dimensions(self) -> int: ...

    @property
    @abstractmethod
    def size(self) -> int | None:
        """Bytes on this machine's disk; None where a server keeps them elsewhere."""

    def search(
        self,
        queries: Any,
        top_k: int = 10,
        query_offsets: npt.ArrayLike | None = None,
        threads: int | None = None,
        mask: Mask | None = None,
    ) -> list[tuple[Integers, Floats]]:
        """Return document numbers and scores for each query, best first, ties in document order.

        Args:
            queries: SciPy sparse matrix [n, V] of query weights; a query may be empty.
            top_k: results per query, at least 1; fewer where fewer documents match.
            query_offsets: the factor of each query on the documents' offsets [n]; 0 by default. An
                exact engine takes negative ones too.
            threads: threads that share the queries, or the documents where one query reads many
                postings; one per processor by default. Engines that schedule their own threads
                ignore it.
            mask: the documents that may be results; by default all. The results are the best of
                them, with the scores that they have without a mask.

        Raises:
            InputError: NaN, infinite or negative weights, another V, ``top_k`` below 1, bad query
                offsets, weights whose product is not finite, or a mask of another N or one that the
                engine can't search exactly with.
        """
        matrix, factors = checked(queries, self.num_dimensions, top_k, query_offsets)
        if mask is not None and mask.allowed.shape != (self.num_documents,):
            raise InputError(f"a mask of {mask.allowed.shape} for {self.num_documents} documents")
        rankings = self._rank(matrix, factors, top_k, threads, mask)
        if not all(np.isfinite(scores).all() for _, scores in rankings):
            problem = "weights of the query or of documents are too large, or damaged"
            raise InputError(f"a score is not a finite number: {problem}")
        return rankings

    @abstractmethod
    def _rank(
        self,
        queries: sp.csr_array,
        factors: Floats,
        top_k: int,
        threads: int | None,
        mask: Mask | None,
    ) -> list[tuple[Integers, Floats]]:
        """Search for valid query weights [n, V], f32, with finite factors on offsets [n]."""


class PostingsEngine(Engine):
    """An exact engine whose postings can be read."""

    df: Integers
    """Document frequency of each dimension, i64 [V]."""
    offsets: Floats
    """Offset of each document, f32 [N]."""

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
    def size(self) -> int: ...

    @property
    @abstractmethod
    def num_segments(self) -> int: ...

    @property
    def num_parts(self) -> int:
        """Parts of documents whose postings are apart."""
        return 1

    @property
    @abstractmethod
    def weight_bits(self) -> int: ...

    @property
    @abstractmethod
    def largest(self) -> float:
        """The largest weight of all."""

    @abstractmethod
    def let_go(self) -> None:
        """Give the memory of postings on disk back to the system, after all of them were read."""

    @abstractmethod
    def found(self, queries: Any, query_offsets: npt.ArrayLike | None = None) -> Mask:
        """Return the documents that are results of one query [1, V], however many there are.

        Raises:
            InputError: what ``search`` refuses.
            IndexFormatError: a posting of a document that is not there.
        """

    @abstractmethod
    def present(self, dimensions: Integers) -> npt.NDArray[np.bool_]:
        """Return whether any document has each of these dimensions."""

    @abstractmethod
    def matches(self, dimensions: Integers) -> bool:
        """Return whether any document has any of these dimensions."""

    @abstractmethod
    def postings(self, dimensions: slice) -> tuple[Integers, Floats]:
        """Return documents and weights of neighbouring dimensions, from ``start`` to ``stop``, one
        dimension after the other, each in document order.

        Raises:
            IndexFormatError: a posting of a document that is not there.
        """

    @abstractmethod
    def segment(self, number: int) -> sp.csr_array:
        """Return the weights of the documents from ``number * SEGMENT`` on, ``SEGMENT`` at most."""

    def matrix(self) -> sp.csr_array:
        """Return the document weights as CSR [N, V], in memory, without the offsets.

        Raises:
            IndexFormatError: a posting of a document that is not there.
        """
        nothing = sp.csr_array((0, self.num_dimensions), dtype=np.float32)
        parts = [self.segment(number) for number in range(self.num_segments)]
        return sp.csr_array(sp.vstack([nothing, *parts], format="csr"))

    @abstractmethod
    def document_weights(self, document: int, dimensions: Integers) -> Floats:
        """Return the weights of one document on some dimensions, f64 [dimensions].

        Raises:
            IndexFormatError: a weight that is not finite.
        """


def checked_queries(queries: Any, num_dimensions: int) -> sp.csr_array:
    """Return query weights [n, V] in single precision.

    Raises:
        InputError: NaN, infinite or negative weights, another V, or a dimension outside of it.
    """
    matrix = single_precision(queries)
    check_dimensions(matrix)
    if matrix.shape[1] != num_dimensions:
        raise InputError(
            f"queries of {matrix.shape[1]} dimensions for an index of {num_dimensions}"
        )
    return matrix


def checked(
    queries: Any, num_dimensions: int, top_k: int, query_offsets: npt.ArrayLike | None
) -> tuple[sp.csr_array, Floats]:
    """Return query weights [n, V] in single precision and the factors on offsets [n].

    Raises:
        InputError: see ``Engine.search``.
    """
    matrix = checked_queries(queries, num_dimensions)
    check_count("top_k", top_k)
    count = matrix.shape[0]
    factors = np.zeros(count) if query_offsets is None else np.asarray(query_offsets)
    if factors.shape != (count,) or not np.isfinite(factors).all():
        raise InputError(f"query offsets must be {count} finite numbers, one for each query")
    return matrix, factors


def checked_offsets(offsets: npt.ArrayLike | None, num_documents: int) -> Floats:
    """Return an offset per document [N], f32; zeros for None.

    Raises:
        InputError: another number of offsets, or one that is not finite.
    """
    prior = np.zeros(num_documents) if offsets is None else np.asarray(offsets)
    if prior.shape != (num_documents,):
        raise InputError(f"offsets of shape {prior.shape} for {num_documents} documents")
    if not np.isfinite(prior).all():
        raise InputError("document offsets must be finite")
    return prior.astype(np.float32)


def single_precision(weights: Any) -> sp.csr_array:
    """Return ``canonical_csr`` in f32.

    Raises:
        InputError: what ``canonical_csr`` refuses, or a weight that is too large for f32.
    """
    matrix = canonical_csr(weights)
    if matrix.dtype == np.float32:
        return matrix
    with np.errstate(over="ignore"):
        single = matrix.astype(np.float32)
    if not np.isfinite(single.data).all():
        raise InputError(f"weight {matrix.data.max()} is too large for single precision")
    return single
