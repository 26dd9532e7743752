"""JumpReLU sums and their pseudo-derivatives are those of dense arrays."""

import pytest
import torch

from lexicept.ops import entries, jump, linear_topk
from lexicept.ops.jump import jump_sums, jump_sums_reference, near_sums, near_sums_reference

halves = pytest.mark.parametrize("halves", [False, True])


def draw(n=200, d=12, size=700, dtype=torch.float32):
    generator = torch.Generator().manual_seed(2)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=dtype)

    x, rows, bias, out_rows = normal(n, d), normal(size, d), normal(size), normal(size, d)
    threshold = normal(size).abs() + 2
    return [x, rows, bias, threshold, threshold * (normal(size).abs() + 0.1), out_rows]


def use_halves(patch, wanted):
    for module in (entries, jump):
        patch.setattr(module, "multiplies_bfloat16", lambda: wanted)
    patch.setattr(linear_topk, "CHUNK_CELLS", 40_000)


@halves
def test_values_and_gradients(monkeypatch, halves):
    use_halves(monkeypatch, halves)
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


@halves
@pytest.mark.parametrize("n", [0, 3, 2500])
def test_sums_of_what_is_near(monkeypatch, halves, n):
    use_halves(monkeypatch, halves)
    x, rows, bias, threshold, distance, _ = draw(n, size=90)
    values, out_rows = (
        torch.linspace(-1, 3, n * 5).view(n, 5),
        torch.linspace(0, 1, 450).view(90, 5),
    )
    inputs = (x, rows, bias, threshold, distance, values, out_rows)
    sums, counts = near_sums(*inputs)
    given = [part.double() for part in inputs]
    expected, number = near_sums_reference(*given)
    assert int((counts - number).abs().sum()) <= 2  # a distance within rounding
    torch.testing.assert_close(sums.double(), expected, rtol=1e-3, atol=4.0 if n > 3 else 1e-4)
    assert (n == 0) == (not bool(counts.any()))


def test_what_is_no_number_is_near_nothing(monkeypatch):
    use_halves(monkeypatch, True)
    x, rows, bias, threshold, distance, _ = draw()
    x[3] = torch.nan
    of, ones = (rows, bias, threshold, distance), torch.ones(900, 1)
    sums, counts = near_sums(x, *of, ones[:200], ones[:700])
    kept = torch.arange(200) != 3
    _, number = near_sums_reference(x[kept], *of, ones[:199], ones[:700])
    assert int((counts - number).abs().sum()) <= 2
    assert sums.isfinite().all()
