"""'Wacky' weights: large weights of a text on dimensions that have little to do with it.

Mackenzie, Trotman and Lin (2021, "Wacky Weights in Learned Sparse Representations") found that
learned models put large weights where no person would. Two things excuse a weight here, and one
that neither excuses is wacky:

- its words: one of the words that stand for the dimension (a term's stem, the words of a concept's
  label) is in the text;
- its company: other documents with the dimension resemble the text by their words more than
  documents without it do. That is measured by AUC, the probability that a random document with the
  dimension is more like the text than one without (Mann and Whitney's U; 0.5 is chance), and
  tested, one-sided, at 95 % (normal approximation; corrected for ties, for most documents have no
  word of a text).

An expansion by a related word, or a concept that fires without any of its usual words, usually has
an excuse by its company: it is found here only where the collection gives no reason for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from lexicept.errors import InputError
from lexicept.vectors import Floats, Integers, canonical_csr, row_numbers

LARGEST = 20
"""Number of the largest dimensions of a text that are judged."""

MIN_DOCUMENTS = 5
"""Smallest number of other documents with the dimension: fewer are no evidence."""

Z = 1.645
"""The 95 % quantile of the standard normal distribution."""


class Wacky(NamedTuple):
    """A large weight without an excuse."""

    row: int
    """Row of the text."""
    dimension: int
    weight: float
    share: float
    """Share of the sum of the text's weights."""
    company: float
    """AUC: how much more the documents with the dimension resemble the text, 0.5 for not at all."""
    documents: int
    """Number of other documents with the dimension."""


class WackyFinder:
    """Finds wacky weights by a collection's words.

    Args:
        documents: SciPy sparse matrix [N, V] of the weights in question.
        words: [N, W], the same documents by their words: BM25 weights, or counts.
        labels: [V, W], above 0 for the words that stand for a dimension: for a vocabulary with
            terms or labels, ``WordVectorizer.queries(terms)`` of the vectorizer whose words these
            are. A dimension without any is judged by its company alone.

    Raises:
        InputError: matrices that do not fit together.
    """

    def __init__(self, documents: Any, words: Any, labels: Any) -> None:
        self._documents = canonical_csr(documents)
        self._postings = sp.csc_array(self._documents)
        self._words = _unit_rows(canonical_csr(words))
        self._labels = canonical_csr(labels)
        rows, width = self._documents.shape
        if self._words.shape[0] != rows or self._labels.shape != (width, self._words.shape[1]):
            raise InputError(
                f"documents {self._documents.shape}, their words {self._words.shape} and labels "
                f"{self._labels.shape} do not fit together"
            )

    def in_documents(self, rows: Iterable[int]) -> list[Wacky]:
        """Return the wacky weights of documents of the collection, largest share first.

        Args:
            rows: row numbers of the documents.
        """
        weights = [
            wacky
            for row in rows
            for wacky in self._judge(row, self._documents, self._words, own=row)
        ]
        return sorted(weights, key=lambda wacky: -wacky.share)

    def in_queries(self, queries: Any, words: Any) -> list[Wacky]:
        """Return the wacky weights of texts that are not in the collection.

        Args:
            queries: [n, V].
            words: [n, W], their words.

        Raises:
            InputError: matrices that do not fit the collection's.
        """
        weights, texts = canonical_csr(queries), _unit_rows(canonical_csr(words))
        expected = (weights.shape[0], self._words.shape[1])
        if weights.shape[1] != self._documents.shape[1] or texts.shape != expected:
            raise InputError(f"queries {weights.shape} and words {texts.shape} do not fit")
        rows = range(weights.shape[0])
        judged = [wacky for row in rows for wacky in self._judge(row, weights, texts)]
        return sorted(judged, key=lambda wacky: -wacky.share)

    def _judge(
        self, row: int, weights: sp.csr_array, texts: sp.csr_array, own: int | None = None
    ) -> list[Wacky]:
        """Return the wacky weights of a row; ``own`` is its number if it is in the collection."""
        part = slice(weights.indptr[row], weights.indptr[row + 1])
        columns, values = weights.indices[part], weights.data[part]
        text = texts[[row]]
        # Cosines; without rounding those of equal texts would differ.
        similarity = np.asarray((self._words @ text.T).todense()).ravel().round(9)
        if own is not None:
            similarity[own] = -np.inf  # lowest, so that its rank is the one to take away
        ranks, counts = _average_ranks(similarity)
        ranks -= own is not None
        judged = []
        for place in np.lexsort((columns, -values))[:LARGEST]:
            dimension = int(columns[place])
            if np.isin(_row(self._labels, dimension), text.indices).any():
                continue
            documents = _row(self._postings, dimension)
            documents = documents[documents != own] if own is not None else documents
            others = similarity.size - (own is not None) - documents.size
            if documents.size < MIN_DOCUMENTS or not others:
                continue
            company, error = _company(ranks[documents], others, counts)
            if company <= 0.5 + Z * error:
                weight = float(values[place])
                share = weight / float(values.sum())
                judged.append(Wacky(row, dimension, weight, share, company, documents.size))
        return judged


def _row(matrix: sp.csr_array | sp.csc_array, number: int) -> Integers:
    """Return the indices of a row's non-zeros (of a column's in CSC)."""
    indices: Integers = matrix.indices[matrix.indptr[number] : matrix.indptr[number + 1]]
    return indices


def _company(ranks: Floats, others: int, counts: Floats) -> tuple[float, float]:
    """AUC from the ranks of one of two groups, and its standard error where nothing differs.

    Args:
        ranks: of the group.
        others: size of the other group.
        counts: how many of both have each value.
    """
    n, pairs = ranks.size + others, ranks.size * others
    auc = (ranks.sum() - ranks.size * (ranks.size + 1) / 2) / pairs
    ties = (counts**3 - counts).sum() / (n * (n - 1))
    return float(auc), float(max(n + 1 - ties, 0) / (12 * pairs)) ** 0.5


def _unit_rows(matrix: sp.csr_array) -> sp.csr_array:
    """Normalise rows to length 1; empty ones stay empty."""
    squares = np.bincount(row_numbers(matrix), matrix.data.astype(np.float64) ** 2, matrix.shape[0])
    data = matrix.data / np.sqrt(squares)[row_numbers(matrix)]
    return sp.csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)


def _average_ranks(values: Floats) -> tuple[Floats, Floats]:
    """Ranks from 1, the smallest, and how often each value is there; equal ones share their mean
    rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts - 1) / 2)[inverse], counts.astype(np.float64)
