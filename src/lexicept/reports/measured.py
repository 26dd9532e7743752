"""An index with the queries of a report, and measurements for several sections.

The queries are judged queries or, without any, sentences that search for the sentence's document.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from lexicept.corpora import Qrel, Query, pseudo_queries
from lexicept.engines import PostingsEngine
from lexicept.evaluation.effectiveness import evaluate_queries
from lexicept.evaluation.runs import run_of_hits
from lexicept.index.builder import Contents
from lexicept.index.hits import Hit
from lexicept.index.queries import WeightedQueries
from lexicept.index.reader import IndexReader
from lexicept.measures import NDCG, RECALL, RR, posting_list_flops
from lexicept.segments import neighbours
from lexicept.vectors import Floats, Integers

JUDGED_QUERIES = 1000
"""Largest number of judged queries that a report runs."""

PSEUDO_QUERIES = 300

POSTINGS = 2**18
"""Most postings in memory at a time; the postings of one dimension may be more."""

ENCODED_TOGETHER = 16
"""Queries encoded at once: with a model they take more memory than anything else."""

SEARCHED_TOGETHER = 2
"""Queries searched at once: sixteen together need most of all postings."""

DEPTH = 100
"""Results per query."""

MEASURES = (NDCG.name, RECALL.name, RR.name)


@dataclass(frozen=True)
class ReportQueries:
    """Queries with relevance judgements."""

    queries: Sequence[Query]
    qrels: Sequence[Qrel]
    judged: bool
    """False if every query is a sentence of the only relevant document."""
    total: int
    """Number of queries or documents that the queries were drawn from."""

    @classmethod
    def from_judged(cls, queries: Sequence[Query], qrels: Sequence[Qrel]) -> ReportQueries:
        """Take all queries, or ``JUDGED_QUERIES`` at random."""
        total = len(queries)
        if total > JUDGED_QUERIES:
            drawn = np.random.default_rng(0).choice(total, JUDGED_QUERIES, replace=False)
            queries = [queries[index] for index in np.sort(drawn)]
        query_ids = {query.id for query in queries}
        return cls(queries, [qrel for qrel in qrels if qrel.query_id in query_ids], True, total)

    @classmethod
    def from_documents(cls, index: IndexReader) -> ReportQueries:
        """Take one sentence from each of ``PSEUDO_QUERIES`` documents with sentences."""
        indices, texts = pseudo_queries.from_texts(Contents(index.folder), PSEUDO_QUERIES)
        ids = [index.ids[n] for n in indices]
        queries = list(map(Query, ids, texts))
        documents = (index.document_ids[n] for n in indices)
        qrels = [Qrel(query, document, 1) for query, document in zip(ids, documents, strict=True)]
        return cls(queries, qrels, False, len(index))

    @property
    def description(self) -> str:
        """The queries in words."""
        if not self.judged:
            return (
                f"{len(self.queries):,} pseudo-queries: random sentences of the documents, each "
                "with its own document as the answer"
            )
        if self.total > len(self.queries):
            return f"{len(self.queries):,} of {self.total:,} judged queries, drawn at random"
        return f"{len(self.queries):,} judged queries"


class WeightSpread(NamedTuple):
    """Statistics of the weights in one vocabulary of V dimensions and N documents."""

    lengths: Integers
    """Number of active dimensions of each document [N]."""
    documents: Integers
    """Number of documents with each dimension [V]."""
    variance_shares: Floats
    """Share of each dimension in the sum of the variances of weights over all documents, zeros
    included [V]; all 0 without variance."""

    def telling(self, limit: int) -> list[int]:
        """Return the dimensions with the largest shares above 0, largest first."""
        order = np.argsort(-self.variance_shares, kind="stable")[:limit]
        return [int(dimension) for dimension in order if self.variance_shares[dimension] > 0]


class MeasuredIndex:
    """An index with the queries of a report or None; results are computed once."""

    def __init__(self, index: IndexReader, queries: ReportQueries | None) -> None:
        self.index, self._queries = index, queries
        self.vocabularies = [vocabulary.name for vocabulary in index.vocabularies]
        self.hits = cache(self._hits)
        self.spread = cache(self._spread)

    def __len__(self) -> int:
        return len(self.index)

    @property
    def has_queries(self) -> bool:
        return self._queries is not None

    @property
    def queries(self) -> ReportQueries:
        """The queries of a report that has any."""
        assert self._queries is not None
        return self._queries

    @cached_property
    def num_empty(self) -> int:
        """Number of documents without any dimension."""
        lengths = np.sum([self.spread(name).lengths for name in self.vocabularies], axis=0)
        return int((lengths == 0).sum())

    @cached_property
    def posting_lengths(self) -> Integers:
        """Number of documents of each dimension [V]."""
        return self.index.engine.df

    def _spread(self, vocabulary: str) -> WeightSpread:
        """Measure a vocabulary in one pass over its postings."""
        span = self.index.span(vocabulary)
        document_frequency = self.posting_lengths[span]
        lengths = np.zeros(len(self), np.int64)
        sums, squares = np.zeros((2, document_frequency.size))
        for postings in blocks_of_postings(self.index.engine, span):
            lengths += np.bincount(postings.documents, minlength=len(self))
            block = slice(postings.span.start - span.start, postings.span.stop - span.start)
            size, columns = block.stop - block.start, postings.dimensions - postings.span.start
            weights = postings.weights.astype(np.float64)
            sums[block] = np.bincount(columns, weights, minlength=size)
            squares[block] = np.bincount(columns, weights**2, minlength=size)
        # E[w²] − E[w]² over all documents: documents without the dimension count as 0.
        variance = np.maximum(squares / len(self) - (sums / len(self)) ** 2, 0)
        return WeightSpread(lengths, document_frequency, variance / (variance.sum() or 1.0))

    @cached_property
    def weighted(self) -> WeightedQueries:
        """The queries in all vocabularies, pruned as the index prunes."""
        texts = [query.text for query in self.queries.queries]
        starts = range(0, len(texts), ENCODED_TOGETHER)
        batches = [self.index.weigh(texts[n : n + ENCODED_TOGETHER]) for n in starts]
        weights = sp.csr_array(sp.vstack([batch.weights for batch in batches], format="csr"))
        vectors = [b.text_vectors for b in batches if b.text_vectors is not None]
        return WeightedQueries(weights, np.concatenate(vectors) if vectors else None)

    @property
    def query_weights(self) -> sp.csr_array:
        """The weights of the queries in all vocabularies [n, V]."""
        return self.weighted.weights

    def query_weights_in(self, vocabulary: str | None) -> sp.csr_array:
        """Return the weights of the queries in one vocabulary, 0 in the others [n, V]."""
        if vocabulary is None:
            return self.query_weights
        mask = np.zeros(self.query_weights.shape[1], np.float32)
        mask[self.index.span(vocabulary)] = 1
        weights = sp.csr_array(self.query_weights * mask[None, :])
        weights.eliminate_zeros()
        return weights

    def qd_flops(self, vocabulary: str | None = None) -> float:
        """Return the QD-FLOPs of the queries in one vocabulary or in all."""
        weights = self.query_weights_in(vocabulary)
        return posting_list_flops(weights, self.posting_lengths, len(self))

    def _hits(self, vocabulary: str | None) -> list[list[Hit]]:
        """Return the first ``DEPTH`` results of each query, in one vocabulary or in all."""
        weighted = self.weighted
        if vocabulary is not None:
            weighted = WeightedQueries(self.query_weights_in(vocabulary))
        hits: list[list[Hit]] = []
        for start in range(0, weighted.weights.shape[0], SEARCHED_TOGETHER):
            batch = weighted.select(slice(start, start + SEARCHED_TOGETHER))
            hits += self.index.rank(batch, DEPTH)
            self.index.engine.let_go()  # pages of few posting lists stay in memory
        return hits

    def measured(self, vocabulary: str | None = None) -> dict[str, dict[str, float]]:
        """Return measure → query id → value."""
        query_ids = [query.id for query in self.queries.queries]
        run = run_of_hits(query_ids, self.hits(vocabulary))
        return evaluate_queries(self.queries.qrels, run, MEASURES)


class PostingsBlock(NamedTuple):
    """Postings of neighbouring dimensions; the arrays have an entry for each posting."""

    span: slice
    dimensions: Integers
    documents: Integers
    weights: Floats


def blocks_of_postings(engine: PostingsEngine, span: slice) -> Iterator[PostingsBlock]:
    """Yield the postings of neighbouring dimensions, ``POSTINGS`` at a time or of a single
    dimension: the files' pages don't stay in memory."""
    document_frequency = engine.df[span]
    for group in neighbours(document_frequency, POSTINGS):
        block = slice(span.start + group.start, span.start + group.stop)
        columns = np.arange(block.start, block.stop)
        documents, weights, sizes = engine.posting_lists(columns)
        dimensions = np.repeat(columns, sizes)
        yield PostingsBlock(block, dimensions, documents, weights)
        engine.let_go()
