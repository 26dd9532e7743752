import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lexicept.neural.kernels import linear_outputs
from lexicept.neural.kernels.linear_outputs import fire, largest_outputs, top_activations
from support.tensors import few_numbers


def largest_outputs_reference(
    x: Tensor, text: Tensor, num_texts: int, matrix: Tensor, bias: Tensor
) -> Tensor:
    """The maxima of ``largest_outputs``, over all tokens × outputs."""
    outputs = torch.addmm(bias, x, matrix.T).relu()
    maxima = outputs.new_zeros(num_texts, len(matrix))
    return maxima.scatter_reduce(0, text[:, None].expand_as(outputs), outputs, "amax")


def draw(n, d, size):
    generator = torch.Generator().manual_seed(0)
    x, weights = torch.randn(n, d, generator=generator), torch.randn(size, d, generator=generator)
    return x, weights, torch.randn(size, generator=generator)


def assert_top(x, records, bias, k, atol=1e-4):
    acts, dimensions = top_activations(x, records, bias, k)
    every = torch.addmm(bias, x, records.T).relu()
    expected = every.topk(k, dim=1).values
    assert acts.dtype == x.dtype
    torch.testing.assert_close(
        acts.sort(dim=1, descending=True).values, expected, atol=atol, rtol=0, equal_nan=True
    )
    torch.testing.assert_close(every.gather(1, dimensions), acts, atol=atol, rtol=0, equal_nan=True)
    assert all(len(set(latents)) == k for latents in dimensions.tolist())


def assert_largest(x, text, texts, weights, bias, atol=1e-4):
    maxima, tokens = largest_outputs(x, text, texts, weights, bias)
    expected = largest_outputs_reference(x, text, texts, weights, bias)
    torch.testing.assert_close(maxima, expected, atol=atol, rtol=0, equal_nan=True)
    where, dimension = torch.nonzero(maxima > 0, as_tuple=True)
    winners = tokens[where, dimension]
    assert torch.equal(text[winners], where)
    values = (x[winners] * weights[dimension]).sum(dim=1) + bias[dimension]
    torch.testing.assert_close(values, maxima[where, dimension], atol=atol, rtol=0)


def test_activations_by_hand(monkeypatch):
    x, weights = torch.tensor([[1.0], [3.0], [-2.0]]), torch.tensor([[1.0], [2.0], [0.5], [-1.0]])
    every = torch.tensor([[1.0, 2.0, 0.5, 0.0], [3.0, 6.0, 1.5, 0.0], [0.0, 0.0, 0.0, 2.0]])
    for cells in (1, 10**6):
        monkeypatch.setattr(linear_outputs, "CELLS", cells)
        for threshold in (None, torch.tensor([2.0, 2.0, 0.5, 0.0])):
            fired = every if threshold is None else every * (every > threshold)
            acts, dimensions = top_activations(x, weights, torch.zeros(4), None, threshold)
            assert acts.shape == dimensions.shape == (3, 3)  # as many as the second token has
            assert torch.equal(torch.zeros(3, 4).scatter_add(1, dimensions, acts), fired)
            acts, dimensions = top_activations(x, weights, torch.zeros(4), 1, threshold)
            assert torch.equal(acts, fired.amax(dim=1, keepdim=True))
            assert torch.equal(fired.gather(1, dimensions), acts)
    assert top_activations(x[:0], weights, torch.zeros(4), None)[0].shape == (0, 1)


def test_negative_outputs_are_no_activations():
    outputs = torch.tensor([[-2.0, 3.0, 0.0]])
    assert fire(outputs, None).tolist() == [[0.0, 3.0, 0.0]]
    assert fire(outputs, torch.tensor([0.0, 3.0, 0.0])).tolist() == [[0.0] * 3]


@pytest.mark.parametrize(("size", "k"), [(1024, 1), (16_385, 8)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_slices_find_what_all_outputs_have(monkeypatch, size, k, dtype):
    """With an offset nothing fires."""
    monkeypatch.setattr(linear_outputs, "CELLS", 10_000)
    x, weights, bias = (tensor.to(dtype) for tensor in draw(20, 24, size))
    text = torch.arange(20) // 8
    for offset in (0, 100):
        assert_top(x, weights, bias - offset, k)
        assert_largest(x, text, 4, weights, bias - offset)


@pytest.mark.parametrize("part", ["x", "rows", "bias"])
@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
def test_what_is_no_number_is_not_lost(monkeypatch, part, broken):
    monkeypatch.setattr(linear_outputs, "CELLS", 700)
    x, weights, bias = draw(30, 4, 70)
    {"x": x, "rows": weights, "bias": bias}[part][7] = broken
    text = torch.arange(30) // 13
    assert not torch.addmm(bias, x, weights.T).isfinite().all()
    acts, _ = top_activations(x, weights, bias, 3)
    expected = torch.addmm(bias, x, weights.T).relu().topk(3).values
    assert torch.allclose(acts.sort().values, expected.sort().values, atol=1e-4, equal_nan=True)
    maxima, _ = largest_outputs(x, text, 3, weights, bias)
    expected = largest_outputs_reference(x, text, 3, weights, bias)
    assert torch.allclose(maxima, expected, atol=1e-4, equal_nan=True)


def test_the_first_of_equal_tokens_wins():
    x, text = torch.ones(128, 2), torch.arange(2).repeat_interleave(64)
    maxima, tokens = largest_outputs(x, text, 2, torch.ones(3, 2), torch.zeros(3))
    assert maxima.tolist() == [[2.0] * 3] * 2
    assert tokens.tolist() == [[0] * 3, [64] * 3]


@given(data=st.data())
def test_any_numbers(data):
    """Few different numbers, so that many outputs are equal or nearly so."""
    texts, size = data.draw(st.integers(1, 5)), data.draw(st.integers(20, 140))
    pick = few_numbers(data)
    text = torch.tensor(data.draw(st.lists(st.integers(0, texts - 1), min_size=30, max_size=30)))
    x, weights, bias = pick(30, 3), pick(size, 3), pick(size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linear_outputs, "CELLS", data.draw(st.sampled_from([1, 500, 10**6])))
        assert_top(x, weights, bias, data.draw(st.integers(1, 20)), atol=1e-1)
        assert_largest(x, text.sort().values, texts, weights, bias, atol=1e-1)
