"""The largest outputs of a linear map for every token, without an array of tokens × outputs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lexicept.kernels.compiled import LOOPED, by_work, over_rows
from lexicept.neural.kernels.quantisation import (
    Quantised,
    choose_by_bytes,
    quantised,
    single_on_cpu,
    worst_errors,
)
from lexicept.neural.kernels.tile_kernels import (
    ShortScores,
    Tile,
    fill_up,
    keep_largest,
    keep_largest_of_bytes,
    keep_largest_reference,
    keep_likely,
)
from lexicept.neural.kernels.topk import top_columns

CHUNK_CELLS = 2**21
"""Most cells of tokens × outputs in memory at once: 8 MB."""

TILE_CELLS = 2**19
"""Most cells of a tile, unless one output has more: 2 MB, within a processor's cache."""

GPU_CELLS = 2**26
"""Most cells of either kind on a GPU, which needs large products to be busy: 256 MB."""

TOKENS = 2048
"""Tokens of one pass over the matrix."""

MANY = 64
"""Tokens from which one order of the factors is faster; also the largest k of scans of tiles."""

SORTED = 1e-7
"""Approximate seconds of NumPy for sorting an entry."""


@torch.no_grad()
def top_activations(
    x: Tensor,
    matrix: Tensor,
    bias: Tensor,
    k: int | None,
    threshold: Tensor | None = None,
    *,
    rough: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return each token's k largest activations f(matrix · x_i + bias) and their dimensions, both
    [n, k], unordered, without gradient.

    For k None there are as many columns as the token with most active dimensions needs. Under
    autocast values are still of the precision of x and the matrix.

    Args:
        x: tokens [n, d].
        matrix, bias: [V, d] and [V].
        k: at most V.
        threshold: [V], at least 0; f(v) is v above it and 0 elsewhere. None is ReLU.
        rough: let products of 8 bits decide, where the CPU has them: activations are off by a
            hundredth or so, and a few dimensions are not among the largest.

    Returns:
        Activations, at least 0, and dimensions; one of activation 0 may be any.
    """
    x, matrix, bias = x.detach(), matrix.detach(), bias.detach()
    with torch.autocast(x.device.type, enabled=False):
        if k is None or threshold is not None or not _scannable(x, matrix, k):
            return _by_slices(x, matrix, bias, k, threshold)
        acts = x.new_empty(len(x), k)
        dimensions = torch.empty(len(x), k, dtype=torch.long)
        matrix = matrix.contiguous()
        short = quantised(matrix) if choose_by_bytes(x, matrix) else None
        for start in range(0, len(x), TOKENS):
            some = slice(start, start + TOKENS)
            acts[some], dimensions[some] = _by_tiles(
                x[some].contiguous(), matrix, bias, k, short, rough=rough
            )
        return acts, dimensions


def fire(pre: Tensor, threshold: Tensor | None) -> Tensor:
    """Return activations of pre-activations [n, V]: ReLU, or JumpReLU of thresholds [V] of at
    least 0 (Rajamanoharan et al. 2024b, equation 3). A NaN stays one."""
    return F.relu(pre) if threshold is None else pre.masked_fill(pre <= threshold, 0.0)


def _scannable(x: Tensor, matrix: Tensor, k: int) -> bool:
    return single_on_cpu(x, matrix) and k <= MANY and len(matrix) >= 16 * MANY


def _by_slices(
    x: Tensor, matrix: Tensor, bias: Tensor, k: int | None, threshold: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Compute all outputs for some tokens at a time."""
    width = min(k or 1, len(matrix))
    acts = x.new_zeros(len(x), width)
    dimensions = torch.zeros(len(x), width, dtype=torch.long, device=x.device)
    step = tokens_at_once(matrix)
    for start in range(0, len(x), step):
        pre = torch.addmm(bias, x[start : start + step], matrix.T)
        if threshold is not None:
            pre = fire(pre, threshold)
        if k is None:
            # Without k a token keeps all active dimensions.
            width = max(width, int((pre > 0).sum(dim=1).max()))
            acts, dimensions = (_widened(tile, width) for tile in (acts, dimensions))
        columns = top_columns(pre, width)
        # Preallocated: small arrays between large arrays would prevent the reuse of memory.
        dimensions[start : start + step] = columns
        acts[start : start + step] = F.relu(pre.gather(1, columns))
    return acts, dimensions


def _widened(tile: Tensor, width: int) -> Tensor:
    """Pad with columns of zeros."""
    return F.pad(tile, (0, width - tile.shape[1])) if width > tile.shape[1] else tile


def _by_tiles(
    x: Tensor, matrix: Tensor, bias: Tensor, k: int, short: Quantised | None, *, rough: bool
) -> tuple[Tensor, Tensor]:
    """Compute some of the outputs at a time for all tokens. The result is exact unless ``rough``,
    also if products of 8 bits with the ``short`` matrix choose the candidates."""
    values = np.zeros((len(x), k), np.float32)
    columns = np.zeros((len(x), k), np.int64)
    # Comparisons lose a NaN, so that there must be none.
    finite = torch.ones(len(x), dtype=torch.bool)
    threads = torch.get_num_threads()
    if short is not None:
        short_x, worst = quantised(x), worst_errors(short, bias)
        factors = short_x.factors()
        finite = (factors.sum(dim=1) * worst.sum()).isfinite()
    for tile in tiles(len(x), matrix):
        # Either all outputs of the tile, or candidates by 8 bits and their exact outputs.
        if short is None:
            scores = _outputs(x, matrix[tile], bias[tile])
            finite &= scores.abs().amax(dim=1) < torch.inf
            kernel = by_work(scores.numel() * SORTED, keep_largest, keep_largest_reference)
            keep = partial(kernel, scores.numpy(), tile.start, values, columns)
        else:
            short_tile = Quantised(*(of_rows[tile] for of_rows in short))
            exact = Tile(x.numpy(), matrix[tile].numpy(), bias[tile].numpy())
            candidates = ShortScores.of(short_x, short_tile, exact.bias, factors.numpy(), worst)
            by_bytes = keep_likely if rough else keep_largest_of_bytes
            keep = partial(by_bytes, candidates, exact, tile.start, values, columns)
        over_rows(keep, len(x), threads)
    fill = by_work(values.size * 10 * LOOPED, fill_up, fill_up.py_func)
    over_rows(partial(fill, values, columns), len(x), threads)
    acts, dimensions = torch.from_numpy(values), torch.from_numpy(columns)
    # Tokens with a number that is not finite take the way that keeps it.
    if not bool(finite.all()):
        acts[~finite], dimensions[~finite] = _by_slices(x[~finite], matrix, bias, k, None)
    return acts, dimensions


def _outputs(x: Tensor, matrix: Tensor, bias: Tensor) -> Tensor:
    """Return the outputs of a tile [n, T]."""
    if len(x) < MANY:  # the faster order of the factors for a query's few tokens
        return torch.addmm(bias[:, None], matrix, x.T).T.contiguous()
    return torch.addmm(bias, x, matrix.T)


def tokens_at_once(matrix: Tensor) -> int:
    """Return the number of tokens to compute all outputs of at once."""
    return max(1, (GPU_CELLS if matrix.is_cuda else CHUNK_CELLS) // len(matrix))


def tiles(count: int, matrix: Tensor) -> Iterator[slice]:
    """Yield slices of a matrix [V, d] whose outputs for ``count`` tokens are a tile."""
    step = max(1, (GPU_CELLS if matrix.is_cuda else TILE_CELLS) // count)
    for start in range(0, len(matrix), step):
        yield slice(start, min(start + step, len(matrix)))
