"""Whole texts: the similarity of a text to texts of the collection, by the states of the concepts'
model."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import scipy.sparse as sp

from lexicept.errors import IndexFormatError
from lexicept.explanation.contributions import Sources
from lexicept.models.exemplars import Exemplars
from lexicept.storage.texts import TextStore
from lexicept.vectorizers.interface import (
    EncodedQuery,
    Vectorizer,
    load_vectorizer,
)
from lexicept.vectors import Floats, stack_columns

SHOWN = 60
"""Most characters of the name of an exemplar without a title."""


class TextVectorizer:
    """A vectorizer: texts → weights of the most similar exemplars, texts of the collection.

    Args:
        concepts: the vectorizer whose model reads the texts; an ``EncodedConcepts`` is enough for
            queries.
        terms: the names of the exemplars.
    """

    name = "texts"
    grows = False

    def __init__(self, concepts: Any, exemplars: Exemplars, terms: Sequence[str]) -> None:
        self.concepts, self.exemplars, self._terms = concepts, exemplars, terms

    @property
    def size(self) -> int:
        """Number of exemplars."""
        return len(self.exemplars)

    @property
    def terms(self) -> Sequence[str]:
        """The name of every exemplar: the title, or the first words."""
        return self._terms

    @property
    def joint(self) -> ConceptsAndTexts:
        """A vectorizer of concepts and whole texts that reads a text once."""
        return ConceptsAndTexts(self)

    def documents(self, texts: Sequence[str]) -> sp.csr_array:
        """Return the weights of documents [n, size]."""
        _, means = self.concepts.encoder.encode_with_means(texts, "document")
        return self.exemplars.vectors(means, "document")

    def queries(self, texts: Sequence[str]) -> sp.csr_array:
        """Return the weights of queries [n, size]."""
        _, means = self.concepts.encoder.encode_with_means(texts, "query")
        return self.exemplars.vectors(means, "query")

    def similarities(self, texts: Sequence[str]) -> Floats:
        """Return the largest cosine of each query with an exemplar [n]."""
        _, means = self.concepts.encoder.encode_with_means(texts, "query")
        largest: Floats = self.exemplars.cosines(means).max(axis=1)
        return largest

    def encode_query(self, text: str) -> EncodedQuery:
        """Encode a query, without sources: a dimension comes from the query as a whole."""
        return self.joint.encode_parts(text)[1]

    def document_sources(
        self, texts: Sequence[str], dimensions: Sequence[Sequence[int]]
    ) -> list[dict[int, Sources]]:
        """Return no sources: a dimension comes from a document as a whole."""
        return [_no_sources(of_text) for of_text in dimensions]

    def save(self, folder: Path) -> None:
        """Write the exemplars and the names; the model is saved with the concepts."""
        self.exemplars.save(folder)
        TextStore.write(folder / "terms", self._terms)

    @classmethod
    def load(cls, folder: Path, concepts: Any = None) -> TextVectorizer:
        """Load a saved vectorizer, with the concepts from the folder beside this folder by default.

        Raises IndexFormatError for damaged files, or exemplars that do not fit the model.
        """
        concepts = concepts or load_vectorizer("concepts", folder.parent / "concepts")
        exemplars, terms = Exemplars.load(folder), TextStore(folder / "terms")
        if len(terms) != len(exemplars) or exemplars.d != concepts.encoder.head.d_in:
            raise IndexFormatError(f"{folder}: these exemplars do not fit their names or model")
        return cls(concepts, exemplars, terms)


class ConceptsAndTexts:
    """Concepts and whole texts side by side, by one pass through their model: [n, M + E]."""

    name = "concepts"
    grows = False

    def __init__(self, texts: TextVectorizer) -> None:
        self._concepts, self._texts = texts.concepts, texts
        self.parts: Sequence[Vectorizer] = (texts.concepts, texts)

    @property
    def size(self) -> int:
        """Number of concepts and of exemplars."""
        return int(self._concepts.size) + self._texts.size

    def documents(self, texts: Sequence[str]) -> sp.csr_array:
        """Return the term frequencies of documents [n, size]."""
        tf, means = self._concepts.encoder.encode_with_means(texts, "document")
        return self._side_by_side(tf, means, "document")

    def queries(self, texts: Sequence[str]) -> sp.csr_array:
        """Return the term frequencies of queries [n, size]."""
        tf, means = self._concepts.encoder.encode_with_means(texts, "query")
        return self._side_by_side(tf, means, "query")

    def encode_parts(self, text: str) -> list[EncodedQuery]:
        """Encode a query once, for concepts and exemplars."""
        encoded, mean = self._concepts.encode_query_with_mean(text)
        return [encoded, EncodedQuery(self._texts.exemplars.vectors(mean, "query"), _no_sources)]

    def _side_by_side(self, tf: sp.csr_array, means: Floats, task: str) -> sp.csr_array:
        return stack_columns([tf, self._texts.exemplars.vectors(means, task)])

    def save(self, folder: Path) -> None:
        """Write the concepts into the folder, and the exemplars beside the folder."""
        self._concepts.save(folder)
        self._texts.save(folder.parent / self._texts.name)

    @classmethod
    def load(cls, folder: Path) -> ConceptsAndTexts:
        """Read what ``save`` wrote."""
        return cls(TextVectorizer.load(folder.parent / TextVectorizer.name))


def named(titles: Sequence[str], contents: Sequence[str], numbers: Sequence[int]) -> list[str]:
    """Return the names of exemplars: the titles of these documents, or the first words."""
    return [
        titles[number] or textwrap.shorten(contents[number], SHOWN, placeholder="…")
        for number in numbers
    ]


def _no_sources(dimensions: Sequence[int]) -> dict[int, Sources]:
    return {dimension: Sources() for dimension in dimensions}
