"""Costs by hand and by brute force, and E² as the paper prints it."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given

from lexicept.errors import InputError
from lexicept.measures import e2, mean_length, posting_list_flops, qd_flops
from lexicept.rra import reweight
from support.strategies import collections

QUERIES = sp.csr_array([[1.0, 0, 2], [0, 0, 3]])
DOCUMENTS = sp.csr_array([[1.0, 1, 1], [0, 1, 1], [5, 0, 0], [0, 0, 0]])


def test_qd_flops_by_hand():
    # The first query shares 2, 1, 1 and 0 dimensions with the documents, the second 1, 1, 0, 0.
    assert qd_flops(QUERIES, DOCUMENTS) == 6 / 8
    assert posting_list_flops(QUERIES, [2, 2, 2], 4) == 6 / 8


@given(collections())
def test_three_counts_of_the_same_pairs(pair):
    queries, documents = pair
    shared = [
        np.count_nonzero((q > 0) & (d > 0)) for q in queries.toarray() for d in documents.toarray()
    ]
    expected = float(np.mean(shared)) if shared else 0.0
    lengths = np.count_nonzero(documents.toarray(), axis=0)
    assert qd_flops(queries, documents) == pytest.approx(expected, rel=1e-12)
    assert posting_list_flops(queries, lengths, documents.shape[0]) == pytest.approx(
        expected, rel=1e-12
    )


def test_weights_that_are_refused():
    wide = sp.csr_array([[0.0, 0, 0, 1]])
    with pytest.raises(InputError, match="queries have 4 dimensions, documents 3"):
        qd_flops(wide, DOCUMENTS)
    with pytest.raises(InputError, match="queries have 4 dimensions, documents 3"):
        posting_list_flops(wide, [2, 2, 2], 4)
    outside = sp.csr_array((np.ones(1), [7], [0, 1]), shape=(1, 3))
    for use in (reweight, lambda wrong: posting_list_flops(wrong, [2, 2, 2], 4)):
        with pytest.raises(InputError, match="dimension 7 in a matrix of 3 dimensions"):
            use(outside)
    with pytest.raises(InputError, match="weight inf in row 0"):  # the sum of repeated entries
        mean_length(sp.csr_array((np.float32([3e38, 3e38]), [0, 0], [0, 2]), shape=(1, 3)))
    with pytest.raises(InputError, match="row 0"):
        qd_flops(sp.csr_array([[np.nan]]), sp.csr_array([[1.0]]))


def test_mean_length_and_explicit_zeros():
    assert mean_length(DOCUMENTS) == 6 / 4
    assert mean_length(sp.csr_array((0, 3))) == 0.0
    stored_zero = sp.csr_array((np.array([0.0, 1.0]), [0, 1], [0, 2]), shape=(1, 2))
    assert qd_flops(stored_zero, sp.csr_array([[1.0, 1.0]])) == 1.0
    assert mean_length(stored_zero) == 1.0


@pytest.mark.parametrize(
    ("mrr", "flops", "printed"), [(0.377, 1.47, 18.1), (0.381, 5.36, 9.5), (0.183, 0.13, 0.0)]
)
def test_e2_against_bm25_as_the_paper_prints_it(mrr, flops, printed):
    assert round(100 * (e2(mrr, flops) - e2(0.183, 0.13)), 1) == printed


def test_e2_at_the_threshold_and_far_beyond():
    # At τ softplus is ln(2) / 2; far above it is F − τ, without overflow.
    assert e2(0.4, 5.0) == pytest.approx(0.4 - 0.05 - 0.09 * np.log(2) / 2, rel=1e-12)
    assert e2(0.4, 10_005.0) == pytest.approx(0.4 - 100.05 - 900.0, rel=1e-12)
