"""Each text's largest activations, without an array of tokens × vocabulary."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from lexicept.ops.triton.tiles import Operands, activations

NO_TOKEN = 2**32 - 1
"""A cell holds the bits of the activation, then those of this less the token, of 32 each: bits of
floats from 0 on are in their order, a NaN's are above all, and of equal ones the first wins."""


@torch.no_grad()
def maxima_with_winners(
    x: Tensor, text: Tensor, num_texts: int, rows: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    """``max(0, max_i rows · x_i + bias)`` over each text's tokens, and the tokens that reach it:
    twin of ``linear_max.largest_outputs``.

    A kernel multiplies in tiles and leaves the maximum of each text in a tile. Maxima of tiles meet
    in atomic operations whose result does not depend on their order. Activations are added up in
    single precision; under autocast the operands have its precision.

    Args:
        x: tokens [n, d].
        text: the text of each token [n]; fast where it is sorted.
        num_texts: texts, some perhaps without tokens.
        rows, bias: [V, d] and [V].

    Returns:
        Maxima [num_texts, V] in x's precision and the first tokens that have them [num_texts, V];
        0 and any token where no activation is above 0. A NaN counts as the largest of all.
    """
    operands = Operands.of(x, rows, bias, None)
    (n, d), size = operands.x.shape, len(rows)
    cells = torch.full((num_texts, size), NO_TOKEN, dtype=torch.long, device=x.device)
    if n:
        tile = operands.tile(columns=128)
        grid = (triton.cdiv(n, tile["TOKENS"]), triton.cdiv(size, tile["COLUMNS"]))
        with torch.cuda.device_of(x):
            _maxima_kernel[grid](
                *operands[:4], text.long().contiguous(), cells, n, num_texts, size, d,
                NO_TOKEN=NO_TOKEN, **tile, **operands.options,
            )  # fmt: skip
    pooled = (cells >> 32).int().view(torch.float32).to(x.dtype)
    return pooled, NO_TOKEN - (cells & NO_TOKEN)


@triton.jit
def _maxima_kernel(
    x,
    rows,
    bias,
    threshold,
    text,
    cells,
    n,
    num_texts,
    size,
    d,
    NO_TOKEN: tl.constexpr,
    TOKENS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    PRECISION: tl.constexpr,
):
    first = tl.program_id(0).to(tl.int64) * TOKENS
    tokens = first + tl.arange(0, TOKENS)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    values = activations(
        x, rows, bias, threshold, tl.minimum(tokens, n - 1), columns, size, d,
        DEPTH, PRECISION, False,
    )  # fmt: skip
    bits = tl.where(values > 0, values, 0.0).to(tl.int32, bitcast=True)
    bits = tl.where(values != values, 0x7FC00000, bits)
    texts = tl.load(text + tokens, mask=tokens < n, other=num_texts)  # num_texts is above all
    current = tl.min(texts, axis=0)
    while current < num_texts:
        of_text = tl.where((texts == current)[:, None], bits, 0)
        largest, winner = tl.max(of_text, axis=0, return_indices=True)
        cell = (largest.to(tl.int64) << 32) | (NO_TOKEN - (first + winner))
        tl.atomic_max(cells + current * size + columns, cell, mask=largest > 0)
        current = tl.min(tl.where(texts > current, texts, num_texts), axis=0)
