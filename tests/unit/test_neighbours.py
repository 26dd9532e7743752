"""Neighbours where there are few rows; test_describe compares many with brute force."""

from math import sqrt

import numpy as np
import pytest
import torch

from lexicept.interpretation.describe import nearest


def test_neighbours_of_few():
    rows = torch.tensor([[1.0, 0], [0, 1], [2, 2]])
    found = nearest(rows, np.array([True, False, True]))
    assert found.indices.tolist() == [2, 0]
    assert found.data == pytest.approx([sqrt(0.5)] * 2)
    assert nearest(rows, np.array([True, False, False])).nnz == 0
    assert nearest(rows, np.zeros(3, bool)).nnz == 0
