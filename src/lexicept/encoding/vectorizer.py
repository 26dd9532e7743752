"""The interface of a vectorizer, which turns texts into term frequencies over one vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import scipy.sparse as sp

from lexicept.explanation.contributions import Sources
from lexicept.explanation.similarity import WordStates


class VocabularyKind(NamedTuple):
    """The properties that vocabularies of one name share."""

    module: str
    """The module of the vectorizer: named, not imported, because words must not import torch."""
    vectorizer: str
    """The name of the vectorizer's class."""
    has_model: bool = False
    """True if a neural network reads the texts."""


KINDS = {
    "words": VocabularyKind("lexicept.encoding.words", "WordVectorizer"),
    "concepts": VocabularyKind("lexicept.neural.vectorizers.concepts", "ConceptVectorizer", True),
}
"""The vocabularies that an index may have."""


class EncodedQuery(NamedTuple):
    """A query, encoded once for search and explanation."""

    tf: sp.csr_array
    """Term frequencies, CSR [1, size]."""
    sources: Callable[[Sequence[int]], dict[int, Sources]]
    """Returns the characters that activate each of these dimensions."""
    stop_words: tuple[str, ...] = ()
    """Words of the query that are no terms, in normal form."""
    words: WordStates | None = None
    """The states of the query's words, by a model."""


class WeightedText(NamedTuple):
    """The vector of a text, and the characters behind the weights."""

    weights: dict[int, float]
    """The non-zero weights by dimension."""
    sources: Callable[[Sequence[int]], dict[int, Sources]]
    """Returns the characters that made the weights of these dimensions."""


class CountedPart(NamedTuple):
    """Documents, counted without earlier documents."""

    terms: list[str]
    """The terms, in order of occurrence."""
    tf: sp.csr_array
    """Term frequencies, CSR [n, terms]."""


class QueryVectorizer(Protocol):
    """Queries to term frequencies (tf) over one vocabulary, with the characters behind them."""

    @property
    def size(self) -> int:
        """The number of dimensions."""

    def queries(self, texts: Sequence[str]) -> sp.csr_array:
        """Return CSR [n, size]; never adds dimensions."""

    def encode_query(self, text: str) -> EncodedQuery:
        """Encode one query, for its tf and its sources."""

    def document_sources(
        self, texts: Sequence[str], dimensions: Sequence[Sequence[int]]
    ) -> list[dict[int, Sources]]:
        """Return the characters of each document that activate each of its ``dimensions``."""


class Vectorizer(QueryVectorizer, Protocol):
    """Texts to term frequencies over one vocabulary."""

    name: str
    grows: bool
    """True if documents can add dimensions."""

    @property
    def terms(self) -> Sequence[str]:
        """The name of each dimension."""

    def documents(self, texts: Sequence[str]) -> sp.csr_array:
        """Return CSR [n, size]; adds dimensions to a growing vocabulary."""

    def save(self, folder: Path) -> None:
        """Write the files of ``load`` into an existing folder."""

    @classmethod
    def load(cls, folder: Path) -> Vectorizer:
        """Read the files of ``save``."""


class DocumentEncoder(Protocol):
    """Documents to rows over one vocabulary, which may go on with the documents' vectors."""

    name: str
    grows: bool

    @property
    def size(self) -> int: ...
    def documents(self, texts: Sequence[str]) -> sp.csr_array: ...
    def save(self, folder: Path) -> None: ...
