"""A linear map over tokens, pooled to texts, without an array of tokens × vocabulary."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from lexicept.ops.topk import top_columns, top_columns_reference

CHUNK_CELLS = 2**22
"""Cells of tokens × vocabulary that exist at once: 16 MB, which memory is reused for."""

PAIRS = 2**16
"""Winners whose rows are gathered together in the backward pass."""


def pool_max_reference(
    x: Tensor, text: Tensor, num_texts: int, rows: Tensor, bias: Tensor, k: int | None
) -> Tensor:
    """``max_i ReLU(rows · x_i + bias)`` over each text's tokens, of each token's k largest.

    Args:
        x: tokens [n, d].
        text: the text of each token [n].
        num_texts: texts, some perhaps without tokens.
        rows, bias: [V, d] and [V].
        k: entries of a token that count; None for all V.

    Returns:
        [num_texts, V]; zero where nothing fires.
    """
    acts = _acts(x, rows, bias, k)
    pooled = acts.new_zeros(num_texts, len(rows))
    return pooled.scatter_reduce(0, text[:, None].expand_as(acts), acts, "amax")


def pool_sum_reference(
    x: Tensor, text: Tensor, num_texts: int, rows: Tensor, bias: Tensor, k: int | None
) -> Tensor:
    """``Σ_i log(1 + ReLU(rows · x_i + bias))``; arguments as in ``pool_max_reference``."""
    acts = torch.log1p(_acts(x, rows, bias, k))
    return acts.new_zeros(num_texts, len(rows)).index_add(0, text, acts)


def pool_max(
    x: Tensor, text: Tensor, num_texts: int, rows: Tensor, bias: Tensor, k: int | None
) -> Tensor:
    """Fast twin of ``pool_max_reference``: its gradient reaches one token per text and dimension.

    Among tokens with equal activations the first gets it, where the reference shares it out.
    Under autocast the low precision only chooses the winners; their values are exact.
    """
    x = x.to(rows.dtype)  # autocast leaves them different
    trains = torch.is_grad_enabled() or torch.is_autocast_enabled(x.device.type)
    if not trains and k is not None and k < len(rows):  # nobody asks for the winners
        flat, _, _ = _scattered(x, text, num_texts, rows, bias, k)
        return flat.view(num_texts, len(rows))
    pooled: Tensor = _PoolMax.apply(x, text, num_texts, rows, bias, k)  # type: ignore[no-untyped-call]
    return pooled


def pool_sum(
    x: Tensor, text: Tensor, num_texts: int, rows: Tensor, bias: Tensor, k: int | None
) -> Tensor:
    """Fast twin of ``pool_sum_reference``: activations are computed again in the backward pass."""
    pooled = rows.new_zeros(num_texts, len(rows))
    for part in torch.arange(len(x), device=x.device).split(_chunk(rows)):
        arguments = (x[part], text[part], num_texts, rows, bias, k)
        pooled = pooled + checkpoint(pool_sum_reference, *arguments, use_reentrant=False)
    return pooled


def _acts(x: Tensor, rows: Tensor, bias: Tensor, k: int | None) -> Tensor:
    acts = F.relu(torch.addmm(bias, x, rows.T)).to(rows.dtype)  # sums need its precision
    if k is None or k >= len(rows):
        return acts
    kept = top_columns_reference(acts.detach(), k)
    return acts * torch.zeros_like(acts).scatter(1, kept, 1.0)


def _chunk(rows: Tensor) -> int:
    return max(1, CHUNK_CELLS // len(rows))


def _segments(text: Tensor) -> Iterator[tuple[int, int, int]]:
    """Runs of one text among sorted tokens: text, start, end."""
    names, counts = torch.unique_consecutive(text, return_counts=True)
    start = 0
    for name, count in zip(names.tolist(), counts.tolist(), strict=True):
        yield name, start, start + count
        start += count


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
    ) -> Tensor:
        order = torch.argsort(text, stable=True)
        x, text = x[order], text[order]
        if k is None or k >= len(rows):
            pooled, winners = _winners_of_all(x, text, num_texts, rows, bias)
        else:
            pooled, winners = _winners_of_top(x, text, num_texts, rows, bias, k)
        if torch.is_autocast_enabled(x.device.type):
            pooled, winners = _exact(x, num_texts, rows, bias, winners)
        ctx.save_for_backward(x, rows, order, *winners)
        return pooled

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, rows, order, token, where, dimension = ctx.saved_tensors
        along = gradients[0][where, dimension]
        grad_x = torch.zeros_like(x) if ctx.needs_input_grad[0] else None
        grad_rows = torch.zeros_like(rows)
        for part in torch.arange(len(token), device=token.device).split(PAIRS):
            g, t, j = along[part, None], token[part], dimension[part]
            grad_rows.index_add_(0, j, g * x[t])
            if grad_x is not None:
                grad_x.index_add_(0, t, g * rows[j])
        grad_bias = rows.new_zeros(len(rows)).index_add_(0, dimension, along)
        if grad_x is not None:
            grad_x = torch.zeros_like(grad_x).index_copy_(0, order, grad_x)
        return grad_x, None, None, grad_rows, grad_bias, None


Winners = tuple[Tensor, Tensor, Tensor]
"""Token, text and dimension of every entry of the pooled result that is not 0."""


def _winners_of_all(
    x: Tensor, text: Tensor, num_texts: int, rows: Tensor, bias: Tensor
) -> tuple[Tensor, Winners]:
    pooled = x.new_zeros(num_texts, len(rows))
    first = torch.zeros(num_texts, len(rows), dtype=torch.long, device=x.device)
    step = _chunk(rows)
    for name, start, end in _segments(text):
        for begin in range(start, end, step):
            pre = torch.addmm(bias, x[begin : min(begin + step, end)], rows.T)
            best, token = pre.to(x.dtype).max(dim=0)
            better = (best > pooled[name]) | best.isnan()
            pooled[name] = torch.where(better, best, pooled[name])
            first[name] = torch.where(better, token + begin, first[name])
    where, dimension = torch.nonzero(~(pooled <= 0), as_tuple=True)  # a NaN must not get lost
    return pooled, (first[where, dimension], where, dimension)


def _scattered(
    x: Tensor, text: Tensor, num_texts: int, rows: Tensor, bias: Tensor, k: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The pooled result, flat, and of every token's k largest the place in it and the value."""
    tops = []
    for part in x.split(_chunk(rows)):
        pre = torch.addmm(bias, part, rows.T)
        kept = top_columns(pre, k)
        tops.append((F.relu(pre.gather(1, kept)).to(x.dtype), kept))
    acts, kept = (torch.cat(parts) for parts in zip(*tops, strict=True))
    places = (text[:, None] * len(rows) + kept).ravel()
    acts = acts.ravel()
    flat = x.new_zeros(num_texts * len(rows)).scatter_reduce(0, places, acts, "amax")
    return flat, places, acts


def _exact(
    x: Tensor, num_texts: int, rows: Tensor, bias: Tensor, winners: Winners
) -> tuple[Tensor, Winners]:
    """The winners' activations in the precision of x and rows; those that are not positive go."""
    token, where, dimension = winners
    parts = torch.arange(len(token), device=x.device).split(PAIRS)
    values = [(x[token[p]] * rows[dimension[p]]).sum(dim=1) + bias[dimension[p]] for p in parts]
    pooled = x.new_zeros(num_texts, len(rows))
    pooled[where, dimension] = F.relu(torch.cat(values))
    fired = ~(pooled[where, dimension] <= 0)
    return pooled, (token[fired], where[fired], dimension[fired])


def _winners_of_top(
    x: Tensor, text: Tensor, num_texts: int, rows: Tensor, bias: Tensor, k: int
) -> tuple[Tensor, Winners]:
    flat, places, acts = _scattered(x, text, num_texts, rows, bias, k)
    won = torch.nonzero(((acts == flat[places]) & (acts > 0)) | acts.isnan()).ravel()
    # Several tokens may reach the same maximum: the first one counts.
    cells, group = torch.unique(places[won], return_inverse=True)
    first = torch.full_like(cells, len(places)).scatter_reduce(0, group, won, "amin")
    winners = (first // k, cells // len(rows), cells % len(rows))
    return flat.view(num_texts, len(rows)), winners
