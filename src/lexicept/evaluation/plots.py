"""PNG plots of effectiveness against cost, by matplotlib."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from lexicept.evaluation.sweep import Point, pareto_front
from lexicept.measures import NDCG, QD_FLOPS
from lexicept.storage.files import replace_file
from lexicept.storage.surroundings import without

STYLE = {
    "axes.axisbelow": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 9,
    "grid.color": "0.9",
}


def write_sweep(points: Sequence[Point], path: Path) -> None:
    """Plot nDCG@10 against QD-FLOPs with the Pareto front, as a PNG.

    Points with 0 QD-FLOPs are left out: they find nothing, and a logarithmic axis has no 0.
    """
    with without("matplotlibrc"):
        from matplotlib import style
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogFormatter

    points = [point for point in points if point.qd_flops > 0]
    with style.context(STYLE, after_reset=True):  # whatever the user's settings are
        figure = Figure(figsize=(8, 5), layout="constrained")
        axes = figure.subplots()
        axes.set(title="line: Pareto front", xlabel=QD_FLOPS.title, ylabel=NDCG.title)
        axes.set(xscale="log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter(LogFormatter())
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
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=120)
    replace_file(path, buffer.getvalue())


def _series_name(point: Point) -> str:
    alpha = point.setting.alpha
    return "no RRA" if alpha is None else f"α {alpha:g}"
