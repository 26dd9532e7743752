"""Everything that matplotlib draws: SVG charts of reports, PNG plots of effectiveness against cost.

A report embeds an SVG chart as an image, so that matplotlib's inline styles pass the security
policy of the page. Equal data gives equal bytes.
"""

from __future__ import annotations

import io
import math
import warnings
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lexicept.evaluation.effectiveness import SystemResults
from lexicept.evaluation.significance import intervals
from lexicept.evaluation.sweep import Point, pareto_front
from lexicept.measures import NDCG, QD_FLOPS, RR, e2
from lexicept.sanitize import one_line, shortened
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
    "legend.frameon": False,
    "svg.fonttype": "none",  # text as text
    "svg.hashsalt": "lexicept",  # the same ids in every run
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
}

WIDTH, HEIGHT = 6.5, 3.0
"""Size of a report's chart in inches."""


@dataclass(frozen=True)
class Chart:
    """An SVG image and its title."""

    title: str
    svg: str

    @property
    def source(self) -> str:
        """The image as a ``data:`` address."""
        return f"data:image/svg+xml;base64,{b64encode(self.svg.encode()).decode()}"


class Series(NamedTuple):
    """A named line."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


def bars(title: str, labels: Sequence[str], values: Sequence[float], unit: str) -> Chart:
    """Draw horizontal bars from 0, the first at the top, each with its value at the end."""
    with _figure(WIDTH, 0.4 + 0.25 * len(labels)) as figure:
        axes = figure.subplots()
        names = [shortened(one_line(label), 30) for label in labels]
        drawn = axes.barh(range(len(labels)), values)
        axes.bar_label(drawn, [f"{value:,.3g} {one_line(unit)}" for value in values], padding=4)
        axes.set_yticks(range(len(labels)), names)
        axes.set(ylim=(len(labels) - 0.5, -0.5), xticks=[])
        axes.margins(x=0.12)
        axes.spines["bottom"].set_visible(False)
        return _chart(title, figure)


def histogram(
    title: str, edges: Sequence[float], counts: Sequence[float], x_label: str, y_label: str
) -> Chart:
    """Draw the counts between neighbouring edges [bins + 1]."""
    with _figure(WIDTH, HEIGHT) as figure:
        axes = _labelled_axes(figure, x_label, y_label)
        axes.bar(edges[:-1], counts, np.diff(edges), align="edge", edgecolor="white")
        axes.set_xlim(edges[0], edges[-1])
        return _chart(title, figure)


def steps(title: str, series: Sequence[Series], x_label: str, y_label: str) -> Chart:
    """Draw levels that hold until the next point, over a logarithmic axis of x above 0."""
    with _figure(WIDTH, HEIGHT) as figure:
        axes = _labelled_axes(figure, x_label, y_label)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:,g}")
        for index, line in enumerate(series):
            style = ("-", "--", ":", "-.")[index % 4]  # lines differ without colour too
            name = shortened(one_line(line.name), 40)
            axes.plot(line.x, line.y, style, drawstyle="steps-post", label=name)
        axes.set_ylim(bottom=0)
        if len(series) > 1:
            axes.legend()
        return _chart(title, figure)


def differences(title: str, values: Sequence[float], x_label: str, y_label: str) -> Chart:
    """Draw sorted values side by side from 0: gains in one colour, losses in another."""
    with _figure(WIDTH, HEIGHT) as figure:
        axes = _labelled_axes(figure, x_label, y_label)
        for gains in (np.maximum(values, 0), np.minimum(values, 0)):
            axes.stairs(gains, np.arange(len(values) + 1), fill=True)
        axes.axhline(0, color="0.3", linewidth=1)
        axes.set_xlim(0, len(values))
        return _chart(title, figure)


def write_curves(
    systems: Mapping[str, SystemResults], curves: Mapping[str, Sequence[Point]], path: Path
) -> None:
    """Plot nDCG@10 against QD-FLOPs as a PNG: a line for each pruning curve, a mark for each
    system with a 95 % confidence interval, and a horizontal line for a run, which has no cost."""
    with _figure(8, 5, legend_frame=True) as figure:
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
    with _figure(13, 5, legend_frame=True) as figure:
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


def _labelled_axes(figure: Figure, x_label: str, y_label: str) -> Axes:
    axes = figure.subplots()
    axes.set(xlabel=one_line(x_label), ylabel=one_line(y_label))
    axes.grid(True, axis="y")
    return axes


@contextmanager
def _figure(width: float, height: float, *, legend_frame: bool = False) -> Iterator[Figure]:
    """Yield a figure, in inches, whatever the user's settings of matplotlib are."""
    with without("matplotlibrc"):
        from matplotlib import style
    from matplotlib.figure import Figure

    settings = STYLE | {"legend.frameon": legend_frame}
    with style.context(settings, after_reset=True), warnings.catch_warnings():
        # Browsers have glyphs for more scripts than matplotlib's own font.
        warnings.filterwarnings("ignore", "Glyph")
        yield Figure(figsize=(width, height), layout="constrained")


def _chart(title: str, figure: Figure) -> Chart:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return Chart(one_line(title), buffer.getvalue())


def _save_png(figure: Figure, path: Path) -> None:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    replace_file(path, buffer.getvalue())
