"""Explanations of documents' scores, from postings and vectorizers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import scipy.sparse as sp

from lexicept.engines.mask import Mask
from lexicept.explanation.contributions import Contribution, QueryTerm, Sources, name_of
from lexicept.explanation.explanation import Explanation
from lexicept.explanation.similarity import WordPair, WordStates, word_pairs
from lexicept.index.queries import Dimension, QueryWeigher, SearchQuery, WeightedQueries
from lexicept.index.ranking import Composition, DocumentScorer, ScoredDocuments
from lexicept.index.stored import StoredDocuments


class Explainer:
    """Explains the scores of an index for the queries of a weigher."""

    def __init__(
        self, weigher: QueryWeigher, stored: StoredDocuments, scorer: DocumentScorer | None
    ) -> None:
        self._weigher, self._stored, self._scorer = weigher, stored, scorer
        self._derived, self._encoders = weigher.derived, weigher.encoders

    def terms(self, query: SearchQuery) -> list[QueryTerm]:
        """Return the dimensions of a query that count, largest weights first."""
        vector = self._counted(query)
        order = np.argsort(-vector.data, kind="stable")[: np.count_nonzero(vector.data)]
        dimensions = self._weigher.numbered(vector.indices[order])
        weights, sources = vector.data[order].tolist(), self._query_sources(query, dimensions)
        terms, ideas = [], self._ideas(vector)
        for dimension, weight, in_query in zip(dimensions, weights, sources, strict=True):
            term, idea = self._weigher.term(dimension), ideas(*dimension)
            terms.append(QueryTerm(*dimension, term, weight, *in_query, idea))
        return terms

    def compositions(
        self, query: SearchQuery, passages: Sequence[int], mask: Mask | None, top_k: int
    ) -> list[Composition]:
        """Return the compositions of results by their best passages; arguments of the search."""
        scored = self._score(query, mask, top_k)
        if scored is None or not scored.documents.size:  # of conditions alone, none is compared
            return [Composition((passage,), (1.0,)) for passage in passages]
        documents = self._stored.passages.document_numbers[np.array(passages, np.int64)]
        positions = np.searchsorted(scored.documents, documents).tolist()
        return [self._composition(scored, position) for position in positions]

    def composition_of(
        self, query: SearchQuery, passages: range, mask: Mask | None, *, whole: bool
    ) -> Composition:
        """Return the composition of a document's or passage's score. Passages in a mask come first.

        Args:
            passages: of the document, or a single one.
            whole: False for a passage by itself.
        """
        allowed = np.zeros(len(self._stored.ids), bool)
        document = slice(passages.start, passages.stop)
        preferred = mask is not None and mask.allowed[document].any()
        allowed[document] = mask.allowed[document] if mask is not None and preferred else True
        index = int(self._stored.passages.document_numbers[passages.start])
        if whole and (scored := self._score(query, Mask(allowed), 1, index)) is not None:
            return self._composition(scored, 0)
        factors = query.vector @ self._derived.background
        ((entries, _),) = self._derived.engine.search(
            self._counted(query), 1, factors, mask=Mask(allowed)
        )
        best = int(entries[0]) if entries.size else int(np.flatnonzero(allowed)[0])
        return Composition((best,), (1.0,))

    def _score(
        self, query: SearchQuery, mask: Mask | None, top_k: int, document: int | None = None
    ) -> ScoredDocuments | None:
        """Score documents for a query with a vector; None for other queries."""
        if self._scorer is None or query.text_vectors is None:
            return None
        factor, vector = query.vector @ self._derived.background, query.text_vectors[0]
        return self._scorer.score(query.vector, vector, factor, mask, top_k, document)

    def _counted(self, query: SearchQuery) -> sp.csr_array:
        """Return the weights of a query that a search counts [1, V]."""
        if self._scorer is None or query.text_vectors is None:
            return query.vector
        return self._scorer.counted(query.vector)

    def _composition(self, scored: ScoredDocuments, position: int) -> Composition:
        """Return the composition of a scored document's score."""
        assert self._scorer is not None
        document = int(scored.documents[position])
        best, further = int(scored.best[position]), int(scored.further[position])
        if further < 0:
            return Composition((best,), (1.0,), document)
        return Composition((best, further), (1.0, self._scorer.further), document)

    def _similarity(self, query: SearchQuery, composition: Composition) -> float:
        """Return the similarities of whole texts that a search adds to the scores."""
        if self._scorer is None or query.text_vectors is None:
            return 0.0
        passages = np.array(composition.passages, np.int64)
        similarities = self._scorer.vectors.similarities(query.text_vectors[0], passages)
        return float(similarities @ np.array(composition.factors))

    def explain(
        self, query: SearchQuery, compositions: Sequence[Composition], *, spans: bool
    ) -> list[Explanation]:
        """Return explanations of scores, with ``spans`` also the characters of query and best
        passage that activate each dimension."""
        vector, engine = self._counted(query), self._derived.engine
        best = [composition.passages[0] for composition in compositions]
        contents = [self._stored.document(passage).content for passage in best]
        ideas = self._ideas(vector)
        contributions = [self._contributions(vector, each, ideas) for each in compositions]
        pairs: list[tuple[WordPair, ...]] = [()] * len(contents)
        if spans:
            contributions, pairs = self._with_spans(query, contents, contributions)
        # A search finds nothing for a query that matches no posting, whatever the priors.
        matches = (engine.df[vector.indices[vector.data > 0]] > 0).any()
        factor = float((query.vector @ self._derived.background)[0]) if matches else 0.0
        return [
            Explanation(
                query.text,
                self._stored.document_ids[passage],
                content,
                tuple(of_document),
                float(engine.offsets[passage]) * factor,
                self._stored.passage_id(passage),
                query.stop_words,
                self._similarity(query, composition),
                tuple(map(self._stored.passage_id, composition.passages[1:])),
                of_words,
            )
            for passage, content, of_document, composition, of_words in zip(
                best, contents, contributions, compositions, pairs, strict=True
            )
        ]

    def _contributions(
        self, query: sp.csr_array, composition: Composition, ideas: Callable[[str, int], str]
    ) -> list[Contribution]:
        """Return the shared dimensions of a score and a query, largest products first."""
        if self._scorer is not None:
            document_weights = self._scorer.weights(query, composition)
        else:
            (passage,) = composition.passages
            document_weights = self._derived.engine.document_weights(passage, query.indices)
        query_weights = query.data.astype(np.float64)
        scores = query_weights * document_weights
        order = np.argsort(-scores, kind="stable")[: np.count_nonzero(scores)]
        shared = self._weigher.numbered(query.indices[order])
        weights = zip(query_weights[order].tolist(), document_weights[order].tolist(), strict=True)
        contributions = []
        for (name, number), (in_query, in_document) in zip(shared, weights, strict=True):
            term, score = self._weigher.term((name, number)), in_query * in_document
            weighted = (name, number, term, score, in_query, in_document)
            contributions.append(Contribution(*weighted, (), (), (), (), ideas(name, number)))
        return contributions

    def contributions(
        self, query: WeightedQueries, passages: Sequence[int]
    ) -> list[list[Contribution]]:
        """Return the contributions to the scores of results for one query by their best passages
        alone, largest first, without characters."""
        weights, documents = query.weights, self._stored.passages.document_numbers
        whole = self._scorer is not None and query.text_vectors is not None
        if self._scorer is not None and whole:
            weights = self._scorer.counted(weights)
        ideas = self._ideas(weights)
        return [
            self._contributions(
                weights, Composition((p,), (1.0,), int(documents[p]) if whole else None), ideas
            )
            for p in passages
        ]

    def _ideas(self, query: sp.csr_array) -> Callable[[str, int], str]:
        """Return a function that names the idea of a dimension: the stem of a word, and for a
        concept named by a word of the query this word's; else the name of the concept."""
        dimensions = self._weigher.numbered(query.indices)
        words = {self._weigher.term((name, n)) for name, n in dimensions if name == "words"}

        @cache
        def idea(vocabulary: str, dimension: int) -> str:
            name = name_of(self._weigher.term((vocabulary, dimension)), dimension)
            if vocabulary == "words":
                return name
            return next((stem for stem in self._weigher.stems(name) if stem in words), name)

        return idea

    def _with_spans(
        self,
        query: SearchQuery,
        contents: Sequence[str],
        contributions: Sequence[Sequence[Contribution]],
    ) -> tuple[list[list[Contribution]], list[tuple[WordPair, ...]]]:
        """Return the contributions to each document's score with characters, and the pairs of words
        behind the similarity."""
        dimensions = [[(c.vocabulary, c.dimension) for c in listed] for listed in contributions]
        document_sources, words = self._document_sources(query, contents, dimensions)
        with_spans = [
            [
                contribution._replace(
                    idea=self._idea_in(query.text, contribution, in_query),
                    query_spans=in_query.spans,
                    query_shares=in_query.shares,
                    document_spans=in_document.get(dimension, Sources()).spans,
                    document_shares=in_document.get(dimension, Sources()).shares,
                )
                for contribution, dimension, in_query in zip(
                    listed, keys, self._query_sources(query, keys), strict=True
                )
            ]
            for listed, keys, in_document in zip(
                contributions, dimensions, document_sources, strict=True
            )
        ]
        pairs: list[tuple[WordPair, ...]] = [()] * len(contents)
        if query.words is not None and words:
            stems = self._weigher.stems
            pairs = [
                word_pairs(query.text, query.words, content, of_document, stems)
                for content, of_document in zip(contents, words, strict=True)
            ]
        return with_spans, pairs

    def _idea_in(self, text: str, contribution: Contribution, in_query: Sources) -> str:
        """Return the idea of a contribution: for a concept whose name has no word of the query, the
        stem of the query's word that fires it most, if that is no stop word."""
        if contribution.vocabulary == "words" or not in_query.spans:
            return contribution.idea
        if contribution.idea in self._weigher.stems(text):
            return contribution.idea
        start, end = in_query.spans[0]
        return next(iter(self._weigher.stems(text[start:end])), contribution.idea)

    def _query_sources(self, query: SearchQuery, dimensions: Sequence[Dimension]) -> list[Sources]:
        """Return the characters of a query behind dimensions; none for added dimensions."""
        sources: dict[Dimension, Sources] = {}
        for name in self._weigher.vocabularies:
            if numbers := [n for v, n in dimensions if v == name and (v, n) in query.fired]:
                with self._encoders[name].lock:
                    by_number = query.sources[name](numbers)
                sources |= {(name, number): found for number, found in by_number.items()}
        return [sources.get(dimension, Sources()) for dimension in dimensions]

    def _document_sources(
        self, query: SearchQuery, contents: Sequence[str], dimensions: Sequence[Sequence[Dimension]]
    ) -> tuple[list[dict[Dimension, Sources]], list[WordStates]]:
        """Return the characters of each document behind the document's dimensions, and for a query
        with a vector the states of each document's words."""
        sources: list[dict[Dimension, Sources]] = [{} for _ in contents]
        words: list[WordStates] = []
        for name, vocabulary in self._weigher.vocabularies.items():
            numbers = [[n for v, n in listed if v == name] for listed in dimensions]
            reads_words = query.words is not None and vocabulary.kind.has_model
            if not any(numbers) and not reads_words:
                continue
            encoder: Any = self._encoders[name].for_queries()
            with self._encoders[name].lock:
                if reads_words:
                    spans, words = encoder.document_sources_and_words(contents, numbers)
                else:
                    spans = encoder.document_sources(contents, numbers)
            for of_document, by_number in zip(sources, spans, strict=True):
                of_document |= {(name, number): found for number, found in by_number.items()}
        return sources, words
