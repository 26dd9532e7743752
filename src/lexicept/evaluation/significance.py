"""Significance over queries: intervals of means, paired t-tests, and families of tests.

Intervals and tests take the queries as a random sample of all possible queries. Both use Student's
t: of a system's mean, and of the mean difference of two systems query by query.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

LEVEL = 0.95
"""Level of confidence intervals."""

PerQuery = Mapping[str, Mapping[str, float]]
"""Measure → query id → value."""


class Interval(NamedTuple):
    """A confidence interval of level ``LEVEL``; NaN on both sides for fewer than two queries."""

    low: float
    high: float


UNDEFINED = Interval(math.nan, math.nan)


class Comparison(NamedTuple):
    """A paired t-test of a system against the first, on one measure."""

    measure: str
    system: str
    baseline: str
    difference: float
    """Mean over the queries of the system's value minus the baseline's."""
    interval: Interval
    """Confidence interval of the difference."""
    t: float
    """Student's t; NaN for fewer than two queries, as are both p-values."""
    p: float
    """Two-sided p-value, as if this were the only test."""
    p_holm: float
    """The p-value corrected for the number of systems that the baseline is compared with on this
    measure (Holm 1979). The number of measures is not corrected for: choose one beforehand."""


def intervals(per_query: PerQuery) -> dict[str, Interval]:
    """Return the confidence interval of each measure's mean over the queries."""
    return {measure: _interval(list(values.values())) for measure, values in per_query.items()}


def compare(systems: Mapping[str, PerQuery]) -> list[Comparison]:
    """Compare every system but the first with the first, on every measure of the first.

    Args:
        systems: values over the same queries, by the system's name.
    """
    baseline, *names = systems
    comparisons: list[Comparison] = []
    for measure, values in systems[baseline].items():
        tests = [_test(measure, name, systems[name], baseline, values) for name in names]
        # Holm's correction sorts, which NaN breaks: all p-values are NaN or none is.
        if len(values) > 1:
            corrected = holm([test.p for test in tests])
            tests = [test._replace(p_holm=p) for test, p in zip(tests, corrected, strict=True)]
        comparisons += tests
    return comparisons


def _test(
    measure: str, name: str, system: PerQuery, baseline: str, values: Mapping[str, float]
) -> Comparison:
    differences = [system[measure][query] - value for query, value in values.items()]
    t, p = paired_t_test(differences)
    mean = float(np.mean(differences))
    return Comparison(measure, name, baseline, mean, _interval(differences), t, p, p)


def _interval(values: Sequence[float]) -> Interval:
    from scipy.stats import t  # scipy.stats takes .4 s to import

    if len(values) < 2:
        return UNDEFINED
    x = np.asarray(values, np.float64)
    mean, error = float(x.mean()), float((x.var(ddof=1) / x.size) ** 0.5)
    half = float(t.ppf((1 + LEVEL) / 2, x.size - 1)) * error
    return Interval(mean - half, mean + half)


def paired_t_test(differences: Sequence[float]) -> tuple[float, float]:
    """Return Student's t and the two-sided p-value of two systems' differences, query by query; NaN
    for fewer than two queries."""
    from scipy.stats import ttest_1samp

    if len(differences) < 2:
        return math.nan, math.nan
    if not any(differences):
        return 0.0, 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the same difference everywhere: t = ±inf
        result = ttest_1samp(differences, 0.0)
    return float(result.statistic), float(result.pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for the number of tests (Holm 1979): a wrong rejection in the family is as
    rare as in a single test.

    Returns:
        The adjusted p-values, in the same order, at most 1: the i-th smallest of m is multiplied by
        m − i + 1, and is at least as large as smaller p-values.
    """
    adjusted, largest = [0.0] * len(p_values), 0.0
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    for rank, position in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[position]))
        adjusted[position] = largest
    return adjusted
