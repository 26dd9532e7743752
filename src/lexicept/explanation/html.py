"""Explanations as HTML: highlighted text, a fragment for other pages, and a page of its own."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from lexicept.corpora import Document
from lexicept.explanation.contributions import (
    Contribution,
    Span,
    merged,
    spellings,
    split_spans,
)
from lexicept.sanitize import safe

TEMPLATES = Path(__file__).parent / "templates"


class Explained(Protocol):
    """The parts of an ``Explanation`` that the templates show."""

    @property
    def query(self) -> str: ...

    @property
    def content(self) -> str: ...

    @property
    def contributions(self) -> tuple[Contribution, ...]: ...

    @property
    def prior(self) -> float: ...

    @property
    def score(self) -> float: ...


class Piece(NamedTuple):
    """Characters of a text between two ends of spans."""

    text: str
    marked: bool


@cache
def environment(*folders: Path) -> Environment:
    """Return an environment for templates in folders, and for those of explanations.

    It escapes what it shows, also control characters and marks that reorder other text.
    """
    return Environment(
        loader=FileSystemLoader([*folders, TEMPLATES]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_readable,
    )


def _readable(value: Any) -> Any:
    return type(value)(safe(value)) if isinstance(value, str) else value


def highlighted(text: str, spans: Iterable[Span]) -> Markup:
    """Return a text as HTML with its spans in ``<mark>``; overlapping spans become one."""
    marks: Any = environment().get_template("marks.html").module
    html: Markup = marks.marked(_pieces(text, spans))
    return html


def explanation_page(explanation: Explained, document: Document) -> str:
    """Return an HTML page, complete in itself, that explains a document's score."""
    template = environment().get_template("page.html")
    return template.render(_values(explanation, document))


def explanation_fragment(explanation: Explained, document: Document) -> str:
    """Return the query, the parts of the score and the document as HTML.

    The fragment has its own style sheet, which applies to nothing else on a page or in a notebook.
    """
    style = environment().get_template("style.css").render()
    fragment = environment().get_template("fragment.html").render(_values(explanation, document))
    return f"<style>\n{style}\n</style>\n{fragment}"


def _values(explanation: Explained, document: Document) -> dict[str, Any]:
    """The variables of the templates."""
    parts = explanation.contributions
    title, text = split_spans(document, (s for part in parts for s in part.document_spans))
    return {
        "explanation": explanation,
        "contributions": parts,
        "total": explanation.score,
        "largest": max([explanation.prior, *(part.score for part in parts[:1])]),
        "query": _pieces(explanation.query, (s for part in parts for s in part.query_spans)),
        "name": document.title or document.id,
        "title": _pieces(document.title, title) or [Piece(document.id, False)],
        "text": _pieces(document.text, text),
        "spellings": spellings,
    }


def _pieces(text: str, spans: Iterable[Span]) -> list[Piece]:
    """Split a text at the ends of its spans."""
    pieces = []
    position = 0
    for start, end in merged(spans):
        pieces += [Piece(text[position:start], False), Piece(text[start:end], True)]
        position = end
    pieces.append(Piece(text[position:], False))
    return [piece for piece in pieces if piece.text]
