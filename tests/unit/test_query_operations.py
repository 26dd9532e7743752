"""The kernels for queries and their references."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexicept.kernels.query_vectors import kept_within, kept_within_reference, prune_within
from support.strategies import sparse_matrices

CHOOSE = pytest.mark.parametrize("choose", [kept_within, kept_within_reference])


@CHOOSE
@pytest.mark.parametrize(
    ("budget", "most", "kept"),
    [
        (9.0, 9, [0, 1, 2, 3, 4]),
        (5.0, 9, [1, 2, 3, 4]),  # the first row's largest costs 4, the next 2, the last 1
        (7.0, 2, [0, 1, 3, 4]),
        (4.0, 9, [1, 3, 4]),
        (1.0, 1, [2, 3]),
        (0.0, 9, []),
    ],
)
def test_what_fits_a_budget_by_hand(choose, budget, most, kept):
    impact = np.array([2.0, 3.0, 1.0, 5.0, 5.0], np.float32)
    columns, indptr = np.array([0, 1, 2, 3, 4]), np.array([0, 3, 5])
    positions, ends = choose(impact, columns, indptr, np.array([2, 4, 1, 1, 1]), budget, most)
    assert positions.tolist() == kept
    assert ends.tolist() == [0, sum(position < 3 for position in kept), len(kept)]


@given(sparse_matrices(), st.sampled_from([0.0, 0.4, 1.0, 2.5]), st.integers(1, 4), st.data())
def test_pruned_rows_are_the_reference(matrix, budget, most, data):
    width = matrix.shape[1]
    steps = st.lists(st.integers(0, 4), min_size=width, max_size=width)
    costs = np.array(data.draw(steps), np.float64) / 4
    importance = np.array(data.draw(steps), np.float32)
    expected = np.zeros(matrix.shape)
    impact = matrix.data * importance[matrix.indices]
    arrays = (matrix.indices, matrix.indptr, costs, budget, most)
    kept, indptr = kept_within_reference(impact, *arrays)
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(indptr))
    expected[rows, matrix.indices[kept]] = matrix.data[kept]
    pruned = prune_within(matrix, budget, costs, importance, most)
    assert pruned.toarray().tolist() == expected.tolist()
    assert pruned.has_canonical_format
