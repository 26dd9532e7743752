"""Active dimensions that translations of a document share (SAE-SPLADE, table 7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from lexicept.analysis.alignment import align
from lexicept.vectors import Integers, SparseVectors


@dataclass(frozen=True)
class Overlap:
    """Active dimensions of N documents in several languages."""

    shared: Integers
    """Number of dimensions active in every language's version of a document [N]."""
    lengths: Integers
    """Number of active dimensions of each version [languages, N]."""

    @property
    def mean(self) -> float:
        """Mean of ``shared``; 0 without documents."""
        return _mean(self.shared)

    @property
    def std(self) -> float:
        """Standard deviation of ``shared`` over the documents (divided by N)."""
        return float(self.shared.std()) if self.shared.size else 0.0

    @property
    def mean_length(self) -> float:
        """Mean length of a version, over all documents and languages."""
        return _mean(self.lengths)

    @property
    def std_length(self) -> float:
        """Standard deviation of the lengths over all documents and languages."""
        return float(self.lengths.std()) if self.lengths.size else 0.0


def overlap(collections: Sequence[SparseVectors]) -> Overlap:
    """Count the dimensions that are above 0 in all translations of a document.

    Args:
        collections: one for each language, with the same ids in any order, over one vocabulary;
            where that grew from one to the next, the earlier ones are narrower.

    Raises:
        InputError: no collections, or ids that differ.
    """
    matrices = align(collections)
    width = max(matrix.shape[1] for matrix in matrices)
    shared = _ones(matrices[0], width)
    for matrix in matrices[1:]:
        shared = shared.multiply(_ones(matrix, width)).tocsr()
    lengths = np.stack([np.diff(matrix.indptr) for matrix in matrices])
    return Overlap(np.diff(shared.indptr), lengths)


def _ones(matrix: sp.csr_array, width: int) -> sp.csr_array:
    parts = (np.ones(matrix.nnz, np.int8), matrix.indices, matrix.indptr)
    return sp.csr_array(parts, shape=(matrix.shape[0], width))


def _mean(counts: Integers) -> float:
    return float(counts.mean()) if counts.size else 0.0
