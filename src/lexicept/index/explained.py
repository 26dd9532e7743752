"""Explanations of documents' scores, from postings and vectorizers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lexicept.engines.mask import Mask
from lexicept.explanation.contributions import Contribution, QueryTerm, Sources
from lexicept.explanation.explanation import Explanation
from lexicept.index.impacts import Derived
from lexicept.index.loaded import LoadedVectorizers
from lexicept.index.queries import Term, WeightedQuery
from lexicept.index.sources import document_sources, query_sources
from lexicept.index.stored import StoredDocuments
from lexicept.vectors import Vocabulary


def term_of(dimension: int, vocabularies: Sequence[Vocabulary]) -> Term:
    """Return a dimension's vocabulary, its number there, and the term that people see for it.

    Raises:
        IndexError: the vocabularies have no such dimension.
    """
    for vocabulary in vocabularies:
        if dimension < vocabulary.size:
            terms = vocabulary.terms
            term = terms[dimension] if terms is not None else str(dimension)
            return Term(vocabulary.name, dimension, term)
        dimension -= vocabulary.size
    raise IndexError(dimension)


@dataclass(frozen=True)
class Explainer:
    """Explains the scores of one index."""

    derived: Derived
    stored: StoredDocuments
    vocabularies: Sequence[Vocabulary]
    vectorizers: LoadedVectorizers
    query_encoder: str

    def terms(self, query: WeightedQuery) -> list[QueryTerm]:
        """Return the dimensions of a query, largest weights first."""
        vector = query.vector
        order = np.argsort(-vector.data, kind="stable")
        terms = [term_of(int(place), self.vocabularies) for place in vector.indices[order]]
        sources = query_sources(self.vectorizers, self.query_encoder, query, terms)
        parts = zip(terms, vector.data[order].tolist(), sources, strict=True)
        return [QueryTerm(*term, weight, *places) for term, weight, places in parts]

    def best(self, query: WeightedQuery, rows: range, mask: Mask | None = None) -> int:
        """Return the row of the largest score, the first of equal ones.

        Args:
            mask: the rows to prefer to all others.
        """
        if len(rows) == 1:
            return rows[0]
        allowed = np.zeros(len(self.stored.ids), bool)
        own = slice(rows.start, rows.stop)
        allowed[own] = True if mask is None or not mask.allowed[own].any() else mask.allowed[own]
        factors = query.vector @ self.derived.background
        ((best, _),) = self.derived.engine.search(query.vector, 1, factors, mask=Mask(allowed))
        return int(best[0]) if best.size else rows[0]

    def explained(
        self, query: WeightedQuery, numbers: Sequence[int], *, spans: bool
    ) -> list[Explanation]:
        """Return the explanations of the scores of some rows.

        Args:
            spans: whether to find the characters that fired each dimension.
        """
        vector, engine = query.vector, self.derived.engine
        query_weights = vector.data.astype(np.float64)
        weights = [engine.document_weights(number, vector.indices) for number in numbers]
        orders = []
        for document_weights in weights:
            scores = query_weights * document_weights
            orders.append(np.argsort(-scores, kind="stable")[: np.count_nonzero(scores)])
        terms = [[term_of(int(d), self.vocabularies) for d in vector.indices[o]] for o in orders]
        contents = [self.stored.document(number).content for number in numbers]
        encoders = self.vectorizers, self.query_encoder
        of_documents = document_sources(*encoders, contents, terms) if spans else None
        # A search finds nothing for a query that matches no posting, whatever the priors.
        matches = engine.matches(vector.indices)
        factor = float((vector @ self.derived.background)[0]) if matches else 0.0
        explanations = []
        for place, (number, order) in enumerate(zip(numbers, orders, strict=True)):
            nothing = [Sources()] * len(terms[place])
            parts = zip(
                terms[place],
                (query_weights * weights[place])[order].tolist(),
                query_weights[order].tolist(),
                weights[place][order].tolist(),
                query_sources(*encoders, query, terms[place]) if spans else nothing,
                nothing if of_documents is None else of_documents[place],
                strict=True,
            )
            explanations.append(
                Explanation(
                    query.text,
                    self.stored.document_ids[number],
                    contents[place],
                    tuple(Contribution(*term, *w, *q, *d) for term, *w, q, d in parts),
                    float(engine.offsets[number]) * factor,
                    self.stored.passage_id(number),
                )
            )
        return explanations
