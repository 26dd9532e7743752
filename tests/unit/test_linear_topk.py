import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lexicept.neural.kernels import linear_topk, topk
from lexicept.neural.kernels.linear_topk import fire, top_activations
from lexicept.neural.kernels.tile_kernels import keep_largest, keep_largest_reference
from lexicept.neural.kernels.topk import top_columns, top_columns_reference
from support.short_products import use_bytes
from support.tensors import few_numbers


def top_activations_reference(
    x: Tensor, matrix: Tensor, bias: Tensor, k: int, threshold: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """``top_activations``, over all tokens × outputs."""
    top = torch.topk(fire(torch.addmm(bias, x, matrix.T), threshold), k, dim=1)
    return top.values, top.indices


short = pytest.mark.usefixtures("_short")


def draw(n, d, size, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x, rows = torch.randn(n, d, generator=generator), torch.randn(size, d, generator=generator)
    return x, rows, torch.randn(size, generator=generator)


def assert_same(x, rows, bias, k, threshold=None):
    acts, dimensions = top_activations(x, rows, bias, k, threshold)
    expected, _ = top_activations_reference(x, rows, bias, k, threshold)
    assert acts.shape == dimensions.shape == expected.shape
    assert torch.allclose(acts.sort(dim=1).values, expected.sort(dim=1).values, atol=1e-4)
    every = linear_topk.fire(torch.addmm(bias, x, rows.T), threshold)
    assert torch.allclose(every.gather(1, dimensions), acts, atol=1e-4)
    assert all(len(set(row)) == k for row in dimensions.tolist())


def test_by_hand(monkeypatch):
    x, rows = torch.tensor([[1.0], [3.0], [-2.0]]), torch.tensor([[1.0], [2.0], [0.5], [-1.0]])
    every = torch.tensor([[1.0, 2.0, 0.5, 0.0], [3.0, 6.0, 1.5, 0.0], [0.0, 0.0, 0.0, 2.0]])
    for cells in (1, 10**6):
        monkeypatch.setattr(linear_topk, "CHUNK_CELLS", cells)
        for threshold in (None, torch.tensor([2.0, 2.0, 0.5, 0.0])):
            fired = every if threshold is None else every * (every > threshold)
            acts, dimensions = top_activations(x, rows, torch.zeros(4), None, threshold)
            assert acts.shape == dimensions.shape == (3, 3)  # as many as the second token has
            assert torch.equal(torch.zeros(3, 4).scatter_add(1, dimensions, acts), fired)
            acts, dimensions = top_activations(x, rows, torch.zeros(4), 1, threshold)
            assert torch.equal(acts, fired.amax(dim=1, keepdim=True))
            assert torch.equal(fired.gather(1, dimensions), acts)
    assert top_activations(x[:0], rows, torch.zeros(4), None)[0].shape == (0, 1)


@short
@pytest.mark.parametrize(("size", "k"), [(1024, 1), (1025, 8), (2500, 40)])
@pytest.mark.parametrize(("n", "cells"), [(200, 10_000), (200, 10**6), (3, 10_000)])
@pytest.mark.parametrize("offset", [0, 100])
def test_tiles_find_what_all_outputs_have(monkeypatch, size, k, n, cells, offset):
    """With an offset nothing fires."""
    monkeypatch.setattr(linear_topk, "TILE_CELLS", cells)
    monkeypatch.setattr(linear_topk, "TOKENS", 70)
    x, rows, bias = draw(n, 24, size)
    assert_same(x, rows, bias - offset, k)


@short
def test_outputs_closer_than_rounding_are_told_apart():
    """In bfloat16 all but one of these outputs are the same, in 8 bits they all are products of
    127 and 127."""
    x, rows = torch.ones(64, 1), 1 + torch.arange(1024.0)[:, None] * 2**-20
    acts, dimensions = top_activations(x, rows, torch.zeros(1024), 3)
    assert [sorted(row) for row in dimensions.tolist()] == [[1021, 1022, 1023]] * 64
    assert torch.equal(acts.sort(dim=1).values, rows[1021:, 0].expand(64, 3))


@short
def test_rough_outputs_are_within_a_hundredth_of_the_largest():
    x, rows, bias = draw(80, 24, 1100)
    acts, dimensions = top_activations(x, rows, bias, 3, rough=True)
    every = torch.addmm(bias, x, rows.T).relu()
    assert all(len(set(chosen)) == 3 for chosen in dimensions.tolist())
    off = (every.gather(1, dimensions).sum(dim=1) - every.topk(3, dim=1).values.sum(dim=1)).abs()
    assert (off <= 0.03 * every.amax()).all()
    torch.testing.assert_close(acts, every.gather(1, dimensions), atol=0.03 * every.amax(), rtol=0)


@short
@pytest.mark.parametrize(
    ("x", "long"), [([1.0, 1.0], [100.125, -100.0]), ([1 + 2**-9, 1.0], [64.0, -64.0])]
)
def test_long_rows_that_rounding_hides_behind_exact_short_ones(x, long):
    """Rounded 100.125 is 100 and 1 + 2⁻⁹ is 1, so that outputs of 1/8 are 0."""
    rows = torch.zeros(1024, 2)
    rows[:3] = torch.tensor([1 / 16, 0.0])
    rows[1000:1003] = torch.tensor(long)
    acts, dimensions = top_activations(torch.tensor([x] * 64), rows, torch.zeros(1024), 3)
    assert [sorted(row) for row in dimensions.tolist()] == [[1000, 1001, 1002]] * 64
    assert torch.equal(acts, torch.full((64, 3), 0.125))


def test_negative_outputs_are_no_activations():
    outputs = torch.tensor([[-2.0, 3.0, 0.0]])
    assert linear_topk.fire(outputs, None).tolist() == [[0.0, 3.0, 0.0]]
    assert linear_topk.fire(outputs, torch.tensor([0.0, 3.0, 0.0])).tolist() == [[0.0] * 3]
    acts, _ = top_activations_reference(torch.ones(1, 1), -torch.ones(4, 1), torch.zeros(4), 2)
    assert acts.tolist() == [[0.0, 0.0]]


def test_the_precision_of_the_tokens_stays():
    x, rows, bias = (part.double() for part in draw(5, 4, 1100))
    acts, _ = top_activations(x, rows, bias, 3)
    expected, _ = top_activations_reference(x, rows, bias, 3)
    assert acts.dtype == torch.float64
    assert torch.allclose(acts.sort(dim=1).values, expected.sort(dim=1).values, rtol=1e-12)


@short
@pytest.mark.parametrize("broken", [torch.nan, -torch.nan, torch.inf])
@pytest.mark.parametrize("part", ["x", "rows", "bias"])
def test_what_is_no_number_is_not_lost(broken, part):
    inputs = dict(zip(("x", "rows", "bias"), draw(64, 4, 1024), strict=True))
    inputs[part][5] = broken
    acts, _ = top_activations(*inputs.values(), 3)
    expected, _ = top_activations_reference(*inputs.values(), 3)
    sorted_acts, sorted_expected = acts.sort(dim=1).values, expected.sort(dim=1).values
    assert torch.allclose(sorted_acts, sorted_expected, atol=1e-4, equal_nan=True)
    assert not expected.isfinite().all()


@settings(max_examples=60)
@given(data=st.data(), short=st.booleans())
def test_any_numbers(data, short):
    """Few different numbers, so that many outputs are equal or nearly so."""
    size, k = data.draw(st.integers(1024, 1100)), data.draw(st.integers(1, 20))
    pick = few_numbers(data)
    x, rows, bias = pick(64, 3), pick(size, 3), pick(size)
    with pytest.MonkeyPatch.context() as patch:
        use_bytes(patch, short)
        acts, dimensions = top_activations(x, rows, bias, k)
    every = torch.addmm(bias, x, rows.T).relu()
    expected = every.topk(k, dim=1).values
    scale = x.norm(dim=1, keepdim=True) * rows.norm(dim=1).max() + bias.abs().max()
    # Sums of large numbers of both signs are as exact as their parts.
    assert ((acts.sort(dim=1, descending=True).values - expected).abs() <= 1e-5 * scale).all()
    assert ((every.gather(1, dimensions) - acts).abs() <= 1e-5 * scale).all()


@given(st.data(), st.integers(1, 4), st.integers(1, 5))
def test_numpy_keeps_the_same_entries_as_the_kernel(data, n, k):
    """Of four numbers, so that many are equal; also where none is above 0, and without columns."""
    scores = few_numbers(data)(n, 200).numpy()
    found = []
    for keep in (keep_largest, keep_largest_reference):
        found.append((np.zeros((n, k), np.float32), np.zeros((n, k), np.int64)))
        for start, end in ((0, 70), (70, 70), (70, 200)):
            keep(np.ascontiguousarray(scores[:, start:end]), start, *found[-1], 0, n)
    for ours, reference in zip(*found, strict=True):
        assert ours.tolist() == reference.tolist()


@pytest.mark.parametrize(
    ("n", "columns", "k"),
    [(5, 512, 8), (1, 64, 1), (3, 640, 9), (0, 512, 4), (3, 130, 1), (3, 128, 9)],
)
@pytest.mark.parametrize("kind", ["normal", "negative", "equal"])
def test_two_passes_find_the_values_of_one(monkeypatch, n, columns, k, kind):
    monkeypatch.setattr(topk, "LONG_ROW", 1)
    scores = torch.randn(n, columns, generator=torch.Generator().manual_seed(0))
    if kind != "normal":
        scores = -scores.abs() - 1 if kind == "negative" else torch.ones(n, columns)
    fast, plain = top_columns(scores, k), top_columns_reference(scores, k)
    assert fast.shape == plain.shape == (n, k)
    assert torch.equal(
        scores.gather(1, fast).sort(dim=1).values, scores.gather(1, plain).sort(dim=1).values
    )
    assert all(len(set(row)) == k for row in fast.tolist())
