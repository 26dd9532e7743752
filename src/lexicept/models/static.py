"""Estimates of a backbone's token states by a student of few blocks, for queries.

The student is a BERT: the backbone's word embeddings in 4 bits, and blocks with products of 8 bits.
``training.static`` trains students.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lexicept.models.onnx_bert import OnnxBert, damage_of, map_safetensors
from lexicept.storage.files import read_json
from lexicept.vectors import Floats

STEP = 0.335
"""Distance of neighbouring numbers of 4 bits, in standard deviations: the least squared error for
16 evenly spaced numbers and a normal distribution."""


def packed(name: str, rows: Floats) -> dict[str, Any]:
    """Return rows [n, d], d even, for ``PackedRows``: the numbers -7.5, -6.5, ..., 7.5 in 4 bits,
    the second half of a row in the upper bits [n, d / 2], and a factor for each row [n, 1]."""
    factors = STEP * np.sqrt(np.square(rows).mean(axis=1, keepdims=True, dtype=np.float32))
    numbers = np.rint(rows / np.maximum(factors, np.finfo(np.float32).tiny) + 7.5)
    lower, upper = np.split(np.clip(numbers, 0, 15).astype(np.uint8), 2, axis=1)
    return {f"{name}.weight": lower | upper << 4, f"{name}.weight.factors": factors}


class PackedRows:
    """Rows of 4 bits, see ``packed``, which are unpacked when read."""

    def __init__(self, weights: Mapping[str, Any], name: str) -> None:
        self._numbers, self._factors = weights[f"{name}.weight"], weights[f"{name}.weight.factors"]

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, places: Any) -> Floats:
        numbers = self._numbers[places]
        halves = np.concatenate([numbers & 15, numbers >> 4], axis=-1)
        rows: Floats = (halves - np.float32(7.5)) * self._factors[places]
        return rows


class StaticStates(OnnxBert):
    """Token states of texts by a static encoder.

    Args:
        weights: by transformers' names; see ``training.static``.
        config: the backbone's.
    """

    # The largest number of a batch sets the steps of 8 bits: a text must not depend on others.
    batch_tokens = 1
    # Waking a thread takes longer than its share of so small products.
    threads = 1

    def __init__(self, weights: Mapping[str, Any], config: Mapping[str, Any]) -> None:
        super().__init__(weights, student_config(weights, config))
        self.states(np.zeros((1, 3), np.int64), np.ones((1, 3), bool))  # raises for other shapes

    @classmethod
    def load_file(cls, path: Path, config: Path) -> StaticStates:
        """Read a file of weights, and the file of the backbone's configuration. Raises InputError
        or IndexFormatError for a missing or damaged file."""
        content = read_json(config)
        with damage_of(path, config):
            return cls(map_safetensors(path), content)

    def _rows(self, weights: Mapping[str, Any], name: str) -> PackedRows:
        return PackedRows(weights, name)


def student_config(weights: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the backbone's configuration with the student's number of blocks, and the size of
    their feed-forward layers."""
    inner = [weight for name, weight in weights.items() if name.endswith("intermediate.dense.bias")]
    return {**config, "num_hidden_layers": len(inner), "intermediate_size": len(inner[0])}
