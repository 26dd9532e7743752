"""BM25 and SPLADE weights by hand, their settings, and collections without words."""

from math import log

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from lexicept.errors import InputError
from lexicept.weighting import BM25, Splade, Statistics, Unchanged, from_settings, lucene_idf
from support.strategies import REALS, sparse_matrices

# Lengths 4, 2 and 0: the average is 2. Document frequencies 2, 1 and 0.
FREQUENCIES = sp.csr_array(np.array([[3, 1, 0], [2, 0, 0], [0, 0, 0]], np.float32))


def test_statistics_and_idf_by_hand():
    expected = [log(1 + 1.5 / 2.5), log(1 + 2.5 / 1.5), log(1 + 3.5 / 0.5)]
    assert lucene_idf(3, Statistics.of(FREQUENCIES).df) == pytest.approx(expected, rel=1e-12)
    statistics = Statistics.of(sp.csr_array(np.array([[2, 0, 1], [0, 0, 3]], np.float32)))
    assert (statistics.num_documents, statistics.length) == (2, 6.0)
    assert statistics.df.tolist() == [1, 0, 2]
    assert Statistics.of(sp.csr_array(np.array([[2**24], [1]], np.float32))).length == 2**24 + 1


def test_bm25_by_hand():
    # k1 (1 - b + b |d| / avgdl): 1.5 (.25 + .75 · 2) = 2.625 and 1.5 (.25 + .75) = 1.5
    idf_0, idf_1 = log(1.6), log(1 + 5 / 3)
    expected = [
        [idf_0 * 3 / (3 + 2.625), idf_1 * 1 / (1 + 2.625), 0],
        [idf_0 * 2 / (2 + 1.5), 0, 0],
        [0, 0, 0],
    ]
    weights = BM25(k1=1.5, b=0.75).documents(FREQUENCIES)
    assert weights.dtype == np.float32
    assert weights.toarray() == pytest.approx(np.array(expected), rel=1e-6)


@given(sparse_matrices())
def test_without_length_normalisation_and_saturation_only_idf_is_left(frequencies):
    idf = (frequencies.toarray() > 0) * lucene_idf(
        frequencies.shape[0], Statistics.of(frequencies).df
    )
    np.testing.assert_allclose(BM25(k1=0, b=0).documents(frequencies).toarray(), idf, rtol=1e-6)


@given(sparse_matrices(weights=REALS), st.integers(0, 8))
def test_weights_of_some_documents_are_those_of_the_collection(frequencies, cut):
    blocks = [frequencies[:cut], frequencies[cut:]]
    collection = Statistics.of(blocks[0]) + Statistics.of(blocks[1])
    for weighting in (BM25(), Splade(), Unchanged()):
        result = sp.vstack([weighting.documents(block, collection) for block in blocks])
        whole = weighting.documents(frequencies).toarray()
        np.testing.assert_allclose(result.toarray(), whole, rtol=1e-6)


def test_bm25_of_queries():
    assert BM25().queries(FREQUENCIES).toarray().tolist() == FREQUENCIES.toarray().tolist()
    plain, scaled = BM25(k3=1.0), BM25(k3=1.0, query_scale=0.5)
    np.testing.assert_array_equal(
        scaled.queries(FREQUENCIES).data, plain.queries(FREQUENCIES).data / 2
    )
    np.testing.assert_array_equal(
        scaled.documents(FREQUENCIES).data, plain.documents(FREQUENCIES).data
    )
    weights = BM25(k3=1.0).queries(FREQUENCIES)
    expected = np.array([[3 / 4, 1 / 2, 0], [2 / 3, 0, 0], [0, 0, 0]])
    assert weights.toarray() == pytest.approx(expected, rel=1e-6)
    weighting = BM25(k3=16.0, query_exponent=2.0, query_scale=2.5)
    expected = np.array([[2.5 * 9 / 25, 2.5 * 1 / 17, 0], [2.5 * 4 / 20, 0, 0], [0, 0, 0]])
    assert weighting.queries(FREQUENCIES).toarray() == pytest.approx(expected, rel=1e-6)
    plain = BM25().documents(FREQUENCIES)
    np.testing.assert_array_equal(weighting.documents(FREQUENCIES).data, plain.data)


def test_splade_by_hand():
    expected = np.array([[log(4), log(2), 0], [log(3), 0, 0], [0, 0, 0]])
    assert Splade().documents(FREQUENCIES).toarray() == pytest.approx(expected, rel=1e-6)
    assert Splade().queries(FREQUENCIES).toarray() == pytest.approx(expected, rel=1e-6)
    scaled = Splade(query_scale=0.5)
    assert scaled.queries(FREQUENCIES).data == pytest.approx([log(4) / 2, log(2) / 2, log(3) / 2])
    assert scaled.documents(FREQUENCIES).data == pytest.approx([log(4), log(2), log(3)])


@pytest.mark.parametrize("weighting", [BM25(), BM25(0.9, 0.4, 8.0), BM25(0, 0), Splade()])
def test_settings_round_trip(weighting):
    assert from_settings(weighting.settings()) == weighting


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "tfidf"}, "no weighting 'tfidf', only: bm25, splade"),
        ({}, "no weighting None"),
        ({"name": "bm25", "k2": 1}, "weighting 'bm25'.*k2"),
        ({"name": "bm25", "k1": "1"}, "weighting 'bm25'"),
    ],
)
def test_unknown_settings_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        from_settings(settings)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("k1", [-0.1, np.nan, np.inf]),
        ("b", [-0.1, 1.1, np.nan]),
        ("k3", [0, -1, np.nan, np.inf]),
        ("query_scale", [0, -1, np.nan, np.inf]),
    ],
)
def test_parameters_out_of_range_are_refused(name, values):
    for value in values:
        with pytest.raises(InputError, match="k1 must be at least 0"):
            BM25(**{name: value})
    for value in (0, -1, np.nan, np.inf):
        with pytest.raises(InputError, match=r"Splade.*query_scale must be above 0"):
            Splade(query_scale=value)


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0), (2, 3)])
@pytest.mark.parametrize("weighting", [BM25(), BM25(b=1, k3=1.0), BM25(k1=0), Splade()])
def test_collections_without_words(weighting, shape):
    empty = sp.csr_array(shape, dtype=np.float32)
    for weights in (weighting.documents(empty), weighting.queries(empty)):
        assert weights.shape == shape
        assert weights.nnz == 0


@given(sparse_matrices(), st.floats(0, 3), st.floats(0, 1), st.floats(0.1, 10))
def test_weights_are_positive_and_finite_exactly_where_frequencies_are(frequencies, k1, b, k3):
    weighting = BM25(k1, b, k3)
    for weights in (weighting.documents(frequencies), weighting.queries(frequencies)):
        assert np.isfinite(weights.data).all()
        assert ((weights.toarray() > 0) == (frequencies.toarray() > 0)).all()
