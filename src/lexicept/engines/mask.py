"""The documents that a search may return."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lexicept.vectors import Integers

FEW = 16
"""The allowed documents of a segment are few if at most one in ``FEW`` is allowed."""


class Segments(NamedTuple):
    """A mask as ``ops.postings`` takes it; all are empty where every document is allowed."""

    allowed: npt.NDArray[np.bool_]
    counts: Integers
    few: Integers
    few_starts: Integers


EVERYTHING = Segments(
    np.zeros(0, np.bool_), np.zeros(0, np.int64), np.zeros(0, np.uint16), np.zeros(0, np.int64)
)


class Mask:
    """The documents that a search may return; many searches may share one.

    Args:
        allowed: whether a document is one of them [N].
    """

    def __init__(self, allowed: Any) -> None:
        self.allowed: npt.NDArray[np.bool_] = np.ascontiguousarray(allowed, np.bool_)
        self.count = int(np.count_nonzero(self.allowed))
        """How many documents are allowed."""
        self._segments: dict[int, Segments] = {}

    def segments(self, size: int) -> Segments:
        """Return the mask in segments of ``size`` documents, at most 2**16."""
        if size not in self._segments:
            counts, few, starts = [], [np.zeros(0, np.uint16)], [0]
            for first in range(0, self.allowed.size, size):
                part = self.allowed[first : first + size]
                counts.append(int(np.count_nonzero(part)))
                if 0 < counts[-1] * FEW <= part.size:
                    few.append(np.flatnonzero(part).astype(np.uint16))
                    starts.append(starts[-1] + counts[-1])
                else:
                    starts.append(starts[-1])
            numbers = (np.array(counts, np.int64), np.concatenate(few), np.array(starts, np.int64))
            self._segments[size] = Segments(self.allowed, *numbers)
        return self._segments[size]
