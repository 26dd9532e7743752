"""Late interaction over token states: MaxSim, a teacher from a frozen backbone.

ColBERT (arXiv 2004.12832) scores a document by the best match for each token of a query. The
backbone here was not trained for late interaction: centring the states by their mean makes them
less alike, and cosine compares them.
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
"""Number of evenly spaced texts for the mean state of a larger collection."""


def max_sim(
    queries: Tensor, documents: Tensor, query_lengths: list[int], document_lengths: list[int]
) -> Tensor:
    """Return MaxSim of Q queries and D documents [Q, D]: ``s(q, d) = 1/|q| Σ_{i∈q} max_{j∈d} q_i ·
    d_j``, ColBERT's sum divided by the query's length, for scores from -1 to 1 at any length; 0 for
    a text without tokens. Unit vectors of tokens come text by text, [m, d] and [n, d], with the
    number of tokens of each text."""
    # The best token of each document for every query token, then the mean over query tokens.
    zeros = queries.new_zeros(len(queries))
    similarities = (documents @ queries.T).split(document_lengths)
    best = torch.stack([s.amax(dim=0) if len(s) else zeros for s in similarities], dim=1)
    zeros = queries.new_zeros(len(document_lengths))
    by_query = best.split(query_lengths)
    return torch.stack([tokens.mean(dim=0) if len(tokens) else zeros for tokens in by_query])


class LateInteraction:
    """MaxSim of queries and documents with cached token states of one backbone, cut to
    ``max_tokens`` of a query and of a document. States are centred by ``mean``, the mean state [d]
    of the documents' tokens (of at most ``MEAN_TEXTS`` documents), and normalised."""

    def __init__(
        self, queries: CachedStates, documents: CachedStates, max_tokens: tuple[int, int]
    ) -> None:
        self._states = (queries, documents)
        self._max_tokens = max_tokens
        self.mean = _mean(documents)

    def scores(self, queries: Sequence[int], documents: Sequence[int]) -> Tensor:
        """Return the score of every pair [queries, documents], by numbers of texts."""
        scores = torch.zeros(len(queries), len(documents))
        query_blocks = [
            (start, *self._vectors(0, queries[start : start + QUERIES]))
            for start in range(0, len(queries), QUERIES)
        ]
        for column in range(0, len(documents), DOCUMENTS):
            vectors, lengths = self._vectors(1, documents[column : column + DOCUMENTS])
            for first, query_vectors, query_lengths in query_blocks:
                block = max_sim(query_vectors, vectors, query_lengths, lengths)
                scores[first : first + QUERIES, column : column + DOCUMENTS] = block
        return scores

    def _vectors(self, side: int, numbers: Sequence[int]) -> tuple[Tensor, list[int]]:
        """Return the unit vectors of texts' tokens [n, d], and each text's number of tokens."""
        states, text = self._states[side].read(numbers, self._max_tokens[side])
        return normalize(states - self.mean, dim=1), text.bincount(minlength=len(numbers)).tolist()


def _mean(states: CachedStates) -> Tensor:
    """Return the mean state of all tokens [d], in single precision; 0 without tokens."""
    step = -(-len(states) // MEAN_TEXTS)
    numbers = range(0, len(states), max(step, 1))
    total, count = torch.zeros((), dtype=torch.float64), 0
    for start in range(0, len(numbers), DOCUMENTS):
        block, _ = states.read(numbers[start : start + DOCUMENTS])
        total, count = total + block.double().sum(dim=0), count + len(block)
    return (total / max(count, 1)).float()
