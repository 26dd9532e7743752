"""Curves at equal cost and tests over queries and trainings, against numbers by hand and SciPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lexicept.errors import InputError
from reproduction.estimates import (
    CostCurve,
    Estimate,
    curve_limits,
    seeded_difference,
    trainings_difference,
)

COSTS = [1.0, 4.0, 2.0, 16.0, 0.0]
VALUES = [[0.2, 0.4], [0.5, 0.7], [0.1, 0.1], [0.8, 1.0], [0.9, 0.9]]


def test_a_curve_by_hand():
    curve = CostCurve.of(COSTS, VALUES)
    assert curve.costs.tolist() == [1, 4, 16]  # 2 is beaten by 1; 0 has no cost
    assert curve.at(0.99) is None
    assert curve.at(1.0) == pytest.approx([0.2, 0.4])
    assert curve.at(2.0) == pytest.approx([0.35, 0.55])  # half-way from 1 to 4 in its logarithm
    assert curve.at(16.0) == pytest.approx([0.8, 1.0])
    assert curve.at(99.0) == pytest.approx([0.8, 1.0])  # a budget need not be spent
    # Over log₂ 0 to 4: (.2 + .5) / 2 · 2 + (.5 + .8) / 2 · 2, divided by 4.
    assert curve.mean_over(1, 16) == pytest.approx([0.5, 0.7])
    assert curve.mean_over(4, 64) == pytest.approx([(0.65 * 2 + 0.8 * 2) / 4, (0.85 * 2 + 2) / 4])
    assert curve.mean_over(0.5, 16) is None


@given(st.floats(1, 10), st.floats(1.1, 10))
def test_the_mean_is_numpys_integral_over_a_fine_grid(low, factor):
    curve = CostCurve.of(COSTS, VALUES)
    grid = np.geomspace(low, low * factor, 2001)
    heights = np.stack([np.asarray(curve.at(float(cost))) for cost in grid])
    reference = np.trapezoid(heights, np.log(grid), axis=0) / np.log(factor)
    assert curve.mean_over(low, low * factor) == pytest.approx(reference, abs=1e-5)


def test_curves_that_are_refused():
    with pytest.raises(InputError, match="has a cost above 0"):
        CostCurve.of([0.0], [[1.0]])
    with pytest.raises(InputError, match="not finite"):
        CostCurve.of([1.0], [[np.nan]])
    with pytest.raises(InputError, match="of 2 points"):
        CostCurve.of([1.0, 2.0], [[1.0]])
    with pytest.raises(InputError, match="no range"):
        CostCurve.of([1.0], [[1.0]]).mean_over(2, 1)


def test_limits_are_all_pairs():
    assert curve_limits([4, None], [16, None]) == [(4, 16), (None, 16), (4, None), (None, None)]
    assert len(curve_limits()) == 42


def test_differences_are_those_of_scipy_s_tests():
    a, b = np.random.default_rng(0).random((2, 40))
    difference = seeded_difference(a, b)
    reference = stats.ttest_rel(a, b)
    assert difference.p() == pytest.approx(reference.pvalue)
    assert difference.interval() == pytest.approx(tuple(reference.confidence_interval()))
    a, b = [0.61, 0.64, 0.62, 0.66], [0.58, 0.63, 0.60]
    difference = trainings_difference(a, b)
    reference = stats.ttest_ind(a, b, equal_var=False)
    assert difference.p() == pytest.approx(reference.pvalue)
    assert difference.freedom == pytest.approx(reference.df)
    paired = trainings_difference(a[:3], b, paired=True)
    assert paired.p() == pytest.approx(stats.ttest_rel(a[:3], b).pvalue)
    with pytest.raises(InputError, match="same trainings: 4 and 3"):
        trainings_difference(a, b, paired=True)
    # Against a constant it is the one-sample test.
    assert trainings_difference(a, [0.6]).p() == pytest.approx(stats.ttest_1samp(a, 0.6).pvalue)


def test_queries_and_trainings_by_hand():
    a = [[0.5, 0.7, 0.9], [0.7, 0.9, 0.8]]
    difference = seeded_difference(a, [[0.5, 0.6, 0.7]])
    # Queries: .1, .2, .15 with variance .0025; trainings' means .7 and .8 with variance .005.
    variance = 0.0025 / 3 + 0.005 / 2
    assert difference.difference == pytest.approx(0.15)
    assert difference.error == pytest.approx(variance**0.5)
    assert difference.freedom == pytest.approx(
        variance**2 / ((0.0025 / 3) ** 2 / 2 + 0.0025**2 / 1)
    )
    # The same trainings, pruned: queries lose .1, .2, .1, and trainings .1 and 1 / 6.
    paired = seeded_difference(a, [[0.4, 0.6, 0.8], [0.6, 0.6, 0.7]], paired=True)
    assert paired.difference == pytest.approx(2 / 15)
    assert paired.error**2 == pytest.approx(1 / 300 / 3 + 1 / 450 / 2)


def test_the_interval_holds_where_queries_and_trainings_are_random():
    """At least 95 % of intervals hold a true difference of .1, and p is uniform at most."""
    random = np.random.default_rng(1)
    held = 0
    for _ in range(400):
        query = random.normal(0, 0.3, 60)
        a, b = (
            m + query + random.normal(0, 0.05, (3, 1)) + random.normal(0, 0.2, (3, 60))
            for m in (0.6, 0.5)
        )
        low, high = seeded_difference(a, b).interval()
        held += low <= 0.1 <= high
    assert held >= 0.94 * 400


def test_numbers_without_chance_and_of_other_queries():
    assert trainings_difference([2.0], [1.0]) == Estimate(1.0, 0.0, 1.0)
    assert Estimate(1.0, 0.0, 1.0).p() == 0.0
    assert Estimate(1.0, 0.0, 1.0).p(1.0) == 1.0
    assert Estimate(1.0, 0.0, 1.0).interval() == (1.0, 1.0)
    with pytest.raises(InputError, match="the same queries"):
        seeded_difference([[1.0, 2.0]], [[1.0]])
