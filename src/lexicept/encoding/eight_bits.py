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

from lexicept.encoding.onnx_bert import (
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

SHARED_INPUTS = {
    "attention.self": ("query", "key", "value"),
    "intermediate.dense": ("",),
    "output.dense": ("",),
}
"""Matrices of a block below the name of their input."""

WORDS = "embeddings.word_embeddings"


def dequantised(path: Path, blocks: int) -> dict[str, Floats]:
    """Return the weights of a file in single precision, by transformers' names. Raises InputError
    for a missing or damaged file."""
    weights = map_safetensors(path)
    with damage_of(path):
        words: Floats = PackedRows(weights, WORDS)[:]
        single = {f"{WORDS}.weight": words}
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


class PackedRows:
    """Rows in 6 bits, unpacked when read: f32 [n, d], d a multiple of 4.

    A row is a factor [1] and three bytes for its four quarters [3 d / 4]: three quarters have the
    lower 6 bits of the bytes, the fourth is spread over the upper 2 bits of all three.
    """

    def __init__(self, weights: Mapping[str, Any], name: str) -> None:
        self._bytes, self._factors = weights[f"{name}.weight"], weights[f"{name}.weight.factors"]
        self.shape = (len(self._bytes), 4 * self._bytes.shape[1] // 3)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Floats:
        quarters = self._bytes[rows]
        upper = (quarters >> 6).reshape(*quarters.shape[:-1], 3, -1)
        low, middle, high = (upper[..., third, :] for third in range(3))
        steps = np.concatenate([quarters & 63, low | middle << 2 | high << 4], axis=-1)
        unpacked: Floats = (steps - np.float32(32)) * self._factors[rows].astype(np.float32)
        return unpacked


class EightBitBert(OnnxBert):
    """A BERT with weights as ``mini.rounding`` makes them, which threads may share."""

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
        return PackedRows(weights, WORDS)


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
    """Return True if ONNX Runtime's 8-bit products saturate on this machine (x86 without VNNI)."""
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
