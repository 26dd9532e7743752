"""Explanations of documents' scores, from postings and vectorizers."""

from __future__ import annotations

from collections.abc import Sequence
from math import isclose

import numpy as np

from lexicept.engines.mask import Mask
from lexicept.errors import IndexFormatError
from lexicept.explanation.contributions import Contribution, QueryTerm, Sources
from lexicept.explanation.explanation import Explanation
from lexicept.index.queries import Dimension, QueryWeigher, SearchQuery
from lexicept.index.stored import StoredDocuments
from lexicept.index.text_vectors import TextVectors
from lexicept.vectors import Floats, Integers


class Explainer:
    """Explains the scores of an index for the queries of a weigher."""

    def __init__(
        self, weigher: QueryWeigher, stored: StoredDocuments, vectors: TextVectors | None
    ) -> None:
        self._weigher, self._stored, self._vectors = weigher, stored, vectors
        self._derived, self._encoders = weigher.derived, weigher.encoders

    def terms(self, query: SearchQuery) -> list[QueryTerm]:
        """Return the dimensions of a query, largest weights first."""
        order = np.argsort(-query.vector.data, kind="stable")
        dimensions = self._weigher.numbered(query.vector.indices[order])
        weights, sources = query.vector.data[order].tolist(), self._query_sources(query, dimensions)
        terms = []
        for dimension, weight, in_query in zip(dimensions, weights, sources, strict=True):
            (name, number), term = dimension, self._weigher.term(dimension)
            terms.append(QueryTerm(name, number, term, weight, in_query.spans, in_query.shares))
        return terms

    def best_passage(
        self, query: SearchQuery, passages: range, mask: Mask | None
    ) -> tuple[int, float | None]:
        """Return the number of a document's best passage, the first of equals, and the score that a
        search finds, if any. Passages in a mask come first."""
        document = slice(passages.start, passages.stop)
        allowed = np.zeros(len(self._stored.ids), bool)
        preferred = mask is not None and mask.allowed[document].any()
        allowed[document] = mask.allowed[document] if mask is not None and preferred else True
        factors = query.vector @ self._derived.background
        ((entries, scores),) = self._derived.engine.search(
            query.vector, len(passages), factors, mask=Mask(allowed)
        )
        candidates = np.flatnonzero(allowed)
        if entries.size and self._vectors is not None and not self._vectors.all_compared:
            candidates = np.sort(entries)  # a search compares these alone
        similarities = self._similarities(query, candidates)
        totals = similarities.copy()
        totals[np.searchsorted(candidates, entries)] += scores
        best = int(totals.argmax())
        found = bool(entries.size) or bool(similarities.any())
        return int(candidates[best]), float(totals[best]) if found else None

    def _similarities(self, query: SearchQuery, numbers: Integers) -> Floats:
        """Return the similarities of whole texts that a search adds to the scores [n]."""
        if self._vectors is None or query.text_vectors is None:
            return np.zeros(len(numbers), np.float32)
        return self._vectors.similarities(query.text_vectors[0], numbers)

    def explain(
        self,
        query: SearchQuery,
        numbers: Sequence[int],
        scores: Sequence[float | None],
        *,
        spans: bool,
    ) -> list[Explanation]:
        """Return explanations of the scores of documents or passages, with ``spans`` also the
        characters that activate each dimension. Raises IndexFormatError for an explanation that
        does not add up to the score that a search found.

        Args:
            scores: None for a document that a search does not find.
        """
        vector, engine = query.vector, self._derived.engine
        query_weights = vector.data.astype(np.float64)
        contents = [self._stored.document(number).content for number in numbers]
        contributions = [
            self._contributions(query_weights, vector.indices, number) for number in numbers
        ]
        if spans:
            contributions = self._with_spans(query, contents, contributions)
        # A search finds nothing for a query that matches no posting, whatever the priors.
        matches = engine.matches(vector.indices)
        factor = float((vector @ self._derived.background)[0]) if matches else 0.0
        similarities = self._similarities(query, np.array(numbers, np.int64))
        explanations = [
            Explanation(
                query.text,
                self._stored.document_ids[number],
                content,
                tuple(of_document),
                float(engine.offsets[number]) * factor,
                self._stored.passage_id(number),
                query.stop_words,
                float(similarity),
            )
            for number, content, of_document, similarity in zip(
                numbers, contents, contributions, similarities, strict=True
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

    def _contributions(
        self, query_weights: Floats, dimensions: Integers, number: int
    ) -> list[Contribution]:
        """Return the shared dimensions of a document and a query, largest products first."""
        document_weights = self._derived.engine.document_weights(number, dimensions)
        scores = query_weights * document_weights
        order = np.argsort(-scores, kind="stable")[: np.count_nonzero(scores)]
        shared = self._weigher.numbered(dimensions[order])
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
