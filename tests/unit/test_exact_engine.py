"""The exact engine: the compiled kernel, its reference and the dense product, and bad input."""

import math
from dataclasses import fields
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from lexicept.engines import ExactEngine
from lexicept.engines.inverted import PostingsWriter, inverted_in_groups
from lexicept.engines.mask import Mask
from lexicept.errors import IndexFormatError, InputError
from lexicept.kernels.posting_lists import MARGIN, SEGMENT
from lexicept.kernels.term_at_a_time import WeightedQuery, all_scores, write_scores
from lexicept.vectors import largest_weights
from support.strategies import REALS, collections

DOCUMENTS = sp.csr_array(np.array([[1, 0, 2], [0, 0, 0], [1, 0, 0], [3, 0, 2]], np.float32))


def cut_into(patch, segment):
    """Give segments so many documents."""
    for module in ("exact", "mask"):
        patch.setattr(f"lexicept.engines.{module}.SEGMENT", segment)


def as_lists(results):
    return [(documents.tolist(), scores.tolist()) for documents, scores in results]


def dense_search(queries, documents, offsets, factors, top_k, mask=None):
    """The promises of the docstrings, from the dense product."""
    Q, D = queries.toarray().astype(np.float64), documents.toarray().astype(np.float64)
    results = []
    for query, factor in zip(Q, factors, strict=True):
        scores = D @ query + offsets * factor
        if not (D[:, query > 0] > 0).any():
            scores[:] = 0
        if mask is not None:
            scores[~mask.allowed] = 0
        ranking = sorted(np.flatnonzero(scores > 0).tolist(), key=lambda d: (-scores[d], d))
        results.append((ranking[:top_k], [scores[d] for d in ranking[:top_k]]))
    return results


def quarters(size):
    number = st.integers(-8, 8).map(lambda n: n / 4)
    return st.lists(number, min_size=size, max_size=size).map(np.array)


def masks(size):
    return st.lists(st.booleans(), min_size=size, max_size=size).map(Mask)


@settings(max_examples=50)
@given(collections(), st.integers(1, 15), st.integers(1, 15), st.data())
def test_all_is_the_dense_product(pair, top_k, segment, data):
    """Weights with exact products, so that equal scores are really equal; segments of any size."""
    queries, documents = pair
    offsets = data.draw(quarters(documents.shape[0]))
    factors = data.draw(quarters(queries.shape[0]))
    mask = data.draw(st.none() | masks(documents.shape[0]))
    dense, dimensions = documents.toarray(), np.arange(documents.shape[1])
    with pytest.MonkeyPatch.context() as patch:
        cut_into(patch, segment)
        engine = ExactEngine.build(documents, offsets)
        hits = engine.search(queries, top_k, factors, mask=mask)
        assert as_lists(hits) == dense_search(queries, documents, offsets, factors, top_k, mask)
        # Without offsets' factors, offsets count for nothing.
        expected = dense_search(queries, documents, offsets, np.zeros(queries.shape[0]), top_k)
        assert as_lists(engine.search(queries, top_k)) == expected
        assert engine.matrix().toarray().tolist() == dense.tolist()
        assert engine.df.tolist() == np.count_nonzero(dense, axis=0).tolist()
        columns, numbers = np.nonzero(dense.T)
        lists = engine.posting_lists(dimensions)
        assert lists.documents.tolist() == numbers.tolist()
        assert lists.weights.tolist() == dense[numbers, columns].tolist()
        assert engine.posting_lists(dimensions[::-2]).sizes.tolist() == [*engine.df[::-2]]
        for i, weights in enumerate(dense.tolist()):
            assert engine.document_weights(i, dimensions).tolist() == weights
        for i in range(queries.shape[0]):
            query = queries[[i]]
            scores = engine.scores(query)
            assert scores.tolist() == (dense @ query.toarray()[0]).tolist()
            compiled = np.empty(len(dense), np.float32)
            weighted = WeightedQuery(query.indices.astype(np.int64), query.data, 0.0)
            write_scores(segment, engine.lists, weighted, compiled)
            assert compiled.tolist() == scores.tolist()


@settings(max_examples=40)
@given(st.one_of(collections(), collections(REALS)), st.integers(1, 15), st.data())
def test_a_process_s_first_search_finds_what_later_ones_find(pair, top_k, data):
    """By the reference and by the kernel, query by query and all at once: weights of a few values,
    so that scores are equal, and queries without a dimension."""
    queries, documents = pair
    bits = data.draw(st.sampled_from([8, 32]))
    engine = ExactEngine.build(documents, data.draw(quarters(documents.shape[0])), bits)
    factors = data.draw(quarters(queries.shape[0]))
    mask = data.draw(st.none() | masks(documents.shape[0]))
    results = []
    for spent in (-math.inf, math.inf):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("lexicept.kernels.compiled._References.seconds", spent)
            results.append(as_lists(engine.search(queries, top_k, factors, mask=mask)))
    singles = [
        engine.search(queries[i : i + 1], top_k, factors[i : i + 1], mask=mask)[0]
        for i in range(queries.shape[0])
    ]
    assert results[0] == results[1] == as_lists(singles)


def test_by_hand():
    engine = ExactEngine.build(DOCUMENTS, [0, 4, 8, 0])
    queries = sp.csr_array([[1.0, 0, 2], [0, 0, 0], [0, 5, 0], [2, 1, 0]])
    expected = [([3, 0, 2], [7, 5, 1]), ([], []), ([], []), ([3, 0, 2], [6, 2, 2])]
    assert as_lists(engine.search(queries, 9)) == expected
    query = sp.csr_array([[1.0, 0, 0]])
    assert as_lists(engine.search(query, 10, [0.5])) == [([2, 3, 1, 0], [5, 3, 2, 1])]
    assert as_lists(engine.search(query, 10, [-1])) == [([3, 0], [3, 1])]
    # Offsets alone are no match.
    assert as_lists(engine.search(queries[1:3], 10, [1, 1])) == [([], [])] * 2


def sound(**settings):
    engine = ExactEngine.build(DOCUMENTS, **settings)
    return {field.name: getattr(engine, field.name) for field in fields(engine)}


def test_postings_by_hand():
    arrays = sound()
    assert arrays["lengths"].tolist() == [[3, 0, 2]]
    assert arrays["widths"].tolist() == [[0, 4, 4]]
    assert arrays["gaps"].tolist() == [0x30, *[0] * MARGIN]
    assert arrays["df"].tolist() == [3, 0, 2]
    assert arrays["table"].tolist() == [1, 0, 1, 3]  # three of four documents
    assert arrays["weights"].tolist() == [2, 2]
    assert arrays["scales"].tolist() == [1, 1, 1]
    engine = ExactEngine(**arrays)
    assert (engine.num_documents, engine.num_postings) == (4, 5)
    assert engine.df.tolist() == [3, 0, 2]
    documents, weights, _ = engine.posting_lists(np.arange(3))
    assert (documents.tolist(), weights.tolist()) == ([0, 2, 3, 0, 3], [1, 1, 3, 2, 2])


def test_rounded_weights_by_hand():
    arrays = sound(weight_bits=8)
    assert arrays["scales"].tolist() == pytest.approx([3 / 255, 1 / 255, 2 / 255])
    assert arrays["table"].tolist() == [85, 0, 85, 255, 255, 0, 0, 255]
    assert arrays["table"].dtype == arrays["weights"].dtype == np.uint8
    assert ExactEngine(**arrays).largest == pytest.approx(3)


@lru_cache
def skewed(offsets, bits):
    """200,000 documents. Two in three have the first of 13 dimensions, and half as many each of the
    following ones; weights have few values, larger ones where they are rare."""
    random = np.random.default_rng(0)
    columns = []
    for dimension in range(13):
        having = random.random(200_000) < 2 / 3 / 2**dimension
        weights = random.integers(1, 5, 200_000) * (1 + dimension)
        columns.append(sp.csc_array((having * weights).astype(np.float32)[:, None]))
    documents = sp.csr_array(sp.hstack(columns))
    prior = random.integers(0, 9, 200_000) if offsets else None
    return ExactEngine.build(documents, prior, bits)


@pytest.mark.parametrize(
    ("bits", "factor", "share", "threads"),
    [(32, 0.5, 0.6, 3), (8, -1.0, 1.0, 3), (32, 0.0, 0.01, 3), (8, 0.5, 0.6, 1)],
)
def test_threads_change_no_result(bits, factor, share, threads, monkeypatch):
    monkeypatch.setattr("lexicept.kernels.term_at_a_time.SHARE", 1)
    engine = skewed(factor != 0, bits)
    random = np.random.default_rng(1)
    mask = Mask(random.random(200_000) < share)
    for i in range(24):
        dimensions = np.flatnonzero(random.random(13) < (0.3, 0.6, 1)[i % 3])
        if not dimensions.size:
            continue
        weights = random.integers(1, 4, dimensions.size) * np.float32(0.1)
        query = sp.csr_array((weights, dimensions, [0, dimensions.size]), shape=(1, 13))
        scores = all_scores(SEGMENT, engine.lists, WeightedQuery(dimensions, weights, factor))
        scores[~mask.allowed] = 0
        ranking = np.lexsort((np.arange(200_000), -scores))
        for top_k in (1, 10, 300):
            ((hits, own),) = engine.search(query, top_k, [factor], threads, mask)
            best = ranking[:top_k][scores[ranking[:top_k]] > 0]
            assert hits.tolist() == best.tolist()
            assert own.tolist() == scores[best].tolist()


@settings(max_examples=40)
@given(collections())
def test_rounding_moves_weights_by_half_a_step_at_most(pair):
    queries, documents = pair
    engine = ExactEngine.build(documents, weight_bits=8)
    exact, rounded = documents.toarray(), engine.matrix().toarray()
    assert ((rounded > 0) == (exact > 0)).all()
    steps = exact.max(axis=0, initial=0) / 255
    # What would round to 0 keeps a whole step.
    assert (np.abs(rounded - exact) <= np.where(exact < steps / 2, 1, 0.5001) * steps).all()
    for hit, (document_ids, scores) in enumerate(engine.search(queries, 20)):
        expected = rounded.astype(np.float64) @ queries.toarray()[hit]
        assert scores == pytest.approx(expected[document_ids], rel=1e-5)


@settings(max_examples=40)
@given(collections(REALS), st.integers(1, 6), st.sampled_from([8, 32]), st.data())
def test_postings_come_block_by_block_and_in_groups_of_dimensions(pair, together, bits, data):
    """As they come at once, in memory and in files."""
    _, matrix = pair
    offsets = data.draw(quarters(matrix.shape[0]))
    bounds = [0, *data.draw(st.lists(st.integers(0, 3), max_size=3).map(sorted)), 3]
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        cut_into(patch, 3)
        whole = ExactEngine.build(matrix, offsets, bits)
        patch.setattr("lexicept.engines.inverted.TOGETHER", together)
        for path in (None, Path(folder)):
            writer = PostingsWriter(largest_weights(matrix), bits, path)
            for start in range(0, matrix.shape[0], 3):
                rows = matrix[start : start + 3]
                blocks = [sp.csr_array(rows[i:j]) for i, j in pairwise(bounds)]
                groups = inverted_in_groups(blocks, writer.scales, writer.kind)
                assert writer.add(groups, rows.shape[0]) == slice(start, start + rows.shape[0])
            result = ExactEngine.of(writer, offsets)
            for field in fields(whole):
                assert getattr(result, field.name).tolist() == getattr(whole, field.name).tolist()


@pytest.mark.parametrize(
    ("array_name", "values"),
    [
        ("gaps", [0x30]),
        ("widths", [[0, 4, 9]]),
        ("widths", [[0, 3, 4]]),
        ("widths", [[0, 15, 4]]),
        ("widths", [[4, 4, 4]]),
        ("df", [3, 0]),
        ("lengths", [[3, 0, 1]]),
        ("lengths", [[3, 0, 2], [0, 0, 0]]),
        ("lengths", [3, 0, 2]),
        ("table", [1, 0, 1]),
        ("weights", [2, 2, 2]),
        ("scales", [1, 1]),
        ("offsets", [0, 0, 0]),
    ],
)
def test_damaged_postings_are_refused(array_name, values):
    arrays = sound()
    arrays[array_name] = np.array(values, arrays[array_name].dtype)
    with pytest.raises(InputError, match="do not fit together"):
        ExactEngine(**arrays)


@pytest.mark.parametrize("spent", [-math.inf, math.inf])
def test_postings_of_documents_that_are_not_there_are_refused_or_never_found(spent, monkeypatch):
    monkeypatch.setattr("lexicept.kernels.compiled._References.seconds", spent)
    arrays = sound()
    arrays["gaps"] = np.array([0xF0, *[0] * MARGIN], np.uint8)
    damaged = ExactEngine(**arrays)  # nothing is read before it is needed
    assert as_lists(damaged.search(sp.csr_array([[0.0, 0, 1]]))) == [([0], [2.0])]
    for use in (lambda: damaged.posting_lists(np.array([2])), damaged.matrix):
        with pytest.raises(IndexFormatError, match="a document that is not there"):
            use()


@pytest.mark.parametrize("spent", [-math.inf, math.inf])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("allowed", [None, slice(0, 1), slice(0, 90), slice(None)])
@pytest.mark.parametrize("array_name", ["weights", "table"])
def test_weights_that_are_not_finite_are_one_error(spent, bad, allowed, array_name, monkeypatch):
    """Whatever else there is to find, with room for all results or for one."""
    monkeypatch.setattr("lexicept.kernels.compiled._References.seconds", spent)
    dense = np.zeros((100, 2), np.float32)
    dense[:20, 0] = dense[:90, 1] = 1
    engine = ExactEngine.build(sp.csr_array(dense))
    damaged = {f.name: getattr(engine, f.name).copy() for f in fields(engine)}
    damaged[array_name][0] = bad  # the list and the row of the table of document 0
    mask = None
    if allowed is not None:
        mask = Mask(np.zeros(100, bool))
        mask.allowed[allowed] = True
    for top_k in (1, 100):
        with pytest.raises(InputError, match="a score is not a finite number"):
            ExactEngine(**damaged).search(sp.csr_array([[1.0, 1.0]]), top_k, mask=mask)


@st.composite
def scattered(draw):
    """Lists of few to many of 70,000 documents, in one segment and a part; offsets in quarters."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    sizes = draw(
        st.lists(st.sampled_from([0, 1, 3, 70, 900, 7_000, 40_000]), min_size=1, max_size=6)
    )
    dense = np.zeros((70_000, len(sizes)), np.float32)
    for column, size in zip(dense.T, sizes, strict=True):
        documents = random.choice(70_000, size, replace=False)
        column[documents] = random.integers(1, draw(st.sampled_from([2, 5, 1_000])), size)
    offsets = random.integers(-4, 5, 70_000) / 4
    bits = draw(st.sampled_from([8, 32]))
    return ExactEngine.build(sp.csr_array(dense), offsets, bits), dense, offsets


@settings(max_examples=40, deadline=None)
@given(scattered(), st.data())
def test_far_documents_are_found_as_in_a_dense_product(case, data):
    engine, dense, offsets = case
    matrix = engine.matrix().toarray()
    if engine.weight_bits == 32:
        np.testing.assert_array_equal(matrix, dense)
    np.testing.assert_array_equal(matrix > 0, dense > 0)
    np.testing.assert_array_equal(engine.df, (dense > 0).sum(axis=0))
    share = data.draw(st.sampled_from([0, 0.001, 0.5, 1]))
    mask = Mask(np.random.default_rng(1).random(70_000) < share)
    weights = data.draw(
        st.lists(st.integers(0, 3), min_size=len(engine.df), max_size=len(engine.df))
    )
    factor, top_k = data.draw(st.sampled_from([0.0, 1.0, -0.5])), data.draw(st.integers(1, 200))
    (dimensions,) = np.nonzero(weights)
    scores = (offsets * factor).astype(np.float32)
    for dimension in dimensions:
        scores += (
            np.float32(weights[dimension])
            * engine.scales[dimension]
            * (matrix[:, dimension] / engine.scales[dimension]).round().astype(np.float32)
        )
    scores[~mask.allowed] = 0
    best = np.lexsort((np.arange(70_000), -scores))[:top_k]
    best = best[scores[best] > 0] if dense[:, dimensions].any() else best[:0]
    ((hits, values),) = engine.search(
        sp.csr_array([np.float32(weights)]), top_k, [factor], mask=mask
    )
    assert (hits.tolist(), values.tolist()) == (best.tolist(), scores[best].tolist())
    for document in (0, 65_535, 65_536, 69_999):
        expected = matrix[document].tolist()
        assert engine.document_weights(document, np.arange(len(expected))).tolist() == expected


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
