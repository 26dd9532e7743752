"""Vectors of queries: the entries within a budget.

A query has some hundred entries: calling SciPy and NumPy takes longer than their work.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from lexicept.kernels.compiled import LOOPED, by_work, compiled
from lexicept.vectors import Floats, Integers, with_entries


def kept_within_reference(
    impact: Floats, columns: Integers, indptr: Integers, costs: Integers, budget: float, most: int
) -> tuple[Integers, Integers]:
    """Choose the entries of every query with the largest impact and costs within a budget.

    The largest comes first; an entry above the remaining budget is passed over, and smaller entries
    within the budget follow. Of equal entries the first comes first.

    Args:
        impact: of each entry.
        columns: of each entry.
        indptr: positions of the queries' first entries, and the number of all.
        costs: of each column.
        budget: most cost of a query's entries.
        most: most entries of a query.

    Returns:
        Positions of the chosen entries, ascending, and of each query's first among them.
    """
    chosen: list[int] = []
    ends = [0]
    for start, end in pairwise(indptr.tolist()):
        left = budget
        for position in start + np.argsort(-impact[start:end], kind="stable"):
            cost = costs[columns[position]]
            if cost <= left and len(chosen) < ends[-1] + most:
                left -= cost
                chosen.append(int(position))
        ends.append(len(chosen))
    return np.array(sorted(chosen), np.int64), np.array(ends, indptr.dtype)


@compiled()
def kept_within(impact, columns, indptr, costs, budget, most):
    """Compiled version of ``kept_within_reference``."""
    keep = np.zeros(impact.size, np.bool_)
    ends = np.zeros_like(indptr)
    for query in range(indptr.size - 1):
        start = indptr[query]
        left, count = np.float64(budget), 0
        # Largest impact first; entries that cost too much are passed over.
        for position in start + np.argsort(-impact[start : indptr[query + 1]], kind="mergesort"):
            cost = costs[columns[position]]
            if cost <= left:
                if count == most:
                    break
                left -= cost
                keep[position] = True
                count += 1
        ends[query + 1] = ends[query] + count
    return np.flatnonzero(keep), ends


def prune_within(
    matrix: sp.csr_array, budget: float, costs: Integers, importance: Floats | None, most: int
) -> sp.csr_array:
    """Keep the entries of every query that ``kept_within_reference`` chooses.

    Args:
        matrix: CSR [n, V].
        budget, costs, most: see there.
        importance: a factor per dimension [V] for the comparison alone, 1 by default.
    """
    impact = matrix.data if importance is None else matrix.data * importance[matrix.indices]
    keep = by_work(matrix.nnz * LOOPED, kept_within, kept_within_reference)
    positions, indptr = keep(impact, matrix.indices, matrix.indptr, costs, budget, most)
    return with_entries(matrix, matrix.data[positions], matrix.indices[positions], indptr)
