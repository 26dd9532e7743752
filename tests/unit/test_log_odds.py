"""Log-odds are the formula written out."""

from math import log, sqrt

import numpy as np
import pytest
import scipy.sparse as sp

from lexicept.concepts.describe import weighted_log_odds


def test_weighted_log_odds():
    counts = sp.csr_array([[3.0, 0.0, 1.0], [0.0, 2.0, 0.0], [0.0, 0.0, 0.0]])
    background = np.array([3.0, 2.0, 995.0])

    def z(y, n, c):
        prior = 500 * c / 1000
        own = log((y + prior) / (n + 500 - y - prior))
        others = log((c + prior) / (1000 + 500 - c - prior))
        return (own - others) / sqrt(1 / (y + prior) + 1 / (c + prior))

    result = weighted_log_odds(counts, background)
    assert result.indptr.tolist() == [0, 1, 2, 2]  # the third word is used less than by the sample
    assert result.indices.tolist() == [0, 1]
    assert result.data == pytest.approx([z(3, 4, 3), z(2, 2, 2)])
    assert result.data == pytest.approx([1.64491, 1.34552], abs=1e-5)
    result = weighted_log_odds(sp.csr_array([[2.0, 9.0, 9.0]]), np.array([2.0, 9.0, 900.0]))
    assert result.indices.tolist() == [1, 0]
    assert weighted_log_odds(sp.csr_array([[2.0]]), np.array([5.0])).nnz == 0
