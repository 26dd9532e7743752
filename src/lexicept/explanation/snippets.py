"""The part of a text that a list of results shows."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Hashable, Iterable

from lexicept.sanitize import around

SNIPPET = 240
"""Most characters of a snippet."""


def snippet_bounds(text: str, marks: Iterable[tuple[int, Hashable, float]]) -> tuple[int, int]:
    """Return start and end of the part of a text whose marks are worth most.

    Args:
        marks: start, reason and worth; marks of one reason are worth as much as one of them.
    """
    ordered = sorted(marks, key=lambda mark: mark[0])
    best, position, side = 0.0, 0, SNIPPET // 4
    for number, (start, _, worth) in enumerate(ordered):
        if worth <= 0:
            continue
        end = bisect_right(ordered, start + 3 * side, key=lambda mark: mark[0])
        total = math.fsum({reason: worth for _, reason, worth in ordered[number:end]}.values())
        if total > best:
            best, position = total, start
    start = max(0, min(position - side, len(text) - SNIPPET))
    return around(text, start + side, start + SNIPPET - side, side)
