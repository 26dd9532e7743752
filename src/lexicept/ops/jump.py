"""JumpReLU activations summed over rows, with pseudo-derivatives of the thresholds, without an
array of tokens × outputs."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lexicept.ops.candidates import add_near, over_rows
from lexicept.ops.entries import compare_halves, entries_above, entry_outputs, sum_entries
from lexicept.ops.linear_topk import MANY, TOKENS, multiplies_bfloat16, narrowed, tiles


class Jumps(NamedTuple):
    """Sums over outputs above their thresholds."""

    sums: Tensor
    """``Σ_j z_ij · out_rows[j]`` [n, d]."""
    number: Tensor
    """Number of outputs above their thresholds []."""
    active: Tensor
    """Number of tokens of each output that are [M]."""


def jump_sums_reference(
    x: Tensor, rows: Tensor, bias: Tensor, threshold: Tensor, bandwidth: Tensor, out_rows: Tensor
) -> Jumps:
    """Sum rows over ``z = p · H(p − θ)``, where p = rows · x_i + bias (Rajamanoharan et al. 2024b).

    θ learns by pseudo-derivatives, see ``Jump`` and ``Count``.

    Args:
        x: tokens [n, d].
        rows, bias: [M, d] and [M].
        threshold, bandwidth: θ, at least 0, and ε, above 0, [M].
        out_rows: [M, d].
    """
    pre = torch.addmm(bias, x, rows.T)
    acts: Tensor = Jump.apply(pre, threshold, bandwidth)  # type: ignore[no-untyped-call]
    count: Tensor = Count.apply(pre, threshold, bandwidth)  # type: ignore[no-untyped-call]
    return Jumps(acts @ out_rows, count, (pre > threshold).sum(dim=0))


def jump_sums(
    x: Tensor, rows: Tensor, bias: Tensor, threshold: Tensor, bandwidth: Tensor, out_rows: Tensor
) -> Jumps:
    """Fast version of ``jump_sums_reference``."""
    entries = entries_above(x, rows, bias, threshold)
    sums = sum_entries(entry_outputs(x, rows, bias, entries), entries, out_rows)
    count = sums.new_tensor(float(len(entries.columns)))
    given = (sums, count, x, rows, bias, threshold, bandwidth, out_rows)
    sums, count = _LearnThresholds.apply(*given)  # type: ignore[no-untyped-call]
    return Jumps(sums, count, torch.bincount(entries.columns, minlength=len(rows)))


class Jump(torch.autograd.Function):
    """z [n, M] from p [n, M], θ [M] and ε [M].

    With a rectangle kernel K of bandwidth ε, θ gets ``−(θ/ε) K((p − θ)/ε)`` (equation 11).
    """

    @staticmethod
    def forward(ctx: Any, pre: Tensor, threshold: Tensor, bandwidth: Tensor) -> Tensor:
        ctx.save_for_backward(pre, threshold, bandwidth)
        return pre * (pre > threshold)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        pre, threshold, bandwidth = ctx.saved_tensors
        (gradient,) = gradients
        near = (pre - threshold).abs() < bandwidth / 2
        of_threshold = -threshold / bandwidth * (near * gradient).sum(dim=0)
        return gradient * (pre > threshold), of_threshold, None


class Count(torch.autograd.Function):
    """Number of p [n, M] above θ [M], with bandwidth ε [M]: one number [].

    θ gets ``−(1/ε) K((p − θ)/ε)`` (equation 12), p no gradient.
    """

    @staticmethod
    def forward(ctx: Any, pre: Tensor, threshold: Tensor, bandwidth: Tensor) -> Tensor:
        ctx.save_for_backward(pre, threshold, bandwidth)
        return (pre > threshold).sum().to(pre.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        pre, threshold, bandwidth = ctx.saved_tensors
        near = (pre - threshold).abs() < bandwidth / 2
        return None, -gradients[0] / bandwidth * near.sum(dim=0), None


class _LearnThresholds(torch.autograd.Function):
    """Sums and count as they are; in the backward pass the pseudo-derivatives of θ."""

    @staticmethod
    def forward(ctx: Any, sums: Tensor, count: Tensor, *given: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(*given)
        return sums.view_as(sums), count.view_as(count)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, rows, bias, threshold, bandwidth, out_rows = ctx.saved_tensors
        of_sums, of_count = gradients
        sums, counts = near_sums(x, rows, bias, threshold, bandwidth / 2, of_sums, out_rows)
        of_threshold = -threshold / bandwidth * sums
        of_threshold -= of_count / bandwidth * counts
        return of_sums, of_count, None, None, None, of_threshold, None, None


def near_sums_reference(
    x: Tensor,
    rows: Tensor,
    bias: Tensor,
    threshold: Tensor,
    distance: Tensor,
    values: Tensor,
    out_rows: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return for each output j the sum of ``values_i · out_rows[j]`` over the tokens with an output
    nearer to its threshold than its distance, and their number, both [M].

    Args:
        threshold, distance: [M].
        values: [n, v].
        out_rows: [M, v].
    """
    near = (torch.addmm(bias, x, rows.T) - threshold).abs() < distance
    return (near * (values @ out_rows.T)).sum(dim=0), near.sum(dim=0)


@torch.no_grad()
def near_sums(
    x: Tensor,
    rows: Tensor,
    bias: Tensor,
    threshold: Tensor,
    distance: Tensor,
    values: Tensor,
    out_rows: Tensor,
) -> tuple[Tensor, Tensor]:
    """Fast version of ``near_sums_reference``, tile by tile."""
    given = [part.detach().contiguous() for part in (rows, bias, threshold, distance, out_rows)]
    x, values = x.detach().contiguous(), values.contiguous()
    sums = values.new_zeros(len(rows))
    counts = torch.zeros(len(rows), dtype=torch.long, device=x.device)
    single = x.dtype == rows.dtype == torch.float32 and x.device.type == "cpu"
    find = near_sums_reference
    finite = bool((x.sum() + rows.sum() + bias.sum() + threshold.sum()).isfinite())
    if single and finite and multiplies_bfloat16() and len(x) >= MANY:
        find = _near_by_halves
    for start in range(0, len(x), TOKENS):
        some = slice(start, start + TOKENS)
        for part in tiles(len(x[some]), len(rows)):
            rows_, bias_, threshold_, distance_, out_rows_ = (array[part] for array in given)
            found = find(x[some], rows_, bias_, threshold_, distance_, values[some], out_rows_)
            sums[part] += found[0]
            counts[part] += found[1]
    return sums, counts


def _near_by_halves(
    x: Tensor,
    rows: Tensor,
    bias: Tensor,
    threshold: Tensor,
    distance: Tensor,
    values: Tensor,
    out_rows: Tensor,
) -> tuple[Tensor, Tensor]:
    """Compare outputs in bfloat16, and in single precision those that it can't tell apart."""
    scores = compare_halves(narrowed(x), narrowed(rows), bias - threshold)
    sums = torch.zeros(len(rows), dtype=torch.float64)
    counts = torch.zeros(len(rows), dtype=torch.long)
    given = (x, rows, bias, threshold, distance, values, out_rows, sums, counts)
    arrays = [part.numpy() for part in given]
    over_rows(add_near, len(rows), torch.get_num_threads(), *scores, *arrays)
    return sums.float(), counts
