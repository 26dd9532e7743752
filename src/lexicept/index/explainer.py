"""Explanations of documents' scores, from postings and vectorizers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from lexicept.engines.mask import Mask
from lexicept.explanation.contributions import Contribution, QueryTerm, Sources
from lexicept.explanation.explanation import Explanation
from lexicept.index.impacts import Derived
from lexicept.index.queries import SearchQuery
from lexicept.index.query_encoders import QueryEncoders
from lexicept.index.stored import StoredDocuments
from lexicept.index.vocabulary import IndexVocabulary
from lexicept.vectors import Floats, Integers


class LabelledDimension(NamedTuple):
    """A dimension of a vocabulary with a label."""

    vocabulary: IndexVocabulary
    number: int
    label: str


class SharedDimension(NamedTuple):
    """A dimension of both a query and a document."""

    dimension: LabelledDimension
    query_weight: float
    document_weight: float


class Explainer:
    """Explains the scores of an index.

    Args:
        query_encoder: "model", or "lookup" for the token table.
    """

    def __init__(
        self,
        vocabularies: Sequence[IndexVocabulary],
        derived: Derived,
        stored: StoredDocuments,
        encoders: QueryEncoders,
        query_encoder: str,
    ) -> None:
        self._vocabularies, self._encoders = vocabularies, encoders
        self._derived, self._stored = derived, stored
        self._query_encoder = query_encoder

    def terms(self, query: SearchQuery) -> list[QueryTerm]:
        """Return the dimensions of a query, largest weights first."""
        order = np.argsort(-query.vector.data, kind="stable")
        dimensions = self._labelled(query.vector.indices[order])
        weights = query.vector.data[order].tolist()
        return [
            QueryTerm(
                dimension.vocabulary.name,
                dimension.number,
                dimension.label,
                weight,
                sources.spans,
                sources.shares,
            )
            for dimension, weight, sources in zip(
                dimensions, weights, self._query_sources(query, dimensions), strict=True
            )
        ]

    def best_passage(self, query: SearchQuery, passages: range, mask: Mask | None) -> int:
        """Return the number of the best passage of a document, the first of equals.

        Args:
            mask: passages to prefer.
        """
        if len(passages) == 1:
            return passages[0]
        document = slice(passages.start, passages.stop)
        allowed = np.zeros(len(self._stored.ids), bool)
        preferred = mask is not None and mask.allowed[document].any()
        allowed[document] = mask.allowed[document] if mask is not None and preferred else True
        factors = query.vector @ self._derived.background
        ((best, _),) = self._derived.engine.search(query.vector, 1, factors, mask=Mask(allowed))
        return int(best[0]) if best.size else passages[0]

    def explain(
        self, query: SearchQuery, numbers: Sequence[int], *, spans: bool
    ) -> list[Explanation]:
        """Return explanations of the scores of documents or passages.

        Args:
            spans: whether to find the characters that activate each dimension.
        """
        vector, engine = query.vector, self._derived.engine
        query_weights = vector.data.astype(np.float64)
        contents = [self._stored.document(number).content for number in numbers]
        contributions = [
            self._contributions(query_weights, vector.indices, number) for number in numbers
        ]
        dimensions = [[c.dimension for c in of_document] for of_document in contributions]
        if spans:
            document_sources = self._document_sources(contents, dimensions)
            query_sources = [self._query_sources(query, listed) for listed in dimensions]
        else:
            document_sources = [[Sources()] * len(listed) for listed in dimensions]
            query_sources = document_sources
        # A search finds nothing for a query that matches no posting, whatever the priors.
        matches = engine.matches(vector.indices)
        factor = float((vector @ self._derived.background)[0]) if matches else 0.0
        return [
            Explanation(
                query.text,
                self._stored.document_ids[number],
                contents[place],
                tuple(
                    Contribution(
                        vocabulary=shared.dimension.vocabulary.name,
                        dimension=shared.dimension.number,
                        term=shared.dimension.label,
                        score=shared.query_weight * shared.document_weight,
                        query_weight=shared.query_weight,
                        document_weight=shared.document_weight,
                        query_spans=in_query.spans,
                        query_shares=in_query.shares,
                        document_spans=in_document.spans,
                        document_shares=in_document.shares,
                    )
                    for shared, in_query, in_document in zip(
                        contributions[place],
                        query_sources[place],
                        document_sources[place],
                        strict=True,
                    )
                ),
                float(engine.offsets[number]) * factor,
                self._stored.passage_id(number),
            )
            for place, number in enumerate(numbers)
        ]

    def _contributions(
        self, query_weights: Floats, dimensions: Integers, number: int
    ) -> list[SharedDimension]:
        """Return the shared dimensions of a document and a query, largest products first."""
        document_weights = self._derived.engine.document_weights(number, dimensions)
        scores = query_weights * document_weights
        order = np.argsort(-scores, kind="stable")[: np.count_nonzero(scores)]
        return [
            SharedDimension(dimension, query_weight, document_weight)
            for dimension, query_weight, document_weight in zip(
                self._labelled(dimensions[order]),
                query_weights[order].tolist(),
                document_weights[order].tolist(),
                strict=True,
            )
        ]

    def _labelled(self, dimensions: Integers) -> list[LabelledDimension]:
        """Return dimensions of the index with vocabularies and labels."""
        starts = [vocabulary.dimensions.start for vocabulary in self._vocabularies]
        labelled = []
        for place in dimensions.tolist():
            vocabulary = self._vocabularies[bisect_right(starts, place) - 1]
            number = place - vocabulary.dimensions.start
            labelled.append(LabelledDimension(vocabulary, number, vocabulary.term(number)))
        return labelled

    def _query_sources(
        self, query: SearchQuery, dimensions: Sequence[LabelledDimension]
    ) -> list[Sources]:
        """Return the characters of a query behind dimensions; none for added dimensions."""
        fired = [d for d in dimensions if (d.vocabulary.name, d.number) in query.fired]
        sources: dict[tuple[str, int], Sources] = {}
        for name in _with_spans(fired):
            _, lock = self._encoders.encoder(name, self._query_encoder)
            with lock:
                by_number = query.sources[name](_numbers(fired, name))
            sources |= {(name, number): places for number, places in by_number.items()}
        return [sources.get((d.vocabulary.name, d.number), Sources()) for d in dimensions]

    def _document_sources(
        self, contents: Sequence[str], dimensions: Sequence[Sequence[LabelledDimension]]
    ) -> list[list[Sources]]:
        """Return the characters of each document behind the document's dimensions."""
        sources: dict[str, list[dict[int, Sources]]] = {}
        for name in _with_spans(d for listed in dimensions for d in listed):
            encoder, lock = self._encoders.encoder(name, self._query_encoder)
            with lock:
                numbers = [_numbers(listed, name) for listed in dimensions]
                sources[name] = encoder.document_sources(contents, numbers)
        return [
            [
                sources[d.vocabulary.name][place][d.number]
                if d.vocabulary.name in sources
                else Sources()
                for d in listed
            ]
            for place, listed in enumerate(dimensions)
        ]


def _with_spans(dimensions: Iterable[LabelledDimension]) -> set[str]:
    """Return the vocabularies of dimensions with characters."""
    return {d.vocabulary.name for d in dimensions if d.vocabulary.kind.has_spans}


def _numbers(dimensions: Sequence[LabelledDimension], vocabulary: str) -> list[int]:
    return [d.number for d in dimensions if d.vocabulary.name == vocabulary]
