"""Queries as weights over an index's dimensions: encoded, weighted, pruned, boosted, steered."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from lexicept.errors import InputError
from lexicept.explanation.contributions import Sources
from lexicept.explanation.similarity import WordStates
from lexicept.index.impacts import Derived
from lexicept.index.query_encoders import IndexVocabulary, VocabularyEncoder
from lexicept.queries.syntax import ParsedQuery
from lexicept.vectors import Floats, Integers, canonical_csr, place_columns, stack_rows

MAX_FACTOR = 1e6
"""The largest factor of a steering: it keeps scores within single precision."""

Dimension = tuple[str, int]
"""A vocabulary, and the number of a dimension in the vocabulary."""

SourceFinder = Callable[[Sequence[int]], dict[int, Sources]]
"""Returns the sources of dimensions of one vocabulary."""


@dataclass(frozen=True)
class SearchQuery:
    """A query encoded once, for search and explanation."""

    text: str
    vector: sp.csr_array
    """Weights after pruning and steering, CSR [1, V]."""
    sources: Mapping[str, SourceFinder]
    """By vocabulary."""
    fired: frozenset[Dimension]
    """Vocabulary and dimension of the text's own dimensions; all others were added."""
    stop_words: tuple[str, ...]
    """See ``EncodedQuery``; empty if no words are searched."""
    text_vectors: Floats | None = None
    """The vector of the text [1, d] for a search of all vocabularies; None without vectors."""
    words: WordStates | None = None
    """The states of the text's words, where it has a vector."""


class WeightedQueries(NamedTuple):
    """Queries as a search takes them."""

    weights: sp.csr_array
    """Weights [n, V]."""
    text_vectors: Floats | None = None
    """Vectors of the texts [n, d], for a search of all vocabularies; None without vectors."""

    @classmethod
    def of(cls, queries: Sequence[SearchQuery], num_dimensions: int) -> WeightedQueries:
        """Return queries that were encoded one by one."""
        weights = stack_rows((query.vector for query in queries), num_dimensions)
        vectors = [query.text_vectors for query in queries if query.text_vectors is not None]
        return cls(weights, np.concatenate(vectors) if vectors else None)

    def select(self, queries: Sequence[int] | Integers | slice) -> WeightedQueries:
        vectors = self.text_vectors
        return WeightedQueries(self.weights[queries], None if vectors is None else vectors[queries])


def parsed_queries(queries: object) -> list[ParsedQuery]:
    """Return parsed queries; the words of a text are taken literally. Raises
    InputError for anything but a list, and for a query that is no text in UTF-8."""
    if isinstance(queries, str) or not isinstance(queries, Iterable):
        raise InputError(f"queries are a list of texts, not {queries!r:.40}")
    parsed: list[ParsedQuery] = []
    for query in queries:
        parsed.append(query if isinstance(query, ParsedQuery) else ParsedQuery(query))
    return parsed


class QueryWeigher:
    """Turns queries into weights: frequency → weighting → pruning → added → boosts → steering."""

    def __init__(
        self, path: object, derived: Derived, encoders: Mapping[str, VocabularyEncoder]
    ) -> None:
        self._path, self.encoders, self.derived = path, encoders, derived
        self.vocabularies = {name: encoder.vocabulary for name, encoder in encoders.items()}
        self._num_dimensions = derived.engine.num_dimensions

    def vocabulary(self, name: str) -> IndexVocabulary:
        """Return a vocabulary. Raises InputError for an unknown name."""
        if not isinstance(name, str) or name not in self.vocabularies:
            names = ", ".join(self.vocabularies)
            raise InputError(f"{self._path} has no vocabulary {name!r}, only: {names}")
        return self.vocabularies[name]

    def _searched(self, vocabulary: str | None) -> list[IndexVocabulary]:
        """Return a vocabulary, or all. Raises InputError for an unknown name."""
        if vocabulary is None:
            return [*self.vocabularies.values()]
        return [self.vocabulary(vocabulary)]

    def numbered(self, dimensions: Integers) -> list[Dimension]:
        """Return the vocabularies and numbers of dimensions of the index."""
        starts = [vocabulary.dimensions.start for vocabulary in self.vocabularies.values()]
        names, numbered = [*self.vocabularies], []
        for dimension in dimensions.tolist():
            vocabulary = bisect_right(starts, dimension) - 1
            numbered.append((names[vocabulary], dimension - starts[vocabulary]))
        return numbered

    def term(self, dimension: Dimension) -> str:
        name, number = dimension
        return self.vocabularies[name].term(number)

    def stems(self, text: str) -> list[str]:
        """Return the stems of a text without stop words; the text's words without a vocabulary of
        words."""
        if "words" not in self.vocabularies:
            return re.findall(r"\w+", text)
        vectorizer: Any = self.encoders["words"].get()
        stems: list[str] = vectorizer.query_stems(text)
        return stems

    def weights(
        self, queries: Sequence[ParsedQuery], vocabulary: str | None, rescore: bool = True
    ) -> WeightedQueries:
        """Return the weights of queries, in a vocabulary or all; see ``encode``."""
        searched = self._searched(vocabulary)
        texts, vectors = [query.text for query in queries], None
        if not "".join(texts).strip():  # dimensions alone need no model
            weights = sp.csr_array((len(texts), self._num_dimensions), dtype=np.float32)
            if size := max(self.encoders[each.name].vector_size for each in searched):
                vectors = np.zeros((len(texts), size), np.float32)
        else:
            frequencies = {}
            for each in searched:
                frequencies[each.name], of_texts = self.encoders[each.name].queries(texts)
                vectors = vectors if of_texts is None else of_texts
            weights = self._weighted(searched, frequencies)
        changed = self._changed(weights, queries, searched)
        return WeightedQueries(changed, vectors if vocabulary is None and rescore else None)

    def encode(
        self, query: ParsedQuery, vocabulary: str | None, rescore: bool = True
    ) -> SearchQuery:
        """Encode a query for search and explanation, without ``rescore`` without its vector."""
        searched = self._searched(vocabulary)
        names = [vocabulary.name for vocabulary in searched]
        with_vectors = {name: self.encoders[name].encode(query.text) for name in names}
        vectors = next((v for _, v in with_vectors.values() if v is not None), None)
        encoded = {name: of_text for name, (of_text, _) in with_vectors.items()}
        words = next((of_text.words for of_text in encoded.values() if of_text.words), None)
        weights = self._weighted(searched, {name: encoded[name].tf for name in names})
        return SearchQuery(
            query.text,
            self._changed(weights, [query], searched),
            {name: encoded[name].sources for name in names},
            frozenset(
                (vocabulary.name, dimension)
                for vocabulary in searched
                for dimension in weights[:, vocabulary.dimensions].indices.tolist()
            ),
            tuple(word for name in names for word in encoded[name].stop_words),
            *((vectors, words) if vocabulary is None and rescore else ()),
        )

    def _weighted(
        self, vocabularies: Sequence[IndexVocabulary], frequencies: Mapping[str, sp.csr_array]
    ) -> sp.csr_array:
        """Return the weights [n, V] of term frequencies [n, size], by vocabulary."""
        blocks = []
        for vocabulary in vocabularies:
            dimensions, tf = vocabulary.dimensions, frequencies[vocabulary.name]
            weights = self.derived.weigh_queries(vocabulary.settings, dimensions, tf)
            blocks.append((dimensions.start, weights))
        return place_columns(blocks, self._num_dimensions)

    def _changed(
        self,
        weights: sp.csr_array,
        queries: Sequence[ParsedQuery],
        searched: Sequence[IndexVocabulary],
    ) -> sp.csr_array:
        """Return weights [n, V] with added dimensions, times boosts and steering. Added
        dimensions of vocabularies outside of the search are ignored."""
        changed = []
        for number, query in enumerate(queries):
            if query.added or query.boosts or query.steering:
                changed.append(number)
        if not changed:
            return weights
        names = [vocabulary.name for vocabulary in searched]
        vectors = [weights[[number]] for number in range(len(queries))]
        for number in changed:
            query = queries[number]
            vector = vectors[number].toarray()[0].astype(np.float32)
            for name, dimension, weight in self.checked("added", "weight", query.added):
                if name in names:
                    vector[dimension] += weight
            if not isinstance(query.boosts, Mapping):
                raise InputError(f"boosts map a vocabulary to a factor: {query.boosts!r:.80}")
            for name, factor in query.boosts.items():
                _check_factor(f"boosts: the factor on {name}", factor)
                vector[self.vocabulary(name).dimensions] *= factor
            for _, dimension, factor in self.checked("steering", "factor", query.steering):
                vector[dimension] *= factor
            vectors[number] = sp.csr_array(vector[None, :])
        return canonical_csr(sp.vstack(vectors, format="csr"))

    def checked(self, subject: str, noun: str, numbers: object) -> Iterator[tuple[str, int, float]]:
        """Yield the vocabulary, the dimension of the index and the number of each dimension, in the
        order of a mapping. Raises InputError for an unknown dimension, or a number out of range.

        Args:
            subject, noun: the names of the mapping and of the numbers, for messages.
            numbers: by vocabulary and dimension.
        """
        if not isinstance(numbers, Mapping):
            raise InputError(f"{subject} maps (vocabulary, dimension) to a {noun}: {numbers!r:.80}")
        for key, number in numbers.items():
            if not isinstance(key, tuple) or len(key) != 2:
                raise InputError(f"{subject}: a key is (vocabulary, dimension), not {key!r:.80}")
            name, dimension = key
            vocabulary = self.vocabulary(name)
            if not isinstance(dimension, Integral) or not 0 <= int(dimension) < vocabulary.size:
                raise InputError(f"{subject}: {name} has no dimension {dimension!r:.80}")
            _check_factor(f"{subject}: the {noun} on {name} {dimension}", number)
            yield name, vocabulary.dimensions.start + int(dimension), float(number)


def _check_factor(subject: str, factor: object) -> None:
    """Raise InputError unless a factor is a number from 0 to ``MAX_FACTOR``."""
    if not isinstance(factor, Real) or not 0 <= float(factor) <= MAX_FACTOR:
        raise InputError(f"{subject} must be from 0 to {MAX_FACTOR:,.0f}, not {factor!r:.80}")
