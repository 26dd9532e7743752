"""Vectors of queries: rows of a table combined, and the entries that a budget allows.

A query has some hundred entries. SciPy and NumPy take longer to be called than to work on them.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from lexicept.ops.compiled import LOOPED, by_work, compiled
from lexicept.vectors import Floats, Integers, with_entries


def combine_rows_reference(
    numbers: Integers,
    indptr: Integers,
    indices: Integers,
    data: Floats,
    num_columns: int,
    largest: bool,
) -> tuple[Integers, Floats]:
    """Add up some rows of a CSR matrix, or take the largest value of each column.

    Args:
        numbers: of the rows, which may repeat.
        indptr, indices, data: those of the matrix; its values are above 0.
        largest: take the largest value instead of the sum.

    Returns:
        The columns that a row has, ascending, and their values, f32.
    """
    found: dict[int, float] = {}
    for number in numbers.tolist():
        for place in range(indptr[number], indptr[number + 1]):
            column, value = int(indices[place]), float(data[place])
            before = found.get(column, 0.0)
            found[column] = max(before, value) if largest else before + value
    columns = sorted(found)
    return np.array(columns, np.int32), np.array([found[c] for c in columns], np.float32)


@compiled()
def combine_rows(  # pragma: no cover - compiled
    numbers, indptr, indices, data, num_columns, largest
):
    """Compiled version of ``combine_rows_reference``."""
    most = 0
    for number in numbers:
        most += indptr[number + 1] - indptr[number]
    values = np.zeros(num_columns)
    columns = np.empty(most, np.int32)
    count = 0
    for number in numbers:
        for place in range(indptr[number], indptr[number + 1]):
            column, value = indices[place], np.float64(data[place])
            if values[column] == 0:
                columns[count] = column
                count += 1
            values[column] = max(values[column], value) if largest else values[column] + value
    found = np.sort(columns[:count])
    return found, values[found].astype(np.float32)


def kept_within_reference(
    impact: Floats, columns: Integers, indptr: Integers, costs: Integers, budget: float, most: int
) -> tuple[Integers, Integers]:
    """Choose the entries of every row with the largest impact whose costs fit a budget.

    The largest comes first; one that costs more than is left is passed over, and smaller ones that
    fit are kept. Of equal ones the first comes first.

    Args:
        impact: of each entry.
        columns: of each entry.
        indptr: places of the rows' first entries, and the number of all.
        costs: of each column.
        budget: the most that a row's entries cost together.
        most: the most entries of a row.

    Returns:
        Places of the kept entries, ascending, and the places of the rows' first ones among them.
    """
    kept: list[int] = []
    ends = [0]
    for start, end in pairwise(indptr.tolist()):
        left = budget
        for place in start + np.argsort(-impact[start:end], kind="stable"):
            cost = costs[columns[place]]
            if cost <= left and len(kept) < ends[-1] + most:
                left -= cost
                kept.append(int(place))
        ends.append(len(kept))
    return np.array(sorted(kept), np.int64), np.array(ends, indptr.dtype)


@compiled()
def kept_within(  # pragma: no cover - compiled
    impact, columns, indptr, costs, budget, most
):
    """Compiled version of ``kept_within_reference``."""
    keep = np.zeros(impact.size, np.bool_)
    ends = np.zeros_like(indptr)
    for row in range(indptr.size - 1):
        start = indptr[row]
        left, count = np.float64(budget), 0
        for place in np.argsort(-impact[start : indptr[row + 1]], kind="mergesort"):
            cost = costs[columns[start + place]]
            if cost <= left:
                if count == most:
                    break
                left -= cost
                keep[start + place] = True
                count += 1
        ends[row + 1] = ends[row] + count
    return np.flatnonzero(keep), ends


def prune_within(
    matrix: sp.csr_array, budget: float, costs: Integers, importance: Floats | None, most: int
) -> sp.csr_array:
    """Keep the entries of every row that ``kept_within_reference`` chooses.

    Args:
        matrix: CSR [n, V].
        budget, costs, most: see there.
        importance: a factor per dimension [V] for the comparison only; the weights stay. 1 by
            default.
    """
    impact = matrix.data if importance is None else matrix.data * importance[matrix.indices]
    keep = by_work(matrix.nnz * LOOPED, kept_within, kept_within_reference)
    kept, indptr = keep(impact, matrix.indices, matrix.indptr, costs, budget, most)
    return with_entries(matrix, matrix.data[kept], matrix.indices[kept], indptr)
