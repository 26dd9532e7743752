"""The documents that a search may return."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lexicept.kernels.term_at_a_time import AllowedDocuments

EVERYTHING = AllowedDocuments(np.zeros(0, np.bool_), np.zeros(0, np.int64))


class Mask:
    """The documents that a search may return; many searches may share one mask.

    Args:
        allowed: True for documents that may be results [N].
    """

    def __init__(self, allowed: Any) -> None:
        self.allowed: npt.NDArray[np.bool_] = np.ascontiguousarray(allowed, np.bool_)
        self.count = int(np.count_nonzero(self.allowed))
        """Number of allowed documents."""
        self._by_segment: dict[int, AllowedDocuments] = {}

    def by_segment(self, size: int) -> AllowedDocuments:
        """Return the mask in segments of ``size`` documents, at most 2**16."""
        if size not in self._by_segment:
            starts = np.arange(0, self.allowed.size, size)
            counts = np.add.reduceat(self.allowed, starts, dtype=np.int64)
            self._by_segment[size] = AllowedDocuments(self.allowed, counts)
        return self._by_segment[size]
