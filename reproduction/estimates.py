"""Estimates of the papers' comparisons: effectiveness at equal cost, and trainings as samples.

A model that is searched with several limits of dimensions gives points of cost and effectiveness.
The curve joins the points of the Pareto front, linearly in the logarithm of cost. Two models
are compared at the same QD-FLOPs, and by the mean difference of their curves over a range of costs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lexicept.errors import InputError
from lexicept.evaluation.significance import LEVEL, Interval
from lexicept.vectors import Floats

COSTS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""QD-FLOPs at which models are compared."""

QUERY_LIMITS: tuple[int | None, ...] = (2, 4, 8, 16, 32, None)
DOCUMENT_LIMITS: tuple[int | None, ...] = (8, 16, 32, 64, 128, 256, None)
"""Limits of dimensions that make the points of a curve."""


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

    def detectable(self, level: float, power: float = 0.8) -> float:
        """Return the least true difference that a two-sided test of a significance level finds
        with a probability of ``power``."""
        from scipy.stats import t

        return self.error * float(t.ppf(1 - level / 2, self.freedom) + t.ppf(power, self.freedom))


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
        """Return the Pareto front of some points.

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

        Above the largest cost, the effectiveness is the last point's: a budget need not be spent.
        """
        return None if cost < self.costs[0] else self._at(cost)

    def mean_over(self, low: float, high: float) -> Floats | None:
        """Return each query's mean effectiveness over the logarithm of the costs of a range [n];
        None if the curve begins above ``low``.

        The area between two curves, in units of effectiveness, is the difference of the means.

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
        mean: Floats = np.trapezoid(heights, np.log(costs), axis=0) / np.log(high / low)
        return mean

    def cost_of(self, value: float) -> float:
        """Return the least cost at which the mean effectiveness reaches a value; infinity if no
        point does. Below the cheapest point nothing is known: its cost is the least."""
        means = self.values.mean(axis=1)
        if value > means[-1]:
            return float("inf")
        return float(np.exp(np.interp(value, means, np.log(self.costs))))

    def _at(self, cost: float) -> Floats:
        right = int(np.searchsorted(self.costs, cost))
        if right == len(self.costs) or self.costs[right] == cost:
            return np.asarray(self.values[min(right, len(self.costs) - 1)])
        low, high = np.log(self.costs[right - 1 : right + 1])
        share = (np.log(cost) - low) / (high - low)
        between: Floats = (1 - share) * self.values[right - 1] + share * self.values[right]
        return between


def recorded_cost(values: Mapping[str, float], dataset: str, target: float) -> float | None:
    """Return the least cost at which a model reaches an nDCG@10, from recorded readings of the
    curve and the unpruned model; None without readings.

    The cost is bounded by the range of ``COSTS``: where less is enough, the cost is the range's
    lower end, and a model that never reaches the target has the upper end.
    """
    measure = f"{dataset} nDCG@10"
    points = [(cost, values.get(f"{measure} at {cost:g}")) for cost in COSTS]
    readings = [(cost, value) for cost, value in points if value is not None]
    if not readings or f"{dataset} QD-FLOPs" not in values:
        return None
    readings.append((values[f"{dataset} QD-FLOPs"], values[measure]))
    curve = CostCurve.of([cost for cost, _ in readings], [[value] for _, value in readings])
    return float(np.clip(curve.cost_of(target), COSTS[0], COSTS[-1]))


def curve_limits(
    query_limits: Sequence[int | None] = QUERY_LIMITS,
    document_limits: Sequence[int | None] = DOCUMENT_LIMITS,
) -> list[tuple[int | None, int | None]]:
    """Return all pairs of query and document limits of a pruning curve."""
    return [(query, document) for document in document_limits for query in query_limits]


def seeded_difference(a: npt.ArrayLike, b: npt.ArrayLike, *, paired: bool = False) -> Estimate:
    """Compare two models over the same queries and over trainings, both of which are samples.

    The estimate is the mean of A minus the mean of B. The variance is ``s_d² / n`` of the queries'
    mean differences plus ``s_A² / S_A + s_B² / S_B`` of the trainings' means, with Satterthwaite's
    degrees of freedom. The trainings' means contain the noise of the queries too, so that the
    variance is slightly too large. With a training each, the test is the paired t-test: an
    untrained model has no variance of trainings.

    Args:
        a: values by training and query [S_A, n].
        b: values of the other model [S_B, n], with the queries in the same order.
        paired: the rows of ``a`` and ``b`` are of the same trainings, such as a model pruned in
            two ways: the variance of trainings is that of their differences, ``s² / S``.

    Raises:
        InputError: no numbers, other queries, or paired numbers of other trainings.
    """
    x, y = (np.atleast_2d(np.asarray(values, np.float64)) for values in (a, b))
    if x.shape[1] != y.shape[1] or not x.size or not y.size:
        raise InputError(f"a paired comparison needs the same queries: {x.shape} and {y.shape}")
    per_query = x.mean(axis=0) - y.mean(axis=0)
    trainings = _samples(x.mean(axis=1), y.mean(axis=1), paired)
    return _difference(float(per_query.mean()), [per_query, *trainings])


def trainings_difference(a: npt.ArrayLike, b: npt.ArrayLike, *, paired: bool = False) -> Estimate:
    """Compare a number of two models over trainings, by Welch's t-test or the paired t-test.

    Args:
        a: the number of each training [S_A]; one number of an untrained model.
        b: the same of the other model [S_B].
        paired: see ``seeded_difference``.

    Raises:
        InputError: paired numbers of other trainings.
    """
    x, y = (np.atleast_1d(np.asarray(values, np.float64)) for values in (a, b))
    return _difference(float(x.mean() - y.mean()), _samples(x, y, paired))


def _samples(x: Floats, y: Floats, paired: bool) -> list[Floats]:
    if paired and x.shape != y.shape:
        raise InputError(f"a pair is of the same trainings: {len(x)} and {len(y)}")
    return [x - y] if paired else [x, y]


def _difference(mean: float, samples: Sequence[Floats]) -> Estimate:
    sizes = [(sample.var(ddof=1), sample.size) for sample in samples if sample.size > 1]
    return combined(mean, [(variance / size, size - 1) for variance, size in sizes])
