"""A BERT in 8 bits: the packaged encoder, which reads documents, queries and texts to explain.

Matrices have whole numbers of 8 bits and a factor for each row, word embeddings 6 bits. Activations
are rounded for each window apart, so that a window's states depend on no other window. Before a
product, each column of activations is divided by its typical size, for which the matrix makes up:
without this, few large columns would leave few steps to the others (SmoothQuant, Xiao et al. 2023,
equations 3 and 4).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from lexicept.models.onnx_bert import (
    RUNTIME,
    Declared,
    GraphBuilder,
    OnnxBert,
    damage_of,
    map_safetensors,
)
from lexicept.vectors import Floats

FILE = "encoder.safetensors"
"""The weights in the folder of a model."""

STEPS = 127
"""Largest value of a matrix in 8 bits."""

EMBEDDING_STEPS = 31
"""Largest value of a word embedding in 6 bits."""

MIGRATION = 0.8
"""Share of the columns' differences in size that moves from activations to the matrix: .5 to 1 was
tried, on texts of CACM, MedQuAD, SQuAD's training questions and documentation."""

SHARED_INPUTS = {
    "attention.self": ("query", "key", "value"),
    "intermediate.dense": ("",),
    "output.dense": ("",),
}
"""Matrices of a block below the name of their input."""

_WORDS = "embeddings.word_embeddings"


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
    rounded |= packed(_WORDS, weights[f"{_WORDS}.weight"])
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


def dequantised(path: Path, blocks: int) -> dict[str, Floats]:
    """Return the weights of a file in single precision, by transformers' names. Raises InputError
    for a missing or damaged file."""
    weights = map_safetensors(path)
    with damage_of(path):
        words: Floats = PackedRows(weights, _WORDS)[:]
        single = {f"{_WORDS}.weight": words}
        for name, values in weights.items():
            if values.dtype == np.int8:
                single[name] = np.ascontiguousarray(values.T) * weights[f"{name}.factors"][:, None]
            elif name.endswith(("weight", "bias")) and name not in single:
                single[name] = values.astype(np.float32)
        for block in (f"encoder.layer.{index}" for index in range(blocks)):
            for shared, matrices in SHARED_INPUTS.items():
                for matrix in matrices:
                    name = f"{block}.{shared}.{matrix}".rstrip(".")
                    single[f"{name}.weight"] *= weights[f"{block}.{shared}.smoothing"]
        return single


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


class PackedRows:
    """Rows in 6 bits, see ``packed``, unpacked when read: f32 [n, d]."""

    def __init__(self, weights: Mapping[str, Any], name: str) -> None:
        self._bytes, self._factors = weights[f"{name}.weight"], weights[f"{name}.weight.factors"]
        self.shape = (len(self._bytes), 4 * self._bytes.shape[1] // 3)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Floats:
        quarters = self._bytes[rows]
        low, middle, high = np.split(quarters >> 6, 3, axis=-1)
        steps = np.concatenate([quarters & 63, low | middle << 2 | high << 4], axis=-1)
        unpacked: Floats = (steps - np.float32(32)) * self._factors[rows].astype(np.float32)
        return unpacked


class EightBitBert(OnnxBert):
    """A BERT with the weights of ``quantised``, which threads may share."""

    # The largest activation of a batch sets the steps: a window must not depend on others.
    batch_tokens = 1
    # Texts are read side by side, each by a thread.
    threads = 1

    @classmethod
    def load_file(cls, path: Path, config: Mapping[str, Any]) -> EightBitBert:
        """Read a file. Raises InputError for a missing or damaged file."""
        weights = map_safetensors(path)
        with damage_of(path):
            if saturates():
                weights |= _halved(weights)
            return cls(weights, config)

    def _word_embeddings(self, weights: Mapping[str, Any]) -> Any:
        return PackedRows(weights, _WORDS)


def _halved(weights: Mapping[str, Any]) -> dict[str, Any]:
    """Return matrices with half of the steps, for a processor whose sums of two products saturate
    at 16 bits."""
    halved = {}
    for name, steps in weights.items():
        if steps.dtype == np.int8:
            halved[name] = np.rint(steps / 2).astype(np.int8)
            halved[f"{name}.factors"] = weights[f"{name}.factors"] * np.float32(2)
    return halved


@cache
def saturates() -> bool:
    """Return True if ONNX Runtime's products of 8 bits saturate on this processor (x86 without
    VNNI)."""
    d = 64
    weights: dict[str, Any] = {
        "steps": np.full((d, d), STEPS, np.int8),
        "factors": np.ones(d, np.float32),
    }
    vectors: Declared = ("float32", ["n", d])
    graph = GraphBuilder(weights, x=vectors)
    product = graph.add(
        "DynamicQuantizeMatMul", ["x", "steps", "factors"], "product", domain=RUNTIME
    )
    graph.load(threads=1, **{product: vectors})
    (sums,) = graph.run(x=np.full((2, d), 255, np.float32))
    return not np.allclose(sums, 255 * STEPS * d)
