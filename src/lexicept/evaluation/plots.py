"""Plots of effectiveness against cost: the points of a sweep, the pruning curves of systems."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lexicept.evaluation.comparison import intervals
from lexicept.evaluation.effectiveness import SystemResults
from lexicept.evaluation.sweep import Point, TokenK, pareto_front
from lexicept.measures import e2
from lexicept.storage.files import replace_file

PLOTTED = "nDCG@10"
"""The measure that is plotted against QD-FLOPs."""


def write_curves(
    systems: Mapping[str, SystemResults], curves: Mapping[str, Sequence[Point]], path: Path
) -> None:
    """Plot nDCG@10 against QD-FLOPs as a PNG: a line for each pruning curve, a mark for each
    system with its 95 % confidence interval.

    A system without a cost, such as a run, is a horizontal line.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogFormatter

    figure = Figure(figsize=(8, 5), constrained_layout=True)  # without pyplot the canvas is Agg
    axes = figure.subplots()
    axes.set(xscale="log", xlabel="QD-FLOPs", ylabel=PLOTTED)
    axes.set_title("lines: pruned queries and documents; marks: as built, with 95 % intervals")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(LogFormatter())
    for number, (name, results) in enumerate(systems.items()):
        colour = f"C{number % 10}"
        shown = [point for point in curves.get(name, ()) if point.qd_flops > 0]
        if shown:
            costs = [point.qd_flops for point in shown]
            axes.plot(costs, [point.ndcg for point in shown], color=colour, linewidth=1)
        mean, cost = results.values[PLOTTED], results.values.get("qd_flops")
        label = name.replace("$", r"\$")
        if cost is None:
            axes.axhline(mean, color=colour, linestyle="--", linewidth=1, label=label)
        elif cost > 0:
            low, high = intervals({PLOTTED: results.per_query[PLOTTED]})[PLOTTED]
            errors = None if math.isnan(low) else [[mean - low], [high - mean]]
            axes.errorbar(cost, mean, errors, fmt="o", color=colour, capsize=3, label=label)
    axes.legend(fontsize="small")
    _save(figure, path)


def write_sweep(points: Sequence[Point], path: Path) -> None:
    """Plot nDCG@10 with its Pareto front, and RR@10 with lines of equal E², against QD-FLOPs, as a
    PNG.

    Points with 0 QD-FLOPs are left out: they find nothing, and a logarithmic axis has no 0.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogFormatter

    shown = [point for point in points if point.qd_flops > 0]
    figure = Figure(figsize=(13, 5), constrained_layout=True)  # without pyplot the canvas is Agg
    left, right = figure.subplots(1, 2, sharex=True)
    left.set(xscale="log", xlabel="QD-FLOPs", ylabel="nDCG@10", title="line: Pareto front")
    right.set(xlabel="QD-FLOPs", ylabel="RR@10", title="lines: equal E²")
    left.xaxis.set_major_formatter("{x:g}")
    left.xaxis.set_minor_formatter(LogFormatter())
    for (k, alpha), series in _series(shown).items():
        name = f"k {'own' if k is None else k}, {'no RRA' if alpha is None else f'α {alpha:g}'}"
        costs = [point.qd_flops for point in series]
        left.scatter(costs, [point.ndcg for point in series], s=18, label=name)
        right.scatter(costs, [point.mrr for point in series], s=18, label=name)
    front = pareto_front(shown)
    left.plot(
        [point.qd_flops for point in front],
        [point.ndcg for point in front],
        color="black",
        drawstyle="steps-post",
        linewidth=1,
    )
    if shown:
        left.legend(fontsize="small")
        _draw_e2(right, [point.qd_flops for point in shown], [point.mrr for point in shown])
    _save(figure, path)


def _series(points: Sequence[Point]) -> dict[tuple[TokenK, float | None], list[Point]]:
    """Group points by k and α, which have a colour each."""
    series: dict[tuple[TokenK, float | None], list[Point]] = {}
    for point in points:
        series.setdefault((point.setting.k, point.setting.alpha), []).append(point)
    return series


def _draw_e2(axis: Any, costs: Sequence[float], mrr: Sequence[float]) -> None:
    """Draw lines of equal E²: evenly spaced within a height of the panel, then ever fewer.

    E² falls fast beyond its threshold: evenly spaced lines would be all black there.
    """
    from matplotlib.ticker import MaxNLocator

    margin = max(0.1 * (max(mrr) - min(mrr)), 0.01)
    x = np.geomspace(min(costs) / 1.5, max(costs) * 1.5, 300)
    y = np.linspace(min(mrr) - margin, max(mrr) + margin, 100)
    values = y[:, None] + np.array([e2(0.0, cost) for cost in x])
    step = float(np.diff(MaxNLocator(6).tick_values(y[0], y[-1]))[0])
    levels = [math.floor(values.max() / step)]
    while levels[-1] * step > values.min():
        levels.append(levels[-1] - max(1, 2 ** (len(levels) - 6)))
    heights = [level * step for level in levels[::-1]]
    lines = axis.contour(x, y, values, heights, colors="0.6", linewidths=0.8)
    axis.clabel(lines, fmt="%.3g", fontsize="small")


def _save(figure: Any, path: Path) -> None:
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=120)
    replace_file(path, content.getvalue())
