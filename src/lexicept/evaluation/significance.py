"""Paired significance tests, and their correction for testing several times."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from lexicept.errors import InputError


class TTest(NamedTuple):
    """A paired t-test of run A against run B over the same queries."""

    difference: float
    """Mean of A minus mean of B."""
    t: float
    p: float
    """Two-sided p-value."""


def paired_t_test(a: Mapping[str, float], b: Mapping[str, float]) -> TTest:
    """Compare one measure's values per query of two runs.

    Raises:
        InputError: the queries differ, or there are fewer than two.
    """
    from scipy.stats import ttest_rel  # scipy.stats takes .4 s to import

    if a.keys() != b.keys() or len(a) < 2:
        raise InputError(f"a paired test needs the same queries twice: {len(a)} and {len(b)} given")
    x = np.array([a[query] for query in a])
    y = np.array([b[query] for query in a])
    if np.array_equal(x, y):
        return TTest(0.0, 0.0, 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the same difference everywhere: t = ±inf
        result = ttest_rel(x, y)
    return TTest(float((x - y).mean()), float(result.statistic), float(result.pvalue))


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values of several tests so that one wrong rejection among them is as rare as in one
    test (Holm 1979).

    Returns:
        The adjusted p-values, in the same order, at most 1: the i-th smallest of m is multiplied by
        m − i + 1, and is at least as large as those before it.
    """
    adjusted, largest = [0.0] * len(p_values), 0.0
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted
