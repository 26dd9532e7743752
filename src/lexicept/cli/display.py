"""Terminal views of results and explanations."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import HEAVY_HEAD
from rich.console import Group
from rich.table import Column, Table
from rich.text import Text

from lexicept.corpora import Document
from lexicept.corpora.records import shown_fields
from lexicept.explanation.contributions import (
    Span,
    WholePart,
    largest_first,
    spelled,
    split_spans,
    strong_and_weak,
)
from lexicept.explanation.explanation import Explanation
from lexicept.fields.columns import ValueCount
from lexicept.index.hits import Hit
from lexicept.index.matches import SNIPPET
from lexicept.sanitize import safe

BORDERS = HEAVY_HEAD
"""Borders of a table of measurements."""

_Mark = tuple[Span, str]
"""Characters of a text to highlight, and their style."""

_COLOURS = {"words": "cyan", "concepts": "magenta", "similarity": "yellow"}

SHOWN_SHARE = 0.005
"""Least share in a score of a contribution that is printed below a result."""


def results_table(query: str, hits: Sequence[Hit], snippets: Sequence[str]) -> Table:
    """Return the results, best first, each with its snippet and, if it has one, its explanation."""
    table = grid([right(style="bold"), right(style="green"), folded()], query)
    for hit, snippet in zip(hits, snippets, strict=True):
        document, explanation = hit.document, hit.explanation
        body = _heading(document, []).append("\n")
        if known := " · ".join(f"{name} {text}" for name, text in shown_fields(document)):
            fields = textwrap.shorten(safe(known), SNIPPET, placeholder="…")
            body.append(f"{fields}\n", style="dim")
        body.append(safe(snippet))
        if explanation is not None and (largest := _largest(explanation)):
            body.append("\n").append(largest)
        table.add_row(str(hit.rank), f"{hit.score:.3f}", body)
    return table


def facets_table(counts: Mapping[str, Sequence[ValueCount]]) -> Table:
    """Return the values of fields, each with the number of documents that have it."""
    table = grid([Column(style="dim"), right(style="green"), folded()])
    for name, values in counts.items():
        for number, (value, documents) in enumerate(values):
            table.add_row(plain("" if number else name), f"{documents:,}", plain(str(value)))
    return table


def explanation_view(explanation: Explanation, document: Document) -> Group:
    """Return a whole explanation: the query, every contribution, and the document's text."""
    in_query = [
        (span, _style(part.vocabulary, strong))
        for part in explanation.contributions
        for spans, strong in zip(strong_and_weak(part.in_query), (True, False), strict=True)
        for span in spans
    ]
    in_title, in_text = _marks(document, explanation)
    texts = map(folded, ("", "", "in the query", "in the document"))
    numbers = map(right, ("score", "share", "query × document"))
    table = grid([*numbers, *texts], header_style="dim")
    score = explanation.score
    for part in largest_first(explanation.ideas, explanation.whole_parts):
        share = Text(f"{part.score / score:.1%}", style="green")
        if isinstance(part, WholePart):
            name = Text(part.name, style=_COLOURS.get(part.key, "dim"))
            table.add_row(f"{part.score:.4f}", share, "", name, "", "", plain(part.words))
            continue
        table.add_row(
            f"{part.score:.4f}",
            share,
            "\n".join(f"{p.query_weight:.3f} × {p.document_weight:.3f}" for p in part.parts),
            plain(part.name, _COLOURS.get(part.vocabulary, "")),
            Text(part.composition(score), style="dim"),
            plain(spelled(explanation.query, part.in_query)),
            plain(spelled(explanation.content, part.in_document)),
        )
    return Group(
        _marked(explanation.query, in_query),
        *([plain(explanation.note, "dim")] if explanation.note else []),
        Text(f"{score:.4f}", style="green"),
        table,
        Text(),
        _heading(document, in_title),
        _marked(document.text, in_text),
    )


def _largest(explanation: Explanation, most: int = 6) -> Text:
    """Return the largest contributions with their shares of the score, and the sum of the rest;
    shares that round to 0 % are left out."""
    text = Text()
    score, parts = explanation.score, explanation.ideas
    most = min(most, sum(part.score >= SHOWN_SHARE * score for part in parts))
    if not score:  # a condition alone
        return text
    for part in largest_first(parts[:most], explanation.whole_parts):
        text.append(f"{part.score / score:>5.0%} ", style="green")
        if isinstance(part, WholePart):
            text.append(part.name, style=_COLOURS.get(part.key, "dim"))
            text.append(f"  {safe(part.words)}\n" if part.words else "\n", style="dim")
            continue
        text.append(safe(part.name), style=_COLOURS.get(part.vocabulary, ""))
        text.append(f"  {part.composition(score)}", style="dim")
        in_query = spelled(explanation.query, part.in_query, 3)
        matched = spelled(explanation.content, part.in_document, 3)
        if matched and part.name != f"{in_query} ↔ {matched}":
            words = matched if in_query == part.name else f"{in_query} → {matched}"
            text.append(f"  {safe(words)}", style="dim")
        text.append("\n")
    remainder = math.fsum(part.score for part in parts[most:])
    if remainder >= SHOWN_SHARE * score:
        text.append(f"{remainder / score:>5.0%} ", style="green")
        text.append(f"{len(parts) - most} more\n", style="dim")
    text.right_crop(1)
    return text


def _marks(document: Document, explanation: Explanation) -> tuple[list[_Mark], list[_Mark]]:
    """Return the marks of a title and of a text, by the parts of an explanation."""
    marks: tuple[list[_Mark], list[_Mark]] = ([], [])
    for contribution in explanation.contributions:
        strong_spans, weak_spans = strong_and_weak(contribution.in_document)
        for spans, strong in ((strong_spans, True), (weak_spans, False)):
            style = _style(contribution.vocabulary, strong)
            for side, inside in zip(marks, split_spans(document, spans), strict=True):
                side += [(span, style) for span in inside]
    return marks


def _heading(document: Document, marks: Sequence[_Mark]) -> Text:
    """Return the title and the id, or the id alone."""
    text = _marked(document.title, marks) if document.title else Text(safe(document.id))
    text.stylize("bold")
    if document.title and document.title != document.id:
        text.append(f"  {safe(document.id)}", style="dim")
    return text


def _style(vocabulary: str, strong: bool) -> str:
    colour = _COLOURS.get(vocabulary, "")
    return f"bold {colour}".rstrip() if strong else colour


def _marked(text: str, marks: Sequence[_Mark]) -> Text:
    """Return a text with its marks."""
    marked = Text(safe(text))
    for span, style in marks:
        marked.stylize(style, span.start, span.end)
    return marked


def grid(columns: Sequence[Column | str], title: str = "", **options: Any) -> Table:
    """Return a table, by default without borders; a column with a name gives it a header."""
    named = any(column.header if isinstance(column, Column) else column for column in columns)
    options = {"box": None, "title_justify": "left", **options}
    heading = plain(title) if title else None
    if heading is not None:
        heading.no_wrap, heading.overflow = True, "ignore"  # may be wider than the table
    return Table(*columns, title=heading, show_header=bool(named), **options)


def right(name: str = "", **options: Any) -> Column:
    """Return a right-aligned column."""
    return Column(name, justify="right", **options)


def folded(name: str | Text = "") -> Column:
    """Return a column of texts that may take several lines."""
    return Column(name, overflow="fold")


def plain(text: str, style: str = "") -> Text:
    """Return a text that a terminal can show, without markup."""
    return Text(safe(text), style=style)
