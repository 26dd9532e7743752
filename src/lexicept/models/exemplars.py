"""Whole texts as sparse vectors over exemplars: randomly drawn texts of the collection.

A text is represented by the mean of token states. The weight of an exemplar is the cosine with the
text, measured from the collection's centre, less ``TAKEN_OFF`` times the largest cosine left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from lexicept.errors import IndexFormatError
from lexicept.models.largest_products import SPARE, LargestProducts
from lexicept.storage.arrays import load_array, save_array
from lexicept.vectors import Floats, Integers, canonical_entries, unit_rows

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
        centre = unit_rows(means).mean(axis=0).astype(np.float32)
        # Files hold half precision: vectors must be equal before saving and after loading.
        halves = unit_rows(unit_rows(means[:most]) - centre).astype(np.float16)
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
        step, count = max(1, BLOCK // max(1, len(self))), min(KEPT[task], len(self))
        lengths, exemplars, weights = [[0]], [np.empty(0, np.int32)], [np.empty(0, np.float32)]
        for start in range(0, len(means), step):
            block = means[start : start + step].astype(np.float32)
            cosines, places = self._largest(block, count + 1, task)
            kept = np.maximum(cosines[:, :count], 0)
            # What exemplars have in common, the largest cosine left out tells.
            if cosines.shape[1] > count:
                kept = np.maximum(kept - TAKEN_OFF * np.maximum(cosines[:, count:], 0), 0)
            order = np.argsort(places[:, :count], axis=1)
            texts = np.arange(len(block))[:, None]
            kept, places = unit_rows(kept)[texts, order], places[texts, order]
            lengths.append(np.count_nonzero(kept, axis=1))
            exemplars.append(places[kept > 0].astype(np.int32))
            weights.append(kept[kept > 0])
        ends = np.cumsum(np.concatenate(lengths))
        data, indices = np.concatenate(weights), np.concatenate(exemplars)
        return canonical_entries(data, indices, ends.astype(np.int32), len(self))

    def cosines(self, means: Floats) -> Floats:
        """Return the cosines of mean states [m, d] with the exemplars, from the centre [m, n]."""
        cosines: Floats = self._from_centre(means) @ self._states.T
        return cosines

    def _from_centre(self, means: Floats) -> Floats:
        directions = unit_rows(unit_rows(means) - self._centre)
        directions[~means.any(axis=1)] = 0
        return directions

    def _largest(self, means: Floats, count: int, task: str) -> tuple[Floats, Integers]:
        """Return the largest cosines, the largest first, and their exemplars [m, count]."""
        # Documents are compared with every exemplar, so that no stored weight depends on rounding.
        if task == "query" and len(means) and count + SPARE < len(self):
            return self._products.of(self._from_centre(means), count)
        cosines = self.cosines(means)
        order = np.argsort(-cosines, axis=1, kind="stable")[:, :count]
        return np.take_along_axis(cosines, order, axis=1), order

    @cached_property
    def _products(self) -> LargestProducts:
        return LargestProducts(self._states)

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
