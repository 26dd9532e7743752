"""The ranking of documents: by postings and, for queries with vectors, by similarity."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from lexicept.engines import PostingsEngine
from lexicept.engines.interface import Ranking
from lexicept.engines.mask import Mask
from lexicept.index.passages import Passages
from lexicept.index.queries import WeightedQueries
from lexicept.index.text_vectors import ALL_COMPARED, COMPARED, TextVectors
from lexicept.vectors import Floats

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
    ) -> Iterator[Ranking]:
        """Yield the best passage of each of the best documents, for every query; see
        ``PostingsEngine.search``."""
        weights, vectors = queries
        if vectors is None or self._vectors is None:
            yield from self._passages.ranked(self._engine, weights, top_k, factors, threads, mask)
            return
        depth = max(self._count if self._compares_all else max(COMPARED, top_k), 1)
        for start in range(0, len(vectors), RESCORED_TOGETHER):
            span = slice(start, start + RESCORED_TOGETHER)
            offsets = None if factors is None else factors[span]
            rankings = self._engine.search(weights[span], depth, offsets, threads, mask)
            for ranking, vector in zip(rankings, vectors[span], strict=True):
                passages, scores = self._rescored(ranking, vector, mask)
                order = np.lexsort((passages, -scores))
                yield self._passages.best((passages[order], scores[order]), top_k)

    @property
    def _compares_all(self) -> bool:
        return self._count <= ALL_COMPARED

    def _rescored(self, ranking: Ranking, vector: Floats, mask: Mask | None) -> Ranking:
        """Return a ranking, in any order, with similarities and with further similar documents."""
        assert self._vectors is not None
        passages, scores = ranking
        if not self._compares_all:
            return passages, scores + self._vectors.similarities(vector, passages)
        totals, matches = np.zeros(self._count, np.float32), np.zeros(self._count, bool)
        totals[passages], matches[passages] = scores, True
        compared = np.arange(self._count) if mask is None else np.flatnonzero(mask.allowed)
        similarities = self._vectors.similarities(vector, compared)
        totals[compared] += similarities
        matches[compared] |= self._vectors.similar(similarities)
        passages = np.flatnonzero(matches)
        return passages, totals[passages]

    def similar(self, vectors: Floats | None) -> npt.NDArray[np.bool_]:
        """Return a mask of the documents that are results of a query by similarity alone [N]."""
        if vectors is None or self._vectors is None or not self._compares_all:
            return np.zeros(self._count, bool)
        similarities = self._vectors.similarities(vectors[0], np.arange(self._count))
        return self._vectors.similar(similarities)
