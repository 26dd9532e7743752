"""Whole texts as sparse vectors over exemplars, texts of the collection that were drawn at random.

A text is represented by the mean of its tokens' states. Its weight of an exemplar is the cosine of
the two, measured from the collection's centre, less ``TAKEN_OFF`` times the largest cosine that is
not kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from lexicept.errors import IndexFormatError
from lexicept.storage.arrays import load_array, save_array
from lexicept.vectors import Floats

KEPT: Mapping[str, int] = {"query": 16, "document": 32}
"""Exemplars that a query and a document keep, those of the largest cosines."""

TAKEN_OFF = 0.9
"""Factor on the largest cosine that is not kept; the product is subtracted from those kept."""

BLOCK = 2**24
"""Most cells of a dense array of cosines: 64 MB."""


class Exemplars:
    """Texts that others are compared with.

    Args:
        states: f32 [n, d], of unit length from the centre.
        centre: f32 [d], the mean of a sample's texts of unit length.
    """

    def __init__(self, states: Floats, centre: Floats) -> None:
        self._states, self._centre = states, centre

    @classmethod
    def of(cls, means: Floats, most: int) -> Exemplars:
        """Make exemplars of the first ``most`` texts of a sample.

        Args:
            means: the mean states of its texts [m, d], as ``vectors`` takes them.
        """
        centre = _unit(means).mean(axis=0).astype(np.float32)
        # Half precision is what is stored: what is computed now and after loading must be equal.
        halves = _unit(_unit(means[:most]) - centre).astype(np.float16)
        return cls(halves.astype(np.float32), centre)

    def __len__(self) -> int:
        return len(self._states)

    @property
    def d(self) -> int:
        """Size of a state."""
        return int(self._centre.size)

    def vectors(self, means: Floats, task: str) -> sp.csr_array:
        """Return the weights of texts, CSR f32 [m, n] with rows of unit length.

        Args:
            means: the mean states of their tokens [m, d]; zeros for a text without any, which has
                no weights.
            task: query or document.
        """
        step = max(1, BLOCK // max(1, len(self)))
        parts = [sp.csr_array((0, len(self)), dtype=np.float32)]
        for start in range(0, len(means), step):
            parts.append(self._block(means[start : start + step].astype(np.float32), task))
        return sp.csr_array(sp.vstack(parts, format="csr"))

    def _block(self, means: Floats, task: str) -> sp.csr_array:
        cosines = _unit(_unit(means) - self._centre) @ self._states.T
        cosines[~means.any(axis=1)] = 0
        kept = min(KEPT[task], len(self))
        largest = np.argsort(-cosines, axis=1, kind="stable")[:, : kept + 1]
        weights = np.maximum(np.take_along_axis(cosines, largest, axis=1), 0)
        if largest.shape[1] > kept:
            weights = np.maximum(weights[:, :kept] - TAKEN_OFF * weights[:, kept:], 0)
        rows = np.repeat(np.arange(len(means)), kept)
        columns = largest[:, :kept].ravel()
        found = sp.coo_array((_unit(weights).ravel(), (rows, columns)), cosines.shape).tocsr()
        found.eliminate_zeros()
        found.sort_indices()
        return sp.csr_array(found)

    def save(self, folder: Path) -> None:
        """Write them into a folder."""
        save_array(folder / "exemplars.npy", self._states.astype(np.float16))
        save_array(folder / "centre.npy", self._centre)

    @classmethod
    def load(cls, folder: Path) -> Exemplars:
        """Read what ``save`` wrote. Raises IndexFormatError for anything else."""
        states = load_array(folder / "exemplars.npy", np.float16, ndim=2)
        centre = load_array(folder / "centre.npy", np.float32)
        if states.shape[1] != centre.size:
            raise IndexFormatError(f"{folder}: exemplars of {states.shape[1]} for {centre.size}")
        return cls(states.astype(np.float32), centre)


def _unit(rows: Floats) -> Floats:
    """Return rows of unit length; those of zeros stay."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    units: Floats = rows / np.maximum(lengths, np.finfo(np.float32).tiny)
    return units
