"""k outputs of a linear map for every token, instead of an array of tokens × outputs, and sums of
rows over them: time and memory are in proportion to the chosen outputs, forward and backward."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable


def chosen_outputs(x: Tensor, matrix: Tensor, bias: Tensor, columns: Tensor) -> Tensor:
    """Return ``matrix[j] · x_i + bias[j]`` of the chosen columns j [n, k] of each token i [n, k].

    Args:
        x: tokens [n, d].
        matrix, bias: [M, d] and [M]."""
    products: Tensor = _Products.apply(  # type: ignore[no-untyped-call]
        x.to(matrix.dtype), matrix, columns
    )
    return products + bias[columns]


def sum_chosen(weights: Tensor, columns: Tensor, matrix: Tensor) -> Tensor:
    """Return the sum of ``weights[i, p] · matrix[columns[i, p]]`` over each token's k columns
    [n, d], for weights [n, k]."""
    return F.embedding_bag(columns, matrix, mode="sum", per_sample_weights=weights.to(matrix.dtype))


def sum_by_group(weights: Tensor, group: Tensor, chosen: Tensor, matrix: Tensor, n: int) -> Tensor:
    """Return the sum of ``weights_p · matrix[chosen_p]`` over the entries p of each group.

    Args:
        weights, group, chosen: [entries]; groups are numbers below n.
        matrix: [M, d].

    Returns:
        [n, d]; zero for a group without entries.
    """
    if n == 0:
        return matrix.new_zeros(0, matrix.shape[1])
    # Entries sorted by group are the bags of an embedding.
    order = torch.argsort(group, stable=True)
    ends = torch.bincount(group, minlength=n).cumsum(0)
    return F.embedding_bag(
        chosen[order],
        matrix,
        F.pad(ends[:-1], (1, 0)),
        mode="sum",
        per_sample_weights=weights[order].to(matrix.dtype),
    )


class _Products(torch.autograd.Function):
    """``matrix[j] · x_i`` of chosen columns j: the derivatives of ``Σ_i x_i · sum_chosen(w)_i`` by
    the weights w, so that the library's kernels for ``sum_chosen`` compute these and gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: Tensor, columns: Tensor) -> Tensor:
        ctx.save_for_backward(x, matrix, columns)
        with torch.enable_grad():
            weights = x.new_zeros(columns.shape).requires_grad_()
            sums = sum_chosen(weights, columns, matrix.detach())
        (products,) = torch.autograd.grad(sums, weights, x)
        return products

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, matrix, columns = ctx.saved_tensors
        with torch.enable_grad():
            rows = matrix.detach().requires_grad_()
            sums = sum_chosen(gradient, columns, rows)
        (of_rows,) = torch.autograd.grad(sums, rows, x) if ctx.needs_input_grad[1] else (None,)
        return sums.detach(), of_rows, None
