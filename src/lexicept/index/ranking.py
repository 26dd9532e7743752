"""The ranking of documents: by postings and, for queries with vectors, by similarity."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from lexicept.engines import PostingsEngine
from lexicept.engines.interface import Ranking
from lexicept.engines.mask import Mask
from lexicept.index.passages import Passages
from lexicept.index.queries import WeightedQueries
from lexicept.index.text_vectors import TextVectors
from lexicept.vectors import Floats, Integers

RESCORED_TOGETHER = 64
"""Queries whose rankings of all documents are in memory at once."""


class Ranker:
    """Ranks the documents of an index; a document in passages counts by its best passage."""

    def __init__(
        self, engine: PostingsEngine, passages: Passages, vectors: TextVectors | None
    ) -> None:
        self._engine, self._passages, self._vectors = engine, passages, vectors
        self._count = engine.num_documents

    def ranked(
        self,
        queries: WeightedQueries,
        top_k: int,
        factors: Floats | None,
        threads: int | None,
        mask: Mask | None,
    ) -> Iterable[Ranking]:
        """Return the best passage of each of the best documents, for every query; see
        ``PostingsEngine.search``."""
        weights, vectors = queries
        if vectors is not None and self._vectors is not None:
            return self._with_similarities(weights, vectors, top_k, factors, threads, mask)
        if not len(self._passages):
            return self._engine.search(weights, top_k, factors, threads, mask)
        return self._passages.ranked(self._engine, weights, top_k, factors, threads, mask)

    def _with_similarities(
        self,
        weights: sp.csr_array,
        vectors: Floats,
        top_k: int,
        factors: Floats | None,
        threads: int | None,
        mask: Mask | None,
    ) -> Iterator[Ranking]:
        assert self._vectors is not None
        ranked = partial(self._passages.ranked, self._engine)
        for start in range(0, len(vectors), RESCORED_TOGETHER):
            span = slice(start, start + RESCORED_TOGETHER)
            offsets = None if factors is None else factors[span]
            batch = weights[span], top_k, offsets, threads, mask
            rescore = partial(self._rescored, vectors[span], mask)
            yield from ranked(*batch, depth=self._vectors.depth, rescore=rescore)

    def _rescored(
        self, vectors: Floats, mask: Mask | None, query: int, ranking: Ranking
    ) -> Ranking:
        """Return the ranking of a query, with similarities and with further similar documents."""
        assert self._vectors is not None
        vector, (passages, scores) = vectors[query], ranking
        if not self._vectors.all_compared:
            return _ordered(passages, scores + self._vectors.similarities(vector, passages))
        totals, matches = np.zeros(self._count, np.float32), np.zeros(self._count, bool)
        totals[passages], matches[passages] = scores, True
        compared = np.arange(self._count) if mask is None else np.flatnonzero(mask.allowed)
        similarities = self._vectors.similarities(vector, compared)
        totals[compared] += similarities
        matches[compared] |= self._vectors.similar(similarities)
        passages = np.flatnonzero(matches)
        return _ordered(passages, totals[passages])

    def similar(self, vectors: Floats | None) -> npt.NDArray[np.bool_]:
        """Return a mask of the documents that are results of a query by similarity alone [N]."""
        if vectors is None or self._vectors is None or not self._vectors.all_compared:
            return np.zeros(self._count, bool)
        similarities = self._vectors.similarities(vectors[0], np.arange(self._count))
        return self._vectors.similar(similarities)


def _ordered(passages: Integers, scores: Floats) -> Ranking:
    """Return passages and scores, best first, ties in the order of documents."""
    order = np.lexsort((passages, -scores))
    return passages[order], scores[order]
