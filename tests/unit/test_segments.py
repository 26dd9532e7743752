"""Groups of entries are the loops that they stand for."""

from itertools import groupby, pairwise

import numpy as np
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from lexicept.segments import csr_of_rows, first_of_rows, firsts, neighbours, ranks


@given(st.lists(st.integers(0, 3), max_size=12))
def test_places_in_groups(groups):
    places = [place for _, group in groupby(groups) for place, _ in enumerate(group)]
    entries = np.array(groups, np.int64)
    assert ranks(entries).tolist() == places
    assert firsts(entries).tolist() == [place == 0 for place in places]


def test_a_group_of_several_keys_ends_where_any_changes():
    one, other = np.array([0, 0, 0, 1]), np.array([5, 5, 6, 6])
    assert firsts(one, other).tolist() == [True, False, True, True]


@given(st.lists(st.integers(0, 5), max_size=9), st.integers(1, 8))
def test_neighbours_are_all_with_as_many_as_go_together(counts, most):
    groups = [counts[group] for group in neighbours(np.array(counts, np.int64), most)]
    assert [count for group in groups for count in group] == counts
    assert all(sum(group) <= most or len(group) == 1 for group in groups)
    assert all(sum(one) + other[0] > most for one, other in pairwise(groups))


@given(st.lists(st.lists(st.floats(1, 9), max_size=4), max_size=5), st.integers(0, 5))
def test_first_of_rows(rows, count):
    lengths = np.array([len(row) for row in rows], np.int64)
    values = [value for row in rows for value in row]
    columns = np.array([9 - place for row in rows for place in range(len(row))], np.int64)
    matrix = csr_of_rows(np.array(values), columns, lengths, (len(rows), 10))
    found = first_of_rows(matrix, count)
    assert isinstance(found, sp.csr_array)
    assert found.shape == matrix.shape
    for number, row in enumerate(rows):
        part = slice(found.indptr[number], found.indptr[number + 1])
        assert found.data[part].tolist() == row[:count]
        assert found.indices[part].tolist() == [9, 8, 7, 6][: len(row[:count])]
