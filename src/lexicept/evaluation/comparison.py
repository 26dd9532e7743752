"""Several systems on the same queries: intervals, and paired tests against the first.

Intervals and tests take the queries as a random sample of all that might be asked. They are
Student's t: of a system's mean, and of the mean difference of two systems query by query.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from lexicept.evaluation.significance import (
    holm,
    mean_over_queries,
    paired_t_test,
    seeded_difference,
)

LEVEL = 0.95
"""Level of confidence intervals."""

PerQuery = Mapping[str, Mapping[str, float]]
"""Measure → query id → value."""


class Interval(NamedTuple):
    """A confidence interval of level ``LEVEL``; NaN on both sides for fewer than two queries."""

    low: float
    high: float


NOT_KNOWN = Interval(math.nan, math.nan)


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
    return {
        measure: Interval(*mean_over_queries(list(values.values())).interval(LEVEL))
        if len(values) > 1
        else NOT_KNOWN
        for measure, values in per_query.items()
    }


def compare(systems: Mapping[str, PerQuery]) -> list[Comparison]:
    """Compare every system but the first with the first, on every measure of the first.

    Args:
        systems: values over the same queries, by the system's name.
    """
    baseline, *others = systems
    found = []
    for measure, values in systems[baseline].items():
        tests = [_test(measure, name, systems[name], baseline, values) for name in others]
        # Holm's correction sorts, which NaN breaks: all p-values are NaN or none is.
        known = tests if len(values) > 1 else []
        corrected = holm([test.p for test in known])
        known = [t._replace(p_holm=p) for t, p in zip(known, corrected, strict=True)]
        found += known or tests
    return found


def _test(
    measure: str, name: str, system: PerQuery, baseline: str, values: Mapping[str, float]
) -> Comparison:
    ours = system[measure]
    if len(values) < 2:
        (difference,) = (ours[query] - values[query] for query in values)
        nan = math.nan
        return Comparison(measure, name, baseline, difference, NOT_KNOWN, nan, nan, nan)
    test = paired_t_test(ours, values)
    estimate = seeded_difference([ours[query] for query in values], list(values.values()))
    interval = Interval(*estimate.interval(LEVEL))
    return Comparison(measure, name, baseline, test.difference, interval, test.t, test.p, test.p)
