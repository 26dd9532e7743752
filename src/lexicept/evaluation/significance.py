"""Significance: paired tests over queries, trainings as samples, and families of tests."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

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


class Difference(NamedTuple):
    """An estimated difference with its uncertainty."""

    difference: float
    error: float
    """Standard error; 0 where neither sample varies."""
    freedom: float
    """Degrees of freedom of Student's t."""

    def p(self, null: float = 0.0) -> float:
        """Return the two-sided p-value of the difference being ``null``."""
        from scipy.stats import t

        if self.error == 0:
            return 1.0 if self.difference == null else 0.0
        return float(2 * t.sf(abs(self.difference - null) / self.error, self.freedom))

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return both ends of the confidence interval of a level between 0 and 1."""
        from scipy.stats import t

        half = float(t.ppf((1 + level) / 2, self.freedom)) * self.error if self.error else 0.0
        return self.difference - half, self.difference + half


def seeded_difference(a: npt.ArrayLike, b: npt.ArrayLike) -> Difference:
    """Compare two models over the same queries and their own trainings, both of which are samples.

    The estimate is the mean of A minus the mean of B. Its variance is ``s_d² / n`` of the queries'
    mean differences plus ``s_A² / S_A + s_B² / S_B`` of the trainings' means, and its degrees of
    freedom are Satterthwaite's. The trainings' means contain the noise of the queries too, so that
    the variance is slightly too large. With one row each it is the paired t-test: a model that
    is not trained has no variance of trainings.

    Args:
        a: a row for each training, a column for each query [S_A, n].
        b: the same of the other model [S_B, n], with the queries in the same order.

    Raises:
        InputError: no numbers, or other queries.
    """
    x, y = (np.atleast_2d(np.asarray(values, np.float64)) for values in (a, b))
    if x.shape[1] != y.shape[1] or not x.size or not y.size:
        raise InputError(f"a paired comparison needs the same queries: {x.shape} and {y.shape}")
    per_query = x.mean(axis=0) - y.mean(axis=0)
    parts = [(per_query, per_query.size), *((each.mean(axis=1), len(each)) for each in (x, y))]
    variances = [(v.var(ddof=1) / size, size - 1) for v, size in parts if size > 1]
    return _combined(float(per_query.mean()), variances)


def mean_over_queries(values: npt.ArrayLike) -> Difference:
    """Estimate a mean from a sample of queries: its difference from 0, with Student's t.

    Args:
        values: one for each query [n].

    Raises:
        InputError: fewer than two queries.
    """
    x = np.asarray(values, np.float64)
    if x.ndim != 1 or x.size < 2:
        raise InputError(f"an interval needs the values of at least two queries: {x.size} given")
    return _combined(float(x.mean()), [(x.var(ddof=1) / x.size, x.size - 1)])


def trainings_difference(a: npt.ArrayLike, b: npt.ArrayLike) -> Difference:
    """Compare a number of two models over their trainings, as Welch's t-test does.

    Args:
        a: the number of each training [S_A]; one number of a model that is not trained.
        b: the same of the other model [S_B].
    """
    x, y = (np.atleast_1d(np.asarray(values, np.float64)) for values in (a, b))
    variances = [(v.var(ddof=1) / v.size, v.size - 1) for v in (x, y) if v.size > 1]
    return _combined(float(x.mean() - y.mean()), variances)


def _combined(difference: float, variances: Sequence[tuple[float, int]]) -> Difference:
    """Add independent variances up, with Satterthwaite's degrees of freedom."""
    total = sum(variance for variance, _ in variances)
    if total == 0:
        return Difference(difference, 0.0, 1.0)
    weights = sum(variance**2 / freedom for variance, freedom in variances)
    return Difference(difference, float(total) ** 0.5, float(total**2 / weights))
