"""Entries above a floor and sums over them are their references, whatever the processor."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lexicept.ops import linear_topk, sparse_linear
from lexicept.ops.sparse_linear import (
    Entries,
    chosen_outputs,
    entries_above,
    entry_outputs,
    outputs_above,
    scan,
    scan_reference,
    sum_by_group,
    sum_chosen,
    sum_entries,
)
from support.short_products import use_bytes
from support.tensors import few_numbers


def entry_outputs_reference(x: Tensor, matrix: Tensor, bias: Tensor, entries: Entries) -> Tensor:
    """``entry_outputs``, over gathered rows."""
    products_of = (x[entries.tokens] * matrix[entries.columns]).sum(dim=1)
    return products_of + bias[entries.columns]


def sum_entries_reference(weights: Tensor, entries: Entries, matrix: Tensor) -> Tensor:
    """``sum_entries``, over gathered rows."""
    sums = matrix.new_zeros(len(entries.starts) - 1, matrix.shape[1])
    return sums.index_add(0, entries.tokens, weights[:, None] * matrix[entries.columns])


def entries_above_reference(x: Tensor, matrix: Tensor, bias: Tensor, floor: Tensor) -> Entries:
    """``entries_above``, over all tokens × outputs."""
    tokens, columns = (torch.addmm(bias, x, matrix.T) > floor).nonzero(as_tuple=True)
    return Entries.of(tokens, columns, len(x))


short = pytest.mark.usefixtures("_short")


def draw(n, d, size, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    shapes = ((n, d), (size, d), (size,), (size,))
    return [torch.randn(*shape, generator=generator, dtype=dtype) for shape in shapes]


def as_set(found):
    return set(zip(found.tokens.tolist(), found.columns.tolist(), strict=True))


def test_by_hand():
    x = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 2.0]])
    rows, bias = torch.tensor([[1.0, 1.0], [-1.0, 3.0]]), torch.tensor([0.5, 0.0])
    found = entries_above(x, rows, bias, torch.tensor([1.0, 5.0]))  # of 1.5, −1; .5, 0; 2.5, 6
    assert found.starts.tolist() == [0, 1, 1, 3]
    assert found.columns.tolist() == [0, 0, 1]
    assert found.tokens.tolist() == [0, 2, 2]
    outputs = entry_outputs(x, rows, bias, found)
    assert outputs.tolist() == [1.5, 2.5, 6.0]
    sums = sum_entries(outputs, found, rows)
    assert sums.tolist() == [[1.5, 1.5], [0.0, 0.0], [2.5 - 6.0, 2.5 + 18.0]]
    kept = found.where(outputs > 2)
    assert (kept.starts.tolist(), kept.columns.tolist()) == ([0, 0, 0, 2], [0, 1])


@short
@pytest.mark.parametrize("floor", [0.0, 3.0, -100.0, 100.0])
@pytest.mark.parametrize(("n", "size"), [(200, 400), (64, 1), (3, 400), (0, 7)])
def test_tiles_find_what_all_outputs_have(monkeypatch, floor, n, size):
    monkeypatch.setattr(linear_topk, "TILE_CELLS", 20_000)
    x, rows, bias, floors = draw(n, 24, size)
    for each in (torch.tensor(floor), floor + floors):
        found, outputs = outputs_above(x, rows, bias, each)
        expected = entries_above_reference(x, rows, bias, each)
        close = (torch.addmm(bias, x, rows.T) - each).abs() < 1e-5
        differ = as_set(found) ^ as_set(expected)
        assert all(close[token, column] for token, column in differ)
        assert len(differ) <= 2
        assert found.starts[-1] == len(found.columns)
        assert torch.equal(found.columns, entries_above(x, rows, bias, each).columns)
        exact = entry_outputs_reference(x, rows, bias, found)
        torch.testing.assert_close(outputs, exact, rtol=1e-4, atol=1e-5)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), halved=st.booleans())
def test_any_numbers(data, halved):
    """Of one dimension, so that no order of a sum rounds differently."""
    draw_some = few_numbers(data)
    n, size = data.draw(st.sampled_from([1, 3, 70])), data.draw(st.integers(1, 40))
    x, rows, bias, floor = draw_some(n, 1), draw_some(size, 1), draw_some(size), draw_some(size)
    with pytest.MonkeyPatch.context() as patch:
        use_bytes(patch, halved)
        found = as_set(entries_above(x, rows, bias, floor))
    products = (x @ rows.T).double() + bias.double()
    for token in range(n):
        for column in range(size):
            above = float(products[token, column] - floor[column].double())
            if abs(above) > 1e-4:
                assert ((token, column) in found) == (above > 0)


@short
def test_norms_that_are_nearly_infinite():
    x = torch.tensor([3.39e38, *[9.7e36] * 7]).expand(64, 8)
    rows = 0.9 * torch.eye(8).repeat(128, 1)
    found = entries_above(x, rows, torch.zeros(1024), torch.tensor(0.0))
    assert len(found.columns) == 64 * 1024


@short
def test_a_floor_closer_than_rounding_is_told_apart():
    x, rows, bias, _ = draw(100, 8, 300)
    outputs = entry_outputs(x, rows, bias, everything(100, 300)).view(100, 300)
    floor = outputs.median(dim=0).values  # that of a token: neither above nor below
    found = as_set(entries_above(x, rows, bias, floor))
    wanted = {(token, column) for token, column in (outputs > floor).nonzero().tolist()}
    assert len(found ^ wanted) <= 300  # each output at its own floor, in another order of sums
    for token, column in found ^ wanted:
        assert abs(outputs[token, column] - floor[column]) < 1e-5


def everything(n, size):
    tokens = torch.arange(n).repeat_interleave(size)
    return Entries.of(tokens, torch.arange(size).repeat(n), n)


@short
@pytest.mark.parametrize("part", [0, 1, 2])
def test_what_is_no_number_is_not_lost(part):
    x, rows, bias, floor = draw(80, 8, 300)
    broken = (x, rows, bias)[part]
    broken[5] = torch.nan
    found = entries_above(x, rows, bias, floor + 100)
    tokens = [5] if part == 0 else list(range(80))
    column = 0 if part == 0 else 5
    assert as_set(found) == {(token, column) for token in tokens}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("gathered", [1, 10**6])
@pytest.mark.parametrize("chosen", [None, 1, 30])
@pytest.mark.parametrize(("n", "size", "floor"), [(6, 9, 0.0), (70, 100, 2.0), (5, 9, 99.0)])
def test_outputs_and_sums_with_gradients(monkeypatch, dtype, gathered, chosen, n, size, floor):
    """Of entries above a floor, or of as many of every token, also twice the same."""
    monkeypatch.setattr(sparse_linear, "GATHERED", gathered)
    x, rows, bias, other = draw(n, 5, size, dtype=dtype)
    if chosen:
        columns = torch.randint(size, (n, chosen), generator=torch.Generator().manual_seed(1))
        entries = Entries.chosen(columns)
        assert entries.tokens.tolist() == Entries(entries.starts, entries.columns).tokens.tolist()
        assert torch.equal(
            chosen_outputs(x, rows, bias, columns).ravel(), entry_outputs(x, rows, bias, entries)
        )
        weights = torch.linspace(-1, 1, columns.numel(), dtype=dtype)
        assert torch.equal(
            sum_chosen(weights.view_as(columns), columns, rows), sum_entries(weights, entries, rows)
        )
    else:
        entries = entries_above(x, rows, bias, torch.tensor(floor, dtype=dtype))
    found = []
    for outputs_of, sums_of in (
        (entry_outputs, sum_entries),
        (entry_outputs_reference, sum_entries_reference),
    ):
        inputs = [part.clone().requires_grad_() for part in (x, rows, bias, rows + other[:, None])]
        outputs = outputs_of(*inputs[:3], entries)
        sums = sums_of(outputs.square(), entries, inputs[3])
        direction = torch.linspace(-1, 2, sums.numel(), dtype=dtype).view_as(sums)
        found.append([outputs, sums, *torch.autograd.grad((sums * direction).sum(), inputs)])
    for ours, expected in zip(*found, strict=True):
        assert ours.dtype == expected.dtype
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4)
    assert len(entries.columns) == 0 or found[0][2].any()


def test_tokens_of_lower_precision_are_multiplied_in_that_of_the_rows():
    x, rows, bias, _ = draw(5, 3, 7)
    entries = Entries.chosen(torch.arange(10).view(5, 2) % 7)
    outputs = entry_outputs(x.bfloat16(), rows, bias, entries)
    assert outputs.dtype == torch.float32
    expected = entry_outputs_reference(x.bfloat16().float(), rows, bias, entries)
    assert torch.allclose(outputs, expected)


def test_rows_that_nobody_chose_get_no_gradient():
    x, rows, bias, _ = (part.requires_grad_() for part in draw(5, 3, 4))
    chosen_outputs(x, rows, bias, torch.tensor([[0, 2]]).expand(5, 2)).sum().backward()
    assert (rows.grad[[1, 3]] == 0).all()
    assert (bias.grad == torch.tensor([5.0, 0, 5, 0])).all()


def test_sums_by_group_by_hand():
    rows = torch.tensor([[1.0, 0], [0, 1], [5, 5]])
    weights, group = torch.tensor([2.0, 3, 4]), torch.tensor([3, 0, 3])
    summed = sum_by_group(weights, group, torch.tensor([0, 1, 1]), rows, 4)
    assert summed.tolist() == [[0.0, 3], [0, 0], [0, 0], [2, 4]]
    assert sum_by_group(weights[:0], group[:0], group[:0], rows, 2).tolist() == [[0.0, 0], [0, 0]]
    assert sum_by_group(weights[:0], group[:0], group[:0], rows, 0).shape == (0, 2)


NUMBERS = st.sampled_from([-1.0, 0.0, 0.5, 2.0, float("inf"), float("-inf"), float("nan")])


@given(data=st.data(), n=st.integers(1, 4), size=st.integers(1, 140))
def test_a_scan_is_its_reference(data, n, size):
    cells = data.draw(st.lists(NUMBERS, min_size=n * size, max_size=n * size))
    pre = torch.tensor(cells).view(n, size)
    floor = torch.tensor(data.draw(st.lists(NUMBERS, min_size=size, max_size=size))).nan_to_num(0)
    (found, outputs), (expected, values) = scan(pre, floor), scan_reference(pre, floor)
    assert torch.equal(found.starts, expected.starts)
    assert torch.equal(found.columns, expected.columns)
    torch.testing.assert_close(outputs, values, rtol=0, atol=0, equal_nan=True)
