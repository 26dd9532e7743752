"""PNG plots of effectiveness against cost, by matplotlib."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lexicept.evaluation.effectiveness import SystemResults
from lexicept.evaluation.significance import intervals
from lexicept.evaluation.sweep import Point, pareto_front
from lexicept.measures import NDCG, QD_FLOPS, RR, e2
from lexicept.sanitize import one_line
from lexicept.storage.files import replace_file
from lexicept.storage.surroundings import without

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLE = {
    "axes.axisbelow": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 9,
    "grid.color": "0.9",
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
}


def write_curves(
    systems: Mapping[str, SystemResults], curves: Mapping[str, Sequence[Point]], path: Path
) -> None:
    """Plot nDCG@10 against QD-FLOPs as a PNG: a line for each pruning curve, a mark for each
    system with a 95 % confidence interval, and a horizontal line for a run, which has no cost."""
    with _figure(8, 5) as figure:
        axes = figure.subplots()
        axes.set_title("lines: pruned queries and documents; marks: as built, with 95 % intervals")
        _cost_axis(axes, NDCG.title)
        for index, (name, results) in enumerate(systems.items()):
            colour, label = f"C{index % 10}", one_line(name)
            points = [point for point in curves.get(name, ()) if point.qd_flops > 0]
            costs = [point.qd_flops for point in points]
            axes.plot(costs, [point.ndcg for point in points], color=colour, linewidth=1)
            mean, cost = results.values[NDCG.name], results.values.get(QD_FLOPS.name)
            if cost is None:
                axes.axhline(mean, color=colour, linestyle="--", linewidth=1, label=label)
            elif cost > 0:
                low, high = intervals(results.per_query)[NDCG.name]
                errors = None if math.isnan(low) else [[mean - low], [high - mean]]
                axes.errorbar(cost, mean, errors, fmt="o", color=colour, capsize=3, label=label)
        axes.legend(fontsize="small")
        _save_png(figure, path)


def write_sweep(points: Sequence[Point], path: Path) -> None:
    """Plot nDCG@10 with its Pareto front, and RR@10 with lines of equal E², against QD-FLOPs, as a
    PNG.

    Points with 0 QD-FLOPs are left out: they find nothing, and a logarithmic axis has no 0.
    """
    points = [point for point in points if point.qd_flops > 0]
    with _figure(13, 5) as figure:
        left, right = figure.subplots(1, 2, sharex=True)
        left.set_title("line: Pareto front")
        right.set_title("lines: equal E²")
        _cost_axis(left, NDCG.title)
        _cost_axis(right, RR.title)
        # One colour for each α, in the order of the points.
        for name in dict.fromkeys(map(_series_name, points)):
            series = [point for point in points if _series_name(point) == name]
            costs = [point.qd_flops for point in series]
            left.scatter(costs, [point.ndcg for point in series], s=18, label=name)
            right.scatter(costs, [point.mrr for point in series], s=18)
        front = pareto_front(points)
        costs = [point.qd_flops for point in front]
        style = {"color": "black", "linewidth": 1, "drawstyle": "steps-post"}
        left.plot(costs, [point.ndcg for point in front], **style)
        if points:
            left.legend(fontsize="small")
            costs = [point.qd_flops for point in points]
            _draw_equal_e2(right, costs, [point.mrr for point in points])
        _save_png(figure, path)


def _series_name(point: Point) -> str:
    alpha = point.setting.alpha
    return "no RRA" if alpha is None else f"α {alpha:g}"


def _draw_equal_e2(axes: Any, costs: Sequence[float], mrr: Sequence[float]) -> None:
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
    contours = axes.contour(x, y, values, heights, colors="0.6", linewidths=0.8)
    axes.clabel(contours, fmt="%.3g", fontsize="small")


def _cost_axis(axes: Axes, y_label: str) -> None:
    """Label a logarithmic axis of QD-FLOPs and the axis of a measure."""
    from matplotlib.ticker import LogFormatter

    axes.set(xscale="log", xlabel=QD_FLOPS.title, ylabel=y_label)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(LogFormatter())


@contextmanager
def _figure(width: float, height: float) -> Iterator[Figure]:
    """Yield a figure, in inches, whatever the user's settings of matplotlib are."""
    with without("matplotlibrc"):
        from matplotlib import style
    from matplotlib.figure import Figure

    with style.context(STYLE, after_reset=True), warnings.catch_warnings():
        # Names may be in scripts of which matplotlib's own font has no glyphs.
        warnings.filterwarnings("ignore", "Glyph")
        yield Figure(figsize=(width, height), layout="constrained")


def _save_png(figure: Figure, path: Path) -> None:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    replace_file(path, buffer.getvalue())
