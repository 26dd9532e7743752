"""The largest products of vectors with the rows of a matrix: candidates by 8 bits in ONNX Runtime,
of which the products are computed again."""

from __future__ import annotations

import numpy as np

from lexicept.models.onnx_bert import Declared, GraphBuilder, rounded
from lexicept.vectors import Floats, Integers

SPARE = 16
"""Candidates beside the results."""


class LargestProducts:
    """Finds about the k largest of ``matrix x + bias`` for vectors x, with exact products.

    Args:
        matrix: f32 [rows, d].
        bias: f32 [rows], 0 by default.
    """

    def __init__(self, matrix: Floats, bias: Floats | None = None) -> None:
        self._matrix = matrix
        self._bias = np.zeros(len(matrix), np.float32) if bias is None else bias
        vectors: Declared = ("float32", ["vectors", matrix.shape[1]])
        weights = {**rounded("products", matrix), "products.bias": self._bias}
        graph = GraphBuilder(weights, x=vectors, k=("int64", [1]))
        graph.linear("x", "products", *matrix.shape)
        graph.add("TopK", ["products", "k"], "values", "rows", sorted=0)
        self._candidates = graph.load(threads=1, rows=("int64", ["vectors", "k"]))

    def of(self, x: Floats, k: int) -> tuple[Floats, Integers]:
        """Return the products and the rows, both [n, k], the largest product first, for vectors
        [n, d]; fewer if the matrix has fewer rows."""
        count = np.array([min(k + SPARE, len(self._matrix))])
        (candidates,) = self._candidates.run(x=x, k=count)
        products = (self._matrix[candidates] @ x[..., None])[..., 0] + self._bias[candidates]
        order = np.argsort(-products, axis=1)[:, :k]
        vectors = np.arange(len(x))[:, None]
        return products[vectors, order], candidates[vectors, order]
