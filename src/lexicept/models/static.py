"""Estimates of a backbone's token states without the backbone, for queries.

The estimate of token i of a text, from rows x of a table, one for each token of the tokenizer:

    g_i = tanh(U x̄ + G₋ x_{i-1} + G₊ x_{i+1})
    y_i = x_i + W x̄ + Σ_o A_o x_{i+o} + O attention(LN(x))_i + x_i ⊙ g_i
    h_i = y_i + F₂ gelu(F₁ LN(y_i) + f₁) + f₂

where x̄ is the text's mean row, and o is -2, -1, 1 or 2. ``training.static`` fits the numbers to a
collection. Products are of 8 bits, in a graph of ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lexicept.models.onnx_bert import RUNTIME, Declared, GraphBuilder, damage_of, map_safetensors
from lexicept.models.windows import UNLIMITED, Window
from lexicept.vectors import Floats, Integers

SHIFTS = (-2, -1, 1, 2)
"""Neighbours of a token, by their distance."""

GATES = (-1, 1)
"""Neighbours that a token's gate reads."""

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
            numbers, and the factors of the table's rows or a matrix' columns by the name with
            ``.factors``.
    """

    positions = UNLIMITED
    """Most tokens of a text."""

    def __init__(self, weights: Mapping[str, Any]) -> None:
        self._table, self._factors = weights["table"], weights["table.factors"]
        self.tokens, d = self._table.shape
        """Number of tokens with a row."""
        self._distances = weights["distances"]
        self._graph = _graph(weights, d, len(self._distances))
        self.states_of(np.zeros(3, np.int64))  # shapes that do not fit raise an error

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
        n, margin = len(ids), max(SHIFTS)
        # Zeros before and behind the text are the neighbours of the first and the last tokens.
        padded = np.zeros((n + 2 * margin, self._table.shape[1]), np.float32)
        x = padded[margin : margin + n]
        np.multiply(self._table[ids], self._factors[ids], out=x)
        if not n:
            return x
        places = np.arange(n)
        around = places[:, None] + margin
        distances = np.clip(places - places[:, None], -FARTHEST, FARTHEST) + FARTHEST
        states: Floats = self._graph.run(
            x=x[None],
            mean=x.mean(axis=0)[None, None],
            near=padded[around + SHIFTS].reshape(1, n, -1),
            beside=padded[around + GATES].reshape(1, n, -1),
            distances=self._distances[None, :, distances],
        )[0][0]
        return states


def _graph(weights: Mapping[str, Any], d: int, heads: int) -> GraphBuilder:
    """Load the layers.

    Inputs are a text's rows ``x`` [1, n, d]; the ``mean`` row [1, 1, d]; the rows ``near`` and
    ``beside`` each token [1, n, 4 d] and [1, n, 2 d]; and ``distances`` [1, heads, n, n], what
    attention adds to its scores. The output is [1, n, d].
    """
    sizes: dict[str, list[int | str]] = {
        "x": [1, "n", d],
        "mean": [1, 1, d],
        "near": [1, "n", len(SHIFTS) * d],
        "beside": [1, "n", len(GATES) * d],
        "distances": [1, heads, "n", "n"],
    }
    inputs: dict[str, Declared] = {name: ("float32", shape) for name, shape in sizes.items()}
    # Weights by other names than the inputs'.
    graph = GraphBuilder({f"w.{name}": weight for name, weight in weights.items()}, **inputs)

    def product(x: str, name: str, rows: int, columns: int) -> str:
        factors = graph.weight(f"w.{name}.factors", 1, columns)
        matrix, bias = graph.weight(f"w.{name}", rows, columns), f"w.{name}.bias"
        inputs = [x, matrix, factors, "", bias if f"{name}.bias" in weights else ""]
        return graph.add("DynamicQuantizeMatMul", inputs, f"{name}.product", domain=RUNTIME)

    def norm(name: str) -> list[str]:
        return [graph.weight(f"w.{name}.{kind}", d) for kind in ("weight", "bias")]

    def total(x: str, y: str, name: str) -> str:
        return graph.add("Add", [x, y], name)

    graph.add("Split", [product("mean", "bag", d, 2 * d)], "bag", "bag.gate", axis=-1)
    y = total(total("x", "bag", "x.bag"), product("near", "near", len(SHIFTS) * d, d), "x.near")
    gate = total(product("beside", "beside", len(GATES) * d, d), "bag.gate", "gate")
    gated = graph.add("Mul", ["x", graph.add("Tanh", [gate], "tanh")], "gated")
    normed = graph.add("LayerNormalization", ["x", *norm("norm")], "normed", epsilon=EPSILON)
    graph.add("Split", [product(normed, "qkv", d, 3 * d)], "queries", "keys", "values", axis=-1)
    read = ["queries", "keys", "values", "", "", "distances"]
    graph.add("MultiHeadAttention", read, "attended", domain=RUNTIME, num_heads=heads)
    added = [product("attended", "out", d, d), total(y, gated, "y"), *norm("inner_norm")]
    outputs = ["inner", "", "", "inner.sum"]
    graph.add("SkipLayerNormalization", added, *outputs, domain=RUNTIME, epsilon=EPSILON)
    inner = graph.add("FastGelu", [product("inner", "up", d, d)], "gelu", domain=RUNTIME)
    total(product(inner, "down", d, d), "inner.sum", "states")
    return graph.load(states=("float32", [1, "n", d]))
