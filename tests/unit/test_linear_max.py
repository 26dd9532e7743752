import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lexicept.neural.kernels import linear_max, linear_topk
from lexicept.neural.kernels.linear_max import largest_outputs
from support.short_products import use_bytes
from support.tensors import few_numbers


def largest_outputs_reference(
    x: Tensor, text: Tensor, num_texts: int, matrix: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    """``largest_outputs``, over all tokens × outputs."""
    outputs = torch.addmm(bias, x, matrix.T).relu()
    maxima = outputs.new_zeros(num_texts, len(matrix))
    tokens = torch.zeros(num_texts, len(matrix), dtype=torch.long, device=x.device)
    for number in text.unique().tolist():
        (positions,) = torch.nonzero(text == number, as_tuple=True)
        maxima[number], position = outputs[positions].max(dim=0)
        tokens[number] = positions[position]
    return maxima, tokens


short = pytest.mark.usefixtures("_short")


def draw(n, d, size, texts, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x, rows = torch.randn(n, d, generator=generator), torch.randn(size, d, generator=generator)
    text = torch.randint(texts, (n,), generator=generator).sort().values
    return x, text, texts, rows, torch.randn(size, generator=generator)


def assert_same(*arguments, atol=1e-4):
    x, text, _, rows, bias = arguments
    maxima, tokens = largest_outputs(*arguments)
    expected, _ = largest_outputs_reference(*arguments)
    assert torch.allclose(maxima, expected, atol=atol, equal_nan=True)
    where, dimension = torch.nonzero(maxima > 0, as_tuple=True)
    winners = tokens[where, dimension]
    assert torch.equal(text[winners], where)
    values = (x[winners] * rows[dimension]).sum(dim=1) + bias[dimension]
    assert torch.allclose(values, maxima[where, dimension], atol=atol, equal_nan=True)


@short
@pytest.mark.parametrize("offset", [0.0, 4.0, 100.0])
@pytest.mark.parametrize(("cells", "tokens"), [(10**6, 10**6), (9_000, 10**6), (9_000, 70)])
def test_tiles_find_what_all_outputs_have(monkeypatch, offset, cells, tokens):
    monkeypatch.setattr(linear_topk, "TILE_CELLS", cells)
    monkeypatch.setattr(linear_max, "TOKENS", tokens)
    x, text, texts, rows, bias = draw(300, 12, 500, 9)
    maxima, _ = largest_outputs(x, text, texts, rows, bias - offset)
    assert bool((maxima > 0).any()) == (offset < 50)
    assert_same(x, text, texts, rows, bias - offset)


@short
def test_norms_that_are_nearly_infinite():
    x, text = torch.tensor([3.39e38, *[9.7e36] * 7]).expand(64, 8), torch.zeros(64).long()
    maxima, _ = largest_outputs(x, text, 1, 0.9 * torch.eye(8), torch.zeros(8))
    assert torch.allclose(maxima, 0.9 * x[:1])


@short
def test_the_first_of_equal_tokens_wins():
    x, text = torch.ones(128, 2), torch.arange(2).repeat_interleave(64)
    maxima, tokens = largest_outputs(x, text, 2, torch.ones(3, 2), torch.zeros(3))
    assert maxima.tolist() == [[2.0] * 3] * 2
    assert tokens.tolist() == [[0] * 3, [64] * 3]


@short
@pytest.mark.parametrize("part", ["x", "rows", "bias"])
@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
def test_what_is_no_number_is_not_lost(part, broken):
    x, text, texts, rows, bias = draw(100, 4, 70, 3)
    {"x": x, "rows": rows, "bias": bias}[part][7] = broken
    maxima, _ = largest_outputs(x, text, texts, rows, bias)
    expected, _ = largest_outputs_reference(x, text, texts, rows, bias)
    assert not expected.isfinite().all()
    assert torch.allclose(maxima, expected, atol=1e-4, equal_nan=True)


@given(data=st.data(), short=st.booleans())
def test_any_numbers(data, short):
    """Few different numbers, so that many outputs are equal or nearly so."""
    texts, size = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 140))
    pick = few_numbers(data)
    text = torch.tensor(data.draw(st.lists(st.integers(0, texts - 1), min_size=80, max_size=80)))
    text = text.sort().values
    with pytest.MonkeyPatch.context() as patch:
        use_bytes(patch, short)
        assert_same(pick(80, 3), text, texts, pick(size, 3), pick(size), atol=1e-1)
