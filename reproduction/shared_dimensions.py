"""Active dimensions that translations of a document share (SAE-SPLADE, table 7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from lexicept.errors import InputError
from lexicept.interpretation.pairs import align
from lexicept.vectors import Floats, Integers, SparseVectors


@dataclass(frozen=True)
class Overlap:
    """Active dimensions of N documents in several languages."""

    shared: Integers
    """Number of dimensions active in every language's version of a document [N]."""
    lengths: Integers
    """Number of active dimensions of each version [languages, N]."""

    @property
    def shares(self) -> Floats:
        """Shared dimensions over the mean length of a document's versions [N]; 0 where all are
        empty."""
        lengths = self.lengths.mean(axis=0)
        shares: Floats = np.divide(
            self.shared, lengths, out=np.zeros(len(lengths)), where=lengths > 0
        )
        return shares


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


def shifted(collections: Sequence[SparseVectors]) -> list[SparseVectors]:
    """Return collections under the same ids whose documents do not translate each other.

    Those of L languages are moved by 0, N // L, 2 (N // L), ... documents, as neighbours may be of
    one article.

    Raises:
        InputError: no collections, ids that differ, or fewer documents than languages.
    """
    matrices, ids = align(collections), collections[0].ids
    step = len(ids) // len(matrices)
    if not step:
        raise InputError(f"{len(matrices)} languages need as many documents, not {len(ids)}")
    orders = [np.roll(np.arange(len(ids)), number * step) for number in range(len(matrices))]
    return [
        SparseVectors(matrix[order], ids, collection.vocabularies)
        for matrix, order, collection in zip(matrices, orders, collections, strict=True)
    ]


def _ones(matrix: sp.csr_array, width: int) -> sp.csr_array:
    parts = (np.ones(matrix.nnz, np.int8), matrix.indices, matrix.indptr)
    return sp.csr_array(parts, shape=(matrix.shape[0], width))


def mean_and_std(counts: Integers) -> tuple[float, float]:
    """Return the mean of counts and their standard deviation (divided by N); 0 without any."""
    return (float(counts.mean()), float(counts.std())) if counts.size else (0.0, 0.0)
