"""Some outputs of a linear map, as entries (token, output) instead of an array of tokens × outputs,
and sums of rows over entries.

Outputs are chosen by number (``chosen_outputs``) or by a floor (``outputs_above``). Time and memory
of all but the search by floor are in proportion to the entries, forward and backward.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from lexicept.ops.compiled import over_rows
from lexicept.ops.linear_topk import TOKENS, tiles, tokens_at_once
from lexicept.ops.quantisation import (
    Quantised,
    choose_by_bytes,
    products,
    quantised,
    worst_errors,
)
from lexicept.ops.tile_kernels import (
    add_products,
    count_above,
    count_over,
    fill_above,
    fill_over,
    ragged_dots,
)
from lexicept.vectors import Integers

GATHERED = 2**22
"""Most gathered numbers in memory at once, if no kernel reads the rows in place."""


class Entries(NamedTuple):
    """Some outputs of every token, token by token."""

    starts: Tensor
    """Place of each token's first entry, and the number of entries [n + 1]."""
    columns: Tensor
    """Output of each entry."""

    @property
    def tokens(self) -> Tensor:
        """Token of each entry."""
        numbers = torch.arange(len(self.starts) - 1, device=self.starts.device)
        return numbers.repeat_interleave(self.starts.diff())

    @classmethod
    def of(cls, tokens: Tensor, columns: Tensor, n: int) -> Entries:
        """Group entries in any order by their tokens, numbers below n."""
        order = torch.argsort(tokens, stable=True)
        return cls(_starts(torch.bincount(tokens, minlength=n)), columns[order])

    @classmethod
    def chosen(cls, columns: Tensor) -> Entries:
        """Return k entries of every token, from columns [n, k]."""
        n, k = columns.shape
        return cls(torch.arange(n + 1, device=columns.device) * k, columns.ravel())

    def where(self, mask: Tensor) -> Entries:
        """Return the entries that a mask selects."""
        counted = F.pad(mask.long().cumsum(0), (1, 0))
        return Entries(counted[self.starts], self.columns[mask])


def chosen_outputs_reference(x: Tensor, matrix: Tensor, bias: Tensor, chosen: Tensor) -> Tensor:
    """Return ``matrix[j] · x_i + bias[j]`` for the chosen j of every token [n, k].

    Args:
        x: tokens [n, d].
        matrix, bias: [M, d] and [M].
        chosen: numbers of rows [n, k].
    """
    return torch.einsum("nd,nkd->nk", x, matrix[chosen]) + bias[chosen]


def chosen_outputs(x: Tensor, matrix: Tensor, bias: Tensor, chosen: Tensor) -> Tensor:
    """Fast version of ``chosen_outputs_reference``."""
    entries = Entries.chosen(chosen)
    outputs: Tensor = _Outputs.apply(x, matrix, bias, *entries, chosen.shape[1])  # type: ignore[no-untyped-call]
    return outputs.view(chosen.shape)


def sum_chosen_reference(weights: Tensor, chosen: Tensor, matrix: Tensor) -> Tensor:
    """Return ``Σ_j weights_ij · matrix[chosen_ij]`` [n, d], from weights and row numbers [n, k]."""
    return torch.einsum("nk,nkd->nd", weights, matrix[chosen])


def sum_chosen(weights: Tensor, chosen: Tensor, matrix: Tensor) -> Tensor:
    """Fast version of ``sum_chosen_reference``."""
    entries = Entries.chosen(chosen)
    sums: Tensor = _Sums.apply(weights.ravel(), *entries, matrix, chosen.shape[1])  # type: ignore[no-untyped-call]
    return sums


def entry_outputs_reference(x: Tensor, matrix: Tensor, bias: Tensor, entries: Entries) -> Tensor:
    """Return ``matrix[j] · x_i + bias[j]`` of entries."""
    products_of = (x[entries.tokens] * matrix[entries.columns]).sum(dim=1)
    return products_of + bias[entries.columns]


def entry_outputs(x: Tensor, matrix: Tensor, bias: Tensor, entries: Entries) -> Tensor:
    """Fast version of ``entry_outputs_reference``."""
    outputs: Tensor = _Outputs.apply(x, matrix, bias, *entries, None)  # type: ignore[no-untyped-call]
    return outputs


def sum_entries_reference(weights: Tensor, entries: Entries, matrix: Tensor) -> Tensor:
    """Return the sum of ``weights_p · matrix[columns_p]`` over each token's entries p, [n, d]."""
    sums = matrix.new_zeros(len(entries.starts) - 1, matrix.shape[1])
    return sums.index_add(0, entries.tokens, weights[:, None] * matrix[entries.columns])


def sum_entries(weights: Tensor, entries: Entries, matrix: Tensor) -> Tensor:
    """Fast version of ``sum_entries_reference``."""
    sums: Tensor = _Sums.apply(weights, *entries, matrix, None)  # type: ignore[no-untyped-call]
    return sums


def sum_products_reference(values: Tensor, entries: Entries, matrix: Tensor) -> Tensor:
    """Return for each column j the sum of ``values_i · matrix[j]`` over its entries [M].

    Args:
        values: [n, d].
        entries: columns ascend in each token.
        matrix: [M, d].
    """
    products_of = (values[entries.tokens] * matrix[entries.columns]).sum(dim=1)
    return values.new_zeros(len(matrix)).index_add(0, entries.columns, products_of)


@torch.no_grad()
def sum_products(values: Tensor, entries: Entries, matrix: Tensor) -> Tensor:
    """Fast version of ``sum_products_reference``, without gradient."""
    if not (values.dtype == matrix.dtype == torch.float32 and values.device.type == "cpu"):
        products_of = _dots(values, matrix, entries)
        return values.new_zeros(len(matrix)).index_add(0, entries.columns, products_of)
    sums = torch.zeros(len(matrix), dtype=torch.float64)
    arrays = [each.detach().contiguous().numpy() for each in (*entries, values, matrix, sums)]
    over_rows(add_products, len(matrix), torch.get_num_threads(), *arrays)
    return sums.float()


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
    order = torch.argsort(group, stable=True)
    ends = torch.bincount(group, minlength=n).cumsum(0)
    starts = F.pad(ends[:-1], (1, 0))
    return F.embedding_bag(
        chosen[order],
        matrix,
        starts,
        mode="sum",
        per_sample_weights=weights[order].to(matrix.dtype),
    )


class _Outputs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        matrix: Tensor,
        bias: Tensor,
        starts: Tensor,
        columns: Tensor,
        per_token: int | None,
    ) -> Tensor:
        ctx.save_for_backward(x, matrix, starts, columns)
        ctx.per_token = per_token
        return _dots(x, matrix, Entries(starts, columns), per_token) + bias[columns]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, matrix, starts, columns = ctx.saved_tensors
        of_x, of_rows, of_bias, *_ = ctx.needs_input_grad
        entries = Entries(starts, columns)
        zeros = gradient.new_zeros(len(matrix))
        return (
            _sums(gradient, entries, matrix) if of_x else None,
            _spread(gradient, entries, x, len(matrix), ctx.per_token) if of_rows else None,
            zeros.index_add(0, columns, gradient) if of_bias else None,
            None,
            None,
            None,
        )


class _Sums(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        weights: Tensor,
        starts: Tensor,
        columns: Tensor,
        matrix: Tensor,
        per_token: int | None,
    ) -> Tensor:
        ctx.save_for_backward(weights, starts, columns, matrix)
        ctx.per_token = per_token
        return _sums(weights, Entries(starts, columns), matrix)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        weights, starts, columns, matrix = ctx.saved_tensors
        entries = Entries(starts, columns)
        of_weights, _, _, of_rows, _ = ctx.needs_input_grad
        return (
            _dots(gradient, matrix, entries, ctx.per_token) if of_weights else None,
            None,
            None,
            _spread(weights, entries, gradient, len(matrix), ctx.per_token) if of_rows else None,
            None,
        )


def _dots(x: Tensor, matrix: Tensor, entries: Entries, per_token: int | None = None) -> Tensor:
    """Return ``x_i · matrix[j]`` of entries.

    Args:
        per_token: number of entries of every token; None for any numbers.
    """
    if x.dtype == matrix.dtype == torch.float32 and x.device.type == "cpu":
        dots = np.empty(len(entries.columns), np.float32)
        arrays = [each.detach().contiguous().numpy() for each in (x, matrix, *entries)]
        over_rows(ragged_dots, len(x), torch.get_num_threads(), *arrays, dots)
        return torch.from_numpy(dots)
    step = max(1, GATHERED // max(1, x.shape[1]))
    if per_token:
        # A batched product gathers no tokens.
        columns = entries.columns.view(-1, per_token).split(max(1, step // per_token))
        tokens = x[:, :, None].to(matrix.dtype).split(max(1, step // per_token))
        pairs = zip(tokens, columns, strict=True)
        chunks = [torch.bmm(matrix[column], token).ravel() for token, column in pairs]
    else:
        pairs = zip(entries.tokens.split(step), entries.columns.split(step), strict=True)
        chunks = [torch.einsum("pd,pd->p", x[token], matrix[column]) for token, column in pairs]
    return torch.cat(chunks) if chunks else x.new_zeros(0)


def _sums(weights: Tensor, entries: Entries, matrix: Tensor) -> Tensor:
    """Return ``Σ_p weights_p · matrix[columns_p]`` over each token's entries p [n, d]."""
    return F.embedding_bag(
        entries.columns,
        matrix,
        entries.starts[:-1],
        mode="sum",
        per_sample_weights=weights.to(matrix.dtype),
    )


def _spread(
    weights: Tensor, entries: Entries, x: Tensor, size: int, per_token: int | None
) -> Tensor:
    """Return for row j the sum of ``weights_p · x_i`` over its entries p [size, d]."""
    if per_token is None:
        tokens = entries.tokens
    else:  # of known number: a GPU does not wait for a sum
        tokens = torch.arange(len(x), device=x.device).repeat_interleave(per_token)
    return sum_by_group(weights, entries.columns, tokens, x.contiguous(), size)


def entries_above_reference(x: Tensor, matrix: Tensor, bias: Tensor, floor: Tensor) -> Entries:
    """Return the entries with ``matrix[j] · x_i + bias[j] > floor[j]``, columns ascending.

    Args:
        x: tokens [n, d].
        matrix, bias: [M, d] and [M].
        floor: [M] or [].
    """
    tokens, columns = (torch.addmm(bias, x, matrix.T) > floor).nonzero(as_tuple=True)
    return Entries.of(tokens, columns, len(x))


def entries_above(x: Tensor, matrix: Tensor, bias: Tensor, floor: Tensor) -> Entries:
    """Fast version of ``entries_above_reference``, without gradient; see ``outputs_above``."""
    return outputs_above(x, matrix, bias, floor)[0]


@torch.no_grad()
def outputs_above(x: Tensor, matrix: Tensor, bias: Tensor, floor: Tensor) -> tuple[Entries, Tensor]:
    """Return the entries of ``entries_above_reference`` and their outputs, without gradient.

    A token with a NaN among its outputs has an entry for the first NaN, which must not get lost.
    """
    x, matrix, bias = (each.detach().contiguous() for each in (x, matrix, bias))
    with torch.autocast(x.device.type, enabled=False):
        if choose_by_bytes(x, matrix):
            floors = floor.detach().expand(len(matrix)).contiguous()
            chunks = [_by_bytes(tokens, matrix, bias, floors) for tokens in x.split(TOKENS)]
            finite = [chunk for chunk in chunks if chunk is not None]
            if len(finite) == len(chunks):
                return _concatenated(finite)
        return _by_slices(x, matrix, bias, floor)


def _by_slices(x: Tensor, matrix: Tensor, bias: Tensor, floor: Tensor) -> tuple[Entries, Tensor]:
    """Compute all outputs for some tokens at a time."""
    single = x.dtype == matrix.dtype == torch.float32 and x.device.type == "cpu"
    find = scan if single else scan_reference
    floors = floor.detach().to(x.dtype).expand(len(matrix)).contiguous()
    chunks = [
        find(torch.addmm(bias, tokens, matrix.T), floors)
        for tokens in x.split(tokens_at_once(matrix))
    ]
    if not chunks:
        none = torch.zeros(0, dtype=torch.long, device=x.device)
        return Entries(none.new_zeros(1), none), x.new_zeros(0)
    return _concatenated(chunks)


def scan_reference(pre: Tensor, floor: Tensor) -> tuple[Entries, Tensor]:
    """Return the entries of outputs [n, M] above floors [M], and each token's first NaN."""
    above = pre > floor
    if bool((lost := pre.isnan()).any()):
        above |= lost & (lost.cumsum(1) == 1)
    starts = F.pad(above.sum(dim=1).cumsum(0), (1, 0))
    return Entries(starts, above.nonzero(as_tuple=True)[1]), pre[above]


def scan(pre: Tensor, floor: Tensor) -> tuple[Entries, Tensor]:
    """Fast version of ``scan_reference``: one pass counts, so that another has room to write."""
    threads, arrays = torch.get_num_threads(), [pre.numpy(), floor.numpy()]
    counts = np.zeros(len(pre), np.int64)
    over_rows(count_over, len(pre), threads, *arrays, counts)
    starts = np.concatenate([[0], np.cumsum(counts)])
    columns, outputs = np.empty(starts[-1], np.int64), np.empty(starts[-1], np.float32)
    over_rows(fill_over, len(pre), threads, *arrays, starts, counts, columns, outputs)
    written = _written(starts, counts)
    entries = Entries(_starts(torch.from_numpy(counts)), torch.from_numpy(columns[written]))
    return entries, torch.from_numpy(outputs[written])


def _written(starts: Integers, counts: Integers) -> Integers:
    """Return the written places: the first of each token's room."""
    room = np.diff(starts)
    places: Integers = np.flatnonzero(
        np.arange(starts[-1]) - np.repeat(starts[:-1], room) < np.repeat(counts, room)
    )
    return places


def _starts(counts: Tensor) -> Tensor:
    """Return the place of each token's first entry, and the number of entries [n + 1]."""
    return F.pad(counts.cumsum(0), (1, 0))


def _concatenated(chunks: list[tuple[Entries, Tensor]]) -> tuple[Entries, Tensor]:
    """Return the entries and outputs of neighbouring tokens as one."""
    counts = torch.cat([entries.starts.diff() for entries, _ in chunks])
    columns = torch.cat([entries.columns for entries, _ in chunks])
    outputs = torch.cat([outputs for _, outputs in chunks])
    return Entries(_starts(counts), columns), outputs


def _by_bytes(
    x: Tensor, matrix: Tensor, bias: Tensor, floor: Tensor
) -> tuple[Entries, Tensor] | None:
    """Search tiles, with products of 8 bits to choose the candidates; None if a number is not
    finite."""
    short, threads = quantised(x), torch.get_num_threads()
    tokens, columns, outputs = [], [], []
    for tile in tiles(len(x), matrix):
        scores = short_scores(short, quantised(matrix[tile]), bias[tile], floor[tile])
        if scores is None:
            return None
        # A pass counts the candidates of each token; another computes and writes exact outputs.
        counts = np.zeros(len(x), np.int64)
        over_rows(count_above, len(x), threads, *scores, counts)
        starts = np.concatenate([[0], np.cumsum(counts)])
        candidates, values = np.empty(starts[-1], np.int64), np.empty(starts[-1], np.float32)
        arrays = [each.numpy() for each in (x, matrix[tile], bias[tile], floor[tile])]
        over_rows(fill_above, len(x), threads, *scores, *arrays, starts, counts, candidates, values)
        written = _written(starts, counts)
        columns.append(candidates[written] + tile.start)
        outputs.append(values[written])
        tokens.append(np.repeat(np.arange(len(x)), counts))
    token = torch.from_numpy(np.concatenate(tokens))
    order = torch.argsort(token, stable=True)
    entries = Entries(
        _starts(torch.bincount(token, minlength=len(x))),
        torch.from_numpy(np.concatenate(columns))[order],
    )
    return entries, torch.from_numpy(np.concatenate(outputs))[order]


def short_scores(
    x: Quantised, tile: Quantised, bias: Tensor, floor: Tensor
) -> list[np.ndarray] | None:
    """Compute outputs less their floors from products of 8 bits, for the kernels of
    ``ops.tile_kernels``.

    Args:
        x, tile: tokens [n, d] and rows [T, d].
        bias, floor: [T]

    Returns:
        The first six arguments of ``count_above``; None if a number is not finite.
    """
    worst, factors = worst_errors(tile, bias.abs() + floor.abs()), x.factors()
    if not bool((factors.sum() * worst.sum()).isfinite()):
        return None
    tensors = (products(x, tile), x.scales, factors, tile.scales, bias - floor, worst)
    return [tensor.numpy() for tensor in tensors]
