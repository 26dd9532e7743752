"""Estimates of a backbone's token states without the backbone, for queries, in NumPy.

The estimate of token i of a text, from rows x of a table, one for each token of the tokenizer:

    g_i = tanh(U x̄ + G₋ x_{i-1} + G₊ x_{i+1})
    y_i = x_i + W x̄ + Σ_o A_o x_{i+o} + O attention(LN(x))_i + x_i ⊙ g_i
    h_i = y_i + F₂ gelu(F₁ LN(y_i) + f₁) + f₂

where x̄ is the text's mean row, and o is -2, -1, 1 or 2. ``training.static`` fits the numbers to a
collection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lexicept.models.onnx_bert import damage_of, map_safetensors
from lexicept.models.windows import UNLIMITED, Window
from lexicept.vectors import Floats, Integers

SHIFTS = (-2, -1, 1, 2)
"""Neighbours of a token, by their distance."""

FARTHEST = 64
"""Distance from which on tokens are equally far away for attention."""

EPSILON = 1e-5
"""Added to variances."""


def num_heads(d: int) -> int:
    """Return the heads of an attention layer over states [d]: 64 numbers or more each."""
    return next(heads for heads in range(max(1, d // 64), 0, -1) if d % heads == 0)


class StaticStates:
    """Token states of texts by a static encoder.

    Args:
        weights: by the names of ``training.static.StaticModel``; of matrices and the table, int8
            numbers [rows, d], and factors [rows, 1] by the name with ``.factors``.
    """

    positions = UNLIMITED
    """Most tokens of a text."""

    def __init__(self, weights: Mapping[str, Any]) -> None:
        self._factors = weights["table.factors"]
        self.tokens, d = len(self._factors), weights["norm.weight"].size
        """Number of tokens with a row."""
        self._table = weights["table"].view(np.int8).reshape(self.tokens, d)

        def matrix(name: str) -> Floats:
            factors = weights[f"{name}.factors"]
            scaled: Floats = weights[name].view(np.int8).reshape(len(factors), -1) * factors
            return scaled

        self._near, self._bag, self._qkv = matrix("near"), matrix("bag"), matrix("qkv")
        self._out, self._up, self._down = matrix("out"), matrix("up"), matrix("down")
        self._distances = weights["distances"]
        self._vectors = {name: w for name, w in weights.items() if w.ndim == 1}
        self._d, self._heads = d, num_heads(d)
        self.states_of(np.zeros(3, np.int64))  # shapes that do not fit raise ValueError

    @classmethod
    def load(cls, path: Path) -> StaticStates:
        """Read a file. Raises InputError for a missing or damaged file."""
        with damage_of(path):
            return cls(map_safetensors(path))

    def read(self, windows: Sequence[Window]) -> Iterator[tuple[list[int], Floats]]:
        """Yield batches as ``Backbone.token_states`` does, of one window each."""
        for number, window in enumerate(windows):
            pairs = zip(window.token_ids, window.left_out, strict=True)
            yield [number], self.states_of(np.array([i for i, out in pairs if not out], np.int64))

    def states_of(self, ids: Integers) -> Floats:
        """Return the states [n, d] of a text's tokens."""
        n, d = len(ids), self._d
        x: Floats = self._table[ids] * self._factors[ids]
        if not n:
            return x
        bag = x.mean(axis=0) @ self._bag
        near = x @ self._near
        y: Floats = x + bag[:d]
        gate = np.repeat(bag[None, d:], n, axis=0)
        for block, shift in enumerate(SHIFTS):
            _add_shifted(y, near[:, block * d : (block + 1) * d], shift)
        _add_shifted(gate, near[:, 4 * d : 5 * d], -1)
        _add_shifted(gate, near[:, 5 * d :], 1)
        y += x * np.tanh(gate) + self._attended(x) @ self._out
        inner = self._normed(y, "inner_norm") @ self._up + self._vectors["up.bias"]
        y += _gelu(inner) @ self._down + self._vectors["down.bias"]
        return y

    def _attended(self, x: Floats) -> Floats:
        n = len(x)
        qkv = (self._normed(x, "norm") @ self._qkv).reshape(n, 3, self._heads, -1)
        queries, keys, values = qkv.transpose(1, 2, 0, 3)
        places = np.arange(n)
        distances = np.clip(places - places[:, None], -FARTHEST, FARTHEST) + FARTHEST
        scores = queries @ keys.transpose(0, 2, 1) / np.float32(np.sqrt(self._d // self._heads))
        scores += self._distances[:, distances]
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        attended: Floats = (scores @ values).transpose(1, 0, 2).reshape(n, -1)
        return attended

    def _normed(self, x: Floats, name: str) -> Floats:
        centred = x - x.mean(axis=-1, keepdims=True)
        variances = np.square(centred).mean(axis=-1, keepdims=True)
        weight, bias = self._vectors[f"{name}.weight"], self._vectors[f"{name}.bias"]
        normed: Floats = centred / np.sqrt(variances + np.float32(EPSILON)) * weight + bias
        return normed


def _add_shifted(total: Floats, values: Floats, shift: int) -> None:
    """Add to each token the value of the token at a distance, if there is one."""
    if shift < 0:
        total[-shift:] += values[:shift]
    else:
        total[:-shift] += values[shift:]


def _gelu(x: Floats) -> Floats:
    inner = np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x * x * x)
    activated: Floats = x * (np.float32(0.5) * (1 + np.tanh(inner)))
    return activated
