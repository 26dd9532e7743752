"""Documents and queries for engines that search non-empty vectors without offsets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from lexicept.engines.interface import checked_offsets, single_precision
from lexicept.errors import IndexFormatError, InputError
from lexicept.storage.arrays import load_array, save_array
from lexicept.vectors import Floats, Vector, power_of_two, stack_columns

USED = "used.npy"

LARGEST = 2.0**15
"""Largest weight: Seismic keeps weights in half precision (at most 65,504)."""


@dataclass(frozen=True)
class OffsetDimension:
    """Offsets as one more dimension of documents and queries.

    A document's offset is the document's weight there, and a query's factor the query's weight.
    Scales are powers of two: no digit of a score changes.
    """

    num_documents: int
    used: npt.NDArray[np.bool_]
    """True for dimensions of any document [V]."""
    scale: float
    """Factor on all document weights, so that none exceeds ``LARGEST``."""
    offset_scale: float
    """Further factor on offsets, and divisor of queries' factors, that makes the largest offset
    about as large as the largest weight; 0 without offsets."""

    @classmethod
    def of(
        cls, documents: Any, offsets: npt.ArrayLike | None
    ) -> tuple[OffsetDimension, sp.csr_array]:
        """Return the dimension and the extended documents [N, V + 1]. Raises InputError for NaN,
        infinite or negative weights or offsets, or offsets of another length."""
        matrix = single_precision(documents)
        prior = checked_offsets(offsets, matrix.shape[0])
        if (prior < 0).any():
            raise InputError(f"document offsets must be at least 0, not {prior.min()}")
        largest = float(matrix.data.max(initial=0))
        highest = float(prior.max(initial=0))
        # Offsets may be far smaller than weights: half precision would lose them.
        offset_scale = 0.0
        if highest:
            offset_scale = power_of_two(largest / highest) if largest else 1.0
        scale = min(1.0, power_of_two(LARGEST / max(largest, highest * offset_scale, 1.0)))
        used = np.zeros(matrix.shape[1], bool)
        used[matrix.indices] = True
        column = sp.csr_array((prior.astype(float) * offset_scale).astype(np.float32)[:, None])
        extended = stack_columns([matrix, column])
        extended.data *= np.float32(scale)
        return cls(matrix.shape[0], used, scale, offset_scale), extended

    def extend(self, queries: sp.csr_array, factors: Floats) -> list[Vector | None]:
        """Return queries [n, V] and factors [n] as vectors; None for a query without matches.
        Raises InputError if a factor is too large for single precision."""
        # What the documents' offsets were multiplied by, factors are divided by.
        with np.errstate(over="ignore"):
            shares = factors / self.offset_scale if self.offset_scale else 0 * factors
            shares = shares.astype(np.float32)
        if not np.isfinite(shares).all():
            raise InputError(f"query offset {factors.max()} is too large for single precision")
        vectors: list[Vector | None] = []
        for (start, end), share in zip(pairwise(queries.indptr), shares, strict=True):
            dimensions, weights = queries.indices[start:end], queries.data[start:end]
            if not self.used[dimensions].any():
                vectors.append(None)
            elif share:
                dimensions = np.append(dimensions, self.used.size)
                vectors.append(Vector(dimensions, np.append(weights, share)))
            else:
                vectors.append(Vector(dimensions, weights))
        return vectors

    def save(self, folder: Path) -> dict[str, Any]:
        """Write the array; return the numbers, as JSON values."""
        save_array(folder / USED, self.used)
        return {
            "documents": self.num_documents,
            "scale": self.scale,
            "offset_scale": self.offset_scale,
        }

    @classmethod
    def load(cls, folder: Path, numbers: Mapping[str, Any]) -> OffsetDimension:
        """Load the files of ``save``. Raises IndexFormatError for anything else."""
        used = load_array(folder / USED, np.bool_)
        try:
            scale, offset_scale = float(numbers["scale"]), float(numbers["offset_scale"])
            return cls(int(numbers["documents"]), used, scale, offset_scale)
        except (KeyError, TypeError, ValueError) as error:
            raise IndexFormatError(f"{folder}: its manifest is damaged ({error})") from None
