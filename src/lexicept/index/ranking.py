"""The ranking of documents: by postings and, for queries with vectors, by whole documents.

A search of one vocabulary, or without similarities, ranks a document by its best passage. The
search of all vocabularies leaves out concepts of function words, punctuation and numbers, and adds
up, for a document with the passages p₁, p₂, … in the order of their scores s,

    s(p) = (1 − DOCUMENT_WORDS) · words(p) + CONCEPTS · concepts(p) + prior(p) + similarity(p)
    score = DOCUMENT_WORDS · words of the whole document + s(p₁) + FURTHER · s(p₂)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from lexicept.engines import PostingsEngine
from lexicept.engines.mask import Mask
from lexicept.index.document_words import DocumentWords
from lexicept.index.passages import Passages
from lexicept.index.queries import WeightedQueries
from lexicept.index.query_encoders import IndexVocabulary
from lexicept.index.text_vectors import TextVectors
from lexicept.vectors import Floats, Integers, neighbouring_rows, run_starts, with_entries
from lexicept.weighting import BM25

DOCUMENT_WORDS = 0.75
"""Share of a word's weight that the whole document gives, and the passage does not. Chosen with
``FURTHER`` on questions to two documentations, which gain by whole documents, and on questions to
encyclopaedia articles, which gain by passages."""

CONCEPTS = 2.0
"""Factor on concepts beside the similarity, chosen on the same collections and on the abstracts of
CACM and Vaswani."""

FURTHER = 0.2
"""Factor on the score of a document's second best passage."""


class RankedPassages(NamedTuple):
    """The best passages of the best documents, best first."""

    passages: Integers
    """Indexes of the passages [n]."""
    scores: Floats
    """Scores of the documents [n]."""
    similarities: Floats | None = None
    """Similarities in the scores [n]; None for a search without vectors."""


class ScoredDocuments(NamedTuple):
    """Documents and their scores for one query; ascending, results or not."""

    documents: Integers
    """Indexes of the documents [n]."""
    scores: Floats
    """Scores [n]."""
    best: Integers
    """Index of the best passage of each document [n]."""
    further: Integers
    """Index of the second best passage of each document; -1 for none that counts [n]."""
    matches: npt.NDArray[np.bool_]
    """True for a document that is a result [n]."""
    similarities: Floats
    """Similarity of the best passage of each document [n]."""


class Composition(NamedTuple):
    """The passages whose weights make up a score."""

    passages: tuple[int, ...]
    factors: tuple[float, ...]
    document: int | None = None
    """Index of the document whose words count as a whole; None for words of passages alone."""


@dataclass(frozen=True)
class DocumentScorer:
    """Scores documents for queries with vectors, by the formula above."""

    engine: PostingsEngine
    passages: Passages
    vectors: TextVectors
    words: DocumentWords | None
    """Words of whole documents; None for an index without passages, without words, or with weights
    that are not BM25's."""
    vocabularies: Sequence[IndexVocabulary]
    further: float = FURTHER

    @classmethod
    def of(
        cls,
        engine: PostingsEngine,
        passages: Passages,
        vectors: TextVectors | None,
        vocabularies: Sequence[IndexVocabulary],
        *,
        reweighted: bool,
    ) -> DocumentScorer | None:
        """Return the scorer of an index; None without vectors. Weights that RRA changed count by
        passages, of which the best counts alone."""
        if vectors is None:
            return None
        words, further = None, 0.0 if reweighted else FURTHER
        for vocabulary in vocabularies if len(passages) and not reweighted else ():
            if vocabulary.name == "words" and isinstance(vocabulary.settings.weighting, BM25):
                words = DocumentWords(engine, passages, vocabulary.dimensions)
        return cls(engine, passages, vectors, words, vocabularies, further)

    @cached_property
    def factors(self) -> Floats:
        """Factor on the weight of each dimension, 0 for those that are left out [V]."""
        factors = [
            np.where(vocabulary.functional, 0, CONCEPTS if vocabulary.needs_model else 1)
            for vocabulary in self.vocabularies
        ]
        return np.concatenate(factors).astype(np.float32)

    def counted(self, query: sp.csr_array) -> sp.csr_array:
        """Return the weights that count of queries [n, V]."""
        data = query.data * self.factors[query.indices]
        return with_entries(query, data, query.indices, query.indptr)

    def score(
        self,
        query: sp.csr_array,
        vector: Floats,
        factor: Floats | None,
        mask: Mask | None,
        top_k: int,
        document: int | None = None,
    ) -> ScoredDocuments:
        """Score the documents that are compared with a query.

        Args:
            query, vector: weights [1, V], and the text's vector of unit length [d].
            factor: on the offsets of documents [1].
            mask: passages that may count.
            top_k: least number of documents to compare, if there are so many.
            document: index of a document to score in any case.
        """
        query = self.counted(query)
        scores = self.engine.scores(self._in_passages(query), factor).astype(np.float64)
        whole: Floats = np.zeros(self.passages.firsts.size)
        if self.words is not None:
            whole = DOCUMENT_WORDS * self.words.scores(query)
        passages = self._compared(scores, whole, mask, top_k, document)
        if not passages.size:
            nothing, no_scores = np.empty(0, np.int64), np.empty(0, np.float32)
            matches = np.empty(0, bool)
            return ScoredDocuments(nothing, no_scores, nothing, nothing, matches, no_scores)
        similarities = self.vectors.similarities(vector, passages)
        scores = scores[passages]
        matches = scores > 0
        if self.vectors.all_compared:
            matches |= self.vectors.similar(similarities)
        totals = scores + similarities
        of_passages = self.passages.document_numbers[passages]
        starts = run_starts(of_passages)
        documents = of_passages[starts]
        runs = np.repeat(np.arange(starts.size), np.diff(starts, append=totals.size))
        best, best_scores = _best_of_each(totals, starts, runs)
        totals[best] = 0
        second, second_scores = _best_of_each(totals, starts, runs)
        return ScoredDocuments(
            documents,
            whole[documents] + best_scores + self.further * second_scores,
            passages[best],
            np.where((second_scores > 0) & (self.further > 0), passages[second], -1),
            np.logical_or.reduceat(matches, starts),
            similarities[best],
        )

    def _in_passages(self, query: sp.csr_array) -> sp.csr_array:
        """Return the weights of a query on passages [1, V]."""
        if self.words is None:
            return query
        shares = np.where(self.words.among(query.indices), 1 - DOCUMENT_WORDS, 1)
        data = (query.data * shares).astype(np.float32)
        return with_entries(query, data, query.indices, query.indptr)

    def _compared(
        self, scores: Floats, whole: Floats, mask: Mask | None, top_k: int, document: int | None
    ) -> Integers:
        """Return the passages to compare with a query: all that may count, in a large index those
        of the best documents by words and concepts."""
        allowed = np.ones(scores.size, bool) if mask is None else mask.allowed
        if not self.vectors.all_compared:
            of_any = np.logical_or.reduceat(allowed, self.passages.firsts)
            best = np.maximum.reduceat(scores * allowed, self.passages.firsts)
            by_document = np.where(of_any, whole + best, 0)
            chosen, depth = by_document > 0, max(self.vectors.depth, top_k)
            if np.count_nonzero(chosen) > depth:
                chosen[np.argsort(-by_document, kind="stable")[depth:]] = False
            if document is not None:
                chosen[document] = True
            allowed = allowed & chosen[self.passages.document_numbers]
        return np.flatnonzero(allowed)

    def weights(self, query: sp.csr_array, composition: Composition) -> Floats:
        """Return the weights of a composition in the dimensions of a query [1, V]: [non-zeros]."""
        weights = np.zeros(query.nnz)
        for passage, factor in zip(composition.passages, composition.factors, strict=True):
            weights += factor * self.engine.document_weights(passage, query.indices)
        if self.words is not None and composition.document is not None:
            whole = self.words.weights(query, composition.document)
            weights[self.words.among(query.indices)] *= 1 - DOCUMENT_WORDS
            weights += DOCUMENT_WORDS * whole
        return weights


def _best_of_each(scores: Floats, starts: Integers, runs: Integers) -> tuple[Integers, Floats]:
    """Return the position of the best score, the first of equals, and the score, of each run of
    scores that begins at ``starts``; ``runs`` has the index of each score's run."""
    best = np.maximum.reduceat(scores, starts)
    positions = np.flatnonzero(scores == best[runs])
    return positions[run_starts(runs[positions])], best


class Ranker:
    """Ranks the documents of an index."""

    def __init__(
        self, engine: PostingsEngine, passages: Passages, scorer: DocumentScorer | None
    ) -> None:
        self._engine, self._passages, self._scorer = engine, passages, scorer

    def ranked(
        self,
        queries: WeightedQueries,
        top_k: int,
        factors: Floats | None,
        threads: int | None,
        mask: Mask | None,
    ) -> Iterable[RankedPassages]:
        """Return the best passage of each of the best documents, for every query; see
        ``PostingsEngine.search``."""
        weights, vectors = queries
        if vectors is not None and self._scorer is not None:
            return self._scored(self._scorer, weights, vectors, top_k, factors, mask)
        if not len(self._passages):
            rankings = self._engine.search(weights, top_k, factors, threads, mask)
        else:
            rankings = self._passages.ranked(self._engine, weights, top_k, factors, threads, mask)
        return (RankedPassages(*ranking) for ranking in rankings)

    def _scored(
        self,
        scorer: DocumentScorer,
        weights: sp.csr_array,
        vectors: Floats,
        top_k: int,
        factors: Floats | None,
        mask: Mask | None,
    ) -> Iterator[RankedPassages]:
        for row, vector in enumerate(vectors):
            factor = None if factors is None else factors[row : row + 1]
            scored = scorer.score(
                neighbouring_rows(weights, row, row + 1), vector, factor, mask, top_k
            )
            results = np.flatnonzero(scored.matches)
            scores = scored.scores[results].astype(np.float32)
            order = np.argsort(-scores, kind="stable")[:top_k]
            best = results[order]
            yield RankedPassages(scored.best[best], scores[order], scored.similarities[best])

    def matching(self, queries: WeightedQueries, factors: Floats | None) -> npt.NDArray[np.bool_]:
        """Return a mask of the documents and passages that are results of one query [N]."""
        weights, vectors = queries
        if vectors is None or self._scorer is None:
            return self._engine.scores(weights, factors) > 0
        matching = self._engine.scores(self._scorer.counted(weights), factors) > 0
        if (of_texts := self._scorer.vectors).all_compared:
            similarities = of_texts.similarities(vectors[0], np.arange(matching.size))
            matching |= of_texts.similar(similarities)
        return matching
