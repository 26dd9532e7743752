"""The documents that a search may return."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from lexicept.kernels.posting_lists import SEGMENT
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

    @cached_property
    def by_segment(self) -> AllowedDocuments:
        """The mask, and the number of allowed documents in each segment."""
        starts = np.arange(0, self.allowed.size, SEGMENT)
        counts = np.add.reduceat(self.allowed, starts, dtype=np.int64)
        return AllowedDocuments(self.allowed, counts)
