"""Explanations as HTML: highlighted text, a fragment for other pages, and a page of its own."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from lexicept.corpora import Document
from lexicept.explanation.contributions import (
    Sources,
    Span,
    largest_first,
    spelled,
    split_spans,
    strong_and_weak,
)
from lexicept.sanitize import safe

TEMPLATES = Path(__file__).parent / "templates"


PLAIN, WEAK, STRONG = range(3)


class Piece(NamedTuple):
    """Characters of a text between neighbouring ends of spans."""

    text: str
    mark: int
    """PLAIN, WEAK or STRONG."""


@cache
def environment(*folders: Path) -> Environment:
    """Return an environment for templates in folders and for the templates of explanations.
    Values are escaped, also control characters and marks that reorder text."""
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
    """Return a text as escaped HTML with spans in ``<mark>``; overlapping spans are joined."""
    marks: Any = environment().get_template("marks.html").module
    html: Markup = marks.marked(_pieces(text, spans))
    return html


def explanation_page(explanation: Any, document: Document) -> str:
    """Return an HTML page, complete in itself, of an ``Explanation`` of a document's score."""
    return environment().get_template("page.html").render(_values(explanation, document))


def explanation_fragment(explanation: Any, document: Document) -> str:
    """Return the query, the contributions and the document as HTML. The style sheet in the
    fragment applies to nothing outside of the fragment."""
    style = environment().get_template("style.css").render()
    fragment = environment().get_template("fragment.html").render(_values(explanation, document))
    return f"<style>\n{style}\n</style>\n{fragment}"


def _values(explanation: Any, document: Document) -> dict[str, Any]:
    """Return the variables of the templates."""
    contributions = explanation.contributions
    vocabularies = dict.fromkeys(entry.vocabulary for entry in contributions)
    parts = largest_first(explanation.ideas, explanation.whole_parts)
    query_strong, query_weak = _strong_and_weak(entry.in_query for entry in contributions)
    strong, weak = _strong_and_weak(entry.in_document for entry in contributions)
    title_strong, text_strong = split_spans(document, strong)
    title_weak, text_weak = split_spans(document, weak)
    title = _pieces(document.title, title_strong, title_weak)
    return {
        "explanation": explanation,
        "parts": parts,
        "colours": {name: name for name in vocabularies}
        | {part.key: part.name for part in explanation.whole_parts},
        "total": explanation.score,
        "largest": max([0.0, *(part.score for part in parts[:1])]),
        "query": _pieces(explanation.query, query_strong, query_weak),
        "name": document.title or document.id,
        "title": title or [Piece(document.id, PLAIN)],
        "text": _pieces(document.text, text_strong, text_weak),
        "spelled": spelled,
    }


def _strong_and_weak(sources: Iterable[Sources]) -> tuple[list[Span], list[Span]]:
    """Return the strong and the weak spans of several dimensions."""
    strong: list[Span] = []
    weak: list[Span] = []
    for spans in map(strong_and_weak, sources):
        strong += spans[0]
        weak += spans[1]
    return strong, weak


def _pieces(text: str, strong: Iterable[Span], weak: Iterable[Span] = ()) -> list[Piece]:
    """Split a text at the ends of spans; a strong span hides an overlapping weak span."""
    # A mark for each character; strong marks are painted over weak ones.
    marks = bytearray(len(text))
    for mark, spans in ((WEAK, weak), (STRONG, strong)):
        for start, end in spans:
            marks[start:end] = bytes([mark]) * len(marks[start:end])
    pieces, position = [], 0
    for mark, run in groupby(marks):
        end = position + sum(1 for _ in run)
        pieces.append(Piece(text[position:end], mark))
        position = end
    return pieces
