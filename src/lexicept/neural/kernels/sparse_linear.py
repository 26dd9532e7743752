"""k outputs of a linear map for every token, instead of an array of tokens × outputs, and sums of
rows over them: time and memory are in proportion to the chosen outputs, forward and backward."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from lexicept.kernels.compiled import over_rows
from lexicept.neural.kernels.quantisation import single_on_cpu
from lexicept.neural.kernels.tile_kernels import chosen_dots, sum_rows

GATHERED = 2**22
"""Most gathered numbers in memory at once, if no kernel reads the rows in place."""


@dataclass(frozen=True)
class Chosen:
    """k outputs of every token."""

    columns: Tensor
    """The outputs [n, k]."""

    @cached_property
    def by_column(self) -> Tensor:
        """The positions in ``columns.ravel()``, ordered by column."""
        return torch.argsort(self.columns.ravel(), stable=True)


def chosen_outputs(x: Tensor, matrix: Tensor, bias: Tensor, chosen: Chosen) -> Tensor:
    """Return ``matrix[j] · x_i + bias[j]`` of the chosen columns j of each token i [n, k].

    Args:
        x: tokens [n, d].
        matrix, bias: [M, d] and [M]."""
    outputs: Tensor = _Outputs.apply(x, matrix, bias, chosen)  # type: ignore[no-untyped-call]
    return outputs


def sum_chosen(weights: Tensor, chosen: Chosen, matrix: Tensor) -> Tensor:
    """Return the sum of ``weights[i, p] · matrix[columns[i, p]]`` over each token's k columns
    [n, d], for weights [n, k]."""
    sums: Tensor = _Sums.apply(weights, chosen, matrix)  # type: ignore[no-untyped-call]
    return sums


def sum_by_group(
    weights: Tensor,
    group: Tensor,
    chosen: Tensor,
    matrix: Tensor,
    n: int,
    order: Tensor | None = None,
) -> Tensor:
    """Return the sum of ``weights_p · matrix[chosen_p]`` over the entries p of each group.

    Args:
        weights, group, chosen: [entries]; groups are numbers below n.
        matrix: [M, d].
        order: the entries' places sorted by group, if they are known.

    Returns:
        [n, d]; zero for a group without entries.
    """
    if n == 0:
        return matrix.new_zeros(0, matrix.shape[1])
    # Entries sorted by group are the bags of an embedding.
    order = torch.argsort(group, stable=True) if order is None else order
    ends = torch.bincount(group, minlength=n).cumsum(0)
    starts = F.pad(ends[:-1], (1, 0))
    weights = weights.to(matrix.dtype)
    if single_on_cpu(weights, matrix):
        sums = torch.empty(n, matrix.shape[1])
        places = starts.numpy(), ends.numpy(), order.numpy()
        rows = _array(weights), _array(chosen), _array(matrix)
        add = partial(sum_rows, places, rows, sums.numpy())
        over_rows(add, n, torch.get_num_threads())
        return sums
    return F.embedding_bag(
        chosen[order],
        matrix,
        starts,
        mode="sum",
        per_sample_weights=weights[order],
    )


class _Outputs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: Tensor, bias: Tensor, chosen: Chosen) -> Tensor:
        ctx.save_for_backward(x, matrix)
        ctx.chosen = chosen
        return _dots(x, matrix, chosen) + bias[chosen.columns]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, matrix = ctx.saved_tensors
        of_x, of_rows, of_bias, _ = ctx.needs_input_grad
        zeros, columns = gradient.new_zeros(len(matrix)), ctx.chosen.columns.ravel()
        return (
            _sums(gradient, ctx.chosen, matrix) if of_x else None,
            _spread(gradient, ctx.chosen, x, len(matrix)) if of_rows else None,
            zeros.index_add(0, columns, gradient.ravel()) if of_bias else None,
            None,
        )


class _Sums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, chosen: Chosen, matrix: Tensor) -> Tensor:
        ctx.save_for_backward(weights, matrix)
        ctx.chosen = chosen
        return _sums(weights, chosen, matrix)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        weights, matrix = ctx.saved_tensors
        of_weights, _, of_rows = ctx.needs_input_grad
        return (
            _dots(gradient, matrix, ctx.chosen) if of_weights else None,
            None,
            _spread(weights, ctx.chosen, gradient, len(matrix)) if of_rows else None,
        )


def _array(tensor: Tensor) -> np.ndarray:
    """Return a tensor's numbers as kernels take them: contiguous."""
    return tensor.detach().contiguous().numpy()


def _dots(x: Tensor, matrix: Tensor, chosen: Chosen) -> Tensor:
    """Return ``x_i · matrix[columns]`` [n, k]."""
    columns = chosen.columns
    if single_on_cpu(x, matrix):
        dots = torch.empty(columns.shape)
        fill = partial(chosen_dots, _array(x), _array(matrix), _array(columns), dots.numpy())
        over_rows(fill, len(x), torch.get_num_threads())
        return dots
    # Rows are gathered for some tokens at a time.
    step = max(1, GATHERED // max(1, x.shape[1] * columns.shape[1]))
    pairs = zip(x[:, :, None].to(matrix.dtype).split(step), columns.split(step), strict=True)
    return torch.cat([torch.bmm(matrix[column], token)[:, :, 0] for token, column in pairs])


def _sums(weights: Tensor, chosen: Chosen, matrix: Tensor) -> Tensor:
    """Return ``Σ_p weights_p · matrix[columns_p]`` over each token's k columns [n, d]."""
    return F.embedding_bag(
        chosen.columns, matrix, mode="sum", per_sample_weights=weights.to(matrix.dtype)
    )


def _spread(weights: Tensor, chosen: Chosen, x: Tensor, size: int) -> Tensor:
    """Return the sum of ``weights[i, p] · x_i`` over the choices of each column [size, d]."""
    columns = chosen.columns
    token = torch.arange(len(columns), device=x.device).repeat_interleave(columns.shape[1])
    weights, order = weights.ravel(), chosen.by_column
    return sum_by_group(weights, columns.ravel(), token, x.contiguous(), size, order)
