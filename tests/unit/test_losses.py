import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lexicept.training.ranking.losses import (
    fraction_unexplained,
    in_batch_softmax,
    kl_divergence,
    margin_mse,
    mask_top_k,
)

LN2, LN3 = math.log(2), math.log(3)


def lists(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def with_gradient(loss, scores, *args, **kwargs):
    """The loss and its gradient for the scores."""
    scores = scores.clone().requires_grad_()
    value = loss(scores, *args, **kwargs)
    value.backward()
    return value.detach(), scores.grad


LIST_LOSSES = [kl_divergence, margin_mse]


def test_kl_divergence_by_hand():
    teacher = torch.tensor([[LN3, 0.0], [0.0, 0.0]])  # shares 3/4, 1/4 and 1/2, 1/2
    scores = torch.tensor([[0.0, 0.0], [LN3, 0.0]])
    first = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    second = 0.5 * math.log(2 / 3) + 0.5 * math.log(2)
    assert kl_divergence(scores, teacher).item() == pytest.approx((first + second) / 2)
    assert kl_divergence(scores[:1], teacher[:1]).item() == pytest.approx(0.130812, abs=1e-6)
    assert kl_divergence(scores[1:], teacher[1:]).item() == pytest.approx(0.143841, abs=1e-6)


def test_fraction_unexplained_by_hand():
    x = torch.tensor([[1.0, 0.0], [3.0, 4.0]])  # mean (2, 2): variance 2 · (1 + 4)
    x_hat = torch.tensor([[1.0, 1.0], [3.0, 2.0]], requires_grad=True)
    loss = fraction_unexplained(x.requires_grad_(), x_hat)
    assert loss.item() == (1 + 4) / 10
    loss.backward()
    assert x.grad is None
    assert x_hat.grad.tolist() == [[0, pytest.approx(0.2)], [0, pytest.approx(-0.4)]]
    x = torch.tensor([[0.0], [1.0]])  # mean 1/2: variance 1/2
    assert fraction_unexplained(x, torch.tensor([[0.0], [0.5]])).item() == 0.25 / 0.5


@pytest.mark.parametrize("n", [0, 1, 2])
def test_nothing_is_unexplained_where_nothing_varies(n):
    x_hat = torch.full((n, 3), 2.0 if n == 2 else 1.0, requires_grad=True)
    loss = fraction_unexplained(torch.full((n, 3), 2.0), x_hat)
    loss.backward()
    assert loss.item() == 0  # not 0 / 0
    assert x_hat.grad.count_nonzero() == 0


def test_margin_mse_by_hand():
    scores = torch.tensor([[3.0, 1.0, 2.0], [1.0, 1.0, 1.0]])
    teacher = torch.tensor([[5.0, 1.0, 4.5], [0.0, 1.0, -2.0]])
    # Margins 2, 1, 0, 0 against 4, 0.5, −1, 2.
    assert margin_mse(scores, teacher).item() == (4 + 0.25 + 1 + 4) / 4
    # Each pair counts once, whatever the length of its list.
    mask = torch.tensor([[True, True, True], [True, True, False]])
    assert margin_mse(scores, teacher, mask=mask).item() == (4 + 0.25 + 1) / 3
    mask = torch.tensor([[False, True, True], [True, True, False]])
    value, gradient = with_gradient(margin_mse, lists(2, 3), lists(2, 3, seed=1), mask=mask)
    assert value == margin_mse(lists(2, 3)[1:, :2], lists(2, 3, seed=1)[1:, :2])
    assert not gradient[0].any()


def test_in_batch_softmax_by_hand():
    scores = torch.tensor([[LN2, 0.0, 0.0], [0.0, LN3, 0.0]])
    positives = torch.tensor([0, 1])
    expected = (math.log(4 / 2) + math.log(5 / 3)) / 2
    assert in_batch_softmax(scores, positives).item() == pytest.approx(expected)
    assert in_batch_softmax(scores, positives.int()).item() == pytest.approx(expected)
    # The first query's own positive stays in its denominator, the third document does not.
    excluded = torch.tensor([[True, False, True], [False, False, False]])
    expected = (math.log(3 / 2) + math.log(5 / 3)) / 2
    value, gradient = with_gradient(in_batch_softmax, scores, positives, excluded=excluded)
    assert value.item() == pytest.approx(expected)
    assert torch.equal(gradient == 0, torch.tensor([[False, False, True], [False] * 3]))


def test_mask_top_k_by_hand():
    vectors = torch.tensor([[0.5, 3.0, 0.0, 2.0], [0.0, 0.0, 1.0, 0.0], [0.0] * 4])
    left, two = mask_top_k(vectors, 1), mask_top_k(vectors, 2)
    assert left.tolist() == [[0, 3, 0, 0], [0, 0, 1, 0], [0] * 4]
    assert two.tolist() == [[0, 3, 0, 2], [0, 0, 1, 0], [0] * 4]
    assert mask_top_k(vectors, 4) is mask_top_k(vectors, 9) is vectors
    vectors = torch.tensor([[0.5, 3.0, 0.0, 2.0], [0.0, 0.0, 1.0, 0.0]], requires_grad=True)
    (mask_top_k(vectors, 2) * torch.arange(1.0, 5.0)).sum().backward()
    # The second row has one weight: no zero takes the other place.
    assert vectors.grad.tolist() == [[0, 2, 0, 4], [0, 0, 3, 0]]
    vectors = lists(3, 2**15).relu()
    masked = mask_top_k(vectors, 7)
    assert torch.equal(masked.topk(7).values, vectors.topk(7).values)
    assert masked.count_nonzero() == 21


@pytest.mark.parametrize("loss", [kl_divergence, margin_mse])
def test_the_teacher_is_a_constant(loss):
    teacher = lists(2, 3, seed=1).requires_grad_()
    _, gradient = with_gradient(loss, lists(2, 3), teacher)
    assert gradient.any()
    assert teacher.grad is None


@given(
    sizes=st.lists(st.integers(0, 4), min_size=1, max_size=4),
    padding=st.integers(0, 2),
    filler=st.sampled_from([0.0, 1e300, math.inf, -math.inf, math.nan]),
    seed=st.integers(0, 99),
)
@pytest.mark.parametrize("loss", LIST_LOSSES)
def test_padding_changes_nothing(loss, sizes, padding, filler, seed):
    width = max(sizes) + padding
    scores, teacher = lists(len(sizes), width, seed=seed), lists(len(sizes), width, seed=seed + 100)
    mask = torch.arange(width) < torch.tensor(sizes)[:, None]
    value, gradient = with_gradient(
        loss, scores.masked_fill(~mask, filler), teacher.masked_fill(~mask, filler), mask=mask
    )
    alone = [
        with_gradient(loss, scores[i : i + 1, :n], teacher[i : i + 1, :n])
        for i, n in enumerate(sizes)
    ]
    # One at a time; a list of n counts n − 1 pairs or one query.
    counts = [max(n - 1, 0) if loss is margin_mse else int(n >= 2) for n in sizes]
    total = max(sum(counts), 1)
    expected = sum(v * c for (v, _), c in zip(alone, counts, strict=True)) / total
    assert value.item() == pytest.approx(float(expected), rel=1e-12, abs=1e-14)
    assert not gradient[~mask].any()
    for i, n in enumerate(sizes):
        torch.testing.assert_close(gradient[i, :n], alone[i][1][0] * counts[i] / total)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("loss", LIST_LOSSES)
def test_padding_in_low_precision(loss, dtype):
    scores = torch.tensor([[40.0, 42.0, 50.0, 0.0]]).repeat(3, 1)
    teacher = torch.tensor([[61.0, 60.0, 9.0, 70.0]]).repeat(3, 1)
    mask = torch.tensor([[True, True, False, False], [True, False, False, False], [False] * 4])
    value, gradient = with_gradient(loss, scores.to(dtype), teacher.to(dtype), mask=mask)
    assert value.dtype == dtype
    assert value.item() == pytest.approx(loss(scores, teacher, mask=mask).item(), rel=0.03)
    assert bool(gradient.isfinite().all())
    assert gradient[0, :2].any()
    assert not gradient[~mask].any()


@pytest.mark.parametrize("loss", LIST_LOSSES)
@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (3, 1)])
def test_nothing_to_rank(loss, shape):
    value, gradient = with_gradient(loss, lists(*shape), lists(*shape, seed=1))
    assert value.item() == 0
    assert not gradient.any()


def test_no_queries_in_the_batch():
    empty = torch.zeros(0, dtype=torch.int64)
    value, gradient = with_gradient(in_batch_softmax, lists(0, 4), empty)
    assert value.item() == 0
    assert gradient.shape == (0, 4)
    assert mask_top_k(lists(0, 4), 2).shape == (0, 4)
