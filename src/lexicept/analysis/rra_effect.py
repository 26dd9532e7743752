"""RRA's effect on weights: frequent dimensions lose, discriminative ones gain.

The case study of Rational Retrieval Acts (section 3, SPARTA on SciFact) looks at one document, in
which 'and' outweighs 'statistics' before and falls far below it after. ``document_effect`` is that
table, ``rra_effect`` the same over a collection, for its most frequent dimensions or for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from lexicept.errors import InputError
from lexicept.vectors import Floats, Integers, canonical_csr, row_numbers


class Change(NamedTuple):
    """A dimension of one document before and after RRA."""

    dimension: int
    before: float
    """The weight before. RRA's weights have another scale: compare ranks and shares."""
    after: float
    rank_before: int
    """Rank among the dimensions of the document; 1 is the largest weight."""
    rank_after: int


@dataclass(frozen=True)
class RRAEffect:
    """Means of every dimension before and after RRA, over the documents that have it; else 0.

    All are [V]. A rank is the share of a document's dimensions that do not weigh more than this
    one: 1 for its largest weight, next to 0 for its smallest, so that documents of any length
    count alike.
    """

    documents: Integers
    """Document frequency."""
    share_before: Floats
    """Mean share of a document's total weight."""
    share_after: Floats
    rank_before: Floats
    """Mean rank in a document."""
    rank_after: Floats

    @property
    def most_frequent(self) -> Integers:
        """Return the dimensions by document frequency, largest first, without those of df 0."""
        order = np.argsort(-self.documents, kind="stable")
        dimensions: Integers = order[self.documents[order] > 0]
        return dimensions

    @property
    def rank_change(self) -> Floats:
        """Change of the mean rank [V], −1 to 1."""
        return self.rank_after - self.rank_before


def rra_effect(before: Any, after: Any) -> RRAEffect:
    """Compare a collection's weights before and after re-weighting.

    Args:
        before: SciPy sparse matrix [N, V].
        after: ``rra.reweight(before).weights``, or any weights on the same non-zeros; one that
            is missing here is 0.

    Raises:
        InputError: shapes that differ, or a non-zero that ``before`` does not have.
    """
    matrix, weights = _both(before, after)
    columns, width = matrix.indices, matrix.shape[1]
    documents = np.bincount(columns, minlength=width)

    def mean(values: Floats) -> Floats:
        total: Floats = np.bincount(columns, values, minlength=width) / np.maximum(documents, 1)
        return total

    measured = []
    for data in (matrix.data.astype(np.float64), weights):
        rows = row_numbers(matrix)
        sums = np.bincount(rows, data, minlength=matrix.shape[0])[rows]
        share = np.divide(data, sums, out=np.zeros_like(data), where=sums > 0)
        lengths = np.diff(matrix.indptr)[rows]
        measured += [mean(share), mean((lengths + 1 - _ranks(matrix, data)) / lengths)]
    return RRAEffect(documents, measured[0], measured[2], measured[1], measured[3])


def document_effect(before: Any, after: Any, row: int) -> list[Change]:
    """Return one document's dimensions before and after, by weight before; see ``rra_effect``.

    Raises:
        InputError: shapes that differ, or a non-zero that ``before`` does not have.
    """
    matrix, weights = _both(before, after)
    part = slice(matrix.indptr[row], matrix.indptr[row + 1])
    first = _ranks(matrix, matrix.data)[part]
    second = _ranks(matrix, weights)[part]
    columns = (matrix.indices[part], matrix.data[part], weights[part], first, second)
    changes = [Change(*values) for values in zip(*(c.tolist() for c in columns), strict=True)]
    return sorted(changes, key=lambda change: change.rank_before)


def _both(before: Any, after: Any) -> tuple[sp.csr_array, Floats]:
    """Return the first matrix, and the second's values on its non-zeros."""
    matrix, changed = canonical_csr(before), canonical_csr(after)
    if matrix.shape != changed.shape:
        raise InputError(f"weights {changed.shape} of a collection {matrix.shape}")
    keys, changed_keys = (row_numbers(m) * m.shape[1] + m.indices for m in (matrix, changed))
    if not np.isin(changed_keys, keys, assume_unique=True).all():
        raise InputError("weights on dimensions that the documents had not before")
    weights = np.zeros(keys.size)
    weights[np.searchsorted(keys, changed_keys)] = changed.data
    return matrix, weights


def _ranks(matrix: sp.csr_array, data: Floats) -> Integers:
    """Rank the values of each row; 1 is the largest, ties go to the lower dimension."""
    rows = row_numbers(matrix)
    order = np.lexsort((matrix.indices, -data, rows))
    ranks = np.empty(data.size, np.int64)
    ranks[order] = np.arange(data.size) - matrix.indptr[rows[order]] + 1
    return ranks
