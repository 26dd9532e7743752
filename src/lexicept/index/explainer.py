"""Explanations of documents' scores, from postings and vectorizers."""

from __future__ import annotations

from collections.abc import Sequence
from math import isclose

import numpy as np
import scipy.sparse as sp

from lexicept.engines.mask import Mask
from lexicept.errors import IndexFormatError
from lexicept.explanation.contributions import Contribution, QueryTerm, Sources
from lexicept.explanation.explanation import Explanation
from lexicept.index.queries import Dimension, QueryWeigher, SearchQuery
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
        terms = []
        for dimension, weight, in_query in zip(dimensions, weights, sources, strict=True):
            (name, number), term = dimension, self._weigher.term(dimension)
            terms.append(QueryTerm(name, number, term, weight, in_query.spans, in_query.shares))
        return terms

    def compositions(
        self, query: SearchQuery, passages: Sequence[int], mask: Mask | None, top_k: int
    ) -> list[Composition]:
        """Return the compositions of results by their best passages; arguments of the search."""
        if (scored := self._score(query, mask, top_k)) is None:
            return [Composition((passage,), (1.0,)) for passage in passages]
        documents = self._stored.passages.document_numbers[np.array(passages, np.int64)]
        positions = np.searchsorted(scored.documents, documents).tolist()
        return [self._composition(scored, position) for position in positions]

    def composition_of(
        self, query: SearchQuery, passages: range, mask: Mask | None, *, whole: bool
    ) -> tuple[Composition, float | None]:
        """Return the composition of a document's score, or of a passage's, and the score that a
        search finds, if any. Passages in a mask come first.

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
            found = bool(scored.matches[0])
            return self._composition(scored, 0), float(scored.scores[0]) if found else None
        factors = query.vector @ self._derived.background
        ((entries, scores),) = self._derived.engine.search(
            self._counted(query), len(passages), factors, mask=Mask(allowed)
        )
        best = int(entries[0]) if entries.size else int(np.flatnonzero(allowed)[0])
        similarity = self._similarity(query, Composition((best,), (1.0,)))
        score = float(scores[0]) + similarity if entries.size else similarity or None
        return Composition((best,), (1.0,)), score

    def _score(
        self, query: SearchQuery, mask: Mask | None, top_k: int, document: int | None = None
    ) -> ScoredDocuments | None:
        """Score documents for a query with a vector; None for other queries."""
        if self._scorer is None or query.text_vectors is None:
            return None
        factor = query.vector @ self._derived.background
        vector = query.text_vectors[0]
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
        self,
        query: SearchQuery,
        compositions: Sequence[Composition],
        scores: Sequence[float | None],
        *,
        spans: bool,
    ) -> list[Explanation]:
        """Return explanations of scores, with ``spans`` also the characters of query and best
        passage that activate each dimension. Raises IndexFormatError for an explanation that does
        not add up to the score that a search found.

        Args:
            scores: None for a document that a search does not find.
        """
        vector, engine = self._counted(query), self._derived.engine
        best = [composition.passages[0] for composition in compositions]
        contents = [self._stored.document(passage).content for passage in best]
        contributions = [self._contributions(vector, of_score) for of_score in compositions]
        if spans:
            contributions = self._with_spans(query, contents, contributions)
        # A search finds nothing for a query that matches no posting, whatever the priors.
        matches = engine.matches(vector.indices)
        factor = float((query.vector @ self._derived.background)[0]) if matches else 0.0
        explanations = [
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
            )
            for passage, content, of_document, composition in zip(
                best, contents, contributions, compositions, strict=True
            )
        ]
        for explanation, score in zip(explanations, scores, strict=True):
            # Twice the difference that rounding can make.
            tolerance = (len(explanation.contributions) + 8) * 2**-23
            if score is not None and not isclose(
                explanation.score, score, rel_tol=tolerance, abs_tol=1e-30
            ):
                name, told = explanation.document_id, f"{explanation.score:.6g}, not {score:.6g}"
                raise IndexFormatError(f"damaged postings: the score of {name!r:.80} is {told}")
        return explanations

    def _contributions(self, query: sp.csr_array, composition: Composition) -> list[Contribution]:
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
            contribution = Contribution(
                name, number, term, score, in_query, in_document, (), (), (), ()
            )
            contributions.append(contribution)
        return contributions

    def _with_spans(
        self,
        query: SearchQuery,
        contents: Sequence[str],
        contributions: Sequence[Sequence[Contribution]],
    ) -> list[list[Contribution]]:
        """Return the contributions to each document's score with characters."""
        dimensions = [[(c.vocabulary, c.dimension) for c in listed] for listed in contributions]
        document_sources = self._document_sources(contents, dimensions)
        return [
            [
                contribution._replace(
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

    def _query_sources(self, query: SearchQuery, dimensions: Sequence[Dimension]) -> list[Sources]:
        """Return the characters of a query behind dimensions; none for added dimensions."""
        sources: dict[Dimension, Sources] = {}
        for name in self._weigher.vocabularies:
            if numbers := [n for v, n in dimensions if v == name and (v, n) in query.fired]:
                _, lock = self._encoders.encoder(name)
                with lock:
                    by_number = query.sources[name](numbers)
                sources |= {(name, number): places for number, places in by_number.items()}
        return [sources.get(dimension, Sources()) for dimension in dimensions]

    def _document_sources(
        self, contents: Sequence[str], dimensions: Sequence[Sequence[Dimension]]
    ) -> list[dict[Dimension, Sources]]:
        """Return the characters of each document behind the document's dimensions."""
        sources: list[dict[Dimension, Sources]] = [{} for _ in contents]
        for name in self._weigher.vocabularies:
            numbers = [[n for v, n in listed if v == name] for listed in dimensions]
            if not any(numbers):
                continue
            encoder, lock = self._encoders.encoder(name)
            with lock:
                spans = encoder.document_sources(contents, numbers)
            for of_document, by_number in zip(sources, spans, strict=True):
                of_document |= {(name, number): places for number, places in by_number.items()}
        return sources
