"""Queries from vectors: of the strongest dimensions, by a seed."""

import numpy as np
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from reproduction.vector_queries import from_vectors
from support.strategies import sparse_matrices


@given(sparse_matrices(columns=st.integers(0, 12)), st.integers(1, 10), st.integers(1, 2))
def test_vector_queries_are_of_the_strongest_dimensions(documents, count, num_dims):
    sources, queries = from_vectors(documents, count, num_dims, seed=3)
    filled = np.flatnonzero(documents.toarray().any(axis=1)) if documents.nnz else np.zeros(0)
    assert queries.shape == (min(count, filled.size), documents.shape[1])
    assert len(set(sources.tolist())) == queries.shape[0]
    assert queries.has_canonical_format
    for source, query in zip(sources, queries.toarray(), strict=True):
        weights = documents.toarray()[source]
        selected = np.flatnonzero(query)
        assert query[selected].tolist() == [1.0] * selected.size
        assert selected.size == min(num_dims, np.count_nonzero(weights))
        weakest = np.sort(weights)[::-1][: 4 * num_dims].min()
        assert (weights[selected] >= max(weakest, 1e-9)).all()


def test_vector_queries_by_seed_and_by_hand():
    documents = sp.csr_array(np.random.default_rng(0).random((20, 40)))
    sources, queries = from_vectors(documents, 5, 3, seed=1)
    again = from_vectors(documents, 5, 3, seed=1)
    other = from_vectors(documents, 5, 3, seed=2)
    assert sources.tolist() == again[0].tolist() != other[0].tolist()
    assert queries.toarray().tolist() == again[1].toarray().tolist() != other[1].toarray().tolist()
    sources, queries = from_vectors(sp.csr_array([[0.0, 0], [0, 2], [0, 0]]))
    assert sources.tolist() == [1]
    assert queries.toarray().tolist() == [[0, 1]]
    weights = np.random.default_rng(0).permutation(50) + 1.0
    documents = sp.csr_array(weights[None])
    drawn = {t for seed in range(60) for t in from_vectors(documents, 1, 2, seed)[1].indices}
    assert drawn == set(np.flatnonzero(weights > 42).tolist())
