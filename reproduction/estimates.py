"""Estimates of the papers' comparisons: effectiveness at equal cost, and trainings as samples.

A model that is searched with several limits of dimensions gives points of cost and effectiveness.
The curve joins the points of the Pareto front, linearly in the logarithm of cost. Two models
are compared at the same QD-FLOPs, and by the mean difference of their curves over a range of costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lexicept.errors import InputError
from lexicept.evaluation.significance import LEVEL, Interval
from lexicept.pipelines.evaluate import DOCUMENT_LIMITS, QUERY_LIMITS
from lexicept.vectors import Floats

COSTS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""QD-FLOPs at which models are compared."""


class Estimate(NamedTuple):
    """An estimated mean or difference of means, with the uncertainty."""

    difference: float
    error: float
    """Standard error; 0 where no sample varies."""
    freedom: float
    """Degrees of freedom of Student's t."""

    def p(self, null: float = 0.0) -> float:
        """Return the two-sided p-value of the difference being ``null``."""
        from scipy.stats import t

        if self.error == 0:
            return 1.0 if self.difference == null else 0.0
        return float(2 * t.sf(abs(self.difference - null) / self.error, self.freedom))

    def interval(self, level: float = LEVEL) -> Interval:
        """Return the confidence interval of a level between 0 and 1."""
        from scipy.stats import t

        half = float(t.ppf((1 + level) / 2, self.freedom)) * self.error if self.error else 0.0
        return Interval(self.difference - half, self.difference + half)


def combined(difference: float, variances: Sequence[tuple[float, int]]) -> Estimate:
    """Add independent variances up, with Satterthwaite's degrees of freedom."""
    total = sum(variance for variance, _ in variances)
    if total == 0:
        return Estimate(difference, 0.0, 1.0)
    weights = sum(variance**2 / freedom for variance, freedom in variances)
    return Estimate(difference, float(total) ** 0.5, float(total**2 / weights))


@dataclass(frozen=True)
class CostCurve:
    """Effectiveness by cost, of a model pruned more and less."""

    costs: Floats
    """Costs of the points on the curve, rising and above 0 [k]."""
    values: Floats
    """Effectiveness of each query at the points [k, n]."""

    @classmethod
    def of(cls, costs: npt.ArrayLike, values: npt.ArrayLike) -> CostCurve:
        """Return the curve of some points; those that another beats are left out.

        Args:
            costs: QD-FLOPs of each point [k]; points of cost 0 find nothing and are left out.
            values: effectiveness of each query at each point [k, n].

        Raises:
            InputError: other shapes, no point of a cost above 0, or a number that is not finite.
        """
        cost, value = np.asarray(costs, np.float64), np.asarray(values, np.float64)
        if cost.ndim != 1 or value.ndim != 2 or len(cost) != len(value):
            raise InputError(f"values {value.shape} of {cost.size} points")
        if not (np.isfinite(cost).all() and np.isfinite(value).all()):
            raise InputError("a point of the curve is not finite")
        means = value.mean(axis=1)
        front: list[int] = []
        for point in np.lexsort((-means, cost)):
            if cost[point] > 0 and (not front or means[point] > means[front[-1]]):
                front.append(int(point))
        if not front:
            raise InputError("no point of the curve has a cost above 0")
        return cls(cost[front], value[front])

    def at(self, cost: float) -> Floats | None:
        """Return each query's effectiveness at a cost [n]; None below the cheapest point.

        Above the largest cost it is that of the last point: a budget need not be spent.
        """
        if cost < self.costs[0]:
            return None
        right = int(np.searchsorted(self.costs, cost))
        if right == len(self.costs):
            return np.asarray(self.values[-1])
        if self.costs[right] == cost:
            return np.asarray(self.values[right])
        low, high = np.log(self.costs[right - 1 : right + 1])
        share = (np.log(cost) - low) / (high - low)
        between: Floats = (1 - share) * self.values[right - 1] + share * self.values[right]
        return between

    def mean_over(self, low: float, high: float) -> Floats | None:
        """Return each query's mean effectiveness over the logarithm of the costs of a range [n];
        None where the curve begins above ``low``.

        The area between two curves, in units of effectiveness, is the difference of their means.

        Raises:
            InputError: not 0 < ``low`` < ``high``.
        """
        if not 0 < low < high:
            raise InputError(f"no range of costs: {low} to {high}")
        if low < self.costs[0]:
            return None
        inner = self.costs[(self.costs > low) & (self.costs < high)]
        costs = np.array([low, *inner, high])
        heights = np.stack([self._at(cost) for cost in costs])
        widths = np.diff(np.log(costs))[:, None]
        area: Floats = (widths * (heights[1:] + heights[:-1]) / 2).sum(axis=0)
        mean: Floats = area / np.log(high / low)
        return mean

    def _at(self, cost: float) -> Floats:
        value = self.at(cost)
        assert value is not None
        return value


def curve_limits(
    query_limits: Sequence[int | None] = QUERY_LIMITS,
    document_limits: Sequence[int | None] = DOCUMENT_LIMITS,
) -> list[tuple[int | None, int | None]]:
    """Return all pairs of query and document limits of a pruning curve."""
    return [(query, document) for document in document_limits for query in query_limits]


def seeded_difference(a: npt.ArrayLike, b: npt.ArrayLike) -> Estimate:
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
    return combined(float(per_query.mean()), variances)


def trainings_difference(a: npt.ArrayLike, b: npt.ArrayLike) -> Estimate:
    """Compare a number of two models over their trainings, as Welch's t-test does.

    Args:
        a: the number of each training [S_A]; one number of a model that is not trained.
        b: the same of the other model [S_B].
    """
    x, y = (np.atleast_1d(np.asarray(values, np.float64)) for values in (a, b))
    variances = [(v.var(ddof=1) / v.size, v.size - 1) for v in (x, y) if v.size > 1]
    return combined(float(x.mean() - y.mean()), variances)
