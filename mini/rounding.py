"""Weights of a BERT in 8 bits, smoothed, for ``lexicept.encoding.eight_bits``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lexicept.encoding.eight_bits import EMBEDDING_STEPS, SHARED_INPUTS, STEPS, WORDS
from lexicept.vectors import Floats

MIGRATION = 0.8
"""Share of the columns' differences in size that moves from activations to the matrix: .5 to 1 was
tried, on texts of CACM, MedQuAD, SQuAD's training questions and documentation."""


def quantised(
    weights: Mapping[str, Floats], largest: Mapping[str, Floats], blocks: int
) -> dict[str, Any]:
    """Return the weights of a BERT for ``EightBitBert``.

    Args:
        weights: by transformers' names, without a prefix.
        largest: the largest absolute activation of every column of each input of a product, by
            the name of the input, such as ``encoder.layer.0.attention.self``.
    """
    rounded: dict[str, Any] = {
        name: weight.astype(np.float32)
        for name, weight in weights.items()
        if name.startswith(("embeddings.LayerNorm", "encoder."))
    }
    positions = weights["embeddings.position_embeddings.weight"]
    types = weights["embeddings.token_type_embeddings.weight"]
    rounded["embeddings.position_embeddings.weight"] = positions.astype(np.float16)
    rounded["embeddings.token_type_embeddings.weight"] = types[:1].astype(np.float32)
    rounded |= packed(WORDS, weights[f"{WORDS}.weight"])
    for block in (f"encoder.layer.{index}" for index in range(blocks)):
        # The values carry the smoothing of the attention's output, without another product.
        output, value = f"{block}.attention.output.dense", f"{block}.attention.self.value"
        smoothing = _smoothing(largest[output], [rounded[f"{output}.weight"]])
        rounded[f"{output}.weight"] /= smoothing
        rounded[f"{value}.weight"] *= smoothing[:, None]
        rounded[f"{value}.bias"] *= smoothing
        for shared, matrices in SHARED_INPUTS.items():
            names = [f"{block}.{shared}.{matrix}".rstrip(".") for matrix in matrices]
            smoothing = _smoothing(
                largest[f"{block}.{shared}"], [rounded[f"{name}.weight"] for name in names]
            )
            rounded[f"{block}.{shared}.smoothing"] = smoothing
            for name in names:
                rounded |= _rounded_rows(name, rounded[f"{name}.weight"] / smoothing)
        rounded |= _rounded_rows(output, rounded[f"{output}.weight"])
    return rounded


def _smoothing(largest: Floats, matrices: list[Floats]) -> Floats:
    """Return the factor of every column of activations."""
    columns = np.maximum.reduce([np.abs(matrix).max(axis=0) for matrix in matrices])
    sizes = largest**MIGRATION / np.maximum(columns, 1e-6) ** (1 - MIGRATION)
    sizes = np.maximum(sizes, 1e-3 * sizes.max())
    factors: Floats = (np.exp(np.log(sizes).mean()) / sizes).astype(np.float32)
    return factors


def _rounded_rows(name: str, matrix: Floats) -> dict[str, Any]:
    """Return a matrix [rows, columns] in 8 bits, as [columns, rows], and the factor of each row."""
    factors = np.abs(matrix).max(axis=1).astype(np.float32) / STEPS
    factors[factors == 0] = 1
    steps = np.ascontiguousarray(np.rint(matrix.T / factors), np.int8)
    return {f"{name}.weight": steps, f"{name}.weight.factors": factors}


def packed(name: str, rows: Floats) -> dict[str, Any]:
    """Return rows [n, d] for ``PackedRows``, d a multiple of 4: values of 6 bits, the four quarters
    of a row in three bytes [n, 3 d / 4], and a factor for each row [n, 1].

    Three quarters have the lower 6 bits of the bytes; the fourth is spread over the upper 2 bits
    of all three.
    """
    largest = np.abs(rows).max(axis=1, keepdims=True)
    # Half precision has few digits for smaller factors than its normal numbers.
    smallest = np.finfo(np.float16).tiny
    factors = np.maximum(largest / EMBEDDING_STEPS, smallest).astype(np.float16)
    steps = np.rint(rows / factors.astype(np.float32)).clip(-EMBEDDING_STEPS, EMBEDDING_STEPS)
    q1, q2, q3, q4 = np.split((steps + 32).astype(np.uint8), 4, axis=1)
    bytes_ = np.concatenate([q1 | q4 << 6, q2 | q4 >> 2 << 6, q3 | q4 >> 4 << 6], axis=1)
    return {f"{name}.weight": bytes_, f"{name}.weight.factors": factors}
