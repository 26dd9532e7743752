"""Ranks before and after RRA: by hand, and the case study's frequent word."""

import numpy as np
import pytest
import scipy.sparse as sp

from lexicept.rra import reweight
from reproduction.systems import mean_ranks


def test_mean_ranks_by_hand():
    # Ranks in documents of three and of two: 1, 2/3, 1/3 and 1, 1/2, equal weights in order.
    weights = sp.csr_array([[4.0, 3, 1, 0], [2, 0, 2, 0]])
    assert mean_ranks(weights).tolist() == pytest.approx([1, 2 / 3, (1 / 3 + 1 / 2) / 2, 0])


def test_a_frequent_word_falls_below_telling_ones():
    """'and' is in all documents and outweighs the two words that each document has alone."""
    telling = np.kron(np.eye(20), [[1.1672, 1.0842]])
    before = sp.csr_array(np.hstack([np.full((20, 1), 1.2515), telling]))
    change = mean_ranks(reweight(before).weights) - mean_ranks(before)
    assert change[0] == pytest.approx(1 / 3 - 1)
    assert (change[1:] > 0).all()
