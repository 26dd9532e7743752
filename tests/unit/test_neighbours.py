"""Neighbours where there are few rows; test_describe compares many with brute force."""

from math import sqrt

import numpy as np
import pytest

from lexicept.concepts.describe import nearest


def test_neighbours_of_few():
    rows = np.array([[1.0, 0], [0, 1], [2, 2]], np.float32)
    found = nearest(rows, np.array([True, False, True]))
    assert found.indices.tolist() == [2, 0]
    assert found.data == pytest.approx([sqrt(0.5)] * 2)
    assert nearest(rows, np.array([True, False, False])).nnz == 0
    assert nearest(rows, np.zeros(3, bool)).nnz == 0


def test_neighbours_are_in_the_order_of_their_cosines():
    angles = np.radians([0, 50, 10, 30, 60, 170])
    rows = np.stack([np.cos(angles), np.sin(angles)], axis=1) * [[3], [1], [0.1], [2], [5], [1]]
    found = nearest(rows.astype(np.float32), np.ones(6, bool))
    assert found[[0]].indices.tolist() == [2, 3, 1, 4, 5]
    expected = np.cos(np.radians([10, 30, 50, 60, 170]))
    assert found[[0]].data == pytest.approx(expected, abs=1e-6)
    assert found.diagonal().tolist() == [0] * 6


def test_a_row_of_zeros_is_a_neighbour_without_a_direction():
    found = nearest(np.array([[0.0, 0], [0, 2], [0, 3]], np.float32), np.ones(3, bool))
    assert found.toarray().tolist() == [[0, 0, 0], [0, 0, 1], [0, 1, 0]]
