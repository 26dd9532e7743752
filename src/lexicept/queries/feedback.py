"""Relevance feedback: dimensions of relevant documents, added to a query."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from lexicept.errors import InputError, check_count
from lexicept.vectors import prune_rows

DIMENSIONS = 30
"""Dimensions that feedback adds at most."""

STRENGTH = 0.5
"""Length of what feedback adds, as a share of the query's."""


def centroid(documents: sp.csr_array, dimensions: int) -> sp.csr_array:
    """Return the largest dimensions of the mean of documents, each scaled to length 1 [1, V].

    Args:
        documents: weights [n, V].
        dimensions: the most dimensions of the result, at least 1.
    """
    check_count("dimensions", dimensions)
    lengths = np.sqrt(documents.multiply(documents).sum(axis=1))
    scaling = sp.diags_array(np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0))
    mean = sp.csr_array((scaling @ documents).mean(axis=0).reshape(1, -1))
    return prune_rows(mean, dimensions)


def rocchio(
    query: sp.csr_array,
    documents: sp.csr_array,
    dimensions: int = DIMENSIONS,
    strength: float = STRENGTH,
) -> sp.csr_array:
    """Return the dimensions to add to a query [1, V] (Rocchio 1971, without negative part).

    The query moves towards the centroid of the documents, over words and concepts at once.
    Dimensions of the query may get more weight.

    Args:
        query: weights [1, V]; an empty query counts as of length 1.
        documents: weights of the relevant documents [n, V].
        dimensions: the most dimensions to add, at least 1.
        strength: length of the added part, as a share of the query's, above 0.

    Raises:
        InputError: a number out of range.
    """
    if not 0 < strength < np.inf:
        raise InputError(f"strength must be a number above 0, not {strength!r:.40}")
    added = centroid(documents, dimensions)
    length = float(np.linalg.norm(added.data))
    scale = strength * (float(np.linalg.norm(query.data)) or 1.0)
    return added * np.float32(scale / length) if length else added
