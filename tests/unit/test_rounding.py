"""Rounding to 16 and 8 bits, and its bounds."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lexicept.ops import rounding
from lexicept.ops.rounding import narrowed, quantised
from support.tensors import few_numbers

KINDS = [narrowed, quantised]


def restored(rounded):
    """The numbers that were kept, in double precision."""
    scales = getattr(rounded, "scales", torch.ones(len(rounded.numbers)))
    return rounded.numbers.double() * scales.double()[:, None]


@pytest.fixture(params=[1, 3])
def numbers(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield torch.randn(50, 7, generator=torch.Generator().manual_seed(0))
    torch.set_num_threads(before)


def test_halves_are_those_of_torch(numbers):
    numbers[0, :4] = torch.tensor([1 + 2**-8, 1 + 3 * 2**-8, -0.0, 1e-40])  # two ties
    assert torch.equal(narrowed(numbers).numbers, numbers.bfloat16())


def test_bytes_by_hand(numbers):
    numbers[:3, :3] = torch.tensor([[-254.0, 100.0, 3.0], [0, 0, 0], [1e-30, -1e-30, 5e-31]])
    numbers[:3, 3:] = 0
    found = quantised(numbers)
    assert found.numbers[:3, :3].tolist() == [[-127, 50, 2], [0, 0, 0], [127, -127, 64]]
    assert found.scales[:2].tolist() == [2.0, 0.0]
    assert found.errors[:2].tolist() == [1.0, 0.0]
    assert found.norms[2] == pytest.approx(1.5e-30)  # whose square is 0 in single precision


@pytest.mark.parametrize("kind", KINDS)
def test_norms_are_those_of_the_numbers_and_their_errors(kind, numbers):
    found = kind(numbers)
    assert torch.allclose(found.norms, numbers.norm(dim=1))
    lost = numbers.double() - restored(found)
    assert torch.allclose(found.errors, lost.norm(dim=1).float(), rtol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data(), d=st.integers(1, 5), scale=st.sampled_from([1e-12, 1.0, 1e12]))
def test_products_differ_by_their_bound_at_most(kind, data, d, scale):
    pick = few_numbers(data)
    x, rows = pick(6, d) * scale, pick(5, d)
    a, b = kind(x), kind(rows)
    lost = (restored(a) @ restored(b).T - x.double() @ rows.double().T).abs()
    bounds = a.factors().double() @ torch.stack([b.norms, b.errors]).double()
    assert ((lost <= bounds + 1e-37) | bounds.isnan()).all()  # NaN where a scale would be too small
    assert bounds.isfinite().all() or scale < 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("broken", [np.nan, -np.nan, np.inf, -np.inf])
def test_what_is_no_number_shows_in_the_norm(kind, broken):
    numbers = torch.ones(3, 4)
    numbers[1, 2] = broken
    assert kind(numbers).norms.isfinite().tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("capabilities", "halves", "short"),
    [
        ({}, False, False),
        ({"avx512_bf16": True}, True, False),
        ({"avx512_vnni": True}, False, True),
        ({"amx_bf16": True, "amx_int8": True}, True, True),
    ],
)
def test_what_a_cpu_multiplies(monkeypatch, capabilities, halves, short):
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: capabilities, raising=False)
    assert rounding.multiplies_bfloat16.__wrapped__() is halves
    assert rounding.multiplies_bytes.__wrapped__() is short
