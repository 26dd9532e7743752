"""Rounding to 8 bits, and its bounds."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lexicept.neural.kernels.quantisation import (
    multiplies_bytes,
    products,
    quantised,
    summed_errors,
)
from support.tensors import few_numbers


def restored(rounded):
    """The rounded numbers, in double precision."""
    return rounded.numbers.double() * rounded.scales.double()[:, None]


@pytest.fixture(params=[1, 3])
def numbers(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield torch.randn(50, 7, generator=torch.Generator().manual_seed(0))
    torch.set_num_threads(before)


def test_by_hand(numbers):
    numbers[:3, :3] = torch.tensor([[-254.0, 100.0, 3.0], [0, 0, 0], [1e-30, -1e-30, 5e-31]])
    numbers[:3, 3:] = 0
    result = quantised(numbers)
    assert result.numbers[:3, :3].tolist() == [[-127, 50, 2], [0, 0, 0], [127, -127, 64]]
    assert result.scales[:2].tolist() == [2.0, 0.0]
    assert result.errors[:2].tolist() == [1.0, 0.0]
    assert result.norms[2] == pytest.approx(1.5e-30)  # whose square is 0 in single precision


def test_tiny_rows_are_rounded_to_zero():
    values = torch.tensor([[1e-37, -1e-37, 0.0], [1e-44, 0.0, 0.0], [1.0, 0.0, 0.0]])
    result = quantised(values)
    assert result.numbers.tolist() == [[0] * 3, [0] * 3, [127, 0, 0]]
    assert result.scales[:2].tolist() == [0.0, 0.0]
    assert (result.errors[:2] >= values[:2].norm(dim=1)).all()
    assert result.norms.isfinite().all()


def test_norms_are_those_of_the_numbers_and_their_errors(numbers):
    result = quantised(numbers)
    assert torch.allclose(result.norms, numbers.norm(dim=1))
    lost = numbers.double() - restored(result)
    assert torch.allclose(result.errors, lost.norm(dim=1).float(), rtol=1e-3)


@given(data=st.data(), d=st.integers(1, 5), scale=st.sampled_from([1e-12, 1.0, 1e12]))
def test_products_differ_by_their_bound_at_most(data, d, scale):
    pick = few_numbers(data)
    x, weights = pick(6, d) * scale, pick(5, d)
    a, b = quantised(x), quantised(weights)
    lost = (restored(a) @ restored(b).T - x.double() @ weights.double().T).abs()
    bounds = a.factors().double() @ torch.stack([b.norms, b.errors]).double()
    assert (lost <= bounds + float(summed_errors(b, torch.zeros(5)).max())).all()


@pytest.mark.skipif(not multiplies_bytes(), reason="this CPU does not multiply 8-bit numbers")
@given(n=st.integers(0, 70), d=st.integers(2, 70), m=st.integers(1, 70), seed=st.integers(0, 99))
def test_products_are_exact(n, d, m, seed):
    generator = torch.Generator().manual_seed(seed)
    a, b = (quantised(torch.randn(count, d, generator=generator)) for count in (n, m))
    assert torch.equal(products(a, b), a.numbers.int() @ b.numbers.int().T)


@pytest.mark.parametrize(("n", "m"), [(1, 2), (70, 8), (200, 513)])
def test_products_of_one_dimension_are_exact(n, m):
    a, b = (
        quantised(torch.linspace(-1, 2, n)[:, None]),
        quantised(torch.linspace(-3, 1, m)[:, None]),
    )
    assert torch.equal(products(a, b), a.numbers.int() @ b.numbers.int().T)


@pytest.mark.parametrize("broken", [np.nan, -np.nan, np.inf, -np.inf])
def test_what_is_no_number_shows_in_the_norm(broken):
    ones = torch.ones(3, 4)
    ones[1, 2] = broken
    assert quantised(ones).norms.isfinite().tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [({}, False), ({"avx512_vnni": True, "amx_int8": False}, True), ({"amx_int8": True}, True)],
)
def test_a_cpu_that_multiplies_bytes(monkeypatch, capabilities, expected):
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: capabilities, raising=False)
    monkeypatch.setattr("torch._int_mm", lambda a, b: a.int() @ b.int())
    assert multiplies_bytes.__wrapped__() is expected
    # Pairs of products that are added in 16 bits, as without these instructions.
    monkeypatch.setattr(
        "torch._int_mm", lambda a, b: (a.int() @ b.int()).clamp(-(2**15), 2**15 - 1)
    )
    assert multiplies_bytes.__wrapped__() is False
