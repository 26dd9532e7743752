"""Groups of entries equal the loops they stand for."""

from itertools import groupby, pairwise

import numpy as np
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from lexicept.segments import csr_of_rows, first_of_rows, firsts, neighbours, ranks


@given(st.lists(st.integers(0, 3), max_size=12))
def test_places_in_groups(groups):
    positions = [position for _, group in groupby(groups) for position, _ in enumerate(group)]
    records = np.array(groups, np.int64)
    assert ranks(records).tolist() == positions
    assert firsts(records).tolist() == [position == 0 for position in positions]


def test_a_group_of_several_keys_ends_where_any_changes():
    left, other = np.array([0, 0, 0, 1]), np.array([5, 5, 6, 6])
    assert firsts(left, other).tolist() == [True, False, True, True]


@given(st.lists(st.integers(0, 5), max_size=9), st.integers(1, 8))
def test_neighbours_are_all_with_as_many_as_go_together(counts, most):
    groups = [counts[group] for group in neighbours(np.array(counts, np.int64), most)]
    assert [count for group in groups for count in group] == counts
    assert all(sum(group) <= most or len(group) == 1 for group in groups)
    assert all(sum(left) + other[0] > most for left, other in pairwise(groups))


@given(st.lists(st.lists(st.floats(1, 9), max_size=4), max_size=5), st.integers(0, 5))
def test_first_of_rows(group_lists, count):
    lengths = np.array([len(group) for group in group_lists], np.int64)
    values = [value for group in group_lists for value in group]
    columns = np.array(
        [9 - offset for group in group_lists for offset in range(len(group))], np.int64
    )
    matrix = csr_of_rows(np.array(values), columns, lengths, (len(group_lists), 10))
    result = first_of_rows(matrix, count)
    assert isinstance(result, sp.csr_array)
    assert result.shape == matrix.shape
    for i, group in enumerate(group_lists):
        span = slice(result.indptr[i], result.indptr[i + 1])
        assert result.data[span].tolist() == group[:count]
        assert result.indices[span].tolist() == [9, 8, 7, 6][: len(group[:count])]
