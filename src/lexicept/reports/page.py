"""The page of a report: blocks of a section, formats of cells, and the HTML template.

Sections are Python objects: headings, paragraphs, numbers, tables and figures. The template escapes
all text but ``Markup``: meters and highlighted passages.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup

from lexicept.explanation.contributions import Span
from lexicept.explanation.html import environment, highlighted
from lexicept.reports.charts import Chart
from lexicept.sanitize import around, shortened

FOLDER = Path(__file__).parent

SORTABLE = 6
"""Fewest rows of a table that can be sorted."""

LONG = 20
"""Most rows of a table that neither scrolls nor can be searched."""

CONTEXT = 90
"""Characters before and after the highlighted words of an example."""

SHORT = 110
"""Most characters of a query or a title in a table."""


class Number(NamedTuple):
    """A number with a name and a meaning."""

    label: str
    value: str
    meaning: str


class Column(NamedTuple):
    """A column of a table."""

    name: str
    show: Callable[[Any], str] = str
    numeric: bool = True


def text_column(name: str) -> Column:
    """Return a column of text."""
    return Column(name, numeric=False)


class Block:
    """A part of a section; the template has a branch for each kind."""

    @property
    def kind(self) -> str:
        return type(self).__name__.lower()


@dataclass(frozen=True)
class Paragraph(Block):
    """Running text."""

    text: str


@dataclass(frozen=True)
class Note(Block):
    """A caveat, such as a sample or a missing component."""

    text: str


@dataclass(frozen=True)
class Numbers(Block):
    """A few numbers side by side."""

    items: Sequence[Number]


@dataclass(frozen=True)
class Figure(Block):
    """A chart with its caption."""

    chart: Chart
    caption: str


@dataclass(frozen=True)
class Table(Block):
    """Rows of raw values, formatted by the columns; the first column names the row."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    note: str = ""
    total: Sequence[Any] = ()
    """A row that stays last when the table is sorted."""

    @property
    def sortable(self) -> bool:
        return len(self.rows) >= SORTABLE

    @property
    def long(self) -> bool:
        return len(self.rows) > LONG


class Excerpt(NamedTuple):
    """A passage of a document."""

    html: Markup
    document_id: str


class Link(NamedTuple):
    """A name, and the id of an element on the page or None."""

    label: str
    target: str | None


@dataclass(frozen=True)
class Card:
    """A concept with facts, words and examples."""

    id: str
    label: str
    facts: str
    words: Sequence[str]
    passages: Sequence[Excerpt]
    nearest: Sequence[Link]


@dataclass(frozen=True)
class Cards(Block):
    """Concepts side by side."""

    items: Sequence[Card]


@dataclass(frozen=True)
class Group(Block):
    """Blocks under a smaller heading."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class ReportSection:
    """A section of the report; ``id`` is the id of the HTML element."""

    id: str
    title: str
    intro: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Page:
    """The whole report."""

    title: str
    subtitle: str
    sections: Sequence[ReportSection]


def render(page: Page) -> str:
    """Return the page as one HTML file that needs neither a network nor a script."""
    style, script = ((FOLDER / name).read_text("utf-8") for name in ("page.css", "page.js"))
    # Nothing but these two may run or be loaded, whatever a document's text holds.
    sources = f"style-src {_hash(style)}; script-src {_hash(script)}; img-src data:"
    policy = f"default-src 'none'; {sources}"
    template = environment(FOLDER).get_template("report.html")
    return template.render(page=page, policy=policy, style=Markup(style), script=Markup(script))


def _hash(source: str) -> str:
    """Return a content security policy's name of an inline script or style."""
    return f"'sha256-{b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


count = "{:,.0f}".format
"""Formats a whole number: ``12,345``."""
one_decimal = "{:,.1f}".format
three_decimals = "{:.3f}".format
signed = "{:+z.3f}".format
"""Formats a difference of measures: ``+0.123``."""


def percent(value: float) -> str:
    """Format a share: ``12.3%``; small ones with two significant digits."""
    if abs(value) >= 0.01 or not value:
        return f"{value:.1%}"
    return f"{100 * value:#.2g}%" if abs(value) >= 1e-6 else "< 0.0001%"


def megabytes(value: float) -> str:
    """Format a number of bytes in megabytes."""
    return f"{value / 1e6:,.1f} MB"


def cut(text: str, limit: int = SHORT) -> str:
    """Return a text in one line, shortened with an ellipsis."""
    return shortened(" ".join(text.split()), limit)


def passage(text: str, start: int, end: int) -> Markup:
    """Return a highlighted span of a document, with whole words around the span."""
    begin, stop = around(text, start, end, CONTEXT)
    flat = re.sub(r"\s", " ", text[begin:stop])
    marked = highlighted(flat, [Span(start - begin, end - begin)])
    return ("… " if begin else "") + marked + (" …" if stop < len(text) else "")


def metered(value: float, largest: float) -> Markup:
    """Return a share for the cell of a table, after a bar that ``largest`` fills."""
    width = 100 * min(max(value / largest, 0), 1) if largest > 0 else 0
    cell: Any = environment(FOLDER).get_template("meter.html").module
    html: Markup = cell.meter(width, percent(value))
    return html
