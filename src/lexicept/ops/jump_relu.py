"""Sums of a matrix's rows, weighted by JumpReLU activations, with pseudo-derivatives of the
thresholds, without an array of tokens × outputs."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lexicept.ops.sparse_linear import (
    Entries,
    entry_outputs,
    outputs_above,
    sum_entries,
    sum_products,
)

ROUNDING = 1e-6
"""Share of a threshold and a bandwidth that exceeds the rounding error of the sum."""


class Jumps(NamedTuple):
    """Sums over outputs above their thresholds."""

    sums: Tensor
    """``Σ_j z_ij · out_matrix[j]`` [n, d]."""
    number: Tensor
    """Number of outputs above their thresholds []."""
    active: Tensor
    """Number of tokens on which each output is above its threshold [M]."""


def jump_sums(
    x: Tensor,
    matrix: Tensor,
    bias: Tensor,
    threshold: Tensor,
    bandwidth: Tensor,
    out_matrix: Tensor,
) -> Jumps:
    """Sum rows weighted by ``z = p · H(p − θ)``, with p = matrix · x_i + bias (Rajamanoharan et al.
    2024b). One search finds outputs above θ or near θ.

    θ learns by pseudo-derivatives, with a rectangle kernel K of bandwidth ε: z gives θ
    ``−(θ/ε) K((p − θ)/ε)`` (equation 11), the count of outputs ``−(1/ε) K((p − θ)/ε)`` (12).

    Args:
        x: tokens [n, d].
        matrix, bias: [M, d] and [M].
        threshold, bandwidth: θ, at least 0, and ε, above 0, [M].
        out_matrix: [M, d]."""
    reach = bandwidth / 2
    theta = threshold.detach()
    wide, outputs = outputs_above(x, matrix, bias, theta - reach - ROUNDING * (theta + reach))
    # Outputs above the threshold are summed; those near teach the threshold.
    theta, reach = theta[wide.columns], reach[wide.columns]
    entries = wide.where(~(outputs <= theta))  # a NaN stays
    near = wide.where((outputs - theta).abs() < reach)
    sums = sum_entries(entry_outputs(x, matrix, bias, entries), entries, out_matrix)
    count = sums.new_tensor(float(len(entries.columns)))
    sums, count = _LearnThresholds.apply(  # type: ignore[no-untyped-call]
        sums, count, threshold, bandwidth, out_matrix, near
    )
    return Jumps(sums, count, torch.bincount(entries.columns, minlength=len(matrix)))


class _LearnThresholds(torch.autograd.Function):
    """Sums and count, unchanged; the backward pass adds the pseudo-derivatives of θ, from entries
    near θ."""

    @staticmethod
    def forward(
        ctx: Any,
        sums: Tensor,
        count: Tensor,
        threshold: Tensor,
        bandwidth: Tensor,
        out_matrix: Tensor,
        near: Entries,
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(threshold, bandwidth, out_matrix)
        ctx.near = near
        return sums.view_as(sums), count.view_as(count)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        threshold, bandwidth, out_matrix = ctx.saved_tensors
        of_sums, of_count = gradients
        counts = torch.bincount(ctx.near.columns, minlength=len(out_matrix))
        # Equations 11 and 12, summed over the entries near θ.
        of_threshold = -threshold / bandwidth * sum_products(of_sums, ctx.near, out_matrix)
        of_threshold -= of_count / bandwidth * counts
        return of_sums, of_count, of_threshold, None, None, None
