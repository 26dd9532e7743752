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


def mean_and_std(counts: Integers) -> tuple[float, float]:
    """Return the mean of counts and their standard deviation (divided by N); 0 without any."""
    return (float(counts.mean()), float(counts.std())) if counts.size else (0.0, 0.0)
