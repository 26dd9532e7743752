"""Outputs of a linear map above a floor, as entries (token, output) instead of an array of tokens ×
outputs, and sums over such entries.

Time and memory of all but the search are in proportion to the entries.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from lexicept.ops.candidates import (
    add_products,
    count_above,
    count_over,
    fill_above,
    fill_over,
    ragged_dots,
)
from lexicept.ops.chosen import GATHERED, sum_by_group
from lexicept.ops.compiled import over_rows
from lexicept.ops.linear_topk import TOKENS, tiles, tokens_at_once
from lexicept.ops.rounding import (
    Quantised,
    choose_by_bytes,
    products,
    quantised,
    worst_errors,
)
from lexicept.vectors import Integers


class Entries(NamedTuple):
    """Some outputs of every token, token by token."""

    starts: Tensor
    """Place of each token's first entry, and the number of entries [n + 1]."""
    columns: Tensor
    """Number of each entry's output."""

    @property
    def tokens(self) -> Tensor:
        """The token of each entry."""
        numbers = torch.arange(len(self.starts) - 1, device=self.starts.device)
        return numbers.repeat_interleave(self.starts.diff())

    @classmethod
    def of(cls, tokens: Tensor, columns: Tensor, n: int) -> Entries:
        """Group entries in any order by their tokens, which are below n."""
        order = torch.argsort(tokens, stable=True)
        return cls(_starts(torch.bincount(tokens, minlength=n)), columns[order])

    def where(self, kept: Tensor) -> Entries:
        """Return the entries that a mask keeps."""
        counted = F.pad(kept.long().cumsum(0), (1, 0))
        return Entries(counted[self.starts], self.columns[kept])


def entries_above_reference(x: Tensor, rows: Tensor, bias: Tensor, floor: Tensor) -> Entries:
    """Return the entries with ``rows[j] · x_i + bias[j] > floor[j]``, columns ascending.

    Args:
        x: tokens [n, d].
        rows, bias: [M, d] and [M].
        floor: [M] or [].
    """
    tokens, columns = (torch.addmm(bias, x, rows.T) > floor).nonzero(as_tuple=True)
    return Entries.of(tokens, columns, len(x))


def entries_above(x: Tensor, rows: Tensor, bias: Tensor, floor: Tensor) -> Entries:
    """Fast version of ``entries_above_reference``, without gradient; see ``outputs_above``."""
    return outputs_above(x, rows, bias, floor)[0]


@torch.no_grad()
def outputs_above(x: Tensor, rows: Tensor, bias: Tensor, floor: Tensor) -> tuple[Entries, Tensor]:
    """Return the entries of ``entries_above_reference`` and their outputs, without gradient.

    A token with a NaN among its outputs has an entry for the first one, so that it does not get
    lost.
    """
    x, rows, bias = (part.detach().contiguous() for part in (x, rows, bias))
    with torch.autocast(x.device.type, enabled=False):
        if choose_by_bytes(x, rows):
            floor = floor.detach().expand(len(rows)).contiguous()
            found = [_by_bytes(part, rows, bias, floor) for part in x.split(TOKENS)]
            if all(part is not None for part in found):
                return _joined([part for part in found if part is not None])
        return _by_slices(x, rows, bias, floor)


def _by_slices(x: Tensor, rows: Tensor, bias: Tensor, floor: Tensor) -> tuple[Entries, Tensor]:
    """Compute all outputs for some tokens at a time."""
    single = x.dtype == rows.dtype == torch.float32 and x.device.type == "cpu"
    find = scan if single else scan_reference
    floor = floor.detach().to(x.dtype).expand(len(rows)).contiguous()
    parts = [find(torch.addmm(bias, some, rows.T), floor) for some in x.split(tokens_at_once(rows))]
    if not parts:
        none = torch.zeros(0, dtype=torch.long, device=x.device)
        return Entries(none.new_zeros(1), none), x.new_zeros(0)
    return _joined(parts)


def scan_reference(pre: Tensor, floor: Tensor) -> tuple[Entries, Tensor]:
    """Return the entries of outputs [n, M] above floors [M], and each token's first NaN."""
    above = pre > floor
    if bool((lost := pre.isnan()).any()):
        above |= lost & (lost.cumsum(1) == 1)
    starts = F.pad(above.sum(dim=1).cumsum(0), (1, 0))
    return Entries(starts, above.nonzero(as_tuple=True)[1]), pre[above]


def scan(pre: Tensor, floor: Tensor) -> tuple[Entries, Tensor]:
    """Fast version of ``scan_reference``."""
    threads, arrays = torch.get_num_threads(), [pre.numpy(), floor.numpy()]
    counts = np.zeros(len(pre), np.int64)
    over_rows(count_over, len(pre), threads, *arrays, counts)
    starts = np.concatenate([[0], np.cumsum(counts)])
    columns, outputs = np.empty(starts[-1], np.int64), np.empty(starts[-1], np.float32)
    over_rows(fill_over, len(pre), threads, *arrays, starts, counts, columns, outputs)
    kept = _written(starts, counts)
    entries = Entries(_starts(torch.from_numpy(counts)), torch.from_numpy(columns[kept]))
    return entries, torch.from_numpy(outputs[kept])


def _written(starts: Integers, counts: Integers) -> Integers:
    """Return the places that are written: each token's first ones, of all it has room for."""
    room = np.diff(starts)
    kept: Integers = np.flatnonzero(
        np.arange(starts[-1]) - np.repeat(starts[:-1], room) < np.repeat(counts, room)
    )
    return kept


def _starts(counts: Tensor) -> Tensor:
    """Return the place of each token's first entry, and the number of entries [n + 1]."""
    return F.pad(counts.cumsum(0), (1, 0))


def _joined(parts: list[tuple[Entries, Tensor]]) -> tuple[Entries, Tensor]:
    """Return the entries and outputs of several parts of the tokens, one after another."""
    counts = torch.cat([entries.starts.diff() for entries, _ in parts])
    columns = torch.cat([entries.columns for entries, _ in parts])
    outputs = torch.cat([outputs for _, outputs in parts])
    return Entries(_starts(counts), columns), outputs


def _by_bytes(
    x: Tensor, rows: Tensor, bias: Tensor, floor: Tensor
) -> tuple[Entries, Tensor] | None:
    """Search tiles, with products of 8 bits to choose the candidates; None where a number is not
    finite."""
    short, threads = quantised(x), torch.get_num_threads()
    tokens, columns, outputs = [], [], []
    for part in tiles(len(x), rows):
        scores = short_scores(short, quantised(rows[part]), bias[part], floor[part])
        if scores is None:
            return None
        counts = np.zeros(len(x), np.int64)
        over_rows(count_above, len(x), threads, *scores, counts)
        starts = np.concatenate([[0], np.cumsum(counts)])
        found, values = np.empty(starts[-1], np.int64), np.empty(starts[-1], np.float32)
        arrays = [array.numpy() for array in (x, rows[part], bias[part], floor[part])]
        over_rows(fill_above, len(x), threads, *scores, *arrays, starts, counts, found, values)
        kept = _written(starts, counts)
        columns.append(found[kept] + part.start)
        outputs.append(values[kept])
        tokens.append(np.repeat(np.arange(len(x)), counts))
    place, *given = (torch.from_numpy(np.concatenate(each)) for each in (tokens, columns, outputs))
    order = torch.argsort(place, stable=True)
    columns_of, outputs_of = (part[order] for part in given)
    return Entries(_starts(torch.bincount(place, minlength=len(x))), columns_of), outputs_of


def short_scores(
    x: Quantised, tile: Quantised, bias: Tensor, floor: Tensor
) -> list[np.ndarray] | None:
    """Compute outputs less their floors from products of 8 bits, for the kernels of
    ``ops.candidates``.

    Args:
        x, tile: tokens [n, d] and rows [T, d].
        bias, floor: [T]

    Returns:
        The first six arguments of ``count_above``; None where a number is not finite.
    """
    worst, factors = worst_errors(tile, bias.abs() + floor.abs()), x.factors()
    if not bool((factors.sum() * worst.sum()).isfinite()):
        return None
    parts = (products(x, tile), x.scales, factors, tile.scales, bias - floor, worst)
    return [part.numpy() for part in parts]


def entry_outputs_reference(x: Tensor, rows: Tensor, bias: Tensor, entries: Entries) -> Tensor:
    """Return ``rows[j] · x_i + bias[j]`` of entries."""
    products = (x[entries.tokens] * rows[entries.columns]).sum(dim=1)
    return products + bias[entries.columns]


def entry_outputs(x: Tensor, rows: Tensor, bias: Tensor, entries: Entries) -> Tensor:
    """Fast version of ``entry_outputs_reference``."""
    outputs: Tensor = _Outputs.apply(x, rows, bias, *entries)  # type: ignore[no-untyped-call]
    return outputs


def sum_entries_reference(weights: Tensor, entries: Entries, rows: Tensor) -> Tensor:
    """Return the sum of ``weights_p · rows[columns_p]`` over each token's entries p, [n, d]."""
    sums = rows.new_zeros(len(entries.starts) - 1, rows.shape[1])
    return sums.index_add(0, entries.tokens, weights[:, None] * rows[entries.columns])


def sum_entries(weights: Tensor, entries: Entries, rows: Tensor) -> Tensor:
    """Fast version of ``sum_entries_reference``."""
    sums: Tensor = _Sums.apply(weights, *entries, rows)  # type: ignore[no-untyped-call]
    return sums


def sum_products_reference(values: Tensor, entries: Entries, rows: Tensor) -> Tensor:
    """Return for each column j the sum of ``values_i · rows[j]`` over its entries [M].

    Args:
        values: [n, d].
        entries: columns ascend in each token.
        rows: [M, d].
    """
    products = (values[entries.tokens] * rows[entries.columns]).sum(dim=1)
    return values.new_zeros(len(rows)).index_add(0, entries.columns, products)


@torch.no_grad()
def sum_products(values: Tensor, entries: Entries, rows: Tensor) -> Tensor:
    """Fast version of ``sum_products_reference``, without gradient."""
    if not (values.dtype == rows.dtype == torch.float32 and values.device.type == "cpu"):
        products = _dots(values, rows, entries)
        return values.new_zeros(len(rows)).index_add(0, entries.columns, products)
    sums = torch.zeros(len(rows), dtype=torch.float64)
    arrays = [part.detach().contiguous().numpy() for part in (*entries, values, rows, sums)]
    over_rows(add_products, len(rows), torch.get_num_threads(), *arrays)
    return sums.float()


class _Outputs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, rows: Tensor, bias: Tensor, starts: Tensor, columns: Tensor
    ) -> Tensor:
        ctx.save_for_backward(x, rows, starts, columns)
        return _dots(x, rows, Entries(starts, columns)) + bias[columns]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, rows, starts, columns = ctx.saved_tensors
        of_x, of_rows, of_bias, *_ = ctx.needs_input_grad
        entries = Entries(starts, columns)
        zeros = gradient.new_zeros(len(rows))
        return (
            _sums(gradient, entries, rows) if of_x else None,
            _spread(gradient, entries, x, len(rows)) if of_rows else None,
            zeros.index_add(0, columns, gradient) if of_bias else None,
            None,
            None,
        )


class _Sums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, starts: Tensor, columns: Tensor, rows: Tensor) -> Tensor:
        ctx.save_for_backward(weights, starts, columns, rows)
        return _sums(weights, Entries(starts, columns), rows)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        weights, starts, columns, rows = ctx.saved_tensors
        entries = Entries(starts, columns)
        of_weights, *_, of_rows = ctx.needs_input_grad
        return (
            _dots(gradient, rows, entries) if of_weights else None,
            None,
            None,
            _spread(weights, entries, gradient, len(rows)) if of_rows else None,
        )


def _dots(x: Tensor, rows: Tensor, entries: Entries) -> Tensor:
    """Return ``x_i · rows[j]`` of entries."""
    if x.dtype == rows.dtype == torch.float32 and x.device.type == "cpu":
        products = np.empty(len(entries.columns), np.float32)
        arrays = [part.detach().contiguous().numpy() for part in (x, rows, *entries)]
        over_rows(ragged_dots, len(x), torch.get_num_threads(), *arrays, products)
        return torch.from_numpy(products)
    step = max(1, GATHERED // x.shape[1])
    both = zip(entries.tokens.split(step), entries.columns.split(step), strict=True)
    parts = [torch.einsum("pd,pd->p", x[token], rows[column]) for token, column in both]
    return torch.cat(parts) if parts else x.new_zeros(0)


def _sums(weights: Tensor, entries: Entries, rows: Tensor) -> Tensor:
    """Return ``Σ_p weights_p · rows[columns_p]`` over each token's entries p [n, d]."""
    return F.embedding_bag(
        entries.columns, rows, entries.starts[:-1], mode="sum", per_sample_weights=weights
    )


def _spread(weights: Tensor, entries: Entries, x: Tensor, size: int) -> Tensor:
    """Return for row j the sum of ``weights_p · x_i`` over its entries p [size, d]."""
    return sum_by_group(weights, entries.columns, entries.tokens, x.contiguous(), size)
