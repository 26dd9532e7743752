"""The largest products of vectors and the rows of a matrix: the same as all products have."""

import numpy as np
import pytest

from lexicept.encoding.largest_products import CHUNK, SPARE, LargestProducts


def made(seed: int, *shape: int):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def assert_largest(matrix, bias, x, k: int) -> None:
    """``of`` gives the largest of all products, and their rows."""
    products, indices = LargestProducts(matrix, bias).of(x, k)
    exact = x @ matrix.T + (0 if bias is None else bias)
    order = np.argsort(-exact, axis=1)[:, :k]
    assert indices.tolist() == order.tolist()
    assert products == pytest.approx(np.take_along_axis(exact, order, 1), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("records", [32 * CHUNK, 3 * CHUNK, 1000, 97])
@pytest.mark.parametrize("k", [1, 2, 7, 40])
def test_the_largest_of_random_products_are_found(records, k):
    assert_largest(made(0, records, 64), made(1, records), made(2, 60, 64), k)


def test_a_small_matrix_gives_all_products_in_order():
    assert_largest(made(0, 5, 16), None, made(1, 4, 16), 9)


@pytest.mark.parametrize("step", [1, CHUNK])
def test_rows_of_one_chunk_or_of_as_many_as_results_are_found(step):
    k, matrix = 10, made(0, 32 * CHUNK, 64) / 100
    large = CHUNK + step * np.arange(k)
    matrix[large] = np.eye(64)[0] * np.arange(1, k + 1)[:, None]
    _, indices = LargestProducts(matrix).of(np.eye(64, dtype=np.float32)[:1], k)
    assert indices.tolist() == [large[::-1].tolist()]


def test_errors_of_eight_bits_move_rows_by_fewer_ranks_than_there_are_spare_candidates():
    matrix = made(0, 32 * CHUNK, 64)
    assert_largest(matrix, None, matrix[:200] + made(1, 200, 64), 2 * SPARE)


def test_no_vectors_have_no_products():
    products, indices = LargestProducts(made(0, 96, 16)).of(np.empty((0, 16), np.float32), 3)
    assert products.shape == indices.shape == (0, 3)
