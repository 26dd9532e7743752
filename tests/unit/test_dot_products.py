"""Dot products of whole numbers: the compiled kernel and its reference."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexicept.index.text_vectors import QUERY_STEPS, STEPS
from lexicept.kernels.dot_products import products_reference, write_products


@pytest.mark.parametrize("products_of", [write_products, products_reference])
@given(n=st.integers(0, 9), d=st.integers(0, 518), seed=st.integers(0, 99))
def test_products_are_exact(products_of, n, d, seed):
    random = np.random.default_rng(seed)
    rows = random.integers(-STEPS, STEPS, (n, d), np.int8, endpoint=True)
    steps = random.integers(-QUERY_STEPS, QUERY_STEPS, d, np.int16, endpoint=True)
    products = np.empty(n, np.float32)
    products_of(rows, steps, products)
    assert products.tolist() == (rows.astype(np.int64) @ steps.astype(np.int64)).tolist()


@pytest.mark.parametrize("products_of", [write_products, products_reference])
def test_the_largest_sums_are_exact(products_of):
    d = 517
    rows = np.stack([np.full(d, STEPS), np.full(d, -STEPS)]).astype(np.int8)
    products = np.empty(2, np.float32)
    products_of(rows, np.full(d, QUERY_STEPS, np.int16), products)
    assert products.tolist() == [517 * 127 * 255, -517 * 127 * 255]
