"""Sparse vectors: refusals, and the operations against brute force."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from lexicept.errors import InputError
from lexicept.vectors import (
    SparseVectors,
    Vocabulary,
    canonical_csr,
    nonzeros,
    place_columns,
    prune_rows,
    row_numbers,
    stack_columns,
)
from support.strategies import sparse_matrices

WORDS = Vocabulary("words", 2, ("cat", "dog"))
CONCEPTS = Vocabulary("concepts", 1)


def vectors() -> SparseVectors:
    return SparseVectors(sp.csr_array([[1.0, 0, 2], [0, 3, 0]]), ["a", "b"], [WORDS, CONCEPTS])


def test_canonical_form_sums_duplicates_sorts_and_drops_zeros():
    arrays = (np.array([1.0, 2, 4, 0], np.float32), [2, 0, 2, 1], [0, 0, 4, 4])
    given_matrix = sp.csr_array(arrays, shape=(3, 3))
    matrix = canonical_csr(given_matrix)
    assert matrix.indptr.tolist() == [0, 0, 2, 2]
    assert matrix.indices.tolist() == [0, 2]
    assert matrix.data.tolist() == [2, 5]
    assert given_matrix.data.tolist() == [1, 2, 4, 0]  # the caller's matrix stays as it was


@pytest.mark.parametrize("layout", [sp.coo_array, sp.csc_array, sp.csr_matrix, sp.lil_array])
def test_any_sparse_layout_is_accepted(layout):
    matrix = canonical_csr(layout(np.array([[0, 1], [2, 0], [0, 0]])))
    assert isinstance(matrix, sp.csr_array)
    assert matrix.dtype == np.float32
    assert matrix.toarray().tolist() == [[0, 1], [2, 0], [0, 0]]


def test_vectors_that_are_refused():
    with pytest.raises(InputError, match="sparse matrix, not ndarray"):
        canonical_csr(np.eye(2))
    with pytest.raises(InputError, match="duplicate id 'x'"):
        SparseVectors(sp.csr_array((3, 2)), ["x", "y", "x"], [WORDS])
    with pytest.raises(InputError, match="1 ids for 2 vectors"):
        SparseVectors(sp.csr_array((2, 2)), ["a"], [WORDS])
    with pytest.raises(InputError, match=r"words 2 \+ concepts 1.* 2 dimensions"):
        SparseVectors(sp.csr_array((1, 2)), ["a"], [WORDS, CONCEPTS])
    with pytest.raises(InputError, match="1 terms for 2 dimensions"):
        Vocabulary("words", 2, ["cat"])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, -1.0])
def test_bad_weights_are_refused_by_the_name_of_their_text(bad):
    matrix = sp.csr_array([[0, 0], [0, 0], [1.0, bad], [1.0, 1.0]])
    with pytest.raises(InputError, match=rf"weight {bad} in 'third' \(row 2\)"):
        SparseVectors(matrix, ["first", "second", "third", "fourth"], [WORDS])
    with pytest.raises(InputError, match="in row 2:"):
        canonical_csr(matrix)


def test_span_and_select():
    assert len(vectors()) == 2
    assert vectors().span("words") == slice(0, 2)
    assert vectors().span("concepts") == slice(2, 3)
    concepts = vectors().select("concepts")
    assert concepts.weights.toarray().tolist() == [[2], [0]]
    assert concepts.ids == ["a", "b"]
    assert concepts.vocabularies == (CONCEPTS,)
    with pytest.raises(InputError, match="no vocabulary 'latents' here, only: words, concepts"):
        vectors().select("latents")


@given(sparse_matrices())
def test_row_numbers(matrix):
    assert row_numbers(matrix).tolist() == matrix.tocoo().coords[0].tolist()


@given(sparse_matrices())
def test_nonzeros_of_rows_are_canonical(matrix):
    stored = nonzeros(matrix.toarray())
    assert stored.toarray().tolist() == matrix.toarray().tolist()
    assert stored.has_canonical_format
    assert stored.indptr.tolist() == sp.csr_array(matrix.toarray()).indptr.tolist()


@given(st.lists(sparse_matrices(st.just(4)), min_size=1, max_size=3), st.integers(0, 3))
def test_columns_are_placed_where_they_are_said_to_start(matrices, gap):
    assert stack_columns(matrices).toarray().tolist() == sp.hstack(matrices).toarray().tolist()
    blocks, start = [], 0
    for matrix in matrices:
        blocks.append((start + gap, matrix))
        start += gap + matrix.shape[1]
    placed = place_columns(blocks, start + gap)
    assert placed.has_canonical_format
    expected = [block for matrix in matrices for block in (np.zeros((4, gap)), matrix.toarray())]
    assert placed.toarray().tolist() == np.hstack([*expected, np.zeros((4, gap))]).tolist()


@given(sparse_matrices(), st.integers(1, 6), st.data())
def test_prune_rows_keeps_each_rows_best(matrix, max_active_dims, data):
    width = matrix.shape[1]
    factors = st.lists(st.integers(1, 4), min_size=width, max_size=width)
    importance = data.draw(st.none() | factors.map(lambda f: np.array(f, np.float64)))
    expected = np.zeros(matrix.shape)
    for i, weights in enumerate(matrix.toarray()):
        impact = weights * (1 if importance is None else importance)
        best = sorted(np.flatnonzero(weights), key=lambda t: (-impact[t], t))[:max_active_dims]
        expected[i, best] = weights[best]
    pruned = prune_rows(matrix, max_active_dims, importance)
    assert pruned.toarray().tolist() == expected.tolist()
    assert pruned.has_canonical_format


def test_pruning_by_hand():
    pruned = prune_rows(sp.csr_array([[1.0, 2, 1, 2, 2]]), 2)
    assert pruned.toarray().tolist() == [[0, 2, 0, 2, 0]]
    pruned = prune_rows(sp.csr_array([[5.0, 1, 2]]), 1, np.array([0.1, 1, 1]))
    assert pruned.toarray().tolist() == [[0, 0, 2]]
