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
    x: Tensor,
    text: Tensor,
    num_texts: int,
    rows: Tensor,
    bias: Tensor,
    k: int | None,
    threshold: Tensor | None = None,
) -> Tensor:
    """``max_i f(rows · x_i + bias)`` over each text's tokens, of each token's k largest.

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
    """``Σ_i log(1 + f(rows · x_i + bias))``; arguments as in ``pool_max_reference``."""
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
    """Fast twin of ``pool_max_reference``: its gradient reaches one token per text and dimension.

    Among tokens with equal activations the first gets it, where the reference shares it out.
    Under autocast the low precision only chooses the winners; their values are exact.
    """
    x = x.to(rows.dtype)  # autocast leaves them different
    if not (torch.is_grad_enabled() or torch.is_autocast_enabled(x.device.type)):
        # Nobody asks for the winners.
        if k is None or k >= len(rows):
            return _maxima(x, text, num_texts, rows, bias, threshold)
        flat, _, _ = _scattered(x, text, num_texts, rows, bias, k, threshold)
        return flat.view(num_texts, len(rows))
    pooled: Tensor = _PoolMax.apply(  # type: ignore[no-untyped-call]
        x, text, num_texts, rows, bias, k, threshold
    )
    return pooled


def pool_sum(
    x: Tensor,
    text: Tensor,
    num_texts: int,
    rows: Tensor,
    bias: Tensor,
    k: int | None,
    threshold: Tensor | None = None,
) -> Tensor:
    """Fast twin of ``pool_sum_reference``: activations are computed again in the backward pass."""
    pooled = rows.new_zeros(num_texts, len(rows))
    for part in torch.arange(len(x), device=x.device).split(_chunk(rows)):
        arguments = (x[part], text[part], num_texts, rows, bias, k, threshold)
        pooled = pooled + checkpoint(pool_sum_reference, *arguments, use_reentrant=False)
    return pooled


@torch.no_grad()
def top_activations(
    x: Tensor, rows: Tensor, bias: Tensor, k: int | None, threshold: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Each token's k largest activations and their dimensions, both [n, k], unordered, without
    gradient.

    For k None there are as many columns as the token with most active dimensions needs. A
    dimension of activation 0 may be any.
    """
    width = min(k or 1, len(rows))
    acts = x.new_zeros(len(x), width)
    dimensions = torch.zeros(len(x), width, dtype=torch.long, device=x.device)
    step = _chunk(rows)
    for start in range(0, len(x), step):
        pre = torch.addmm(bias, x[start : start + step], rows.T)
        if threshold is not None:
            pre = fire(pre, threshold)
        if k is None:
            width = max(width, int((pre > 0).sum(dim=1).max()))
            acts, dimensions = (_widened(part, width) for part in (acts, dimensions))
        found = top_columns(pre, width)
        # Kept in one place: small parts between the large ones would keep memory from its reuse.
        dimensions[start : start + step] = found
        acts[start : start + step] = F.relu(pre.gather(1, found))
    return acts, dimensions


def _widened(part: Tensor, width: int) -> Tensor:
    """Columns of zeros added where there are fewer."""
    return F.pad(part, (0, width - part.shape[1])) if width > part.shape[1] else part


def fire(pre: Tensor, threshold: Tensor | None) -> Tensor:
    """Activations from pre-activations [n, V]: ReLU, or JumpReLU of thresholds [V] that are at
    least 0 (Rajamanoharan et al. 2024b, equation 3). A NaN stays one."""
    return F.relu(pre) if threshold is None else pre.masked_fill(pre <= threshold, 0.0)


def _acts(x: Tensor, rows: Tensor, bias: Tensor, k: int | None, threshold: Tensor | None) -> Tensor:
    # Sums need the rows' precision.
    acts = fire(torch.addmm(bias, x, rows.T), threshold).to(rows.dtype)
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
        threshold: Tensor | None,
    ) -> Tensor:
        order = torch.argsort(text, stable=True)
        x, text = x[order], text[order]
        if k is None or k >= len(rows):
            pooled, winners = _winners_of_all(x, text, num_texts, rows, bias, threshold)
        else:
            pooled, winners = _winners_of_top(x, text, num_texts, rows, bias, k, threshold)
        if torch.is_autocast_enabled(x.device.type):
            pooled, winners = _exact(x, num_texts, rows, bias, threshold, winners)
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
        return grad_x, None, None, grad_rows, grad_bias, None, None


Winners = tuple[Tensor, Tensor, Tensor]
"""Token, text and dimension of every entry of the pooled result that is not 0."""


def _maxima(
    x: Tensor, text: Tensor, num_texts: int, rows: Tensor, bias: Tensor, threshold: Tensor | None
) -> Tensor:
    """The pooled result of all dimensions: f is monotone, so that the maximum may come first."""
    order = torch.argsort(text, stable=True)
    pooled = x.new_zeros(num_texts, len(rows))
    for part in order.split(_chunk(rows)):
        pre = torch.addmm(bias, x[part], rows.T)
        for name, start, end in _segments(text[part]):
            pooled[name] = torch.maximum(pooled[name], pre[start:end].amax(dim=0))
    return pooled if threshold is None else fire(pooled, threshold)


def _winners_of_all(
    x: Tensor, text: Tensor, num_texts: int, rows: Tensor, bias: Tensor, threshold: Tensor | None
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
    if threshold is not None:
        pooled = fire(pooled, threshold)
    where, dimension = torch.nonzero(pooled, as_tuple=True)  # a NaN must not get lost
    return pooled, (first[where, dimension], where, dimension)


def _scattered(
    x: Tensor,
    text: Tensor,
    num_texts: int,
    rows: Tensor,
    bias: Tensor,
    k: int,
    threshold: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The pooled result, flat, and of every token's k largest the place in it and the value."""
    found, kept = top_activations(x, rows, bias, k, threshold)
    places = (text[:, None] * len(rows) + kept).ravel()
    acts = found.to(x.dtype).ravel()
    flat = x.new_zeros(num_texts * len(rows)).scatter_reduce(0, places, acts, "amax")
    return flat, places, acts


def _exact(
    x: Tensor,
    num_texts: int,
    rows: Tensor,
    bias: Tensor,
    threshold: Tensor | None,
    winners: Winners,
) -> tuple[Tensor, Winners]:
    """The winners' activations in the precision of x and rows; those that do not fire go."""
    token, where, dimension = winners
    parts = torch.arange(len(token), device=x.device).split(PAIRS)
    values = [(x[token[p]] * rows[dimension[p]]).sum(dim=1) + bias[dimension[p]] for p in parts]
    pooled = x.new_zeros(num_texts, len(rows))
    of_winners = None if threshold is None else threshold[dimension]
    pooled[where, dimension] = fire(torch.cat(values), of_winners)
    fired = pooled[where, dimension] != 0
    return pooled, (token[fired], where[fired], dimension[fired])


def _winners_of_top(
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
