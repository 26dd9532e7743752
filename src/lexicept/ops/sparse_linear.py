"""Some outputs of a linear map, as entries (token, output) instead of an array of tokens × outputs,
and sums of rows over entries.

Outputs are chosen by number (``chosen_outputs``) or by a floor (``outputs_above``). Time and memory
of all but the search by floor are in proportion to the entries, forward and backward.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from lexicept.ops.compiled import over_rows
from lexicept.ops.linear_topk import TOKENS, tiles, tokens_at_once
from lexicept.ops.quantisation import choose_by_bytes, quantised, single_on_cpu, worst_errors
from lexicept.ops.tile_kernels import (
    ShortScores,
    SomeOutputs,
    Tile,
    count_above,
    count_over,
    fill_above,
    fill_over,
    ragged_dots,
    sum_rows,
)

GATHERED = 2**22
"""Most gathered numbers in memory at once, if no kernel reads the rows in place."""


@dataclass(frozen=True)
class Entries:
    """Some outputs of every token, token by token."""

    starts: Tensor
    """Place of each token's first entry, and the number of entries [n + 1]."""
    columns: Tensor
    """Output of each entry."""
    per_token: int | None = None
    """Number of entries of every token; None for any numbers."""

    @property
    def tokens(self) -> Tensor:
        """Token of each entry."""
        numbers = torch.arange(len(self.starts) - 1, device=self.starts.device)
        if self.per_token is not None:  # a GPU does not wait for a sum
            return numbers.repeat_interleave(self.per_token)
        return numbers.repeat_interleave(self.starts.diff())

    @cached_property
    def by_column(self) -> Tensor:
        """The places of the entries, ordered by column."""
        return torch.argsort(self.columns, stable=True)

    @classmethod
    def of(cls, tokens: Tensor, columns: Tensor, n: int) -> Entries:
        """Group entries in any order by their tokens, numbers below n."""
        order = torch.argsort(tokens, stable=True)
        return cls(_starts(torch.bincount(tokens, minlength=n)), columns[order])

    @classmethod
    def chosen(cls, columns: Tensor) -> Entries:
        """Return k entries of every token, from columns [n, k]."""
        n, k = columns.shape
        return cls(torch.arange(n + 1, device=columns.device) * k, columns.ravel(), k)

    def where(self, mask: Tensor) -> Entries:
        """Return the entries that a mask selects."""
        counted = F.pad(mask.long().cumsum(0), (1, 0))
        return Entries(counted[self.starts], self.columns[mask])


def entry_outputs(x: Tensor, matrix: Tensor, bias: Tensor, entries: Entries) -> Tensor:
    """Return ``matrix[j] · x_i + bias[j]`` of entries.

    Args:
        x: tokens [n, d].
        matrix, bias: [M, d] and [M]."""
    outputs: Tensor = _Outputs.apply(x, matrix, bias, entries)  # type: ignore[no-untyped-call]
    return outputs


def chosen_outputs(x: Tensor, matrix: Tensor, bias: Tensor, chosen: Tensor) -> Tensor:
    """Return ``entry_outputs`` of k columns of every token [n, k]."""
    return entry_outputs(x, matrix, bias, Entries.chosen(chosen)).view(chosen.shape)


def sum_entries(weights: Tensor, entries: Entries, matrix: Tensor) -> Tensor:
    """Return the sum of ``weights_p · matrix[columns_p]`` over each token's entries p, [n, d]."""
    sums: Tensor = _Sums.apply(weights, entries, matrix)  # type: ignore[no-untyped-call]
    return sums


def sum_chosen(weights: Tensor, chosen: Tensor, matrix: Tensor) -> Tensor:
    """Return ``sum_entries`` of weights [n, k] of k columns of every token [n, k]."""
    return sum_entries(weights.ravel(), Entries.chosen(chosen), matrix)


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
    def forward(ctx: Any, x: Tensor, matrix: Tensor, bias: Tensor, entries: Entries) -> Tensor:
        ctx.save_for_backward(x, matrix)
        ctx.entries = entries
        return _dots(x, matrix, entries) + bias[entries.columns]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, matrix = ctx.saved_tensors
        of_x, of_rows, of_bias, _ = ctx.needs_input_grad
        zeros = gradient.new_zeros(len(matrix))
        return (
            _sums(gradient, ctx.entries, matrix) if of_x else None,
            _spread(gradient, ctx.entries, x, len(matrix)) if of_rows else None,
            zeros.index_add(0, ctx.entries.columns, gradient) if of_bias else None,
            None,
        )


class _Sums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, entries: Entries, matrix: Tensor) -> Tensor:
        ctx.save_for_backward(weights, matrix)
        ctx.entries = entries
        return _sums(weights, entries, matrix)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        weights, matrix = ctx.saved_tensors
        of_weights, _, of_rows = ctx.needs_input_grad
        return (
            _dots(gradient, matrix, ctx.entries) if of_weights else None,
            None,
            _spread(weights, ctx.entries, gradient, len(matrix)) if of_rows else None,
        )


def _array(tensor: Tensor) -> np.ndarray:
    """Return a tensor's numbers as kernels take them: contiguous."""
    return tensor.detach().contiguous().numpy()


def _dots(x: Tensor, matrix: Tensor, entries: Entries) -> Tensor:
    """Return ``x_i · matrix[j]`` of entries."""
    starts, columns, per_token = entries.starts, entries.columns, entries.per_token
    if single_on_cpu(x, matrix):
        dots = torch.empty(len(columns), dtype=torch.float32)
        fill = partial(
            ragged_dots, _array(x), _array(matrix), _array(starts), _array(columns), dots.numpy()
        )
        over_rows(fill, len(x), torch.get_num_threads())
        return dots
    # Rows are gathered for some entries at a time.
    step = max(1, GATHERED // max(1, x.shape[1]))
    if per_token:
        # A batched product gathers no tokens.
        chosen = columns.view(-1, per_token).split(max(1, step // per_token))
        tokens = x[:, :, None].to(matrix.dtype).split(max(1, step // per_token))
        pairs = zip(tokens, chosen, strict=True)
        chunks = [torch.bmm(matrix[column], token).ravel() for token, column in pairs]
    else:
        pairs = zip(entries.tokens.split(step), columns.split(step), strict=True)
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


def _spread(weights: Tensor, entries: Entries, x: Tensor, size: int) -> Tensor:
    """Return for row j the sum of ``weights_p · x_i`` over its entries p [size, d]."""
    order = entries.by_column
    return sum_by_group(weights, entries.columns, entries.tokens, x.contiguous(), size, order)


def entries_above(x: Tensor, matrix: Tensor, bias: Tensor, floor: Tensor) -> Entries:
    """Return the entries of ``outputs_above`` alone."""
    return outputs_above(x, matrix, bias, floor)[0]


@torch.no_grad()
def outputs_above(x: Tensor, matrix: Tensor, bias: Tensor, floor: Tensor) -> tuple[Entries, Tensor]:
    """Return the entries with ``matrix[j] · x_i + bias[j] > floor[j]``, columns ascending, and
    their outputs, without gradient.

    A token with a NaN among its outputs has an entry for the first NaN, which must not get lost.

    Args:
        x: tokens [n, d].
        matrix, bias: [M, d] and [M].
        floor: [M] or []."""
    x, matrix, bias = (each.detach().contiguous() for each in (x, matrix, bias))
    with torch.autocast(x.device.type, enabled=False):
        # One pass over the matrix for many tokens; a number that is not finite ends the attempt.
        if choose_by_bytes(x, matrix):
            floors = floor.detach().expand(len(matrix)).contiguous()
            chunks = [_by_bytes(tokens, matrix, bias, floors) for tokens in x.split(TOKENS)]
            finite = [chunk for chunk in chunks if chunk is not None]
            if len(finite) == len(chunks):
                return _concatenated(finite)
        return _by_slices(x, matrix, bias, floor)


def _by_slices(x: Tensor, matrix: Tensor, bias: Tensor, floor: Tensor) -> tuple[Entries, Tensor]:
    """Compute all outputs for some tokens at a time."""
    find = scan if single_on_cpu(x, matrix) else scan_reference
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
    # A NaN is above no floor: it would get lost.
    if bool((lost := pre.isnan()).any()):
        above |= lost & (lost.cumsum(1) == 1)
    starts = F.pad(above.sum(dim=1).cumsum(0), (1, 0))
    return Entries(starts, above.nonzero(as_tuple=True)[1]), pre[above]


def scan(pre: Tensor, floor: Tensor) -> tuple[Entries, Tensor]:
    """Fast version of ``scan_reference``: a pass counts, and a second pass has room to write."""
    threads, scores, floors = torch.get_num_threads(), pre.numpy(), floor.numpy()
    counts = np.zeros(len(pre), np.int64)
    over_rows(partial(count_over, scores, floors, counts), len(pre), threads)
    outputs = SomeOutputs.of(counts)
    over_rows(partial(fill_over, scores, floors, outputs), len(pre), threads)
    written = outputs.written()
    entries = Entries(_starts(torch.from_numpy(counts)), torch.from_numpy(outputs.columns[written]))
    return entries, torch.from_numpy(outputs.values[written])


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
    rounded, threads = quantised(x), torch.get_num_threads()
    factors = rounded.factors()
    tokens, columns, values = [], [], []
    for span in tiles(len(x), matrix):
        short = quantised(matrix[span])
        worst = worst_errors(short, bias[span].abs() + floor[span].abs())
        if not bool((factors.sum() * worst.sum()).isfinite()):
            return None
        tile = Tile(x.numpy(), matrix[span].numpy(), bias[span].numpy())
        floors = floor[span].numpy()
        scores = ShortScores.of(rounded, short, tile.bias - floors, factors.numpy(), worst)
        # A pass counts the candidates of each token; another computes and writes exact outputs.
        counts = np.zeros(len(x), np.int64)
        over_rows(partial(count_above, scores, counts), len(x), threads)
        outputs = SomeOutputs.of(counts)
        over_rows(partial(fill_above, scores, tile, floors, outputs), len(x), threads)
        written = outputs.written()
        columns.append(outputs.columns[written] + span.start)
        values.append(outputs.values[written])
        tokens.append(np.repeat(np.arange(len(x)), counts))
    # From tile by tile to token by token.
    token = torch.from_numpy(np.concatenate(tokens))
    order = torch.argsort(token, stable=True)
    entries = Entries(
        _starts(torch.bincount(token, minlength=len(x))),
        torch.from_numpy(np.concatenate(columns))[order],
    )
    return entries, torch.from_numpy(np.concatenate(values))[order]
