"""Ranks before and after RRA: by hand, and the case study's frequent word."""

import numpy as np
import pytest
import scipy.sparse as sp

from lexicept.rra import reweight
from lexicept.weighting import BM25
from reproduction.measuring import Collection
from reproduction.systems import beside_words, mean_ranks


def test_mean_ranks_by_hand():
    # Ranks in documents of three and of two: 1, 2/3, 1/3 and 1, 1/2, equal weights in order.
    weights = sp.csr_array([[4.0, 3, 1, 0], [2, 0, 2, 0]])
    assert mean_ranks(weights).tolist() == pytest.approx([1, 2 / 3, (1 / 3 + 1 / 2) / 2, 0])


def test_a_frequent_word_falls_below_telling_ones():
    """'and' is in all documents and outweighs the two words found in one document each."""
    telling = np.kron(np.eye(20), [[1.1672, 1.0842]])
    before = sp.csr_array(np.hstack([np.full((20, 1), 1.2515), telling]))
    change = mean_ranks(reweight(before).weights) - mean_ranks(before)
    assert change[0] == pytest.approx(1 / 3 - 1)
    assert (change[1:] > 0).all()


def test_scores_beside_words_are_sums():
    """A query's word without a document, the third, counts for nothing."""
    encoded, queries = sp.csr_array([[1.0, 0], [2, 3]]), sp.csr_array([[4.0, 1]])
    counts, query = sp.csr_array([[1.0, 2], [0, 1]]), sp.csr_array([[1.0, 1, 1]])
    model = Collection("d", ["a", "b"], encoded, ["q"], queries, [])
    words = Collection("d", ["a", "b"], counts, ["q"], query, [], weighting=BM25())
    both = beside_words(model, words, weight=0.5)
    scores = encoded @ queries.T + 0.5 * BM25().documents(counts) @ query[:, :2].T
    assert (both.documents @ both.queries.T).toarray() == pytest.approx(scores.toarray())
