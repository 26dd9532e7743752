"""Plots as inline SVG: no plotting library, no script, colours from the page's style sheet.

Every function returns one ``<svg role="img">`` whose ``<title>`` says what it shows. Classes carry
the colours (``series-0``, ``series-1``, ...), so that light, dark and printed pages differ by CSS
alone. Lengths are in the units of the view box: ``WIDTH`` wide.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from markupsafe import Markup

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 28, 14, 48
"""Margins of the plotted area; a legend takes ``LEGEND`` more at the top."""
LEGEND = 22
LABELS = 200
"""Width of the labels of horizontal bars."""
ROW = 18
"""Height of one horizontal bar with its gap."""

SMALLEST = 1e-300
"""Differences below it are none: such floats have lost their digits."""

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class Series(NamedTuple):
    """One line, or one colour of points or bars."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


class Mark(NamedTuple):
    """A point of a scatter plot that is named beside it."""

    x: float
    y: float
    label: str


class Scale(NamedTuple):
    """From values to coordinates; ``log`` takes values above 0 only."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.log:
            value, low, high = math.log10(value), math.log10(low), math.log10(high)
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round numbers within the range: powers of ten on a logarithmic scale."""
        if not self.log:
            step = _step(self.low, self.high)
            first = math.ceil(self.low / step - 1e-9)
            last = math.floor(self.high / step + 1e-9)
            return [round(n * step, 12) for n in range(first, last + 1)]
        first = math.ceil(math.log10(self.low) - 1e-9)
        last = math.floor(math.log10(self.high) + 1e-9)
        every = max(1, -(-(last - first + 1) // 8))
        return [10.0**n for n in range(first, last + 1, every)]


def scale(
    values: Sequence[float], start: float, end: float, log: bool = False, zero: bool = False
) -> Scale:
    """A scale that ends on ticks around all values; ``zero`` begins it at 0."""
    shown = [v for v in values if math.isfinite(v) and (v > 0 or not log)]
    low, high = (min(shown), max(shown)) if shown else (1.0, 10.0) if log else (0.0, 1.0)
    if log:
        low, high = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
        return Scale(10.0**low, 10.0 ** max(high, low + 1), start, end, True)
    low = min(low, 0.0) if zero else low
    if high - low < SMALLEST:
        high = low + (abs(low) if abs(low) >= SMALLEST else 1.0)
    step = _step(low, high)
    low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    return Scale(low, high, start, end)


def _step(low: float, high: float) -> float:
    """1, 2 or 5 times a power of ten that divides a range into 4 to 10 parts."""
    rough = (high - low) / 5
    power: float = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)


def compact(value: float) -> str:
    """A number as short as a tick needs it: ``12,000``, ``1.5M``, ``0.02``, ``10⁻⁶``."""
    size = abs(value)
    if size >= 1e6:
        return f"{value / 1e6:.3g}M"
    if size >= 999.5:
        return f"{value:,.0f}"
    if size >= 1e-3 or not size:
        return f"{value:.3g}"
    mantissa, exponent = f"{value:.0e}".split("e")
    power = f"10{str(int(exponent)).translate(_SUPERSCRIPTS)}"
    return power if mantissa == "1" else f"{mantissa}×{power}"


def bars(
    title: str,
    labels: Sequence[str],
    series: Sequence[tuple[str, Sequence[float]]],
    value_label: str,
) -> Markup:
    """Horizontal bars from 0, one group for each label and in it one bar for each series."""
    top, parts = _legend([name for name, _ in series])
    group = ROW * len(series) + (6 if len(series) > 1 else 0)
    bottom = top + group * len(labels)
    x = scale([v for _, values in series for v in values], LABELS, WIDTH - 60, zero=True)
    parts.append(_vertical_axis_lines(x, top, bottom))
    for i, label in enumerate(labels):
        middle = top + group * i + ROW * len(series) / 2
        parts.append(_text(LABELS - 8, middle + 4, _cut(label, 30), "end"))
        for j, (_, values) in enumerate(series):
            y = top + group * i + ROW * j + 2
            width = x(values[i]) - LABELS
            parts.append(_rect(LABELS, y, width, ROW - 4, j, f"{label}: {compact(values[i])}"))
            parts.append(_text(LABELS + width + 4, y + 11, compact(values[i]), "start"))
    parts.append(_text((LABELS + WIDTH - 60) / 2, bottom + 34, value_label, "middle"))
    return _svg(title, bottom + 44, parts)


def columns(
    title: str,
    labels: Sequence[str],
    series: Sequence[tuple[str, Sequence[float]]],
    x_label: str,
    y_label: str,
) -> Markup:
    """Vertical bars from 0 over named places, side by side for several series."""
    top, parts = _legend([name for name, _ in series])
    bottom = HEIGHT - BOTTOM
    y = scale([v for _, values in series for v in values], bottom, top, zero=True)
    place = (WIDTH - LEFT - RIGHT) / max(len(labels), 1)
    width = place * 0.84 / max(len(series), 1)
    parts.append(_y_axis(y, y_label))
    every = max(1, math.ceil(max(map(len, labels), default=1) * 7 / place))
    for i, label in enumerate(labels):
        start = LEFT + place * (i + 0.08)
        if i % every == 0:
            parts.append(_text(LEFT + place * (i + 0.5), bottom + 16, label, "middle"))
        for j, (_, values) in enumerate(series):
            height = bottom - y(values[i])
            tip = f"{label}: {compact(values[i])}"
            parts.append(_rect(start + width * j, bottom - height, width, height, j, tip))
    parts.append(_x_label(x_label))
    return _svg(title, HEIGHT, parts)


def histogram(
    title: str, edges: Sequence[float], counts: Sequence[float], x_label: str, y_label: str
) -> Markup:
    """Counts between neighbouring edges; one edge more than counts."""
    bottom = HEIGHT - BOTTOM
    x = Scale(edges[0], edges[-1], LEFT, WIDTH - RIGHT)
    y = scale(counts, bottom, TOP, zero=True)
    parts = [_y_axis(y, y_label), _x_axis(x, x_label)]
    for (low, high), count in zip(pairwise(edges), counts, strict=True):
        tip = f"{compact(low)} to {compact(high)}: {compact(count)}"
        start, top = x(low), y(count)
        parts.append(_rect(start, top, max(x(high) - start - 1, 0.5), bottom - top, 0, tip))
    return _svg(title, HEIGHT, parts)


def lines(
    title: str,
    series: Sequence[Series],
    x_label: str,
    y_label: str,
    *,
    log_x: bool = False,
    steps: bool = False,
) -> Markup:
    """Lines through points, or with ``steps`` a level that holds until the next point."""
    top, parts = _legend([s.name for s in series])
    x = scale([v for s in series for v in s.x], LEFT, WIDTH - RIGHT, log_x)
    y = scale([v for s in series for v in s.y], HEIGHT - BOTTOM, top, zero=True)
    parts += [_y_axis(y, y_label), _x_axis(x, x_label)]
    for number, one in enumerate(series):
        path = ""
        for a, b in zip(one.x, one.y, strict=True):
            if log_x and a <= 0:
                continue
            across, up = _short(x(a)), _short(y(b))
            if not path:
                path = f"M{across} {up}"
            else:
                path += f"H{across}V{up}" if steps else f"L{across} {up}"
        drawn = Markup('<path class="line series-{}" d="{}"/>')
        parts.append(drawn.format(number % 4, path))
    return _svg(title, HEIGHT, parts)


def scatter(
    title: str,
    series: Sequence[Series],
    x_label: str,
    y_label: str,
    *,
    log_x: bool = False,
    log_y: bool = False,
    diagonal: bool = False,
    marks: Sequence[Mark] = (),
) -> Markup:
    """Points, some of them named. ``diagonal`` draws where x = y."""
    top, parts = _legend([s.name for s in series])
    xs = [v for s in series for v in s.x] + [mark.x for mark in marks]
    ys = [v for s in series for v in s.y] + [mark.y for mark in marks]
    height = HEIGHT * 4 / 3
    x = scale(xs, LEFT, WIDTH - RIGHT, log_x, zero=True)
    y = scale(ys, height - BOTTOM, top, log_y, zero=True)
    parts += [_y_axis(y, y_label), _x_axis(x, x_label, height)]
    low, high = max(x.low, y.low), min(x.high, y.high)
    if diagonal and low < high:
        parts.append(_line(x(low), y(low), x(high), y(high), "diagonal"))
    for number, one in enumerate(series):
        # One path of dots of no length: a tenth of the size of circles.
        dots = "".join(
            f"M{_short(x(a))} {_short(y(b))}h0"
            for a, b in zip(one.x, one.y, strict=True)
            if (a > 0 or not log_x) and (b > 0 or not log_y)
        )
        parts.append(Markup('<path class="dots series-{}" d="{}"/>').format(number % 4, dots))
    return _svg(title, height, [*parts, *_marks(x, y, marks)])


def _marks(x: Scale, y: Scale, marks: Sequence[Mark]) -> list[Markup]:
    """Circles with names beside them; one that would cover another moves down a line."""
    parts = []
    taken: list[tuple[float, float, float]] = []
    for a, b, label in marks:
        across, up = x(a), y(b)
        name = _cut(label, 26)
        left = across > WIDTH * 0.6
        start = across - 7 - 7 * len(name) if left else across + 7
        end = start + 7 * len(name)
        line = up + 4
        while any(abs(line - other) < 14 and start < z and a < end for a, z, other in taken):
            line += 1
        taken.append((start, end, line))
        shape = Markup('<circle class="mark" cx="{}" cy="{}" r="3.5"/>')
        parts.append(shape.format(_short(across), _short(up)))
        parts.append(_text(end if left else start, line, name, "end" if left else "start"))
    return parts


def meter(value: float, most: float) -> Markup:
    """A bar for a table's cell: ``value`` out of ``most``; the number stands beside it."""
    width = 100 * min(max(value / most, 0), 1) if most > 0 else 0
    return Markup(
        '<svg class="meter" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="series-0" width="{}" height="10"/></svg>'
    ).format(_short(width))


def _svg(title: str, height: float, parts: Sequence[Markup]) -> Markup:
    return Markup('<svg role="img" viewBox="0 0 {} {}"><title>{}</title>{}</svg>').format(
        WIDTH, _short(height), title, Markup("").join(parts)
    )


def _y_axis(y: Scale, label: str) -> Markup:
    """Grid lines, their numbers, and the label at the upright end."""
    parts = []
    for tick in y.ticks():
        at = y(tick)
        parts.append(_line(LEFT, at, WIDTH - RIGHT, at, "grid"))
        parts.append(_text(LEFT - 6, at + 4, compact(tick), "end"))
    middle = _short((y.start + y.end) / 2)
    turned = Markup('<text class="label" text-anchor="middle" transform="translate(14 {}) rotate(')
    parts.append((turned + Markup('-90)">{}</text>')).format(middle, label))
    return Markup("").join(parts)


def _x_axis(x: Scale, label: str, height: float = HEIGHT) -> Markup:
    bottom = height - BOTTOM
    parts = [_line(LEFT, bottom, WIDTH - RIGHT, bottom, "axis")]
    for tick in x.ticks():
        parts.append(_line(x(tick), bottom, x(tick), bottom + 4, "axis"))
        parts.append(_text(x(tick), bottom + 17, compact(tick), "middle"))
    return Markup("").join([*parts, _x_label(label, height)])


def _x_label(label: str, height: float = HEIGHT) -> Markup:
    return Markup('<text class="label" text-anchor="middle" x="{}" y="{}">{}</text>').format(
        _short((LEFT + WIDTH - RIGHT) / 2), _short(height - 10), label
    )


def _vertical_axis_lines(x: Scale, top: float, bottom: float) -> Markup:
    parts = []
    for tick in x.ticks():
        parts.append(_line(x(tick), top, x(tick), bottom, "grid"))
        parts.append(_text(x(tick), bottom + 16, compact(tick), "middle"))
    return Markup("").join(parts)


def _legend(names: Sequence[str]) -> tuple[float, list[Markup]]:
    """Where the plotted area begins, and what stands above it: coloured squares with names in one
    row, where there are several."""
    if len(names) < 2:
        return TOP, []
    parts = []
    width = (WIDTH - LEFT - RIGHT) / len(names)
    for number, name in enumerate(names):
        x = LEFT + width * number
        parts.append(_rect(x, TOP - 8, 10, 10, number, ""))
        parts.append(_text(x + 15, TOP + 1, _cut(name, int(width / 7)), "start"))
    return TOP + LEGEND, parts


def _rect(x: float, y: float, width: float, height: float, number: int, tip: str) -> Markup:
    place = tuple(map(_short, (x, y, width, height)))
    shape = Markup('<rect class="series-{}" x="{}" y="{}" width="{}" height="{}"').format(
        number % 4, *place
    )
    return shape + (Markup("><title>{}</title></rect>").format(tip) if tip else Markup("/>"))


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    return Markup('<path class="{}" d="M{} {}L{} {}"/>').format(
        kind, *map(_short, (x1, y1, x2, y2))
    )


def _text(x: float, y: float, text: str, anchor: str) -> Markup:
    return Markup('<text x="{}" y="{}" text-anchor="{}">{}</text>').format(
        _short(x), _short(y), anchor, text
    )


def _short(value: float) -> str:
    """A coordinate to a tenth."""
    return f"{round(value, 1):g}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
