"""Activations of some tokens and some columns: the tile that every kernel of a head is made of."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def activations(
    x,
    rows,
    bias,
    threshold,
    tokens,
    columns,
    size,
    d,
    DEPTH: tl.constexpr,
    PRECISION: tl.constexpr,
    THRESHOLDS: tl.constexpr,
):
    """``rows · x + bias`` of tokens [T] and columns [C], 0 where it is not above its threshold:
    [T, C] in single precision, −∞ in columns from ``size`` on. A NaN stays one."""
    column = tl.minimum(columns, size - 1).to(tl.int64)
    total = tl.zeros((tokens.shape[0], columns.shape[0]), tl.float32)
    for start in range(0, d, DEPTH):
        depth = start + tl.arange(0, DEPTH)
        inside = depth < d
        a = tl.load(x + tokens[:, None] * d + depth[None, :], mask=inside[None, :], other=0.0)
        b = tl.load(rows + column[None, :] * d + depth[:, None], mask=inside[:, None], other=0.0)
        total = tl.dot(a, b, total, input_precision=PRECISION)
    total += tl.load(bias + column)[None, :]
    if THRESHOLDS:
        total = tl.where(total <= tl.load(threshold + column)[None, :], 0.0, total)
    return tl.where((columns < size)[None, :], total, float("-inf"))


class Operands(NamedTuple):
    """Contiguous operands of ``activations``: x and rows have the product's precision."""

    x: Tensor
    rows: Tensor
    bias: Tensor
    threshold: Tensor
    """[V], or the bias where there is none."""
    options: dict[str, Any]
    """Options of a launch: precision and depth of a step, and compiler settings."""

    @classmethod
    def of(cls, x: Tensor, rows: Tensor, bias: Tensor, threshold: Tensor | None) -> Operands:
        """x takes the rows' precision, and under autocast both take autocast's."""
        kind = x.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else rows.dtype
        x, rows, bias = x.to(dtype).contiguous(), rows.to(dtype).contiguous(), bias.float()
        exact = torch.get_float32_matmul_precision() == "highest"
        options = {
            "PRECISION": "ieee" if exact else "tf32",
            "DEPTH": 128 // x.element_size(),  # a cache line
            "num_stages": 3,
            "enable_fp_fusion": True,  # Triton warns where nothing is said
        }
        return cls(x, rows, bias, bias if threshold is None else threshold.float(), options)

    def tile(self, columns: int) -> dict[str, int]:
        """Tokens and columns of a tile and its warps, for as many columns in low precision."""
        if self.x.element_size() == 4:
            return {"TOKENS": 64, "COLUMNS": 64, "num_warps": 4}
        return {"TOKENS": 128, "COLUMNS": columns, "num_warps": 8}
