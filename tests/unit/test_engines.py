"""The exact engine against the product, and its checks of queries and documents."""

import numpy as np
import pytest
import scipy.sparse as sp

from lexicept.engines import ExactEngine
from lexicept.engines.mask import Mask
from lexicept.errors import InputError

PRECISION = 1e-6
"""Relative error of a score."""


def random_matrix(records, columns, per_row, seed):
    """Weights from .25 to 4.25; the first and the last row are empty, and so are columns."""
    random = np.random.default_rng(seed)
    dense = np.zeros((records, columns), np.float32)
    for i in range(1, records - 1):
        selected = random.choice(columns - 1, per_row, replace=False)
        dense[i, selected] = random.random(per_row) * 4 + 0.25
    return sp.csr_array(dense)


def assert_exact(engine, documents, queries, top_k, offsets, factors):
    """Scores are the product's at every rank, and at the named documents."""
    tolerance = PRECISION
    product = (queries @ documents.T).toarray() + np.outer(factors, offsets)
    matched = ((queries > 0).astype(int) @ (documents > 0).astype(int).T).sum(axis=1) > 0
    hits = engine.search(queries, top_k, factors)
    assert len(hits) == queries.shape[0]
    for scores, matches, (document_ids, found_scores) in zip(product, matched, hits, strict=True):
        best = np.sort(scores[scores > 0])[::-1][:top_k] if matches else []
        assert len(set(document_ids.tolist())) == len(document_ids) == len(best)
        np.testing.assert_allclose(found_scores, best, rtol=tolerance)
        np.testing.assert_allclose(found_scores, scores[document_ids], rtol=tolerance)
        order = list(zip(-found_scores, document_ids, strict=True))
        assert order == sorted(order)


@pytest.mark.parametrize("columns", [9, 2**16 + 3])
@pytest.mark.parametrize("rra", [False, True])
def test_search_is_the_product(columns, rra):
    documents = random_matrix(40, 9, 4, seed=0)
    documents.resize((40, columns))
    random = np.random.default_rng(1)
    offsets = random.random(40) * 3 if rra else np.zeros(40)
    engine = ExactEngine.build(documents, offsets if rra else None)
    assert (engine.num_documents, engine.num_dimensions) == (40, columns)
    assert engine.size
    # The first and last queries are empty but for a prior, and the last column is in no document.
    queries = random_matrix(8, 9, 3, seed=2).tolil()
    queries[1] = 0
    queries[1, 8] = 2
    queries = sp.csr_array(queries)
    queries.resize((8, columns))
    factors = random.random(8) if rra else np.zeros(8)
    for top_k in (1, 3, 1000):
        assert_exact(engine, documents, queries, top_k, offsets, factors)


@pytest.mark.parametrize("allowed", [0.0, 0.05, 0.5, 1.0])
def test_a_mask_leaves_the_results_that_it_allows(allowed):
    documents = random_matrix(80, 9, 4, seed=0)
    engine = ExactEngine.build(documents)
    mask = Mask(np.random.default_rng(5).random(80) < allowed)
    queries = random_matrix(8, 9, 3, seed=2)
    everything = engine.search(queries, 80)
    for top_k in (1, 3, 80):
        hits = engine.search(queries, top_k, mask=mask)
        for (document_ids, scores), (masked_documents, masked_scores) in zip(
            everything, hits, strict=True
        ):
            assert (
                masked_documents.tolist()
                == document_ids[mask.allowed[document_ids]][:top_k].tolist()
            )
            np.testing.assert_allclose(
                masked_scores, scores[mask.allowed[document_ids]][:top_k], rtol=1e-6
            )


def test_no_offset_counts_without_a_factor():
    engine = ExactEngine.build(sp.csr_array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]), [0.0, 2.0, 1.0])
    query = sp.csr_array([[3.0, 0.0]])
    ((documents, scores),) = engine.search(query)
    assert (documents.tolist(), scores.tolist()) == ([0], [3.0])
    ((documents, scores),) = engine.search(query, 10, [1.0])
    assert (documents.tolist(), scores.tolist()) == ([0, 1, 2], [3.0, 2.0, 1.0])


def test_untidy_queries():
    engine = ExactEngine.build(sp.csr_array([[1.0, 0.0, 4.0], [0.0, 2.0, 0.0]]))
    arrays = (np.array([1.0, 0.0, 2.0, 0.5]), np.array([2, 1, 0, 2]), np.array([0, 4]))
    ((documents, scores),) = engine.search(sp.csr_array(arrays, shape=(1, 3)))
    assert (documents.tolist(), scores.tolist()) == ([0], [8.0])


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (2, 0), (2, 3)])
def test_nothing_to_find(shape):
    engine = ExactEngine.build(sp.csr_array(shape, dtype=np.float32))
    assert (engine.num_documents, engine.num_dimensions) == shape
    for documents, scores in engine.search(sp.csr_array(np.ones((2, shape[1])))):
        assert documents.size == scores.size == 0
    assert engine.search(sp.csr_array((0, shape[1]))) == []


def test_large_weights_keep_their_digits():
    documents = sp.csr_array([[5e6, 0.0], [3e6, 2.0]])
    engine = ExactEngine.build(documents, [0.0, 1e-7])
    queries = sp.csr_array([[1.0, 0.0], [0.0, 1.0]])
    assert_exact(engine, documents, queries, 10, np.array([0.0, 1e-7]), np.array([2.0, 0.0]))


def test_bad_queries_are_refused():
    engine = ExactEngine.build(sp.csr_array([[1.0, 2.0]]))
    for bad in (np.nan, np.inf, -1.0):
        with pytest.raises(InputError, match="row 1: weights must be finite and not negative"):
            engine.search(sp.csr_array([[1.0, 0.0], [bad, 1.0]]))
    with pytest.raises(InputError, match="single precision"):
        engine.search(sp.csr_array([[1e300, 1.0]]))
    with pytest.raises(InputError, match="3 dimensions for an index of 2"):
        engine.search(sp.csr_array([[1.0, 1.0, 1.0]]))
    query = sp.csr_array([[1.0, 1.0]])
    for top_k in (0, -1):
        with pytest.raises(InputError, match=f"top_k must be at least 1, not {top_k}"):
            engine.search(query, top_k)
    for offsets in ([], [np.nan], [1.0, 1.0], [[1.0]]):
        with pytest.raises(InputError, match="query offsets"):
            engine.search(query, 1, offsets)
    with pytest.raises(InputError, match=r"a mask of \(3,\) for 1 documents"):
        engine.search(query, mask=Mask([True] * 3))


def test_bad_documents_are_refused():
    for bad in (np.nan, np.inf, -1.0):
        with pytest.raises(InputError, match="row 0: weights must be finite and not negative"):
            ExactEngine.build(sp.csr_array([[bad, 1.0]]))
    with pytest.raises(InputError, match="single precision"):
        ExactEngine.build(sp.csr_array([[1e300]]))
    for offsets in ([1.0, 2.0], [[1.0]], [np.nan], [np.inf]):
        with pytest.raises(InputError, match="offsets"):
            ExactEngine.build(sp.csr_array([[1.0]]), offsets)
