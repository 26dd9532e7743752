"""Queries as weights over an index's dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from lexicept.errors import InputError
from lexicept.index.impacts import Derived, VocabularySettings
from lexicept.index.loaded import LoadedVectorizers
from lexicept.index.queries import Span, Steering, WeightedQuery, adjusted, steer
from lexicept.queries.syntax import ParsedQuery
from lexicept.vectors import canonical_csr, place_columns


@dataclass(frozen=True)
class QueryEncoding:
    """Turns queries into weights: frequencies → weighting → pruning → added → boosts → steering."""

    settings: Mapping[str, VocabularySettings]
    derived: Derived
    vectorizers: LoadedVectorizers
    query_encoder: str
    span: Span

    def vectors(
        self, queries: Sequence[ParsedQuery], vocabulary: str | None, steering: Steering | None
    ) -> sp.csr_array:
        """Return the weights of queries, in one vocabulary or all [n, V]."""
        names = self._chosen(vocabulary)
        texts = [query.text for query in queries]
        if any(text.strip() for text in texts):
            weights = self._weighted(self.vectorizers.queries(names, self.query_encoder, texts))
        else:  # dimensions alone need no model
            shape = (len(texts), self.derived.engine.num_dimensions)
            weights = sp.csr_array(shape, dtype=np.float32)
        return self._changed(weights, queries, names, steering)

    def encode(
        self, query: ParsedQuery, vocabulary: str | None, steering: Steering | None
    ) -> WeightedQuery:
        """Encode one query for search and explanation."""
        names = self._chosen(vocabulary)
        encoded = self.vectorizers.encode(names, self.query_encoder, query.text)
        own = self._weighted({name: one.tf for name, one in encoded.items()})
        vector = self._changed(own, [query], names, steering)
        sources = {name: one.sources for name, one in encoded.items()}
        fired = [(name, d) for name in names for d in own[:, self.span(name)].indices.tolist()]
        return WeightedQuery(query.text, vector, sources, frozenset(fired))

    def _chosen(self, vocabulary: str | None) -> list[str]:
        """Return the vocabularies to search. Raises InputError for an unknown one, and for whole
        texts by lookup: a table knows the tokens of a query, not the whole of it."""
        missing = ["texts"] if self.query_encoder == "lookup" else []
        if vocabulary is not None:
            self.span(vocabulary)
            if vocabulary in missing:
                raise InputError(
                    f"{vocabulary} can't be searched by lookup, which knows a query's tokens only: "
                    "let the model encode queries"
                )
            return [vocabulary]
        return [name for name in self.settings if name not in missing]

    def _changed(
        self,
        weights: sp.csr_array,
        queries: Sequence[ParsedQuery],
        names: Sequence[str],
        steering: Steering | None,
    ) -> sp.csr_array:
        weights = adjusted(weights, queries, self.span, names)
        return steer(weights, steering, self.span) if steering else weights

    def _weighted(self, tf: Mapping[str, sp.csr_array]) -> sp.csr_array:
        """Return the weights [n, V] of queries' term frequencies in each vocabulary."""
        engine, parts = self.derived.engine, []
        for name, frequencies in tf.items():
            span, setting = self.span(name), self.settings[name]
            weights = setting.weighting.queries(canonical_csr(frequencies))
            weights = setting.prune_queries(
                weights, self.derived.bounds[span], engine.df[span], engine.num_documents
            )
            parts.append((span.start, weights))
        return place_columns(parts, engine.num_dimensions)
