"""Charts as inline SVG, drawn by matplotlib, coloured by the page.

Every function returns one ``<svg role="img">`` whose ``<title>`` names the chart. matplotlib writes
inline styles, ids and references; they are replaced by attributes whose colours are the variables
of the page's style sheet (``var(--series-0)``), so that light, dark and printed pages differ by CSS
alone, the page's security policy holds, and equal data gives equal bytes.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree

from markupsafe import Markup

from lexicept.sanitize import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT = 640, 300
"""Size of a chart in CSS pixels; the page scales it."""

LEAST = 1e-300
"""Smallest number drawn: smaller floats have lost their digits."""

SERIES = ("#2c6fbb", "#c2571a", "#2d8a4e", "#8a4fb5")
INK, FAINT, GRID, RAISED = "#1d2025", "#596069", "#e6e8ec", "#ffffff"
VARIABLES = {
    **{colour: f"var(--series-{number})" for number, colour in enumerate(SERIES)},
    **{INK: "var(--ink)", FAINT: "var(--faint)", GRID: "var(--grid)", RAISED: "var(--raised)"},
}
"""Colours of matplotlib's drawing, and the CSS variables that take their places."""

DASHES: tuple[Any, ...] = ("-", "-", (0, (5, 3)), (0, (2, 2)))
"""Line styles by series, so that lines differ without colour too."""

STYLE = {
    "svg.fonttype": "none",  # text as text
    "svg.hashsalt": "lexicept",
    "font.size": 12,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlesize": 12,
    "axes.titlelocation": "left",
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.axisbelow": True,
    "axes.unicode_minus": False,
    "grid.color": GRID,
    "grid.linewidth": 1,
    "text.color": FAINT,
    "text.parse_math": False,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.major.pad": 6,
    "axes.titlepad": 8,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "path.simplify": False,  # a point is a line without length
    "legend.frameon": False,
    "legend.handlelength": 1.4,
}

TIP = "tip:"
"""Prefix of ids that carry the text shown when the pointer rests on a bar."""

LABELLED = 12
"""Most columns that have their values above them."""

LINE = 15
"""Pixels between the names of neighbouring marks."""

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class Series(NamedTuple):
    """The points of one line, or of one colour in a scatter plot."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


class Mark(NamedTuple):
    """A point of a scatter plot with its name beside it."""

    x: float
    y: float
    label: str


def compact(value: float) -> str:
    """Return a number in few characters: ``12,000``, ``1.5M``, ``0.02``, ``10⁻⁶``."""
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


def bars(title: str, labels: Sequence[str], values: Sequence[float], unit: str) -> Markup:
    """Draw horizontal bars from 0, the first at the top, each with its value at its end."""
    unit = one_line(unit)
    with _chart(title, height=30 + 24 * len(labels)) as (chart, axes):
        drawn = axes.barh(range(len(labels)), values, color=SERIES[0], height=0.7)
        axes.set_yticks(range(len(labels)), [_cut(label, 30) for label in labels])
        axes.bar_label(drawn, [f"{compact(v)} {unit}" for v in values], padding=4, fontsize=12)
        for bar, label, value in zip(drawn, labels, values, strict=True):
            bar.set_gid(_tip(label, f"{compact(value)} {unit}"))
        axes.set(ylim=(len(labels) - 0.5, -0.5), xticks=[])
        axes.margins(x=0.12)
        axes.spines["bottom"].set_visible(False)
    return chart.svg()


def columns(
    title: str,
    labels: Sequence[str],
    series: Sequence[tuple[str, Sequence[float]]],
    x_label: str,
    y_label: str,
) -> Markup:
    """Draw vertical bars from 0 at named places, side by side for several series."""
    with _chart(title, x_label, y_label) as (chart, axes):
        width = 0.84 / max(len(series), 1)
        for number, (_, values) in enumerate(series):
            places = [
                place + (number - (len(series) - 1) / 2) * width for place in range(len(values))
            ]
            drawn = axes.bar(places, values, 0.94 * width, color=SERIES[number % 4])
            if len(labels) * len(series) <= LABELLED:
                axes.bar_label(drawn, [compact(value) for value in values], padding=2, fontsize=11)
            for bar, label, value in zip(drawn, labels, values, strict=True):
                bar.set_gid(_tip(label, compact(value)))
        every = max(1, math.ceil(max(map(len, labels), default=1) * len(labels) / 80))
        axes.set_xticks(
            range(0, len(labels), every), [one_line(label) for label in labels[::every]]
        )
        _values_from_zero(axes, [v for _, values in series for v in values])
        chart.legend([name for name, _ in series])
    return chart.svg()


def histogram(
    title: str, edges: Sequence[float], counts: Sequence[float], x_label: str, y_label: str
) -> Markup:
    """Draw the counts between neighbouring edges; there is one edge more than counts."""
    with _chart(title, x_label, y_label) as (chart, axes):
        widths = [high - low for low, high in pairwise(edges)]
        inner = [0.94 * width for width in widths]
        lefts = [low + 0.03 * width for low, width in zip(edges, widths, strict=False)]
        drawn = axes.bar(lefts, counts, inner, align="edge", color=SERIES[0])
        for number, bar in enumerate(drawn):
            ends = f"{compact(edges[number])} to {compact(edges[number + 1])}"
            bar.set_gid(_tip(ends, compact(counts[number])))
        axes.set_xlim(edges[0], edges[-1])
        _values_from_zero(axes, counts)
        _numbers(axes.xaxis)
    return chart.svg()


def lines(
    title: str,
    series: Sequence[Series],
    x_label: str,
    y_label: str,
    *,
    log_x: bool = False,
    steps: bool = False,
) -> Markup:
    """Draw lines through points, or with ``steps`` levels that hold until the next point."""
    with _chart(title, x_label, y_label) as (chart, axes):
        for number, (_, x, y) in enumerate(series):
            kept = [(a, b) for a, b in zip(x, y, strict=True) if a > 0 or not log_x]
            style = {"color": SERIES[number % 4], "linestyle": DASHES[number % 4], "linewidth": 2}
            drawn = "steps-post" if steps else "default"
            axes.plot([a for a, _ in kept], [b for _, b in kept], drawstyle=drawn, **style)
        _scale(axes, "x", [v for one in series for v in one.x], log_x)
        _values_from_zero(axes, [v for one in series for v in one.y])
        chart.legend([one.name for one in series], axes.lines)
    return chart.svg()


def differences(title: str, values: Sequence[float], x_label: str, y_label: str) -> Markup:
    """Draw sorted values side by side from 0: gains in one colour, losses in another."""
    with _chart(title, x_label, y_label) as (chart, axes):
        for colour, sign in zip(SERIES, (1, -1), strict=False):
            shown = [value if value * sign > 0 else 0.0 for value in values]
            axes.stairs(shown, range(len(values) + 1), fill=True, color=colour, alpha=0.75)
        axes.axhline(0, color=FAINT, linewidth=1)
        axes.spines["bottom"].set_visible(False)
        axes.set_xlim(0, len(values))
        _values_from_zero(axes, values)
        _numbers(axes.xaxis)
    return chart.svg()


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
    """Draw points, some with names. ``diagonal`` adds the line x = y."""
    with _chart(title, x_label, y_label, HEIGHT * 4 / 3) as (chart, axes):
        _scale(axes, "x", [v for s in series for v in s.x] + [m.x for m in marks], log_x)
        _scale(axes, "y", [v for s in series for v in s.y] + [m.y for m in marks], log_y)
        for number, one in enumerate(series):
            points = [
                (a, b)
                for a, b in zip(one.x, one.y, strict=True)
                if (a > 0 or not log_x) and (b > 0 or not log_y)
            ]
            _dots(axes, points, SERIES[number % 4], 4, 0.5)
        if diagonal:
            axes.axline((1, 1), (2, 2), color=FAINT, linestyle=(0, (4, 4)), zorder=3)
        chart.legend([one.name for one in series])
        _name(axes, marks)
    return chart.svg()


class _Chart:
    """One figure with one pair of axes."""

    def __init__(self, title: str, x_label: str, y_label: str, height: float) -> None:
        from matplotlib.figure import Figure

        self._title, self._height = title, height
        self.figure = Figure(figsize=(WIDTH / 72, height / 72), layout="constrained")
        self.axes = self.figure.subplots()
        self.axes.set_xlabel(one_line(x_label))  # below the axis
        self.axes.set_title(one_line(y_label))  # above the upper end of the vertical axis
        self._content = ""

    def legend(self, names: Sequence[str], handles: Sequence[Any] = ()) -> None:
        """Name several series in one row above the axes, with their colours or with handles."""
        from matplotlib.patches import Patch

        if len(names) < 2:
            return
        shown = [_cut(name, 80 // len(names)) for name in names]
        colours = [Patch(color=SERIES[number % 4]) for number in range(len(names))]
        place = "outside upper left"
        self.figure.legend(handles or colours, shown, loc=place, ncols=len(names))

    def draw(self) -> None:
        """Write the figure as SVG."""
        for artist in self.figure.findobj():
            artist.set_clip_on(False)
        file = io.StringIO()
        none = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        with warnings.catch_warnings():
            # Browsers have glyphs for more scripts than matplotlib's own font.
            warnings.filterwarnings("ignore", "Glyph")
            self.figure.savefig(file, format="svg", transparent=True, metadata=none)
        self._content = file.getvalue()

    def svg(self) -> Markup:
        """Return the SVG for a page."""
        root = ElementTree.fromstring(self._content)
        size = f"0 0 {WIDTH} {self._height:g}"
        page = ElementTree.Element("svg", {"role": "img", "viewBox": size})
        ElementTree.SubElement(page, "title").text = one_line(self._title)
        for child in root:
            page.extend(_cleaned(child))
        return Markup(ElementTree.tostring(page, "unicode"))


@contextmanager
def _chart(
    title: str, x_label: str = "", y_label: str = "", height: float = HEIGHT
) -> Iterator[tuple[_Chart, Axes]]:
    """Yield a chart to draw on, whatever the user's settings of matplotlib are."""
    from matplotlib import style

    with style.context(STYLE, after_reset=True):
        chart = _Chart(title, x_label, y_label, height)
        yield chart, chart.axes
        chart.draw()


def _cleaned(element: ElementTree.Element) -> list[ElementTree.Element]:
    """Return the visible elements of one of matplotlib's, without its groups, for the page."""
    tag = element.tag.rpartition("}")[2]
    children = [inner for child in element for inner in _cleaned(child)]
    if tag in ("metadata", "defs", "style") or (tag == "path" and not element.get("d")):
        return []
    name = element.get("id", "")
    if tag == "g" and name.startswith(TIP):
        for child in children:
            ElementTree.SubElement(child, "title").text = name.removeprefix(TIP)
    if tag == "g":
        return children
    cleaned = ElementTree.Element(tag)
    cleaned.text = element.text if tag == "text" else None
    for declaration in filter(None, element.get("style", "").split(";")):
        key, _, value = (part.strip() for part in declaration.partition(":"))
        if not key.startswith("font"):  # the page's own
            cleaned.set(key, VARIABLES.get(value, value))
    for key in ("d", "x", "y", "transform"):
        value = element.get(key, "")
        if value and not value.startswith("rotate(-0 "):
            cleaned.set(key, _short(value))
    cleaned.extend(children)
    invisible = cleaned.get("fill") == "none" and "stroke" not in cleaned.attrib
    return [] if invisible else [cleaned]


def _short(coordinates: str) -> str:
    """Round coordinates to a tenth of a pixel; a line of length 0 becomes ``h0``."""
    rounded = re.sub(r"-?\d+\.\d+", lambda number: f"{float(number[0]):.1f}", coordinates)
    rounded = re.sub(r"\s*([MLz])\s*", r"\1", rounded.replace(".0", "")).strip()
    return re.sub(r"M([\d. -]+)L\1(?=M|$)", r"M\1h0", rounded)


def _values_from_zero(axes: Axes, values: Sequence[float]) -> None:
    """Start the vertical axis at 0, unless values are below it, and draw grid lines."""
    axes.set_ylim(*_around(values))
    _numbers(axes.yaxis)
    axes.yaxis.grid(True)


def _around(values: Sequence[float]) -> tuple[float, float]:
    """Return the ends of a linear axis that shows 0 and all values."""
    low, high = min([*values, 0]), max([*values, 0])
    return low * 1.05, high * 1.05 if high - low > LEAST else low + 1


def _numbers(axis: Any) -> None:
    """Label an axis at a few round numbers."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))


def _scale(axes: Axes, name: str, values: Sequence[float], log: bool) -> None:
    """Scale an axis around values: linear from 0, or logarithmic between powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis = getattr(axes, f"{name}axis")
    set_limits = getattr(axes, f"set_{name}lim")
    axis.grid(True)
    if not log:
        set_limits(*_around(values))
        _numbers(axis)
        return
    shown = [max(value, LEAST) for value in values if value > 0] or [1]
    low = math.floor(math.log10(min(shown)) + 1e-9)
    high = max(math.ceil(math.log10(max(shown)) - 1e-9), low + 1)
    getattr(axes, f"set_{name}scale")("log")
    set_limits(10.0**low, 10.0**high)
    axis.set_major_locator(LogLocator(numticks=9))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))


def _name(axes: Axes, marks: Sequence[Mark]) -> None:
    """Draw marked points and their names; a name that would cover another moves down."""
    taken: list[tuple[float, float, float]] = []
    for x, y, label in marks:
        name = _cut(label, 26)
        across, up = axes.transAxes.inverted().transform(axes.transData.transform((x, y)))
        left = across > 0.6
        start = across * WIDTH - (7 * len(name) + 7 if left else -7)
        end, line = start + 7 * len(name), -up * HEIGHT * 4 / 3
        moved = 0.0
        while any(abs(line + moved - at) < LINE and start < z and a < end for a, z, at in taken):
            moved += 1
        taken.append((start, end, line + moved))
        _dots(axes, [(x, y)], INK, 7)
        axes.annotate(
            name,
            (x, y),
            (-7 if left else 7, -moved),
            textcoords="offset points",
            ha="right" if left else "left",
            va="center",
            color=INK,
        )


def _dots(
    axes: Axes, points: Sequence[tuple[float, float]], colour: str, size: float, alpha: float = 1
) -> None:
    """Draw points as one path of lines without length: a tenth of the size of as many circles."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    ends = [point for point in points for _ in range(2)]
    path = Path(ends or [(0, 0)], [Path.MOVETO, Path.LINETO] * len(points) or None)
    style = {"edgecolor": colour, "linewidth": size, "capstyle": "round", "alpha": alpha}
    axes.add_patch(PathPatch(path, fill=False, zorder=2, **style))


def _tip(label: str, value: str) -> str:
    return f"{TIP}{one_line(label)}: {value}"


def _cut(text: str, most: int) -> str:
    text = one_line(text)
    return text if len(text) <= most else text[: most - 1] + "…"
