"""Formats of numbers, names and passages in a report."""

from __future__ import annotations

import re
from typing import Any

from markupsafe import Markup

from lexicept.explanation.contributions import Span
from lexicept.explanation.html import environment, highlighted
from lexicept.reports.page import FOLDER
from lexicept.sanitize import around

CONTEXT = 90
"""Characters shown before and after an example."""

SHORT = 110
"""Most characters of a query or a title in a table."""


def count(value: float) -> str:
    """Format a whole number: ``12,345``."""
    return f"{value:,.0f}"


def percent(value: float) -> str:
    """Format a share: ``12.3%``; small ones with two significant digits."""
    if abs(value) >= 0.01 or not value:
        return f"{value:.1%}"
    return f"{100 * value:#.2g}%" if abs(value) >= 1e-6 else "< 0.0001%"


def one(value: float) -> str:
    """Format a mean: ``1,234.5``."""
    return f"{value:,.1f}"


def two(value: float) -> str:
    """Format a mean or a ratio: ``12.34``."""
    return f"{value:,.2f}"


def three(value: float) -> str:
    """Format a measure: ``0.123``."""
    return f"{value:.3f}"


def signed(value: float) -> str:
    """Format a difference of measures: ``+0.123``."""
    return f"{value:+z.3f}"


def megabytes(value: float) -> str:
    """Format a number of bytes in megabytes."""
    return f"{value / 1e6:,.1f} MB"


def cut(text: str, most: int = SHORT) -> str:
    """Return a text in one line, shortened with an ellipsis."""
    flat = " ".join(text.split())
    return flat if len(flat) <= most else flat[: most - 1].rstrip() + "…"


def passage(content: str, start: int, end: int) -> Markup:
    """Return a span of a document highlighted, with whole words around it."""
    first, last = around(content, start, end, CONTEXT)
    flat = re.sub(r"\s", " ", content[first:last])
    marked = highlighted(flat, [Span(start - first, end - first)])
    return ("… " if first else "") + marked + (" …" if last < len(content) else "")


def metered(value: float, most: float) -> Markup:
    """Return a share for a table's cell, after a bar that ``most`` fills."""
    width = 100 * min(max(value / most, 0), 1) if most > 0 else 0
    cell: Any = environment(FOLDER).get_template("meter.html").module
    html: Markup = cell.meter(width, percent(value))
    return html
