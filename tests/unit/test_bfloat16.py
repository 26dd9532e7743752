"""Operations on bfloat16 against those of torch in single precision."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from lexicept.ops.bfloat16 import add_norm_, softmax_

EXACT = {"rtol": 2**-8 + 2**-12, "atol": 1e-37}
"""Rounding to bfloat16, and 0.0001 of the power."""


def draw(*shape, scale=1.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(shape, generator=generator) * scale).bfloat16()


@pytest.fixture(params=[1, 3])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("shape", [(0, 2, 4), (1, 1, 1), (5, 3, 17), (12, 64, 64)])
@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0])
def test_softmax_is_as_exact_as_bfloat16(shape, scale):
    scores = draw(*shape, scale=scale)
    lengths = shape[2] - torch.arange(shape[0]) // 2
    beyond = torch.arange(shape[2]) >= lengths[:, None, None]
    expected = scores.float().masked_fill(beyond, -torch.inf).softmax(dim=-1)
    softmax_(scores, lengths)
    torch.testing.assert_close(scores.float(), expected, **EXACT)


def test_softmax_by_hand():
    scores = torch.tensor([[[0.0, 0.0], [-torch.inf, 3.0], [-200.0, 100.0]]]).bfloat16()
    softmax_(scores, torch.tensor([2]))
    assert torch.allclose(scores.float(), torch.tensor([[0.5, 0.5], [0, 1], [0, 1]]), atol=1e-37)


LARGE = st.sampled_from([1e10, -1e10, 3e38, -3e38])


@given(st.lists(st.floats(-500, 500, width=16) | LARGE, min_size=1, max_size=40))
def test_softmax_of_any_scores(numbers):
    scores = torch.tensor([[numbers]]).bfloat16()
    expected = scores.float().softmax(dim=-1)
    softmax_(scores, torch.tensor([len(numbers)]))
    torch.testing.assert_close(scores.float(), expected, **EXACT)


@pytest.mark.parametrize("broken", [torch.nan, -torch.nan, torch.inf])
def test_what_is_no_number_makes_its_row_so(broken):
    scores = torch.zeros(3, 20).bfloat16()
    scores[1, 7] = broken
    softmax_(scores[None], torch.tensor([20]))
    assert scores.isnan().all(dim=1).tolist() == [False, True, False]
    x, added = torch.ones(3, 20), torch.zeros(3, 20).bfloat16()
    added[1, 7] = broken
    add_norm_(x, added, torch.ones(20), torch.zeros(20), 1e-12)
    for normed in (x, added):
        assert normed.isnan().all(dim=1).tolist() == [False, True, False]


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize(("n", "d"), [(0, 3), (1, 1), (2, 7), (50, 384)])
def test_sums_are_normalised_as_by_torch(n, d):
    x, added = draw(n, d).float() / 3, draw(n, d, seed=1)
    weight, bias = draw(d, seed=2).float(), draw(d, seed=3).float()
    expected = F.layer_norm(x + added, (d,), weight, bias, 1e-5)
    add_norm_(x, added, weight, bias, 1e-5)
    torch.testing.assert_close(x, expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(added, x.bfloat16())
