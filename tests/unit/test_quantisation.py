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
    """The numbers that were kept, in double precision."""
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
    found = quantised(numbers)
    assert found.numbers[:3, :3].tolist() == [[-127, 50, 2], [0, 0, 0], [127, -127, 64]]
    assert found.scales[:2].tolist() == [2.0, 0.0]
    assert found.errors[:2].tolist() == [1.0, 0.0]
    assert found.norms[2] == pytest.approx(1.5e-30)  # whose square is 0 in single precision


def test_tiny_rows_are_rounded_to_zero():
    numbers = torch.tensor([[1e-37, -1e-37, 0.0], [1e-44, 0.0, 0.0], [1.0, 0.0, 0.0]])
    found = quantised(numbers)
    assert found.numbers.tolist() == [[0] * 3, [0] * 3, [127, 0, 0]]
    assert found.scales[:2].tolist() == [0.0, 0.0]
    assert (found.errors[:2] >= numbers[:2].norm(dim=1)).all()
    assert found.norms.isfinite().all()


def test_norms_are_those_of_the_numbers_and_their_errors(numbers):
    found = quantised(numbers)
    assert torch.allclose(found.norms, numbers.norm(dim=1))
    lost = numbers.double() - restored(found)
    assert torch.allclose(found.errors, lost.norm(dim=1).float(), rtol=1e-3)


@given(data=st.data(), d=st.integers(1, 5), scale=st.sampled_from([1e-12, 1.0, 1e12]))
def test_products_differ_by_their_bound_at_most(data, d, scale):
    pick = few_numbers(data)
    x, rows = pick(6, d) * scale, pick(5, d)
    a, b = quantised(x), quantised(rows)
    lost = (restored(a) @ restored(b).T - x.double() @ rows.double().T).abs()
    bounds = a.factors().double() @ torch.stack([b.norms, b.errors]).double()
    assert (lost <= bounds + float(summed_errors(b, torch.zeros(5)).max())).all()


@pytest.mark.skipif(not multiplies_bytes(), reason="this CPU does not multiply 8-bit numbers")
@given(n=st.integers(0, 70), d=st.integers(2, 70), m=st.integers(1, 70), seed=st.integers(0, 99))
def test_products_are_exact(n, d, m, seed):
    generator = torch.Generator().manual_seed(seed)
    a, b = (quantised(torch.randn(rows, d, generator=generator)) for rows in (n, m))
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
    numbers = torch.ones(3, 4)
    numbers[1, 2] = broken
    assert quantised(numbers).norms.isfinite().tolist() == [True, False, True]


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
