"""The largest products of vectors with the rows of a matrix: candidates by 8 bits in ONNX Runtime,
of which the products are computed again."""

from __future__ import annotations

import math

import numpy as np

from lexicept.encoding.onnx_bert import Declared, GraphBuilder, rounded
from lexicept.vectors import Floats, Integers

SPARE = 8
"""Candidates beside twice the results: errors of 8 bits move rows by few ranks."""

CHUNK = 32
"""Rows of the matrix of which the largest product is found before the largest of all."""


class LargestProducts:
    """Finds about the k largest of ``matrix x + bias`` for vectors x, with exact products.

    Args:
        matrix: f32 [rows, d].
        bias: f32 [rows], 0 by default.
    """

    def __init__(self, matrix: Floats, bias: Floats | None = None) -> None:
        self._matrix = matrix
        self._bias = np.zeros(len(matrix), np.float32) if bias is None else bias
        chunk = math.gcd(CHUNK, len(matrix))
        self._chunk, self._chunks = chunk, len(matrix) // chunk
        weights = {
            **rounded("products", matrix),
            "products.bias": self._bias,
            "in chunks": np.array([0, self._chunks, chunk]),
            "axis": np.array([2]),
        }
        vectors: Declared = ("float32", ["vectors", matrix.shape[1]])
        count: Declared = ("int64", [1])
        graph = GraphBuilder(weights, x=vectors, num_chunks=count, k=count)
        products = graph.linear("x", "products", *matrix.shape)
        # The k largest products are in the k chunks with the largest maxima.
        chunked = graph.add("Reshape", [products, "in chunks"], "chunked")
        maxima = graph.add("ReduceMax", [chunked, "axis"], "maxima", keepdims=0)
        graph.add("TopK", [maxima, "num_chunks"], "largest maxima", "chunks", sorted=0)
        indices = graph.add("Unsqueeze", ["chunks", "axis"], "indices")
        among = graph.add("GatherND", [chunked, indices], "largest chunks", batch_dims=1)
        among = graph.add("Flatten", [among], "among", axis=1)
        graph.add("TopK", [among, "k"], "largest", "positions", sorted=0)
        found: Declared = ("int64", ["vectors", "found"])
        self._candidates = graph.load(threads=1, chunks=found, positions=found)

    def of(self, x: Floats, k: int) -> tuple[Floats, Integers]:
        """Return the products and the rows, both [n, k], the largest product first, for vectors
        [n, d]; fewer if the matrix has fewer rows."""
        count = min(2 * k + SPARE, len(self._matrix))
        chunks, positions = self._candidates.run(
            x=x, num_chunks=np.array([min(count, self._chunks)]), k=np.array([count])
        )
        vectors = np.arange(len(x))[:, None]
        chunk = chunks[vectors, positions // self._chunk]
        candidates = chunk * self._chunk + positions % self._chunk
        products = (self._matrix[candidates] @ x[..., None])[..., 0] + self._bias[candidates]
        order = np.argsort(-products, axis=1)[:, :k]
        return products[vectors, order], candidates[vectors, order]
