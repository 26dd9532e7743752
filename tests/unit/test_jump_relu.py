"""JumpReLU sums and their pseudo-derivatives are those of dense arrays."""

import pytest
import torch
from torch import Tensor

from lexicept.ops import linear_topk
from lexicept.ops.jump_relu import Jumps, jump_sums
from support.jump_relu import Count, Jump


def jump_sums_reference(
    x: Tensor,
    matrix: Tensor,
    bias: Tensor,
    threshold: Tensor,
    bandwidth: Tensor,
    out_matrix: Tensor,
) -> Jumps:
    """``jump_sums``, over all tokens × outputs."""
    pre = torch.addmm(bias, x, matrix.T)
    acts: Tensor = Jump.apply(pre, threshold, bandwidth)  # type: ignore[no-untyped-call]
    count: Tensor = Count.apply(pre, threshold, bandwidth)  # type: ignore[no-untyped-call]
    return Jumps(acts @ out_matrix, count, (pre > threshold).sum(dim=0))


short = pytest.mark.usefixtures("_short")


def draw(n=200, d=12, size=700, dtype=torch.float32):
    generator = torch.Generator().manual_seed(2)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=dtype)

    x, rows, bias, out_rows = normal(n, d), normal(size, d), normal(size), normal(size, d)
    threshold = normal(size).abs() + 2
    return [x, rows, bias, threshold, threshold * (normal(size).abs() + 0.1), out_rows]


@pytest.fixture(autouse=True)
def _tiles(monkeypatch):
    monkeypatch.setattr(linear_topk, "TILE_CELLS", 40_000)


@short
def test_values_and_gradients():
    found = []
    for kind, function in ((torch.float32, jump_sums), (torch.float64, jump_sums_reference)):
        inputs = [part.to(kind).requires_grad_() for part in draw()]
        inputs[4] = inputs[4].detach()
        sums, count, active = function(*inputs)
        loss = sums.square().sum() + 7 * count
        learned = [part for part in inputs if part.requires_grad]
        found.append([sums, count, active, *torch.autograd.grad(loss, learned)])
    assert 0.02 < float(found[0][1].detach()) / (200 * 700) < 0.5
    for ours, expected in zip(*found, strict=True):
        a, b = ours.detach().double(), expected.detach().double()
        error = (a - b).norm() / b.norm()
        assert float(error) < 1e-5


@short
@pytest.mark.parametrize("n", [0, 3])
def test_few_tokens(n):
    found = []
    for kind, function in ((torch.float32, jump_sums), (torch.float64, jump_sums_reference)):
        inputs = [part.to(kind) for part in draw(n)]
        threshold = inputs[3].requires_grad_()
        sums, count, active = function(*inputs)
        (gradient,) = torch.autograd.grad(sums.sum() + count, [threshold])
        found.append([sums, count, active, gradient])
    for ours, expected in zip(*found, strict=True):
        torch.testing.assert_close(ours.double(), expected.double(), rtol=1e-4, atol=1e-4)


@short
def test_a_token_that_is_no_number_is_found():
    """Its sums are none, and those of other tokens what they are without it."""
    x, *others = draw()
    kept = torch.arange(200) != 3
    without = jump_sums(x[kept], *others)
    x[3] = torch.nan
    sums, count, active = jump_sums(x, *others)
    assert sums[3].isnan().all()
    torch.testing.assert_close(sums[kept], without.sums)
    assert count == without.number + 1
    assert int((active - without.active).sum()) == 1
