"""Random sparse matrices (with empty rows and columns, or none at all), and random files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
from hypothesis import strategies as st

T = TypeVar("T")

EIGHTHS = st.integers(1, 64).map(lambda n: n / 8)
"""Weights whose products and sums are exact in single precision, and that are often equal."""

REALS = st.floats(2**-10, 20, width=32)


@st.composite
def sparse_matrices(
    draw: st.DrawFn,
    records: st.SearchStrategy[int] = st.integers(0, 8),  # noqa: B008
    columns: st.SearchStrategy[int] | int = st.integers(0, 6),  # noqa: B008
    weights: st.SearchStrategy[float] = EIGHTHS,
    dtype: Any = np.float32,
) -> sp.csr_array:
    """A canonical CSR matrix of positive weights; often the first or last row is empty."""
    height = draw(records)
    width = columns if isinstance(columns, int) else draw(columns)
    dense = np.zeros((height, width), dtype)
    if height and width:
        positions = st.tuples(st.integers(0, height - 1), st.integers(0, width - 1))
        for (row, column), weight in draw(
            st.dictionaries(positions, weights, max_size=height * width)
        ).items():
            dense[row, column] = weight
        for row in draw(st.sets(st.sampled_from([0, height - 1]))):
            dense[row] = 0
        for column in draw(st.sets(st.integers(0, width - 1), max_size=2)):
            dense[:, column] = 0
    return sp.csr_array(dense)


@st.composite
def collections(
    draw: st.DrawFn, weights: st.SearchStrategy[float] = EIGHTHS
) -> tuple[sp.csr_array, sp.csr_array]:
    """Queries [n, V] and documents [N, V] over the same dimensions."""
    width = draw(st.integers(0, 6))
    queries = draw(sparse_matrices(st.integers(0, 4), width, weights))
    return queries, draw(sparse_matrices(st.integers(0, 12), width, weights))


def read_bytes(
    read: Callable[[Path], T], data: bytes, path: Path, error: type[Exception]
) -> T | None:
    """Read a file of these bytes: the result, or None if an error names the file."""
    path.write_bytes(data)
    try:
        return read(path)
    except error as refused:
        message = str(refused)
    assert str(path) in message
    return None
