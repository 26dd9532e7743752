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
        return self._side_by_side(*self.concepts.encoder.encode_with_means(texts, "document"))

    def queries(self, texts: Sequence[str]) -> sp.csr_array:
        """Return the term frequencies and the vectors of queries [n, M + d]."""
        return self._side_by_side(*self.concepts.encoder.encode_with_means(texts, "query"))

    def encode_query(self, text: str) -> tuple[EncodedQuery, Floats]:
        """Encode a query once, for its concepts and its vector [1, d]."""
        encoded, mean = self.concepts.encode_query_with_mean(text)
        return encoded, unit_rows(mean).astype(np.float32)

    def _side_by_side(self, tf: sp.csr_array, means: Floats) -> sp.csr_array:
        return stack_columns([tf, nonzeros(unit_rows(means).astype(np.float32))])

    def save(self, folder: Path) -> None:
        """Write the concepts."""
        self.concepts.save(folder)

    @classmethod
    def load(cls, folder: Path) -> ConceptsAndVectors:
        """Read what ``save`` wrote."""
        return cls(load_vectorizer("concepts", folder))
