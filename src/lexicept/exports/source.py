"""The exported index: its offsets are one more dimension, its weights floats or integers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Protocol

import numpy as np
import scipy.sparse as sp

from lexicept.corpora import Query
from lexicept.index.reader import IndexReader
from lexicept.ops.posting_lists import SEGMENT
from lexicept.progress import Progress
from lexicept.storage.workspace import Units
from lexicept.vectors import Floats, Integers, Vector, power_of_two, stack_columns

QUERY_LEVELS = 100
"""The impact of a query's largest weight; impacts of a query are repetitions of words."""


@dataclass(frozen=True)
class Source:
    """An index with its offsets as one more dimension.

    Attributes:
        bits: of the largest impact of a document, where a format takes integers only.
    """

    index: IndexReader
    bits: int = 8

    @property
    def num_dimensions(self) -> int:
        """Number of dimensions of the index and, with RRA, one more."""
        return self.index.engine.num_dimensions + (self.offset_scale > 0)

    @cached_property
    def largest(self) -> float:
        """Largest weight of a document, without offsets."""
        return self.index.engine.largest

    @cached_property
    def offset_scale(self) -> float:
        """A power of two that makes the largest offset about as large as the largest weight, so
        that integers hold both; queries' factors are divided by it. 0 without offsets."""
        highest = float(self.index.engine.offsets.max(initial=0))
        if not (highest and self.largest):
            return 0.0
        return power_of_two(self.largest / highest)

    @cached_property
    def levels_per_weight(self) -> float:
        """Factor from document weights to impacts."""
        top = max(self.largest, float(self.offsets.max(initial=0)))
        return float((2**self.bits - 1) / (top or 1.0))

    @cached_property
    def offsets(self) -> Floats:
        """Return the documents' weights in the last dimension [N]."""
        return (self.index.engine.offsets * self.offset_scale).astype(np.float32)

    @cached_property
    def _segment(self) -> Callable[[int], sp.csr_array]:
        """Return document weights [n, num_dimensions] of a segment, which is cached."""

        def read(number: int) -> sp.csr_array:
            weights = self.index.engine.segment(number)
            if not self.offset_scale:
                return weights
            own = self.offsets[number * SEGMENT : (number + 1) * SEGMENT]
            return stack_columns([weights, sp.csr_array(own[:, None])])

        return lru_cache(maxsize=1)(read)

    def document(self, number: int) -> Vector:
        """Return the weights of a document; fast in document order."""
        segment, row = divmod(number, SEGMENT)
        return _row(self._segment(segment), row)

    def impacts(self, weights: Floats) -> Integers:
        """Round weights of documents to integers from 0 to 2**bits - 1."""
        impacts: Integers = np.rint(weights.astype(float) * self.levels_per_weight).astype(np.int64)
        return impacts

    def document_impacts(self, number: int) -> Vector:
        """Return the dimensions of a document with non-zero impacts, and the impacts."""
        dimensions, weights = self.document(number)
        return _without_zeros(dimensions, self.impacts(weights))

    def queries(self, queries: Sequence[Query]) -> Iterator[Vector]:
        """Return the weights of queries; none for one without a known word or concept."""
        weights = self.index.query_vectors([query.text for query in queries])
        if self.offset_scale:
            factors = (weights @ self.index.derived.background) / self.offset_scale
            weights = stack_columns([weights, sp.csr_array(factors.astype(np.float32)[:, None])])
        return (_row(weights, number) for number in range(len(queries)))

    def vocabulary(self) -> Iterator[str]:
        """Yield tab-separated lines of dimension, vocabulary, number within it, and term."""
        dimension = 0
        for vocabulary in self.index.vocabularies:
            terms = vocabulary.terms
            for number in range(vocabulary.size):
                term = str(number) if terms is None else " ".join(terms[number].split())
                yield f"{dimension}\t{vocabulary.name}\t{number}\t{term}"
                dimension += 1
        if self.offset_scale:
            yield f"{dimension}\tprior\t0\tRRA's prior of a document"


class Format(Protocol):
    """A format of exported indexes."""

    name: str
    queries_file: str
    """Name of the file of queries, one per line."""

    def write(self, source: Source, parts: Units, progress: Progress) -> None:
        """Write the documents into the folder of ``parts``, except for complete parts."""

    def query(self, query: Query, vector: Vector) -> str:
        """Return a line of ``queries_file``: the query as the engine takes it."""


def query_impacts(vector: Vector) -> Vector:
    """Return a query's weights as integers up to ``QUERY_LEVELS``."""
    top = float(vector.weights.max(initial=0)) or 1.0
    impacts = np.rint(vector.weights.astype(float) * (QUERY_LEVELS / top)).astype(np.int64)
    return _without_zeros(vector.dimensions, impacts)


def repeated(query: Query, vector: Vector) -> str:
    """Return a query for engines of integer impacts: its id, and dimensions repeated."""
    dimensions, impacts = query_impacts(vector)
    words = np.repeat(dimensions, impacts).astype(str)
    return f"{query.id}\t{' '.join(words)}"


def json_vector(vector: Vector) -> str:
    """Return a vector as a JSON object; floats keep the digits of single precision."""
    names, weights = vector.dimensions.astype(str).tolist(), vector.weights.astype(str).tolist()
    return "{" + ",".join(f'"{n}":{w}' for n, w in zip(names, weights, strict=True)) + "}"


def _without_zeros(dimensions: Integers, impacts: Integers) -> Vector:
    kept = impacts > 0
    return Vector(dimensions[kept], impacts[kept])


def _row(matrix: sp.csr_array, number: int) -> Vector:
    start, end = matrix.indptr[number : number + 2]
    return Vector(matrix.indices[start:end], matrix.data[start:end])
