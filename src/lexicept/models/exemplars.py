"""Whole texts as sparse vectors over exemplars: randomly drawn texts of the collection.

A text is represented by the mean of token states. The weight of an exemplar is the cosine with the
text, measured from the collection's centre, less ``TAKEN_OFF`` times the largest cosine left out.
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
"""Number of exemplars of a query and a document, the largest cosines."""

TAKEN_OFF = 0.9
"""Factor on the largest cosine left out; the product is subtracted from all weights."""

BLOCK = 2**24
"""Most cells of a dense array of cosines: 64 MB."""


class Exemplars:
    """Texts of comparison: ``states`` f32 [n, d], of unit length from the ``centre`` [d], the mean
    of a sample's texts."""

    def __init__(self, states: Floats, centre: Floats) -> None:
        self._states, self._centre = states, centre

    @classmethod
    def of(cls, means: Floats, most: int) -> Exemplars:
        """Make exemplars of the first ``most`` texts of a sample with mean states [m, d]."""
        centre = _unit(means).mean(axis=0).astype(np.float32)
        # Files hold half precision: vectors must be equal before saving and after loading.
        halves = _unit(_unit(means[:most]) - centre).astype(np.float16)
        return cls(halves.astype(np.float32), centre)

    def __len__(self) -> int:
        return len(self._states)

    @property
    def d(self) -> int:
        """Size of a state."""
        return int(self._centre.size)

    def vectors(self, means: Floats, task: str) -> sp.csr_array:
        """Return the weights of texts, CSR f32 [m, n] with rows of unit length, from the mean
        states [m, d] of the texts' tokens. Zeros, the mean of no tokens, get no weights."""
        step = max(1, BLOCK // max(1, len(self)))
        blocks = [sp.csr_array((0, len(self)), dtype=np.float32)]
        for start in range(0, len(means), step):
            blocks.append(self._block(means[start : start + step].astype(np.float32), task))
        return sp.csr_array(sp.vstack(blocks, format="csr"))

    def cosines(self, means: Floats) -> Floats:
        """Return the cosines of mean states [m, d] with the exemplars, from the centre [m, n]."""
        cosines: Floats = _unit(_unit(means) - self._centre) @ self._states.T
        cosines[~means.any(axis=1)] = 0
        return cosines

    def _block(self, means: Floats, task: str) -> sp.csr_array:
        cosines = self.cosines(means)
        count = min(KEPT[task], len(self))
        largest = np.argsort(-cosines, axis=1, kind="stable")[:, : count + 1]
        weights = np.maximum(np.take_along_axis(cosines, largest, axis=1), 0)
        # What exemplars have in common, the largest cosine left out tells.
        if largest.shape[1] > count:
            weights = np.maximum(weights[:, :count] - TAKEN_OFF * weights[:, count:], 0)
        texts = np.repeat(np.arange(len(means)), count)
        exemplars = largest[:, :count].ravel()
        entries = (_unit(weights).ravel(), (texts, exemplars))
        vectors = sp.coo_array(entries, cosines.shape).tocsr()
        vectors.eliminate_zeros()
        vectors.sort_indices()
        return sp.csr_array(vectors)

    def save(self, folder: Path) -> None:
        """Write exemplars and centre into a folder."""
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


def _unit(states: Floats) -> Floats:
    """Return states of unit length; zeros stay."""
    lengths = np.linalg.norm(states, axis=1, keepdims=True)
    units: Floats = states / np.maximum(lengths, np.finfo(np.float32).tiny)
    return units
