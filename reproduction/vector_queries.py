"""Queries from vectors of documents without texts."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from lexicept.vectors import Integers


def from_vectors(
    documents: sp.csr_array, count: int = 500, num_dims: int = 8, seed: int = 0
) -> tuple[Integers, sp.csr_array]:
    """Make queries of weight 1 without texts, on ``num_dims`` dimensions drawn from the four times
    as many largest weights of a document; return the documents' numbers, and queries [n, V]."""
    random = np.random.default_rng(seed)
    filled = np.flatnonzero(np.diff(documents.indptr))
    numbers = random.permutation(filled)[:count]
    columns, indptr = [np.zeros(0, np.int32)], [0]
    for document in numbers:
        span = slice(documents.indptr[document], documents.indptr[document + 1])
        strongest = np.argsort(-documents.data[span], kind="stable")[: 4 * num_dims]
        drawn = random.permutation(strongest)[:num_dims]
        columns.append(np.sort(documents.indices[span][drawn]))
        indptr.append(indptr[-1] + drawn.size)
    flat = np.concatenate(columns)
    shape = (numbers.size, documents.shape[1])
    return numbers, sp.csr_array((np.ones(flat.size, np.float32), flat, indptr), shape=shape)
