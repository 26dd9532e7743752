"""Late interaction over token states: MaxSim, a teacher and a measure of what states can rank.

ColBERT (arXiv 2004.12832) scores a document by its best match for each token of a query. Here the
states are those of a backbone that was not trained for it: their mean is subtracted, which makes
them less alike, and they are compared by cosine.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import normalize

from lexicept.models.cached_states import CachedStates

QUERIES, DOCUMENTS = 32, 64
"""Texts compared at once, which bounds the memory."""

MEAN_TEXTS = 2**14
"""Texts, evenly spaced, that the mean of a larger collection is taken from."""


def max_sim(
    queries: Tensor, documents: Tensor, query_lengths: list[int], document_lengths: list[int]
) -> Tensor:
    """Return MaxSim of Q queries and D documents [Q, D].

    ``s(q, d) = 1/|q| Σ_{i∈q} max_{j∈d} q_i · d_j``: ColBERT's sum divided by the query's length,
    so that queries of all lengths have scores on one scale, from -1 to 1. A query or document
    without tokens scores 0.

    Args:
        queries: unit vectors of their tokens, query by query [m, d].
        documents: unit vectors of their tokens, document by document [n, d].
        query_lengths: tokens of each query; their sum is m.
        document_lengths: tokens of each document; their sum is n.
    """
    nothing = queries.new_zeros(len(queries))
    parts = (documents @ queries.T).split(document_lengths)
    best = torch.stack([part.amax(dim=0) if len(part) else nothing for part in parts], dim=1)
    nothing = queries.new_zeros(len(document_lengths))
    of_queries = best.split(query_lengths)
    return torch.stack([part.mean(dim=0) if len(part) else nothing for part in of_queries])


class LateInteraction:
    """MaxSim of any queries and documents with cached token states.

    States are centred by the mean state of the documents' tokens, and normalised.

    Args:
        queries, documents: states of one backbone.
        max_tokens: of a query and of a document; the rest is cut.

    Attributes:
        mean: the mean state [d] of all documents' tokens, or of ``MEAN_TEXTS`` documents'.
    """

    def __init__(
        self, queries: CachedStates, documents: CachedStates, max_tokens: tuple[int, int]
    ) -> None:
        self._states = (queries, documents)
        self._max_tokens = max_tokens
        self.mean = _mean(documents)

    def scores(self, queries: Sequence[int], documents: Sequence[int]) -> Tensor:
        """Return the score of every pair of some numbers [queries, documents]."""
        found = torch.zeros(len(queries), len(documents))
        asked = [
            (start, *self._vectors(0, queries[start : start + QUERIES]))
            for start in range(0, len(queries), QUERIES)
        ]
        for column in range(0, len(documents), DOCUMENTS):
            vectors, lengths = self._vectors(1, documents[column : column + DOCUMENTS])
            for row, query_vectors, query_lengths in asked:
                part = found[row : row + QUERIES, column : column + DOCUMENTS]
                part[:] = max_sim(query_vectors, vectors, query_lengths, lengths)
        return found

    def _vectors(self, side: int, numbers: Sequence[int]) -> tuple[Tensor, list[int]]:
        """Return the unit vectors of texts' tokens [n, d], and the number of each text's tokens."""
        states, text = self._states[side].read(numbers, self._max_tokens[side])
        return normalize(states - self.mean, dim=1), text.bincount(minlength=len(numbers)).tolist()


def _mean(states: CachedStates) -> Tensor:
    """Return the mean state of all tokens [d], in single precision; 0 where there are none."""
    step = -(-len(states) // MEAN_TEXTS)
    numbers = range(0, len(states), max(step, 1))
    total, count = torch.zeros((), dtype=torch.float64), 0
    for start in range(0, len(numbers), DOCUMENTS):
        part, _ = states.read(numbers[start : start + DOCUMENTS])
        total, count = total + part.double().sum(dim=0), count + len(part)
    return (total / max(count, 1)).float()
