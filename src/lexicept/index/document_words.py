"""Words of whole documents: BM25 over all passages of a document together.

An index has postings of passages. Their weights tell how often a word occurs in each: BM25's weight
is ``idf · f / (f + pivot)`` (see ``weighting.BM25``), so that ``weight / (idf − weight)`` is
``f / pivot``, the frequency relative to the passage's length. A document's frequency is the sum
over its passages, and its length the number of its passages.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from lexicept.engines import PostingsEngine
from lexicept.index.passages import Passages
from lexicept.vectors import Floats, Integers, run_starts
from lexicept.weighting import lucene_idf

MOST_SATURATED = 0.99
"""Largest share of idf in a weight that is taken as a frequency: rounded weights may reach idf."""


class WordWeights(NamedTuple):
    """The documents that have each of some words, one word after another."""

    positions: Integers
    """Position of the word among those asked for [n]."""
    documents: Integers
    """Indexes of the documents, ascending for a word [n]."""
    weights: Floats
    """BM25 weights [n]."""


class DocumentWords:
    """The weights of words in whole documents.

    Args:
        words: the dimensions of the words, whose weights are BM25's.
    """

    def __init__(self, engine: PostingsEngine, passages: Passages, words: slice) -> None:
        self._engine, self._passages, self._words = engine, passages, words

    @cached_property
    def _lengths(self) -> Floats:
        """Number of passages of each document, relative to the mean [documents]."""
        counts = np.diff(self._passages.firsts, append=self._engine.num_documents)
        lengths: Floats = counts / counts.mean()
        return lengths

    def of(self, dimensions: Integers) -> WordWeights:
        """Return the documents that have words."""
        passages, weights, sizes = self._engine.posting_lists(dimensions)
        words = np.repeat(np.arange(sizes.size), sizes)
        idf = lucene_idf(self._engine.num_documents, sizes)
        shares = np.minimum(weights / idf[words], MOST_SATURATED)
        documents = self._passages.document_numbers[passages]
        starts = run_starts(words * self._lengths.size + documents)
        words, documents = words[starts], documents[starts]
        frequencies = np.add.reduceat(shares / (1 - shares), starts) if starts.size else shares
        idf = lucene_idf(self._lengths.size, np.bincount(words, minlength=sizes.size))
        saturated = frequencies / (frequencies + self._lengths[documents])
        return WordWeights(words, documents, idf[words] * saturated)

    def among(self, dimensions: Integers) -> npt.NDArray[np.bool_]:
        """Return True for dimensions that are words [n]."""
        after, before = dimensions >= self._words.start, dimensions < self._words.stop
        among: npt.NDArray[np.bool_] = np.logical_and(after, before)
        return among

    def scores(self, query: sp.csr_array) -> Floats:
        """Return the scores of all documents by the words of a query [1, V]: [documents]."""
        among = self.among(query.indices)
        positions, documents, weights = self.of(query.indices[among])
        products = query.data[among][positions] * weights
        return np.bincount(documents, products, self._lengths.size).astype(np.float64, copy=False)

    def weights(self, query: sp.csr_array, document: int) -> Floats:
        """Return the weights of a document in the dimensions of a query [1, V], zeros for other
        dimensions than words: [non-zeros]."""
        among = np.flatnonzero(self.among(query.indices))
        positions, documents, weights = self.of(query.indices[among])
        word_weights, of_document = np.zeros(query.nnz), documents == document
        word_weights[among[positions[of_document]]] = weights[of_document]
        return word_weights
