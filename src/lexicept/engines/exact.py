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
from lexicept.ops.postings import fill_postings, search_postings
from lexicept.storage import load_array, new_array, save_array
from lexicept.vectors import Floats, Integers

DAMAGED = "damaged postings: they name a document that is not there"

RESIDENT = 2**26
"""Postings that are written before the pages that hold them are given up: 512 MB."""


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
        counts = np.bincount(matrix.indices, minlength=matrix.shape[1])
        postings = PostingsWriter(counts, matrix.shape[0])
        postings.add(matrix)
        return postings.finish(prior)

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
        # Document numbers are checked where they are used: opening must not read all postings.
        sound = (
            self.indptr.size > 0
            and self.indptr[0] == 0
            and self.indptr[-1] == self.documents.size == self.weights.size
            and bool((np.diff(self.indptr) >= 0).all())
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

    def postings(self, dimensions: slice) -> tuple[Integers, Floats]:
        """Documents and weights of neighbouring dimensions, from ``start`` to ``stop``.

        Raises:
            IndexFormatError: a posting of a document that is not there.
        """
        span = slice(self.indptr[dimensions.start], self.indptr[dimensions.stop])
        documents = self.documents[span]
        if documents.size and not (documents.min() >= 0 and documents.max() < self.num_documents):
            raise IndexFormatError(DAMAGED)
        return documents, self.weights[span]

    def matrix(self) -> sp.csr_array:
        """The document weights as CSR [N, V], in memory, without the offsets.

        Raises:
            IndexFormatError: a posting of a document that is not there.
        """
        documents, weights = self.postings(slice(0, self.num_dimensions))
        parts = (weights, documents, self.indptr)
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
        try:
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
        except IndexError:
            raise IndexFormatError(DAMAGED) from None
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


class PostingsWriter:
    """Inverts documents that come block after block, into memory or into memory-mapped files.

    Args:
        counts: postings that each dimension will have [V].
        num_documents: documents that will come.
        folder: where ``ExactEngine.open`` shall find them; None keeps them in memory.
    """

    def __init__(self, counts: Integers, num_documents: int, folder: Path | None = None) -> None:
        self._folder = folder
        self._indptr = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        self._cursors = self._indptr[:-1].copy()
        self._num_documents = num_documents
        self._added = self._touched = 0
        count = int(self._indptr[-1])
        self._documents = new_array(self._path("documents"), count, np.int32)
        self._weights = new_array(self._path("weights"), count, np.float32)

    def _path(self, name: str) -> Path | None:
        return None if self._folder is None else self._folder / f"{name}.npy"

    def add(self, block: sp.csr_array) -> int:
        """Add the next documents, CSR f32 [n, V]; return the number of their first."""
        first = self._added
        arrays = self._documents, self._weights
        fill_postings(block.indptr, block.indices, block.data, first, self._cursors, *arrays)
        self._added += block.shape[0]
        self._touched += block.nnz
        if self._touched > RESIDENT:
            self._let_go()
        return first

    def _let_go(self) -> None:
        """Leave written pages to the system's cache, so that this process stays small."""
        if self._folder is not None:
            self._documents = load_array(self._folder / "documents.npy", np.int32, mode="r+")
            self._weights = load_array(self._folder / "weights.npy", np.float32, mode="r+")
        self._touched = 0

    def finish(self, offsets: npt.ArrayLike) -> ExactEngine:
        """The engine of all documents, with an offset per document [N]."""
        prior = checked_offsets(offsets, self._num_documents)
        if self._folder is None:
            return ExactEngine(self._indptr, self._documents, self._weights, prior)
        save_array(self._folder / "indptr.npy", self._indptr)
        save_array(self._folder / "offsets.npy", prior)
        return ExactEngine.open(self._folder)
