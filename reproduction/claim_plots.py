"""Plots of the papers' claims: effectiveness against cost, or differences with their intervals."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lexicept.evaluation.curves import COSTS
from lexicept.storage.files import replace_file
from reproduction.claims import AnsweredClaim, Answers, Found, rows_of
from reproduction.recipe import Row
from reproduction.run import Result

MEASURE = "nDCG@10"
COST = "QD-FLOPs"


class Point(NamedTuple):
    """Cost and effectiveness of a row, means over its trainings with their standard deviations."""

    cost: float
    value: float
    cost_deviation: float
    deviation: float


def write_plot(answered: AnsweredClaim, known: Answers, path: Path) -> bool:
    """Draw a claim's plot as PNG, and write it atomically; remove it where nothing is to draw.

    Returns:
        Whether there is a plot.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.subplots()
    rows = answered.claim.plot.rows
    drawn = _costs(axes, answered, known) if rows else _differences(axes, answered.found, known)
    if not drawn:
        path.unlink(missing_ok=True)
        return False
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=90, metadata={"Software": None})
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, image.getvalue())
    return True


def _costs(axes: Any, answered: AnsweredClaim, known: Answers) -> bool:
    """Draw a curve at equal costs for rows that have one, and lines through the other rows of each
    series; return whether two rows have results, so that there is something to compare."""
    plot = answered.claim.plot
    recipe, outcome, _ = known[answered.claim.evidence[0].recipe]
    rows = {row.name: row for row in recipe.rows}
    series: dict[str, list[tuple[Row, Point]]] = {}
    drawn = 0
    for name in plot.rows:
        result = outcome.results.get(name)
        if result is None:
            continue
        line = curve(result, str(plot.dataset))
        if line is not None:
            costs, mean, deviation = line
            (drawn_line,) = axes.plot(costs, mean, marker=".", label=rows[name].label)
            color = drawn_line.get_color()
            axes.fill_between(costs, mean - deviation, mean + deviation, alpha=0.2, color=color)
            drawn += 1
        elif (found := point(result, str(plot.dataset))) is not None:
            series.setdefault(rows[name].series or rows[name].label, []).append((rows[name], found))
            drawn += 1
    for label, found_rows in series.items():
        points = sorted(one for _, one in found_rows)
        costs, values, cost_deviations, deviations = map(np.array, zip(*points, strict=True))
        shown: Mapping[str, Any] = {"xerr": cost_deviations, "yerr": deviations, "capsize": 2}
        axes.errorbar(costs, values, marker="o", markersize=4, label=label, **shown)
    if drawn > 1:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set(xlabel=COST, ylabel=f"{plot.dataset} {MEASURE}")
        axes.legend(fontsize=7)
        axes.grid(alpha=0.3)
    return drawn > 1


def curve(result: Result, dataset: str) -> tuple[Any, Any, Any] | None:
    """Return the shared costs that a row's pruning curve reaches in all trainings, the means there,
    and their standard deviations; None for a row without a curve."""
    parts = [each["values"] for each in result.trainings] or [result.values]
    names = {cost: f"{dataset} {MEASURE} at {cost:g}" for cost in COSTS}
    costs = [cost for cost, name in names.items() if all(name in part for part in parts)]
    if not costs:
        return None
    values = np.array([[part[names[cost]] for cost in costs] for part in parts])
    return np.array(costs), values.mean(axis=0), _deviation(values)


def point(result: Result, dataset: str) -> Point | None:
    """Return a row's cost and effectiveness; None if it has not measured them."""
    names = [f"{dataset} {COST}", f"{dataset} {MEASURE}"]
    parts = [each["values"] for each in result.trainings] or [result.values]
    if any(name not in part for part in parts for name in names):
        return None
    values = np.array([[part[name] for name in names] for part in parts])
    return Point(*map(float, (*values.mean(axis=0), *_deviation(values))))


def _deviation(values: Any) -> Any:
    """Return the standard deviation over trainings [S, n] of each column, 0 for one training."""
    return values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1])


def _differences(axes: Any, found: Sequence[Found], known: Answers) -> bool:
    """Draw the tested differences with their 95 % intervals, in the units of the measures; return
    whether there is one."""
    tested = {(rows_of(f.answered.check), f.answered.check.value): f for f in found if f.tests}
    for place, each in enumerate(tested.values()):
        column = known[each.recipe][0].expected.columns.get(each.answered.check.value)
        scale = 1.0 if column is None else column.scale
        for test in each.tests:
            low, high = test.found.interval()
            axes.plot([low / scale, high / scale], [place, place], color="tab:blue")
            axes.plot([test.difference / scale], [place], "o", markersize=4, color="tab:blue")
    labels = [f"{' → '.join(rows)}, {value}" for rows, value in tested]
    axes.axvline(0, color="black", linewidth=0.7)
    axes.set_yticks(range(len(tested)), labels, fontsize=6)
    axes.invert_yaxis()
    axes.set(xlabel="difference, with its 95 % interval")
    return bool(tested)
