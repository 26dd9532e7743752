"""What a report is made of, and how it becomes one HTML file.

Sections are written in Python as headings, paragraphs, numbers, tables and figures; one template
turns them into HTML. Text is escaped there and nowhere else: only what is ``Markup`` already, the
plots and highlighted passages, is taken as it is.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup

from lexicept.explanation.html import environment

FOLDER = Path(__file__).parent

SORTABLE = 6
"""Rows from which a table can be sorted."""

LONG = 20
"""Rows above which a table scrolls in itself and can be searched."""


class Number(NamedTuple):
    """One figure, with what it is."""

    label: str
    value: str
    meaning: str


class Column(NamedTuple):
    """A column of a table."""

    name: str
    show: Callable[[Any], str] = str
    numeric: bool = True


def text_column(name: str) -> Column:
    """A column of text."""
    return Column(name, numeric=False)


class Block:
    """A piece of a section; the template has a part for each kind."""

    @property
    def kind(self) -> str:
        return type(self).__name__.lower()


@dataclass(frozen=True)
class Paragraph(Block):
    """Running text."""

    text: str


@dataclass(frozen=True)
class Note(Block):
    """What a reader must know before trusting what follows: a sample, a missing part."""

    text: str


@dataclass(frozen=True)
class Numbers(Block):
    """A few figures side by side."""

    items: Sequence[Number]


@dataclass(frozen=True)
class Figure(Block):
    """A plot with its caption."""

    svg: Markup
    caption: str


@dataclass(frozen=True)
class Table(Block):
    """Rows of raw values, shown by their columns; the first column names the row."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    note: str = ""
    total: Sequence[Any] = ()
    """A last row that stays last."""

    @property
    def sortable(self) -> bool:
        return len(self.rows) >= SORTABLE

    @property
    def long(self) -> bool:
        return len(self.rows) > LONG


class Passage(NamedTuple):
    """A piece of a document."""

    html: Markup
    document_id: str


class Link(NamedTuple):
    """A name, and the id of its place on the page where it has one."""

    label: str
    target: str | None


@dataclass(frozen=True)
class Card:
    """One concept: what is said of it, and its examples."""

    id: str
    label: str
    facts: str
    words: Sequence[str]
    passages: Sequence[Passage]
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
class Section:
    """A chapter of the report. ``id`` is its place on the page."""

    id: str
    title: str
    intro: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Page:
    """The whole report."""

    title: str
    subtitle: str
    sections: Sequence[Section]


def render(page: Page) -> str:
    """One HTML file that needs nothing else, neither a network nor a script."""
    style, script = ((FOLDER / name).read_text("utf-8") for name in ("page.css", "page.js"))
    # Nothing but these two may run or be loaded, whatever a document's text holds.
    policy = f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}"
    template = environment(FOLDER).get_template("report.html")
    return template.render(page=page, policy=policy, style=Markup(style), script=Markup(script))


def _hash(content: str) -> str:
    """How a content security policy names an inline script or style."""
    return f"'sha256-{b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
