"""The documents that a search may return."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lexicept.kernels.term_at_a_time import AllowedDocuments

FEW = 16
"""A segment has few allowed documents if at most one in ``FEW`` is allowed."""

EVERYTHING = AllowedDocuments(
    np.zeros(0, np.bool_), np.zeros(0, np.int64), np.zeros(0, np.uint16), np.zeros(0, np.int64)
)


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
            counts, few, starts = [], [np.zeros(0, np.uint16)], [0]
            for start in range(0, self.allowed.size, size):
                segment = self.allowed[start : start + size]
                counts.append(int(np.count_nonzero(segment)))
                # Numbers are listed where looking them up beats reading all of a segment's scores.
                is_few = counts[-1] * FEW <= segment.size
                if is_few:
                    few.append(np.flatnonzero(segment).astype(np.uint16))
                starts.append(starts[-1] + counts[-1] * is_few)
            self._by_segment[size] = AllowedDocuments(
                self.allowed,
                np.array(counts, np.int64),
                np.concatenate(few),
                np.array(starts, np.int64),
            )
        return self._by_segment[size]
