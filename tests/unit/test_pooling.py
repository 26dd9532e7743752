import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lexicept.neural.kernels import linear_outputs
from lexicept.neural.kernels.pooling import (
    Activations,
    pool_max,
    pool_sum,
    pool_sum_reference,
    root_of_sums,
)


def pool_max_reference(tokens: Activations) -> Tensor:
    """``pool_max``, over all tokens × outputs."""
    acts = tokens.dense()
    pooled = acts.new_zeros(tokens.num_texts, len(tokens.matrix))
    return pooled.scatter_reduce(0, tokens.text[:, None].expand_as(acts), acts, "amax")


def of_inputs(pool, **settings):
    """The function of the values in ``Activations``."""
    return lambda *inputs: pool(Activations(*inputs), **settings)


maxima, maxima_reference = of_inputs(pool_max), of_inputs(pool_max_reference)
sums, sums_reference = (of_inputs(pool, log=False) for pool in (pool_sum, pool_sum_reference))
logs, logs_reference = (of_inputs(pool, log=True) for pool in (pool_sum, pool_sum_reference))

PAIRS = [(maxima, maxima_reference), (logs, logs_reference), (sums, sums_reference)]
both = pytest.mark.parametrize(("fast", "reference"), PAIRS, ids=["max", "sum of logs", "sum"])


def random_inputs(n=9, d=3, size=6, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=dtype).requires_grad_()

    return draw(n, d), draw(size, d), draw(size)


def random_threshold(size=6, seed=0, dtype=torch.float64):
    """Thresholds from 0 on, the first exactly 0."""
    drawn = torch.rand(size, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    return (1.5 * drawn).index_fill(0, torch.tensor([0]), 0.0)


def results(pool, x, text, num_texts, records, bias, k, threshold=None):
    """The pooled vectors, and the gradients of x, rows and bias along a fixed direction."""
    pooled = pool(x, text, num_texts, records, bias, k, threshold)
    direction = torch.linspace(-1, 2, pooled.numel(), dtype=pooled.dtype).view_as(pooled)
    return pooled.detach(), *torch.autograd.grad((pooled * direction).sum(), (x, records, bias))


def assert_same(fast, reference, *arguments, atol=1e-12):
    ours, expected = results(fast, *arguments), results(reference, *arguments)
    for name, a, b in zip(("pooled", "x", "rows", "bias"), ours, expected, strict=True):
        assert a.dtype == b.dtype, name
        assert torch.allclose(a, b, atol=atol), name
    with torch.no_grad():
        assert torch.allclose(fast(*arguments), expected[0], atol=atol)


def test_by_hand():
    x = torch.tensor([[1.0], [3.0], [2.0], [-1.0]])
    weights, bias = torch.tensor([[1.0], [-1.0]]), torch.tensor([0.5, 0.0])
    text = torch.tensor([0, 0, 1, 1])
    assert maxima(x, text, 2, weights, bias, None).tolist() == [[3.5, 0.0], [2.5, 1.0]]
    expected = [[1.5 + 1.0, 0.0], [2.5, 1.0]]  # before log1p: 1.5 and 3.5, 2.5, 1
    expected[0][0] = float(torch.log1p(torch.tensor([1.5, 3.5])).sum())
    expected[1] = torch.log1p(torch.tensor([2.5, 1.0])).tolist()
    assert torch.allclose(logs(x, text, 2, weights, bias, None), torch.tensor(expected))
    for k in (None, 1):  # the other entry of every token is below 0
        pooled = sums(x, text, 2, weights, bias, k)
        assert pooled.tolist() == [[5.0, 0.0], [2.5, 1.0]]
        assert torch.equal(root_of_sums(pooled), torch.tensor([[5**0.5, 0.0], [2.5**0.5, 1.0]]))


@both
@pytest.mark.parametrize("k", [None, 2])
def test_where_nothing_fires_all_is_zero(fast, reference, k):
    x, weights, bias = random_inputs()
    below = (bias - 100).detach().requires_grad_()
    text, high = torch.arange(9) % 3, torch.full((6,), 100.0)
    for settings in ((below, k), (below, k, random_threshold()), (bias, k, high)):
        for actual in results(fast, x, text, 3, weights, *settings):
            assert (actual == 0).all()
        with torch.no_grad():
            assert (fast(x, text, 3, weights, *settings) == 0).all()


def test_the_root_has_no_gradient_where_nothing_fires():
    values = torch.tensor([0.0, 4.0, 0.25, torch.nan], requires_grad=True)
    roots = root_of_sums(values)
    assert roots[:3].tolist() == [0.0, 2.0, 0.5]
    assert roots[3].isnan()
    roots.sum().backward()
    assert values.grad[:3].tolist() == [0.0, 0.25, 1.0]  # 1 / (2 √s)
    assert values.grad[3].isnan()
    assert root_of_sums(torch.zeros(0, 5)).shape == (0, 5)


@pytest.mark.parametrize("k", [None, 2])
def test_of_tokens_that_tie_the_first_gets_the_gradient(k):
    text = torch.tensor([1, 0, 1, 0, 1])
    x = torch.tensor([[1.0, 2.0]]).repeat(5, 1).requires_grad_()
    weights = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]], requires_grad=True)
    bias = torch.zeros(3, requires_grad=True)
    pooled, of_x, of_rows, of_bias = results(maxima, x, text, 2, weights, bias, k)
    shared = results(maxima_reference, x, text, 2, weights, bias, k)
    assert torch.equal(pooled, shared[0])
    assert of_x.any(dim=1).tolist() == [True, True, False, False, False]  # of texts 1 and 0
    per_text = torch.zeros(2, 2).index_add(0, text, of_x)
    assert torch.allclose(per_text, torch.zeros(2, 2).index_add(0, text, shared[1]))
    assert torch.allclose(of_rows, shared[2])
    assert torch.allclose(of_bias, shared[3])


def test_ties_across_chunks_go_to_the_first_token_too(monkeypatch):
    monkeypatch.setattr(linear_outputs, "CELLS", 1)
    x = torch.ones(4, 1, requires_grad=True)
    maxima(x, torch.zeros(4, dtype=torch.long), 1, torch.ones(2, 1), torch.zeros(2), None)[
        0
    ].sum().backward()
    assert x.grad.ravel().tolist() == [2.0, 0.0, 0.0, 0.0]


@both
@given(data=st.data())
def test_any_shapes(fast, reference, data):
    """Also without tokens, and in chunks of any size."""
    n, d = data.draw(st.integers(0, 7)), data.draw(st.integers(1, 3))
    size, num_texts = data.draw(st.integers(1, 7)), data.draw(st.integers(1, 4))
    k = data.draw(st.none() | st.integers(1, 9))
    text = torch.tensor(
        data.draw(st.lists(st.integers(0, num_texts - 1), min_size=n, max_size=n)), dtype=torch.long
    )
    x, weights, bias = random_inputs(n, d, size, seed=data.draw(st.integers(0, 99)))
    threshold = random_threshold(size, seed=data.draw(st.integers(0, 99)))
    if data.draw(st.booleans()):
        threshold = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linear_outputs, "CELLS", data.draw(st.integers(1, 20)))
        assert_same(fast, reference, x, text, num_texts, weights, bias, k, threshold)
        pooled = fast(x, text, num_texts, weights, bias, k, threshold)
    without_tokens = torch.bincount(text, minlength=num_texts) == 0
    assert (pooled[without_tokens] == 0).all()


@pytest.mark.parametrize(("pool", "k"), [(maxima, None), (maxima, 5), (sums, 5), (logs, 5)])
@pytest.mark.parametrize("threshold", [None, 4 * random_threshold(40, dtype=torch.float32)])
def test_autocast_changes_nothing_on_a_processor(pool, k, threshold):
    x, weights, bias = random_inputs(60, 16, 40, seed=3, dtype=torch.float32)
    arguments = (x, torch.arange(60) % 4, 4, weights, bias, k, threshold)
    expected = results(pool, *arguments)
    with torch.autocast("cpu", torch.bfloat16):
        ours = results(pool, *arguments)
    for a, b in zip(ours, expected, strict=True):
        assert a.dtype == torch.float32
        assert torch.allclose(a, b, atol=1e-5)


@pytest.mark.parametrize("pool", [maxima, sums, logs])
def test_states_of_low_precision_get_their_gradient_in_it(pool):
    x, weights, bias = random_inputs(6, dtype=torch.float32)
    x = x.detach().bfloat16().requires_grad_()  # as a layer under autocast may leave it
    pooled, of_x, of_rows, of_bias = results(pool, x, torch.zeros(6).long(), 1, weights, bias, 2)
    assert pooled.dtype == of_rows.dtype == of_bias.dtype == torch.float32
    assert of_x.dtype == torch.bfloat16


@pytest.mark.parametrize("k", [None, 5])
def test_sums_under_autocast_are_added_in_single_precision(k):
    x, weights = torch.full((4000, 1), 1.0), torch.ones(20, 1)
    text = torch.zeros(4000, dtype=torch.long)
    with torch.autocast("cpu", torch.bfloat16):
        pooled = logs(x, text, 1, weights, torch.zeros(20), k)
        plain = sums(x, text, 1, weights, torch.zeros(20), k)
    assert pooled.dtype == plain.dtype == torch.float32
    assert float(pooled.max()) == pytest.approx(4000 * math.log(2), rel=1e-4)
    assert float(plain.max()) == 4000


@both
@pytest.mark.parametrize("k", [None, 2])
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("cells", [1, 10**6])
def test_a_state_that_is_no_number_is_not_lost(monkeypatch, fast, reference, k, autocast, cells):
    monkeypatch.setattr(linear_outputs, "CELLS", cells)
    x, weights, bias = random_inputs(6, dtype=torch.float32)
    broken = x.detach().clone()
    broken[1, 0] = torch.nan
    text = torch.tensor([0, 0, 0, 1, 1, 1])
    for gradient in (True, False):
        for threshold in (None, random_threshold(dtype=torch.float32)):
            with (
                torch.autocast("cpu", torch.bfloat16, enabled=autocast),
                torch.set_grad_enabled(gradient),
            ):
                pooled = fast(broken, text, 2, weights, bias, k, threshold)
            assert pooled[0].isnan().any()
            assert not pooled[1].isnan().any()
