"""Each token's k largest activations, without an array of tokens × vocabulary."""

from __future__ import annotations

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from lexicept.ops.triton.tiles import Operands, activations

CHUNK = 64
"""Columns whose maximum stands for them."""

SPARE = 1
"""Chunks beyond k whose activations are computed too."""

PAIRS = 16
"""Tokens that are multiplied with one chunk together."""

CELLS = 2**24
"""Maxima and candidates that exist at once: 64 MB."""


@torch.no_grad()
def top_activations(
    x: Tensor, rows: Tensor, bias: Tensor, k: int, threshold: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Twin of ``linear_topk.top_activations`` for a given k; under autocast the operands have its
    precision.

    One kernel multiplies in tiles and keeps the maximum of every chunk of columns. A token's k
    largest activations lie in the k chunks with the largest maxima, whose activations another
    kernel computes again; from these they are taken. Both multiply the same operands and add in
    single precision, but perhaps in another order: a chunk can be missed only for others whose
    maxima are equal to its own but for rounding, and only if there are more than ``SPARE`` of them.
    A NaN counts as the largest of all.
    """
    width = min(k, len(rows))
    acts = x.new_zeros(len(x), width)
    dimensions = torch.zeros(len(x), width, dtype=torch.long, device=x.device)
    operands = Operands.of(x, rows, bias, threshold)
    chunks = triton.cdiv(len(rows), CHUNK)
    chosen = min(width + SPARE, chunks)
    step = max(1, CELLS // (chunks + chosen * CHUNK))
    for start in range(0, len(x), step):
        part = operands._replace(x=operands.x[start : start + step])
        best = torch.topk(_maxima(part, threshold is not None), chosen, dim=1, sorted=False).indices
        candidates = _candidates(part, best, threshold is not None)
        values, places = torch.topk(candidates, width, dim=1, sorted=False)
        columns = best.gather(1, places // CHUNK) * CHUNK + places % CHUNK
        acts[start : start + step] = F.relu(values)
        # Beyond the last column is only −∞.
        dimensions[start : start + step] = columns.clamp_max(len(rows) - 1)
    return acts, dimensions


def _maxima(operands: Operands, thresholds: bool) -> Tensor:
    """The largest activation of every token and chunk, ∞ for a NaN: [n, chunks]."""
    (n, d), size = operands.x.shape, len(operands.rows)
    chunks = triton.cdiv(size, CHUNK)
    maxima = operands.x.new_empty(n, chunks, dtype=torch.float32)
    tile = operands.tile(columns=256)
    # Tokens change fastest: programs that run together share rows.
    grid = (triton.cdiv(n, tile["TOKENS"]), triton.cdiv(size, tile["COLUMNS"]))
    with torch.cuda.device_of(maxima):
        _maxima_kernel[grid](
            *operands[:4], maxima, n, size, chunks, d, CHUNK=CHUNK, THRESHOLDS=thresholds, **tile,
            **operands.options,
        )  # fmt: skip
    return maxima


@triton.jit
def _maxima_kernel(
    x,
    rows,
    bias,
    threshold,
    maxima,
    n,
    size,
    chunks,
    d,
    TOKENS: tl.constexpr,
    COLUMNS: tl.constexpr,
    CHUNK: tl.constexpr,
    DEPTH: tl.constexpr,
    PRECISION: tl.constexpr,
    THRESHOLDS: tl.constexpr,
):
    tokens = tl.program_id(0).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    values = activations(
        x, rows, bias, threshold, tl.minimum(tokens, n - 1), columns, size, d,
        DEPTH, PRECISION, THRESHOLDS,
    )  # fmt: skip
    # A maximum may pass over a NaN.
    values = tl.where(values != values, float("inf"), values)
    largest = tl.max(tl.reshape(values, (TOKENS, COLUMNS // CHUNK, CHUNK)), axis=2)
    chunk = tl.program_id(1) * (COLUMNS // CHUNK) + tl.arange(0, COLUMNS // CHUNK)
    inside = (tokens < n)[:, None] & (chunk < chunks)[None, :]
    tl.store(maxima + tokens[:, None] * chunks + chunk[None, :], largest, mask=inside)


def _candidates(operands: Operands, best: Tensor, thresholds: bool) -> Tensor:
    """All activations of every token's chosen chunks [n, c]: [n, c × CHUNK]."""
    (n, d), size = operands.x.shape, len(operands.rows)
    # Tokens that chose the same chunk are multiplied with it together.
    chunks, order = best.ravel().sort()
    output = operands.x.new_empty(n, best.shape[1] * CHUNK, dtype=torch.float32)
    with torch.cuda.device_of(output):
        _candidates_kernel[(triton.cdiv(best.numel(), PAIRS),)](
            *operands[:4], chunks, order, output, best.numel(), best.shape[1], size, d, PAIRS=PAIRS,
            CHUNK=CHUNK, THRESHOLDS=thresholds, num_warps=4, **operands.options,
        )  # fmt: skip
    return output


@triton.jit
def _candidates_kernel(
    x,
    rows,
    bias,
    threshold,
    chunks,
    order,
    output,
    num_pairs,
    per_token,
    size,
    d,
    PAIRS: tl.constexpr,
    CHUNK: tl.constexpr,
    DEPTH: tl.constexpr,
    PRECISION: tl.constexpr,
    THRESHOLDS: tl.constexpr,
):
    place = tl.program_id(0) * PAIRS + tl.arange(0, PAIRS)
    chunk = tl.load(chunks + place, mask=place < num_pairs, other=size)  # size is above all
    pair = tl.load(order + place, mask=place < num_pairs, other=0)
    current = tl.min(chunk, axis=0)
    while current < size:
        inside = tl.arange(0, CHUNK)
        values = activations(
            x, rows, bias, threshold, pair // per_token, current * CHUNK + inside, size, d,
            DEPTH, PRECISION, THRESHOLDS,
        )  # fmt: skip
        spot = output + pair[:, None] * CHUNK + inside[None, :]
        tl.store(spot, values, mask=(chunk == current)[:, None])
        current = tl.min(tl.where(chunk > current, chunk, size), axis=0)
