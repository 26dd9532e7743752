"""Vectors of whole texts: the mean of token states, beside the concepts of the same model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from lexicept.encoding.loading import load_vectorizer
from lexicept.encoding.vectorizer import EncodedQuery
from lexicept.vectors import Floats, nonzeros, stack_columns, unit_rows


class ConceptsAndVectors:
    """Concepts and vectors of texts, by one pass through their model: [n, M + d].

    The vector of a text is the mean of its tokens' states, of unit length; zeros for a text without
    tokens.

    Args:
        concepts: an ``EncodedConcepts``.
    """

    name = "concepts"
    grows = False

    def __init__(self, concepts: Any) -> None:
        self.concepts = concepts

    @property
    def size(self) -> int:
        """Number of concepts and of components of a vector."""
        return int(self.concepts.size) + self.d

    @property
    def d(self) -> int:
        """Size of a vector."""
        return int(self.concepts.encoder.head.d_in)

    def documents(self, texts: Sequence[str]) -> sp.csr_array:
        """Return the term frequencies and the vectors of documents [n, M + d]."""
        tf, means = self.concepts.encoder.encode_with_means(texts, "document")
        return stack_columns([tf, nonzeros(_units(means))])

    def queries(self, texts: Sequence[str]) -> tuple[sp.csr_array, Floats]:
        """Return the term frequencies of queries [n, M], and their vectors [n, d]."""
        tf, means = self.concepts.encoder.encode_with_means(texts, "query")
        return tf, _units(means)

    def encode_query(self, text: str) -> tuple[EncodedQuery, Floats]:
        """Encode a query once, for its concepts and its vector [1, d]."""
        encoded, mean = self.concepts.encode_query_with_mean(text)
        return encoded, _units(mean)

    def save(self, folder: Path) -> None:
        self.concepts.save(folder)

    @classmethod
    def load(cls, folder: Path) -> ConceptsAndVectors:
        return cls(load_vectorizer("concepts", folder))


def _units(means: Floats) -> Floats:
    return unit_rows(means).astype(np.float32)
