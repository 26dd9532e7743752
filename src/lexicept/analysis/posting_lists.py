"""Lengths of posting lists, the cost of a search (SPLARE figure 3, ESPLADE table 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lexicept.errors import InputError
from lexicept.vectors import Floats, Integers, canonical_csr


@dataclass(frozen=True)
class PostingLists:
    """Lengths of all posting lists of a model, empty ones included.

    Compare models at equal shares of their lists.
    """

    lengths: Integers
    """Document frequencies, largest first [V]."""
    num_documents: int

    @property
    def mean(self) -> float:
        """Mean length; 0 without dimensions."""
        return float(self.lengths.mean()) if self.lengths.size else 0.0

    @property
    def variance(self) -> float:
        """Variance of the lengths (divided by V); 0 without dimensions."""
        return float(self.lengths.var()) if self.lengths.size else 0.0

    @property
    def std(self) -> float:
        return float(np.sqrt(self.variance))

    @property
    def empty(self) -> float:
        """Share of the lists without a document; 0 without dimensions."""
        return float((self.lengths == 0).mean()) if self.lengths.size else 0.0

    def quantiles(self, shares: npt.ArrayLike) -> Integers:
        """Return the lengths that these shares of all lists do not exceed [len(shares)].

        Args:
            shares: within 0 (the shortest list) and 1 (the longest).

        Raises:
            InputError: a share outside 0 to 1.
        """
        ascending = self.lengths[::-1]
        # Less a little: .1 · 70 is above 7.
        places = np.ceil(_within(shares) * ascending.size - 1e-9).astype(np.int64) - 1
        lengths: Integers = ascending[np.maximum(places, 0)] if ascending.size else 0 * places
        return lengths

    def cumulative_share(self, shares: npt.ArrayLike) -> Floats:
        """Return the share of all postings in a share of the longest lists: [len(shares)].

        A share of 1 gives 1; without postings everything is 0.

        Raises:
            InputError: a share outside 0 to 1.
        """
        held = np.concatenate([[0], np.cumsum(self.lengths)])
        places = np.rint(_within(shares) * self.lengths.size).astype(np.int64)
        held_shares: Floats = held[places] / max(int(held[-1]), 1)
        return held_shares


def posting_lists(documents: Any) -> PostingLists:
    """Return the lengths of the posting lists of a sparse matrix [N, V] of document weights."""
    matrix = canonical_csr(documents)
    lengths = np.bincount(matrix.indices, minlength=matrix.shape[1])
    return PostingLists(np.sort(lengths)[::-1], matrix.shape[0])


def _within(shares: npt.ArrayLike) -> Floats:
    values = np.asarray(shares, np.float64)
    if not ((values >= 0) & (values <= 1)).all():
        raise InputError(f"shares of all lists are within 0 and 1, not {values.tolist()}")
    return values
