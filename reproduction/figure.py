"""The figures of recipes: lines of rows' values over the quantity that the rows vary."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np

from lexicept.measures import E2_BETA, E2_MU1, E2_MU2, E2_TAU
from lexicept.storage.files import replace_file
from reproduction.recipe import FigureSettings, Recipe
from reproduction.run import Outcome

Points = list[tuple[float, float]]


def write_figure(recipe: Recipe, outcome: Outcome, path: Path) -> None:
    """Draw the rows with results, and write the figure atomically; do nothing for a recipe without
    figure or without results."""
    settings = recipe.figure
    lines = {} if settings is None else _lines(recipe, outcome, settings)
    if settings is None or not lines:
        return
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.subplots()
    for label, points in lines.items():
        axes.plot(*zip(*sorted(points), strict=True), marker="o", label=label)
    if settings.contours:
        _contours(axes, [point for points in lines.values() for point in points])
    if settings.log:
        axes.set_xscale("log")
    measures = {value.rpartition(" ")[2] for value in settings.y}
    axes.set(
        title=recipe.title,
        xlabel=settings.label or settings.x or "",
        ylabel=measures.pop() if len(measures) == 1 else "",
    )
    axes.legend(fontsize=7)
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=100)
    replace_file(path, image.getvalue())


def _lines(recipe: Recipe, outcome: Outcome, settings: FigureSettings) -> dict[str, Points]:
    lines: dict[str, Points] = {}
    for row in recipe.rows:
        result = outcome.results.get(row.name)
        if result is None:
            continue
        x = row.at if settings.x is None else result.values.get(settings.x)
        for value in settings.y:
            if x is not None and value in result.values:
                names = [row.series, value if len(settings.y) > 1 else ""]
                label = ", ".join(name for name in names if name) or value
                lines.setdefault(label, []).append((x, result.values[value]))
    return lines


def _contours(axes: Any, points: Points) -> None:
    """Draw lines of equal E² (SAE-SPLADE, Figure 2): RR@10 minus a penalty for QD-FLOPs."""
    costs, ranks = zip(*points, strict=True)
    x, y = np.meshgrid(
        np.linspace(0, 1.1 * max(costs), 100),
        np.linspace(min(ranks) - 0.02, max(ranks) + 0.02, 100),
    )
    penalty = np.logaddexp(0, E2_BETA * (x - E2_TAU)) / E2_BETA
    lines = axes.contour(x, y, y - E2_MU1 * x - E2_MU2 * penalty, 8, colors="0.7", linewidths=0.7)
    axes.clabel(lines, fontsize=6)
