"""The data behind a report's sections, computed once.

A report is about one index, or about two over the same queries. The queries are
the judged ones or, without any, sentences of the documents that search their own document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple, TypeVar

import numpy as np
import scipy.sparse as sp

from lexicept.corpora import Qrel, Query, pseudo_queries
from lexicept.engines import PostingsEngine
from lexicept.evaluation.effectiveness import evaluate_queries
from lexicept.evaluation.runs import run_of_hits
from lexicept.index.builder import Contents
from lexicept.index.reader import IndexReader
from lexicept.index.stored import Hit
from lexicept.segments import neighbours
from lexicept.vectors import Floats, Integers, SparseVectors, Vocabulary

QUERIES = 1000
"""Largest number of judged queries that a report runs."""

PSEUDO_QUERIES = 300

POSTINGS = 2**18
"""Most postings in memory at a time; the postings of one dimension may be more."""

TOGETHER = 16
"""Queries encoded at once: with a model they take more memory than anything else."""

SEARCHED = 2
"""Queries searched at once: sixteen together need most of all postings."""

DEPTH = 100
"""Results per query."""

R = TypeVar("R")

MEASURES = ("nDCG@10", "R@100", "RR@10")


@dataclass(frozen=True)
class Questions:
    """Queries with relevance judgements."""

    queries: Sequence[Query]
    qrels: Sequence[Qrel]
    judged: bool
    """True if the judgements were given; otherwise a query is a sentence of its only answer."""
    total: int
    """Number of queries or documents that these were drawn from."""

    @property
    def texts(self) -> list[str]:
        return [query.text for query in self.queries]

    @classmethod
    def given(cls, queries: Sequence[Query], qrels: Sequence[Qrel], seed: int = 0) -> Questions:
        """Take all queries, or ``QUERIES`` of them at random."""
        total = len(queries)
        if total > QUERIES:
            chosen = np.random.default_rng(seed).choice(total, QUERIES, replace=False)
            queries = [queries[i] for i in np.sort(chosen)]
        names = {query.id for query in queries}
        return cls(queries, [qrel for qrel in qrels if qrel.query_id in names], True, total)

    @classmethod
    def from_documents(cls, index: IndexReader) -> Questions:
        """Take one sentence from each of ``PSEUDO_QUERIES`` documents that have sentences."""
        sources, texts = pseudo_queries.from_texts(Contents(index.folder), PSEUDO_QUERIES)
        names = [index.ids[int(source)] for source in sources]
        found = [index.document_ids[int(source)] for source in sources]
        return cls(
            [Query(name, text) for name, text in zip(names, texts, strict=True)],
            [Qrel(name, document, 1) for name, document in zip(names, found, strict=True)],
            False,
            len(index),
        )

    def describe(self) -> str:
        """Return a description of the queries for a caption."""
        if not self.judged:
            return (
                f"{len(self.queries):,} pseudo-queries: random sentences of the documents, each "
                "with its own document as the answer"
            )
        if self.total > len(self.queries):
            return f"{len(self.queries):,} of {self.total:,} judged queries, drawn at random"
        return f"{len(self.queries):,} judged queries"


class Spread(NamedTuple):
    """The distribution of each dimension's weights over all documents."""

    documents: Integers
    """Number of documents with the dimension [V]."""
    mean: Floats
    """Mean weight over the documents with the dimension [V]; 0 without documents."""
    variance: Floats
    """Variance of the weight over all documents, zeros included [V]."""


def pieces(
    engine: PostingsEngine, span: slice
) -> Iterator[tuple[slice, Integers, Integers, Floats]]:
    """Yield neighbouring dimensions and their postings: dimension, document and weight of each.

    There are ``POSTINGS`` at a time, or those of one dimension: never a whole collection's, nor do
    the pages of their files stay in memory.
    """
    df = engine.df[span]
    for own in neighbours(df, POSTINGS):
        piece = slice(span.start + own.start, span.start + own.stop)
        yield piece, np.repeat(np.arange(piece.start, piece.stop), df[own]), *engine.postings(piece)
        engine.let_go()


def weights_of(engine: PostingsEngine, rows: Integers, span: slice) -> sp.csr_array:
    """Return the weights of some documents on neighbouring dimensions, CSR [rows, dimensions]."""
    distinct, places = np.unique(rows, return_inverse=True)
    place_of = np.full(engine.num_documents, -1, np.int32)
    place_of[distinct] = np.arange(distinct.size)
    found = [(np.empty(0, np.int32), np.empty(0, np.float32))]
    lengths = np.zeros(span.stop - span.start, np.int64)
    for piece, columns, documents, weights in pieces(engine, span):
        place = place_of[documents]
        kept = place >= 0
        found.append((place[kept], weights[kept]))
        own = slice(piece.start - span.start, piece.stop - span.start)
        lengths[own] = np.bincount(columns[kept] - piece.start, minlength=piece.stop - piece.start)
    place, weights = map(np.concatenate, zip(*found, strict=True))
    del found  # as large as both
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    matrix = sp.csc_array((weights, place, indptr), shape=(distinct.size, lengths.size)).tocsr()
    return matrix if np.array_equal(distinct, rows) else matrix[places]


def searched(
    search: Callable[[sp.csr_array], list[R]], engine: PostingsEngine, queries: sp.csr_array
) -> list[R]:
    """Return the results of queries [n, V], some of which are searched at a time, so that the pages
    of few posting lists are in memory.

    Args:
        search: returns the results of some queries, which the engine finds.
    """
    results = []
    for start in range(0, queries.shape[0], SEARCHED):
        results += search(queries[start : start + SEARCHED])
        engine.let_go()
    return results


class Subject:
    """One index with the report's queries, and cached results.

    Args:
        name: the index's name in the report.
        questions: at least one query, or None.
    """

    def __init__(self, index: IndexReader, name: str, questions: Questions | None) -> None:
        self.index, self.name, self.questions = index, name, questions
        self._runs: dict[str | None, list[list[Hit]]] = {}
        self._weights: sp.csr_array | None = None
        self._lengths: dict[str, Integers] = {}
        self._spreads: dict[str, Spread] = {}

    def __len__(self) -> int:
        return len(self.index)

    @property
    def vocabularies(self) -> Sequence[Vocabulary]:
        return self.index.vocabularies

    @property
    def names(self) -> list[str]:
        """Names of the vocabularies."""
        return [vocabulary.name for vocabulary in self.vocabularies]

    @cached_property
    def known(self) -> frozenset[str]:
        """The documents' ids."""
        return frozenset(self.index.document_ids)

    def span(self, name: str) -> slice:
        """The dimensions of one vocabulary."""
        return self.index.span(name)

    def terms(self, name: str) -> Sequence[str]:
        """Return the readable term of each dimension of a vocabulary."""
        vocabulary = next(v for v in self.vocabularies if v.name == name)
        return (
            vocabulary.terms
            if vocabulary.terms is not None
            else [f"#{n}" for n in range(vocabulary.size)]
        )

    @cached_property
    def posting_lengths(self) -> Integers:
        """Number of documents of each dimension [V]."""
        return self.index.engine.df

    def lengths(self, name: str) -> Integers:
        """Return the number of active dimensions of each document in a vocabulary [N]."""
        if name not in self._lengths:
            self._lengths[name], self._spreads[name] = self._measure(name)
        return self._lengths[name]

    def spread(self, name: str) -> Spread:
        """Return the distribution of each dimension's weights in a vocabulary."""
        self.lengths(name)
        return self._spreads[name]

    def _measure(self, name: str) -> tuple[Integers, Spread]:
        """Return the lengths and the spread in a vocabulary, in one pass over its postings."""
        span = self.span(name)
        documents = self.posting_lengths[span]
        lengths = np.zeros(len(self), np.int64)
        sums, squares = np.zeros((2, documents.size))
        for piece, columns, rows, weights in pieces(self.index.engine, span):
            lengths += np.bincount(rows, minlength=len(self))
            own = slice(piece.start - span.start, piece.stop - span.start)
            width, places = piece.stop - piece.start, columns - piece.start
            sums[own] = np.bincount(places, weights, minlength=width)
            squares[own] = np.bincount(places, weights.astype(np.float64) ** 2, minlength=width)
        variance = squares / len(self) - (sums / len(self)) ** 2
        mean = sums / np.maximum(documents, 1)
        return lengths, Spread(documents, mean, np.maximum(variance, 0))

    @property
    def asked(self) -> sp.csr_array:
        """The queries' weights in all vocabularies, pruned as the index prunes them [n, V]."""
        assert self.questions is not None
        if self._weights is None:
            texts = self.questions.texts
            starts = range(0, len(texts), TOGETHER)
            parts = [self.index.query_vectors(texts[n : n + TOGETHER]) for n in starts]
            self._weights = sp.csr_array(sp.vstack(parts, format="csr"))
        return self._weights

    def asked_in(self, name: str | None) -> sp.csr_array:
        """Return the queries' weights in one vocabulary, 0 in the others [n, V]."""
        if name is None:
            return self.asked
        kept = np.zeros(self.asked.shape[1], np.float32)
        kept[self.span(name)] = 1
        only = sp.csr_array(self.asked * kept[None, :])
        only.eliminate_zeros()
        return only

    def hits(self, name: str | None = None) -> list[list[Hit]]:
        """Return the first ``DEPTH`` results of each query, in one vocabulary or in all."""
        if name not in self._runs:
            search = partial(self.index.search_vectors, top_k=DEPTH)
            self._runs[name] = searched(search, self.index.engine, self.asked_in(name))
        return self._runs[name]

    def measured(self, name: str | None = None) -> dict[str, dict[str, float]]:
        """Return the value of each measure for each query: measure → query id → value."""
        assert self.questions is not None
        run = run_of_hits([query.id for query in self.questions.queries], self.hits(name))
        return evaluate_queries(self.questions.qrels, run, MEASURES)

    def sample(self, most: int, seed: int = 0) -> Integers:
        """Return the numbers of all documents, or of ``most`` drawn at random, in order."""
        if len(self) <= most:
            return np.arange(len(self))
        return np.sort(np.random.default_rng(seed).choice(len(self), most, replace=False))

    def vectors(self, name: str, rows: Integers) -> SparseVectors:
        """Return some documents' weights in one vocabulary."""
        vocabulary = next(v for v in self.vocabularies if v.name == name)
        weights = weights_of(self.index.engine, rows, self.span(name))
        return SparseVectors(weights, [self.index.ids[int(row)] for row in rows], [vocabulary])

    def label(self, dimension: int) -> tuple[str, str]:
        """Return the vocabulary and the term of a dimension, numbered over all vocabularies.

        Raises:
            IndexError: no such dimension.
        """
        for vocabulary in self.vocabularies:
            if dimension < vocabulary.size:
                return vocabulary.name, self.terms(vocabulary.name)[dimension]
            dimension -= vocabulary.size
        raise IndexError(dimension)
