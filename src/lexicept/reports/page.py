"""The parts of a report, and the template that makes one HTML file of them.

Sections are Python objects: headings, paragraphs, numbers, tables and figures. The template escapes
all text but ``Markup``: charts, meters and highlighted passages.
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
"""Fewest rows of a table that can be sorted."""

LONG = 20
"""Most rows of a table that neither scrolls nor can be searched."""


class Number(NamedTuple):
    """One number with its name and meaning."""

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
    """A caveat about what follows: a sample, a missing part."""

    text: str


@dataclass(frozen=True)
class Numbers(Block):
    """A few numbers side by side."""

    items: Sequence[Number]


@dataclass(frozen=True)
class Figure(Block):
    """A chart with its caption."""

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
    """A row that stays last when the table is sorted."""

    @property
    def sortable(self) -> bool:
        return len(self.rows) >= SORTABLE

    @property
    def long(self) -> bool:
        return len(self.rows) > LONG


class Passage(NamedTuple):
    """A passage of a document."""

    html: Markup
    document_id: str


class Link(NamedTuple):
    """A name, and the id of its element on the page if it has one."""

    label: str
    target: str | None


@dataclass(frozen=True)
class Card:
    """One concept with its facts, words and examples."""

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
    """A section of the report; ``id`` is its element's id."""

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
    """Return the page as one HTML file that needs neither a network nor a script."""
    style, script = ((FOLDER / name).read_text("utf-8") for name in ("page.css", "page.js"))
    # Nothing but these two may run or be loaded, whatever a document's text holds.
    policy = f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}"
    template = environment(FOLDER).get_template("report.html")
    return template.render(page=page, policy=policy, style=Markup(style), script=Markup(script))


def _hash(content: str) -> str:
    """Return a content security policy's name of an inline script or style."""
    return f"'sha256-{b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
