"""The choice of RRA's α without judgements, on queries that look for one document each.

A query with all words in its document is a bad choice: any α finds the document, and the smallest
best. So a pseudo-query has half of a sentence's words, and the document is scored as
if some words were missing, as relevant documents lack 30 to 50 % of a query's terms (Zhao and
Callan, CIKM 2010). The resulting measures are noisy: α stays at 1 unless another value is better
beyond chance. A language model writes queries in other words: the best α is
taken, as in the paper (section 3.1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from lexicept.engines import PostingsEngine
from lexicept.evaluation.significance import paired_t_test
from lexicept.index.impacts import Derived, RRASettings
from lexicept.vectors import Floats, Integers

ALPHAS = (1.0, 1.25, 0.75, 1.5, 0.5, 2.0, 0.25, 3.0, 0.1, 4.0, 0.05, 6.0, 0.02)
"""Candidates; the first of equals wins, and the first of all is the usual α."""

QUERY_SHARE = 0.5
"""Share of a sentence's words in its pseudo-query."""

MISMATCH = 0.4
"""Share of a pseudo-query's dimensions that the document is scored without."""

LEVEL = 0.05
"""Level at which another α beats 1, divided by the number of others (Bonferroni)."""

CUTOFF = 10


@dataclass(frozen=True)
class KnownItems:
    """Queries that look for one document each."""

    documents: Integers
    """The number of each query's document [n]."""
    queries: sp.csr_array
    """Query weights, CSR [n, V]."""
    missed: npt.NDArray[np.bool_] | None = None
    """Non-zeros of ``queries`` that the documents are scored without; None for queries in the words
    of a person or a language model."""

    @classmethod
    def mismatched(cls, documents: Integers, queries: sp.csr_array, seed: int = 0) -> KnownItems:
        """Return queries made from documents, a random share ``MISMATCH`` of dimensions missed."""
        return cls(documents, queries, np.random.default_rng(seed).random(queries.nnz) < MISMATCH)


class AlphaChoice(NamedTuple):
    """RRA's α, and the effectiveness by α."""

    alpha: float
    tried: dict[float, float]
    """nDCG@10 on the queries by α."""
    without: float
    """nDCG@10 without RRA."""


def choose_alpha(
    derive: Callable[[RRASettings | None], Derived],
    items: KnownItems,
    iterations: int = 1,
    transform: str = "1+x",
) -> AlphaChoice:
    """Choose RRA's α: 1 unless another of ``ALPHAS`` is better beyond chance, or the best of
    ``ALPHAS`` where ``items.missed`` is None. ``derive`` re-weights the collection, by None not.
    Raises InputError for ``iterations`` below 1, an unknown transform, or weights that overflow."""

    def measured(settings: RRASettings | None) -> Floats:
        derived = derive(settings)
        return known_item_ndcg(derived.engine, items, items.queries @ derived.background)

    gains = {alpha: measured(RRASettings(alpha, iterations, transform)) for alpha in ALPHAS}
    tried = {alpha: _mean(values) for alpha, values in gains.items()}
    best = max(ALPHAS, key=lambda alpha: tried[alpha])
    if items.missed is not None:
        usual, *alternatives = ALPHAS
        level = LEVEL / len(alternatives)
        better = [a for a in alternatives if _beats(gains[a], gains[usual], level)]
        best = max(better, key=lambda alpha: tried[alpha], default=usual)
    return AlphaChoice(best, tried, _mean(measured(None)))


def known_item_ndcg(engine: PostingsEngine, items: KnownItems, factors: Floats) -> Floats:
    """Return each query's nDCG@10 for its one relevant document, ``1 / log2(1 + rank)`` [n].

    The document ranks by the score without the missed dimensions of the query; a document without
    any other dimension of the query is not found.

    Args:
        factors: factors of the queries on the engine's offsets [n].
    """
    queries, missed = items.queries, items.missed
    gains = np.zeros(queries.shape[0])
    for number, (documents, scores) in enumerate(engine.search(queries, CUTOFF + 1, factors)):
        item = int(items.documents[number])
        entries = np.arange(queries.indptr[number], queries.indptr[number + 1])
        entries = entries if missed is None else entries[~missed[entries]]
        weights = engine.document_weights(item, queries.indices[entries])
        if weights.any():
            score = weights @ queries.data[entries] + engine.offsets[item] * factors[number]
            # The engine adds up in single precision: equal documents must stay equal.
            rank = np.count_nonzero(scores[documents != item] > score * (1 + 1e-6))
            gains[number] = 1 / np.log2(2 + rank) if rank < CUTOFF else 0.0
    return gains


def _beats(first: Floats, second: Floats, level: float) -> bool:
    if len(first) < 2 or first.mean() <= second.mean():
        return False
    return paired_t_test((first - second).tolist())[1] < level


def _mean(values: Floats) -> float:
    return float(values.mean()) if values.size else 0.0
