"""The exact engine: term-at-a-time search over inverted lists in plain, memory-mappable arrays."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from lexicept.engines.interface import checked_offsets, checked_queries, single_precision
from lexicept.errors import IndexFormatError, InputError
from lexicept.ops.postings import search_postings
from lexicept.storage import load_array, save_array
from lexicept.vectors import Floats, Integers


@dataclass(frozen=True)
class ExactEngine:
    """Postings of N documents over V dimensions, and an optional offset per document."""

    name: ClassVar[str] = "exact"
    exact: ClassVar[bool] = True

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
        matrix = single_precision(documents)
        prior = checked_offsets(offsets, matrix.shape[0])
        postings = sp.csc_array(matrix)
        indptr, documents = postings.indptr.astype(np.int64), postings.indices.astype(np.int32)
        return cls(indptr, documents, postings.data, prior)

    def save(self, folder: Path) -> None:
        """Write the arrays into an existing folder."""
        for field in fields(self):
            save_array(folder / f"{field.name}.npy", getattr(self, field.name))

    @classmethod
    def open(cls, folder: Path) -> ExactEngine:
        """Memory-map what ``save`` wrote. Raises IndexFormatError for anything else."""
        try:
            return cls(
                load_array(folder / "indptr.npy", np.int64),
                load_array(folder / "documents.npy", np.int32),
                load_array(folder / "weights.npy", np.float32),
                load_array(folder / "offsets.npy", np.float32),
            )
        except InputError as error:
            raise IndexFormatError(f"{folder}: {error}") from None

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
    def size(self) -> int:
        """Bytes of its arrays."""
        return sum(int(getattr(self, field.name).nbytes) for field in fields(self))

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
        """See ``Engine.search``; offsets of documents and queries may be negative here."""
        matrix, factors = checked_queries(queries, self.num_dimensions, top_k, query_offsets)
        count = matrix.shape[0]
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
