"""The largest outputs of a linear map for every token, without an array of tokens × outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lexicept.ops.compiled import LOOPED, by_work, over_rows
from lexicept.ops.quantisation import (
    LARGEST_DIM,
    Quantised,
    choose_by_bytes,
    multiplies_bytes,
    products,
    quantised,
    worst_errors,
)
from lexicept.ops.tile_kernels import (
    fill_up,
    keep_largest,
    keep_largest_of_bytes,
    keep_largest_reference,
)
from lexicept.ops.topk import top_columns
from lexicept.vectors import Floats, Integers

CHUNK_CELLS = 2**21
"""Most cells of tokens × outputs in memory at once: 8 MB, which are reused."""

TILE_CELLS = 2**19
"""Most cells of a tile, unless one output has more: 2 MB, which stay in a processor's cache."""

GPU_CELLS = 2**26
"""Most cells of either kind on a GPU, which needs large products to be busy: 256 MB."""

TOKENS = 2048
"""Tokens that share one pass over the rows."""

MANY = 64
"""Tokens from which one order of the factors is faster, and the largest k that tiles are scanned
for."""

SORTED = 1e-7
"""Seconds that NumPy takes to sort an entry, about."""


def top_activations_reference(
    x: Tensor, rows: Tensor, bias: Tensor, k: int, threshold: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return each token's k largest activations f(rows · x_i + bias) and their dimensions, both
    [n, k], unordered.

    Args:
        x: tokens [n, d].
        rows, bias: [V, d] and [V].
        k: at most V.
        threshold: [V], at least 0; f(v) is v above it and 0 elsewhere. None is ReLU.

    Returns:
        Activations, at least 0, and dimensions; one of activation 0 may be any.
    """
    top = torch.topk(fire(torch.addmm(bias, x, rows.T), threshold), k, dim=1)
    return top.values, top.indices


@torch.no_grad()
def top_activations(
    x: Tensor,
    rows: Tensor,
    bias: Tensor,
    k: int | None,
    threshold: Tensor | None = None,
    rounded: Quantised | None = None,
) -> tuple[Tensor, Tensor]:
    """Fast version of ``top_activations_reference``, without gradient.

    For k None there are as many columns as the token with most active dimensions needs. Under
    autocast values are still of the precision of x and rows.

    Args:
        rounded: ``rounding.quantised(rows)``, which makes calls with few tokens faster.
    """
    x, rows, bias = x.detach(), rows.detach(), bias.detach()
    with torch.autocast(x.device.type, enabled=False):
        if k is None or threshold is not None or not _scannable(x, rows, k):
            return _by_slices(x, rows, bias, k, threshold)
        acts = x.new_empty(len(x), k)
        dimensions = torch.empty(len(x), k, dtype=torch.long)
        for start in range(0, len(x), TOKENS):
            some = slice(start, start + TOKENS)
            acts[some], dimensions[some] = _by_tiles(
                x[some].contiguous(), rows.contiguous(), bias, k, rounded
            )
        return acts, dimensions


def fire(pre: Tensor, threshold: Tensor | None) -> Tensor:
    """Return activations of pre-activations [n, V]: ReLU, or JumpReLU of thresholds [V] of at
    least 0 (Rajamanoharan et al. 2024b, equation 3). A NaN stays one."""
    return F.relu(pre) if threshold is None else pre.masked_fill(pre <= threshold, 0.0)


def takes_rounded(rows: Tensor, k: int | None, threshold: Tensor | None) -> bool:
    """Return whether ``top_activations`` has a use for rounded rows on this CPU."""
    known = k is not None and threshold is None and _scannable(rows, rows, k)
    return known and multiplies_bytes() and rows.shape[1] <= LARGEST_DIM


def _scannable(x: Tensor, rows: Tensor, k: int) -> bool:
    single = x.dtype == rows.dtype == torch.float32 and x.device.type == "cpu"
    return single and k <= MANY and len(rows) >= 16 * MANY


def _by_slices(
    x: Tensor, rows: Tensor, bias: Tensor, k: int | None, threshold: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Compute all outputs for some tokens at a time."""
    width = min(k or 1, len(rows))
    acts = x.new_zeros(len(x), width)
    dimensions = torch.zeros(len(x), width, dtype=torch.long, device=x.device)
    step = tokens_at_once(rows)
    for start in range(0, len(x), step):
        pre = torch.addmm(bias, x[start : start + step], rows.T)
        if threshold is not None:
            pre = fire(pre, threshold)
        if k is None:
            width = max(width, int((pre > 0).sum(dim=1).max()))
            acts, dimensions = (_widened(part, width) for part in (acts, dimensions))
        columns = top_columns(pre, width)
        # Kept in one place: small parts between the large ones would keep memory from its reuse.
        dimensions[start : start + step] = columns
        acts[start : start + step] = F.relu(pre.gather(1, columns))
    return acts, dimensions


def _widened(part: Tensor, width: int) -> Tensor:
    """Pad with columns of zeros."""
    return F.pad(part, (0, width - part.shape[1])) if width > part.shape[1] else part


def _by_tiles(
    x: Tensor, rows: Tensor, bias: Tensor, k: int, rounded: Quantised | None
) -> tuple[Tensor, Tensor]:
    """Compute some of the outputs at a time for all tokens. The result is exact, also if products
    of 8 bits choose the candidates, see ``_add_by_bytes``."""
    values = np.zeros((len(x), k), np.float32)
    columns = np.zeros((len(x), k), np.int64)
    short = rounded is not None or choose_by_bytes(x, rows)
    add = partial(_add_by_bytes, quantised(x), rounded) if short else _add
    # Comparisons lose a NaN, so that there must be none.
    finite = torch.ones(len(x), dtype=torch.bool)
    for part in tiles(len(x), rows):
        finite &= add(x, rows[part], bias[part], part.start, values, columns)
    fill = by_work(values.size * 10 * LOOPED, fill_up, fill_up.py_func)
    _over(fill, len(x), values, columns)
    acts, dimensions = torch.from_numpy(values), torch.from_numpy(columns)
    if not bool(finite.all()):
        acts[~finite], dimensions[~finite] = _by_slices(x[~finite], rows, bias, k, None)
    return acts, dimensions


def _add(
    x: Tensor, rows: Tensor, bias: Tensor, start: int, values: Floats, columns: Integers
) -> Tensor:
    """Add a tile to the largest so far; returns which tokens have finite outputs only [n]."""
    if len(x) < MANY:  # the faster order of the factors for a query's few tokens
        scores = torch.addmm(bias[:, None], rows, x.T).T.contiguous()
    else:
        scores = torch.addmm(bias, x, rows.T)
    keep = by_work(scores.numel() * SORTED, keep_largest, keep_largest_reference)
    _over(keep, len(x), scores.numpy(), start, values, columns)
    return scores.abs().amax(dim=1) < torch.inf


def _add_by_bytes(
    tokens: Quantised,
    rounded: Quantised | None,
    x: Tensor,
    rows: Tensor,
    bias: Tensor,
    start: int,
    values: Floats,
    columns: Integers,
) -> Tensor:
    """Add a tile to the largest so far, with products of 8 bits to choose the candidates."""
    tile = quantised(rows) if rounded is None else rounded.rows(slice(start, start + len(rows)))
    worst, factors = worst_errors(tile, bias), tokens.factors()
    scores = (products(tokens, tile), tokens.scales, factors)
    arrays = [part.numpy() for part in (*scores, x, rows, bias, tile.scales, worst)]
    _over(keep_largest_of_bytes, len(x), *arrays, start, values, columns)
    return (factors.sum(dim=1) * worst.sum()).isfinite()


def _over(kernel: Callable[..., None], rows: int, *arguments: object) -> None:
    over_rows(kernel, rows, torch.get_num_threads(), *arguments)


def tokens_at_once(rows: Tensor) -> int:
    """Return the number of tokens whose outputs of all rows are computed at once."""
    return max(1, (GPU_CELLS if rows.is_cuda else CHUNK_CELLS) // len(rows))


def tiles(count: int, rows: Tensor) -> Iterator[slice]:
    """Yield the tiles of the outputs of rows [V, d] for ``count`` tokens, as slices."""
    step = max(1, (GPU_CELLS if rows.is_cuda else TILE_CELLS) // count)
    for start in range(0, len(rows), step):
        yield slice(start, min(start + step, len(rows)))
