"""PNG plots of effectiveness against cost, by matplotlib."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lexicept.evaluation.effectiveness import SystemResults
from lexicept.evaluation.significance import intervals
from lexicept.evaluation.sweep import Point, pareto_front
from lexicept.measures import NDCG, QD_FLOPS
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
    """Plot nDCG@10 against QD-FLOPs with the Pareto front, as a PNG.

    Points with 0 QD-FLOPs are left out: they find nothing, and a logarithmic axis has no 0.
    """
    points = [point for point in points if point.qd_flops > 0]
    with _figure(8, 5) as figure:
        axes = figure.subplots()
        axes.set_title("line: Pareto front")
        _cost_axis(axes, NDCG.title)
        # One colour for each α, in the order of the points.
        for name in dict.fromkeys(map(_series_name, points)):
            series = [point for point in points if _series_name(point) == name]
            costs = [point.qd_flops for point in series]
            axes.scatter(costs, [point.ndcg for point in series], s=18, label=name)
        front = pareto_front(points)
        costs, values = [point.qd_flops for point in front], [point.ndcg for point in front]
        axes.plot(costs, values, color="black", linewidth=1, drawstyle="steps-post")
        if points:
            axes.legend(fontsize="small")
        _save_png(figure, path)


def _series_name(point: Point) -> str:
    alpha = point.setting.alpha
    return "no RRA" if alpha is None else f"α {alpha:g}"


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
