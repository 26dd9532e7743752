"""A linear map at chosen outputs, and sums of chosen rows, for sparse activations.

Forward and backward take time and memory in proportion to the entries that were chosen.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from lexicept.ops.candidates import dot_products
from lexicept.ops.compiled import over_rows

GATHERED = 2**22
"""Most gathered numbers in memory at once, if no kernel reads the rows in place."""


def chosen_outputs_reference(x: Tensor, rows: Tensor, bias: Tensor, chosen: Tensor) -> Tensor:
    """Return ``rows[j] · x_i + bias[j]`` for the chosen j of every token.

    Args:
        x: tokens [n, d].
        rows, bias: [M, d] and [M].
        chosen: numbers of rows [n, k].

    Returns:
        [n, k].
    """
    return torch.einsum("nd,nkd->nk", x, rows[chosen]) + bias[chosen]


def chosen_outputs(x: Tensor, rows: Tensor, bias: Tensor, chosen: Tensor) -> Tensor:
    """Fast version of ``chosen_outputs_reference``."""
    outputs: Tensor = _ChosenOutputs.apply(x, rows, bias, chosen)  # type: ignore[no-untyped-call]
    return outputs


def sum_chosen_reference(weights: Tensor, chosen: Tensor, rows: Tensor) -> Tensor:
    """Return ``Σ_j weights_ij · rows[chosen_ij]`` [n, d], from weights and row numbers [n, k]."""
    return torch.einsum("nk,nkd->nd", weights, rows[chosen])


def sum_chosen(weights: Tensor, chosen: Tensor, rows: Tensor) -> Tensor:
    """Fast version of ``sum_chosen_reference``."""
    sums: Tensor = _SumChosen.apply(weights, chosen, rows)  # type: ignore[no-untyped-call]
    return sums


def sum_by_group(weights: Tensor, group: Tensor, chosen: Tensor, rows: Tensor, n: int) -> Tensor:
    """Return the sum of ``weights_p · rows[chosen_p]`` over the entries p of each group.

    Args:
        weights, group, chosen: [entries]; groups are numbers below n.
        rows: [M, d].

    Returns:
        [n, d]; zero for a group without entries.
    """
    if n == 0:
        return rows.new_zeros(0, rows.shape[1])
    order = torch.argsort(group, stable=True)
    ends = torch.bincount(group, minlength=n).cumsum(0)
    starts = F.pad(ends[:-1], (1, 0))
    return F.embedding_bag(
        chosen[order], rows, starts, mode="sum", per_sample_weights=weights[order].to(rows.dtype)
    )


class _ChosenOutputs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: Tensor, bias: Tensor, chosen: Tensor) -> Tensor:
        ctx.save_for_backward(x, rows, chosen)
        return _dots(x, rows, chosen) + bias[chosen]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, rows, chosen = ctx.saved_tensors
        of_x, of_rows, of_bias, _ = ctx.needs_input_grad
        return (
            _sums(gradient, chosen, rows) if of_x else None,
            _spread(gradient, chosen, x, len(rows)) if of_rows else None,
            _counted(gradient, chosen, len(rows)) if of_bias else None,
            None,
        )


class _SumChosen(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, chosen: Tensor, rows: Tensor) -> Tensor:
        ctx.save_for_backward(weights, chosen, rows)
        return _sums(weights, chosen, rows)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        weights, chosen, rows = ctx.saved_tensors
        of_weights, _, of_rows = ctx.needs_input_grad
        return (
            _dots(gradient, rows, chosen) if of_weights else None,
            None,
            _spread(weights, chosen, gradient, len(rows)) if of_rows else None,
        )


def _dots(x: Tensor, rows: Tensor, chosen: Tensor) -> Tensor:
    """Return ``x_i · rows[chosen_ij]`` [n, k]."""
    if x.dtype == rows.dtype == torch.float32 and x.device.type == "cpu":
        products = np.empty(chosen.shape, np.float32)
        arrays = (part.detach().contiguous().numpy() for part in (x, rows, chosen))
        over_rows(dot_products, len(x), torch.get_num_threads(), *arrays, products)
        return torch.from_numpy(products)
    step = max(1, GATHERED // max(1, chosen.shape[1] * x.shape[1]))
    parts = [
        torch.bmm(rows[some], one[:, :, None].to(rows.dtype))[:, :, 0]
        for one, some in zip(x.split(step), chosen.split(step), strict=True)
    ]
    return torch.cat(parts) if parts else x.new_zeros(chosen.shape)


def _sums(weights: Tensor, chosen: Tensor, rows: Tensor) -> Tensor:
    """Return ``Σ_j weights_ij · rows[chosen_ij]`` [n, d]."""
    return F.embedding_bag(chosen, rows, mode="sum", per_sample_weights=weights.to(rows.dtype))


def _spread(weights: Tensor, chosen: Tensor, x: Tensor, n: int) -> Tensor:
    """Return for row j the sum of ``weights_ij · x_i`` over the tokens that chose it [n, d]."""
    token = torch.arange(len(x), device=x.device)[:, None].expand_as(chosen)
    return sum_by_group(weights.ravel(), chosen.ravel(), token.ravel(), x.contiguous(), n)


def _counted(weights: Tensor, chosen: Tensor, n: int) -> Tensor:
    return weights.new_zeros(n).index_add(0, chosen.ravel(), weights.ravel())
