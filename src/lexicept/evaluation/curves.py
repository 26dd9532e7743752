"""Effectiveness at equal cost: a model's pruning curve, read at costs that models share.

A model that is searched with several limits of dimensions gives points of cost and effectiveness.
Its curve joins the points that no other one beats, linearly in the logarithm of cost. Two models
are compared at the same QD-FLOPs, and by the mean difference of their curves over a range of costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lexicept.errors import InputError
from lexicept.vectors import Floats

COSTS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""QD-FLOPs at which models are compared."""

QUERY_LIMITS: tuple[int | None, ...] = (2, 4, 8, 16, 32, None)
DOCUMENT_LIMITS: tuple[int | None, ...] = (8, 16, 32, 64, 128, 256, None)
"""Limits of dimensions of the pruning curve; None sets no limit."""


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
