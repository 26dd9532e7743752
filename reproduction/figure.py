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


def write_figure(recipe: Recipe, outcome: Outcome, path: Path) -> bool:
    """Draw the rows that have results, and write the figure atomically.

    Returns:
        Whether a figure was written: the recipe has one, and a row has results.
    """
    settings = recipe.figure
    if settings is None:
        return False
    lines = _lines(recipe, outcome, settings)
    if not lines:
        return False
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.subplots()
    for label, points in lines.items():
        axes.plot(*zip(*sorted(points), strict=True), marker="o", label=label)
    if settings.contours:
        _contours(axes, [point for points in lines.values() for point in points])
    if settings.log:
        axes.set_xscale("log")
    axes.set(
        title=recipe.title, xlabel=settings.label or settings.x or "", ylabel=_shared(settings.y)
    )
    axes.legend(fontsize=7)
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=100)
    replace_file(path, image.getvalue())
    return True


def _lines(
    recipe: Recipe, outcome: Outcome, settings: FigureSettings
) -> dict[str, list[tuple[float, float]]]:
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in recipe.rows:
        result = outcome.results.get(row.name)
        if result is None:
            continue
        x = row.at if settings.x is None else result.values.get(settings.x)
        for value in settings.y:
            if x is not None and value in result.values:
                parts = [row.series, value if len(settings.y) > 1 else ""]
                label = ", ".join(part for part in parts if part) or value
                lines.setdefault(label, []).append((x, result.values[value]))
    return lines


def _shared(values: tuple[str, ...]) -> str:
    """Return the measure that all values share, or nothing."""
    ends = {value.rpartition(" ")[2] for value in values}
    return ends.pop() if len(ends) == 1 else ""


def _contours(axes: Any, points: list[tuple[float, float]]) -> None:
    """Draw lines of equal E² (SAE-SPLADE, Figure 2): RR@10 minus a penalty for QD-FLOPs."""
    across = [point[0] for point in points]
    up = [point[1] for point in points]
    x, y = np.meshgrid(
        np.linspace(0, 1.1 * max(across), 100),
        np.linspace(min(up) - 0.02, max(up) + 0.02, 100),
    )
    penalty = np.logaddexp(0, E2_BETA * (x - E2_TAU)) / E2_BETA
    lines = axes.contour(x, y, y - E2_MU1 * x - E2_MU2 * penalty, 8, colors="0.7", linewidths=0.7)
    axes.clabel(lines, fontsize=6)
