"""A linear map over tokens, pooled to texts, without an array of tokens × vocabulary."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from lexicept.ops.chosen import sum_by_group
from lexicept.ops.linear_max import largest_outputs
from lexicept.ops.linear_topk import CHUNK_CELLS, fire, top_activations
from lexicept.ops.topk import top_columns_reference


def pool_max_reference(
    x: Tensor,
    text: Tensor,
    num_texts: int,
    rows: Tensor,
    bias: Tensor,
    k: int | None,
    threshold: Tensor | None = None,
) -> Tensor:
    """Return ``max_i f(rows · x_i + bias)`` over each text's tokens, of each token's k largest.

    Args:
        x: tokens [n, d].
        text: the text of each token [n].
        num_texts: texts, some perhaps without tokens.
        rows, bias: [V, d] and [V].
        k: entries of a token that count; None for all V.
        threshold: [V], at least 0; f(v) is v above it and 0 elsewhere. None is ReLU. It gets no
            gradient.

    Returns:
        [num_texts, V]; zero where nothing fires.
    """
    acts = _acts(x, rows, bias, k, threshold)
    pooled = acts.new_zeros(num_texts, len(rows))
    return pooled.scatter_reduce(0, text[:, None].expand_as(acts), acts, "amax")


def pool_sum_reference(
    x: Tensor,
    text: Tensor,
    num_texts: int,
    rows: Tensor,
    bias: Tensor,
    k: int | None,
    threshold: Tensor | None = None,
) -> Tensor:
    """Return ``Σ_i log(1 + f(rows · x_i + bias))``; arguments as in ``pool_max_reference``."""
    acts = torch.log1p(_acts(x, rows, bias, k, threshold))
    return acts.new_zeros(num_texts, len(rows)).index_add(0, text, acts)


def pool_max(
    x: Tensor,
    text: Tensor,
    num_texts: int,
    rows: Tensor,
    bias: Tensor,
    k: int | None,
    threshold: Tensor | None = None,
) -> Tensor:
    """Fast version of ``pool_max_reference``: the gradient reaches one token per maximum.

    Among tokens with equal activations the first gets it, where the reference shares it out.
    Under autocast values are still of the precision of the rows.
    """
    x = x.to(rows.dtype)  # autocast leaves them different
    if torch.is_grad_enabled():
        arguments = (x, text, num_texts, rows, bias, k, threshold)
        pooled: Tensor = _PoolMax.apply(*arguments)  # type: ignore[no-untyped-call]
        return pooled
    if k is None or k >= len(rows):
        return _pool_all(x, text, num_texts, rows, bias, threshold)[0]
    flat, _, _ = _scattered(x, text, num_texts, rows, bias, k, threshold)
    return flat.view(num_texts, len(rows))


def pool_sum(
    x: Tensor,
    text: Tensor,
    num_texts: int,
    rows: Tensor,
    bias: Tensor,
    k: int | None,
    threshold: Tensor | None = None,
) -> Tensor:
    """Fast version of ``pool_sum_reference``: the backward pass recomputes activations."""
    pooled = rows.new_zeros(num_texts, len(rows))
    for part in torch.arange(len(x), device=x.device).split(_chunk(rows)):
        arguments = (x[part], text[part], num_texts, rows, bias, k, threshold)
        pooled = pooled + checkpoint(pool_sum_reference, *arguments, use_reentrant=False)
    return pooled


def _acts(x: Tensor, rows: Tensor, bias: Tensor, k: int | None, threshold: Tensor | None) -> Tensor:
    # Sums need the rows' precision.
    acts = fire(torch.addmm(bias, x, rows.T), threshold).to(rows.dtype)
    if k is None or k >= len(rows):
        return acts
    kept = top_columns_reference(acts.detach(), k)
    return acts * torch.zeros_like(acts).scatter(1, kept, 1.0)


def _chunk(rows: Tensor) -> int:
    return max(1, CHUNK_CELLS // len(rows))


class _PoolMax(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        text: Tensor,
        num_texts: int,
        rows: Tensor,
        bias: Tensor,
        k: int | None,
        threshold: Tensor | None,
    ) -> Tensor:
        if k is None or k >= len(rows):
            pooled, token = _pool_all(x, text, num_texts, rows, bias, threshold)
            where, dimension = torch.nonzero(pooled, as_tuple=True)  # a NaN must not get lost
            winners = (token[where, dimension], where, dimension)
        else:
            pooled, winners = _pool_top(x, text, num_texts, rows, bias, k, threshold)
        ctx.save_for_backward(x, rows, *winners)
        return pooled

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, rows, token, where, dimension = ctx.saved_tensors
        along = gradient[where, dimension]
        of_x, _, _, of_rows, of_bias, *_ = ctx.needs_input_grad
        return (
            sum_by_group(along, token, dimension, rows, len(x)) if of_x else None,
            None,
            None,
            sum_by_group(along, dimension, token, x, len(rows)) if of_rows else None,
            rows.new_zeros(len(rows)).index_add(0, dimension, along) if of_bias else None,
            None,
            None,
        )


Winners = tuple[Tensor, Tensor, Tensor]
"""Token, text and dimension of every entry of the pooled result that is not 0."""


def _pool_all(
    x: Tensor, text: Tensor, num_texts: int, rows: Tensor, bias: Tensor, threshold: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the pooled result of all dimensions and its tokens, both [num_texts, V]: f is
    monotone, so the maximum may come first."""
    order = torch.argsort(text, stable=True)
    pooled, token = largest_outputs(x[order], text[order], num_texts, rows, bias)
    if threshold is not None:
        pooled = fire(pooled, threshold)
    return pooled, order[token] if len(order) else token


def _scattered(
    x: Tensor,
    text: Tensor,
    num_texts: int,
    rows: Tensor,
    bias: Tensor,
    k: int,
    threshold: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the flat pooled result, and the places in it and values of each token's k largest."""
    activations, kept = top_activations(x, rows, bias, k, threshold)
    places = (text[:, None] * len(rows) + kept).ravel()
    acts = activations.to(x.dtype).ravel()
    flat = x.new_zeros(num_texts * len(rows)).scatter_reduce(0, places, acts, "amax")
    return flat, places, acts


def _pool_top(
    x: Tensor,
    text: Tensor,
    num_texts: int,
    rows: Tensor,
    bias: Tensor,
    k: int,
    threshold: Tensor | None,
) -> tuple[Tensor, Winners]:
    flat, places, acts = _scattered(x, text, num_texts, rows, bias, k, threshold)
    won = torch.nonzero(((acts == flat[places]) & (acts > 0)) | acts.isnan()).ravel()
    # Several tokens may reach the same maximum: the first one counts.
    cells, group = torch.unique(places[won], return_inverse=True)
    first = torch.full_like(cells, len(places)).scatter_reduce(0, group, won, "amin")
    winners = (first // k, cells // len(rows), cells % len(rows))
    return flat.view(num_texts, len(rows)), winners
