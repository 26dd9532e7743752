"""The closed form against the paper's equations 2 to 4 on dense matrices, and bad input."""

import pickle
from functools import reduce
from itertools import pairwise
from operator import add
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from lexicept.errors import InputError
from lexicept.rra import Dialogue, Sums, converse, hear, read, reweight
from support.strategies import REALS, sparse_matrices

F = {
    "1+x": lambda x: 1 + x,
    "x": lambda x: x,
    "lambda*x": lambda x: 2 * x,
    "log(1+x)": lambda x: np.log(1 + x),
    "exp(x)": np.exp,
    "tanh(x)": np.tanh,
}


def divide(values: Any, sums: Any) -> Any:
    """0/0 = 0."""
    return values / np.where(sums == 0, 1, sums)


def brute_force(w: Any, alpha: float, iterations: int, f: Any) -> Any:
    """L_i(d|t) as a dense [N, V]: equation 2, then equations 3 and 4 for every iteration."""
    L = divide(f(w), f(w).sum(axis=0, keepdims=True))
    for _ in range(iterations):
        S = divide(L**alpha, (L**alpha).sum(axis=1, keepdims=True))
        L = divide(S, S.sum(axis=0, keepdims=True))
    return L


def assert_scores_equal(w: Any, **settings: Any) -> None:
    """Scores of one-word queries are N · L1 up to a constant per query: N · min(c) · l_t."""
    alpha, iterations = settings.get("alpha", 1.0), settings.get("iterations", 1)
    f = F[settings.get("transform", "1+x")]
    num_documents, num_dimensions = w.shape
    L = brute_force(w.astype(np.float64), alpha, iterations, f)
    result = reweight(sp.csr_array(w), **settings)
    assert result.documents.shape == (num_documents, num_dimensions + 1)
    assert (result.weights.data >= 0).all()
    assert (result.offsets >= 0).all()
    queries = result.queries(sp.eye_array(num_dimensions, format="csr"))
    assert queries.shape == (num_dimensions, num_dimensions + 1)
    scores = (queries @ result.documents.T).toarray().T
    missing = num_documents * L - scores  # one constant per column, if both agree
    if not num_documents or not num_dimensions:
        assert missing.size == 0
        return
    scale = max(num_documents * L.max(), 1e-300)
    assert (np.ptp(missing, axis=0) <= 1e-9 * scale).all()
    assert (missing >= -1e-9 * scale).all()


SETTINGS = {
    "transform": st.sampled_from(list(F)),
    "alpha": st.sampled_from([0.3, 0.5, 1.0, 1.7, 4.0]),
    "iterations": st.integers(1, 3),
}


@given(w=sparse_matrices(weights=REALS, dtype=np.float64), **SETTINGS)
def test_closed_form_equals_the_equations(w, transform, alpha, iterations):
    assert_scores_equal(w.toarray(), alpha=alpha, iterations=iterations, transform=transform)


@pytest.mark.parametrize("transform", list(F))
@pytest.mark.parametrize(("iterations", "alpha"), [(1, 8.0), (2, 1.0), (3, 0.5)])
def test_closed_form_on_a_larger_collection(transform, iterations, alpha):
    random = np.random.default_rng(3)
    w = random.gamma(1.0, 1.5, (60, 40)) * (random.random((60, 40)) < 0.15)
    w[[0, 17, 59]] = 0
    w[:, [0, 8, 39]] = 0
    assert_scores_equal(w, alpha=alpha, iterations=iterations, transform=transform)


@given(
    w=sparse_matrices(st.integers(1, 8), weights=REALS, dtype=np.float64),
    data=st.data(),
    **SETTINGS,
)
def test_sharding_changes_nothing(w, transform, alpha, iterations, data):
    size = w.shape[0]
    cuts = sorted([0, *data.draw(st.lists(st.integers(0, size), max_size=4)), size])
    P = np.full(size, 1 / size)
    shards = [(w[a:b], P[a:b]) for a, b in pairwise(cuts)]

    def hear_all(dialogue):
        sent = pickle.loads(pickle.dumps(dialogue))  # as another process would get it
        return reduce(add, [hear(weights, priors, sent) for weights, priors in shards])

    dialogue = converse(hear_all, Dialogue.begin(*w.shape, alpha, transform), iterations)  # type: ignore[call-arg]
    shards_read = [read(weights, priors, dialogue) for weights, priors in shards]
    whole = reweight(w, alpha, iterations, transform)
    weights = np.vstack([weights_of_shard.toarray() for weights_of_shard, _ in shards_read])
    scales = np.concatenate([priors_of_shard for _, priors_of_shard in shards_read])
    close = {"rtol": 1e-9, "atol": 1e-9}
    np.testing.assert_allclose(weights, whole.weights.toarray(), **close)
    np.testing.assert_allclose(scales - scales.min(), whole.offsets, **close)
    np.testing.assert_allclose(dialogue.background, whole.background, **close)


def test_by_hand():
    # f = 1 + x: [[2, 1], [1, 1]]; columns: [[2/3, 1/2], [1/3, 1/2]]; rows: [[4/7, 3/7],
    # [2/5, 3/5]]; columns again: L1 = [[10/17, 5/12], [7/17, 7/12]].
    result = reweight(sp.csr_array([[1.0, 0], [0, 0]]))
    scores = (result.queries(sp.csr_array(np.eye(2))) @ result.documents.T).toarray()
    assert scores[0, 0] - scores[0, 1] == pytest.approx(2 * (10 - 7) / 17, rel=1e-12)
    assert scores[1, 0] - scores[1, 1] == pytest.approx(2 * (5 - 7) / 12, rel=1e-12)


@given(sparse_matrices(weights=REALS), st.sampled_from(list(F)), st.integers(1, 3))
def test_the_score_of_a_query_is_the_sum_over_its_words(w, transform, iterations):
    result = reweight(w, transform=transform, iterations=iterations)
    query = np.arange(1.0, w.shape[1] + 1)[None]
    whole = (result.queries(sp.csr_array(query)) @ result.documents.T).toarray()
    single = result.queries(sp.eye_array(w.shape[1], format="csr")) @ result.documents.T
    np.testing.assert_allclose(whole, query @ single.toarray(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("transform", ["x", "lambda*x", "tanh(x)", "log(1+x)"])
def test_where_f_of_0_is_0_there_is_no_background(transform):
    result = reweight(sp.csr_array([[1.0, 2], [3, 0], [0, 0]]), transform=transform)
    assert result.background.tolist() == [0, 0]
    assert result.offsets.tolist() == [0, 0, 0]
    assert (
        result.documents.toarray()[2] * result.queries(sp.csr_array([[1.0, 1]])).toarray()
    ).sum() == 0  # the empty document


@pytest.mark.parametrize("transform", list(F))
@pytest.mark.parametrize("alpha", [0.01, 50.0, 1000.0])
def test_extreme_alphas_stay_finite(transform, alpha):
    random = np.random.default_rng(5)
    w = random.random((50, 30)) * (random.random((50, 30)) < 0.2)
    result = reweight(sp.csr_array(w), alpha=alpha, iterations=3, transform=transform)
    assert np.isfinite(result.documents.data).all()
    assert np.isfinite(result.background).all()
    assert result.weights.data.any()


@pytest.mark.parametrize("shape", [(0, 0), (0, 4), (4, 0), (4, 3)])
@pytest.mark.parametrize("transform", list(F))
def test_nothing_to_weigh(shape, transform):
    result = reweight(sp.csr_array(shape), transform=transform, iterations=2)
    assert result.documents.shape == (shape[0], shape[1] + 1)
    assert result.documents.nnz == 0
    assert result.queries(sp.csr_array((2, shape[1]))).shape == (2, shape[1] + 1)


EXAMPLE = sp.csr_array([[1.0, 0], [0, 2.0]])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
def test_bad_weights_are_refused(bad):
    matrix = sp.csr_array([[1.0, 0], [0, bad]])
    with pytest.raises(InputError, match="row 1"):
        reweight(matrix)
    with pytest.raises(InputError, match="row 1"):
        reweight(EXAMPLE).queries(matrix)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alpha": 0}, "alpha must be above 0, not 0"),
        ({"alpha": -1}, "not -1"),
        ({"alpha": np.nan}, "not nan"),
        ({"alpha": np.inf}, "not inf"),
        ({"iterations": 0}, "iterations must be at least 1, not 0"),
        ({"transform": "x^2"}, "no transform 'x.2', only: 1.x, x, lambda"),
    ],
)
def test_arguments_out_of_range_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        reweight(EXAMPLE, **settings)


def test_numbers_that_are_refused():
    with pytest.raises(InputError, match=r"weight 1000.0 is too large for the transform 'exp\(x\)"):
        reweight(sp.csr_array([[1000.0]]), transform="exp(x)")
    with pytest.raises(InputError, match="queries of 3 dimensions for documents of 2"):
        reweight(EXAMPLE).queries(sp.csr_array((1, 3)))
    before = Dialogue.begin(1, 2, 1000.0, "1+x")
    assert before.go_on(Sums(np.array([1e-300, 1.0]), 0.0)).background[0] > 1e299
    with pytest.raises(InputError, match="alpha 1000 is too large for this collection"):
        before.go_on(Sums(np.array([1e-310, 1.0]), 0.0))
