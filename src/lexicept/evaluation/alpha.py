"""The choice of RRA's α without judgements, on queries that look for one document each.

Queries whose words all occur in their document are a bad choice: they find it with any α, and best
with the smallest. So a pseudo-query has half of a sentence's words, and its document is scored as
if it lacked some of them, as relevant documents lack 30 to 50 % of a query's terms (Zhao and
Callan, CIKM 2010). The resulting measures are noisy: α stays at 1 unless another value is better
beyond chance. Queries that a language model writes have words of their own, and their best α is
taken, as in the paper (section 3.1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from lexicept.corpora import pseudo_queries
from lexicept.engines import PostingsEngine
from lexicept.evaluation.significance import paired_t_test
from lexicept.index.builder import Contents
from lexicept.index.impacts import Derived, RRASettings
from lexicept.index.reader import IndexReader
from lexicept.vectors import Floats, Integers

ALPHAS = (1.0, 1.25, 0.75, 1.5, 0.5, 2.0, 0.25, 3.0, 0.1)
"""The values tried; of equal ones the first is taken. The first is the usual one."""

QUERY_SHARE = 0.5
"""Share of a sentence's words in its pseudo-query."""

MISMATCH = 0.4
"""Share of a pseudo-query's dimensions that its document is scored without."""

LEVEL = 0.05
"""Level at which another α beats 1, divided by the number of others (Bonferroni)."""

CUTOFF = 10


@dataclass(frozen=True)
class KnownItems:
    """Queries that look for one document each."""

    sources: Integers
    """The row of each query's document [n]."""
    queries: sp.csr_array
    """Query weights, CSR [n, V]."""
    missed: npt.NDArray[np.bool_] | None = None
    """Non-zeros of ``queries`` that their documents are scored without; None for queries that have
    words of their own, as a person or a language model writes them."""

    @classmethod
    def mismatched(cls, sources: Integers, queries: sp.csr_array, seed: int = 0) -> KnownItems:
        """Return queries made from their documents, each with a random share ``MISMATCH`` of its
        dimensions missed."""
        return cls(sources, queries, np.random.default_rng(seed).random(queries.nnz) < MISMATCH)


class AlphaChoice(NamedTuple):
    """RRA's α and what it was chosen by."""

    alpha: float
    tried: dict[float, float]
    """nDCG@10 on the queries by α."""
    without: float
    """The same without RRA."""


def choose_alpha(
    derive: Callable[[RRASettings | None], Derived],
    items: KnownItems,
    iterations: int = 1,
    transform: str = "1+x",
) -> AlphaChoice:
    """Choose RRA's α: 1 unless another of ``ALPHAS`` is better beyond chance, or the best one where
    ``items.missed`` is None.

    Args:
        derive: re-weights the collection; None is without RRA.

    Raises:
        InputError: ``iterations`` below 1, an unknown transform, or weights that overflow.
    """

    def measured(settings: RRASettings | None) -> Floats:
        derived = derive(settings)
        return known_item_ndcg(derived.engine, items, items.queries @ derived.background)

    gains = {alpha: measured(RRASettings(alpha, iterations, transform)) for alpha in ALPHAS}
    tried = {alpha: _mean(values) for alpha, values in gains.items()}
    best = max(ALPHAS, key=lambda alpha: tried[alpha])
    if items.missed is not None:
        usual, *others = ALPHAS
        level = LEVEL / len(others)
        better = [a for a in others if _beats(gains[a], gains[usual], level)]
        best = max(better, key=lambda alpha: tried[alpha], default=usual)
    return AlphaChoice(best, tried, _mean(measured(None)))


def known_item_ndcg(engine: PostingsEngine, items: KnownItems, factors: Floats) -> Floats:
    """Return each query's nDCG@10 for its one relevant document, ``1 / log2(1 + rank)`` [n].

    Its document ranks among the others by the score that it has without the query's missed
    dimensions; a document without any of the query's others is not found.

    Args:
        factors: of the queries on the engine's offsets [n].
    """
    queries, missed = items.queries, items.missed
    gains = np.zeros(queries.shape[0])
    for number, (documents, scores) in enumerate(engine.search(queries, CUTOFF + 1, factors)):
        source = int(items.sources[number])
        kept = np.arange(queries.indptr[number], queries.indptr[number + 1])
        kept = kept if missed is None else kept[~missed[kept]]
        weights = engine.document_weights(source, queries.indices[kept])
        if weights.any():
            own = weights @ queries.data[kept] + engine.offsets[source] * factors[number]
            # The engine adds up in single precision: equal documents must stay equal.
            rank = np.count_nonzero(scores[documents != source] > own * (1 + 1e-6))
            gains[number] = 1 / np.log2(2 + rank) if rank < CUTOFF else 0.0
    return gains


def known_items(index: IndexReader, seed: int = 0) -> KnownItems:
    """Return a pseudo-query each of 500 random documents: half of the words of a sentence or, where
    there are no sentences, some of the document's strongest dimensions."""
    texts = Contents(index.folder)
    sources, queries = pseudo_queries.from_texts(texts, seed=seed, share=QUERY_SHARE)
    if queries:
        return KnownItems.mismatched(sources, index.query_vectors(queries), seed)
    weights = Derived.compute(index.tf(), list(index.settings.values()), None).engine.matrix()
    return KnownItems.mismatched(*pseudo_queries.from_vectors(weights, seed=seed), seed)


def choose_index_alpha(
    index: IndexReader,
    iterations: int = 1,
    transform: str = "1+x",
    items: KnownItems | None = None,
) -> AlphaChoice:
    """Choose RRA's α for an index, whether it is re-weighted already or not; see ``choose_alpha``.

    Args:
        items: queries to choose on; None for ``known_items``.

    Raises:
        InputError: see ``choose_alpha``.
    """
    settings = list(index.settings.values())
    return choose_alpha(
        lambda rra: Derived.compute(index.tf(), settings, rra),
        known_items(index) if items is None else items,
        iterations,
        transform,
    )


def _beats(first: Floats, second: Floats, level: float) -> bool:
    if len(first) < 2 or first.mean() <= second.mean():
        return False
    a, b = ({str(n): v for n, v in enumerate(each)} for each in (first, second))
    return paired_t_test(a, b).p < level


def _mean(values: Floats) -> float:
    return float(values.mean()) if values.size else 0.0
