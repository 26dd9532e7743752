"""Explanations: the contribution of each dimension to a score, and the text that activates it."""

from __future__ import annotations

import math
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from lexicept.corpora import Document
from lexicept.sanitize import safe

SHOWN = 10
"""Contributions that an explanation's ``repr`` shows."""

CELL = 40
"""Characters of a cell of it."""


class Span(NamedTuple):
    """Characters of a text, counted as Python does: in Unicode code points."""

    start: int
    end: int


class QueryTerm(NamedTuple):
    """One dimension of a query and its weight."""

    vocabulary: str
    dimension: int
    """The number within the vocabulary: for concepts the latent's."""
    term: str
    """The dimension's name: a stem, or a concept's label."""
    weight: float
    spans: tuple[Span, ...]
    """Characters of the query, as in ``Contribution``."""


class Contribution(NamedTuple):
    """The part of a score that one dimension adds."""

    vocabulary: str
    dimension: int
    """The number within the vocabulary: for concepts the latent's."""
    term: str
    """The dimension's name: a stem, or a concept's label."""
    score: float
    """``query_weight * document_weight``."""
    query_weight: float
    document_weight: float
    query_spans: tuple[Span, ...]
    """Characters of the query that activate the dimension; empty where spans were not asked for.
    For a word all its occurrences, for a concept the word whose token has the largest activation;
    for a query that needs no inference, the tokens that name the dimension."""
    document_spans: tuple[Span, ...]
    """Characters of the document's content (title and text) that activate it, likewise."""


@dataclass(frozen=True)
class Explanation:
    """The exact decomposition of one score."""

    query: str
    document_id: str
    content: str
    """The document's title and text."""
    contributions: tuple[Contribution, ...]
    """The contributions above 0, largest first."""
    prior: float
    """RRA's offset of the document times the query's factor on it; 0 without RRA."""

    @property
    def score(self) -> float:
        """The sum of the contributions and the prior.

        It is exact up to double precision. A search adds the same n numbers, none of them negative,
        in single precision: the two differ by at most (n + 1) · 2⁻²⁴ of the score.
        """
        return math.fsum([self.prior, *(part.score for part in self.contributions)])

    def __repr__(self) -> str:
        """Return an aligned table of the largest contributions."""
        shown = self.contributions[:SHOWN]
        rows = [("score", "share", "", "term", "in the query", "in the document")]
        for part in shown:
            spans = spellings(self.query, part.query_spans)
            found = spellings(self.content, part.document_spans)
            own = (part.vocabulary.removesuffix("s"), part.term, ", ".join(spans), ", ".join(found))
            rows.append((*self._share(part.score), *own))
        rest = math.fsum(part.score for part in self.contributions[SHOWN:])
        if rest:
            rows.append((*self._share(rest), "", f"{len(self.contributions) - SHOWN} more", "", ""))
        if self.prior:
            rows.append((*self._share(self.prior), "", "document prior", "", ""))
        title = f"Explanation of {self.document_id!r} for {self.query!r}: {self.score:.4f}"
        return "\n".join([safe(title), *_aligned(rows)])

    def _repr_html_(self) -> str:
        """Return a coloured table, which a notebook shows."""
        from lexicept.explanation.html import explanation_fragment

        return explanation_fragment(self, Document(self.document_id, self.content))

    def _share(self, score: float) -> tuple[str, str]:
        return f"{score:.4f}", f"{score / self.score:.1%}"

    def to_json(self) -> dict[str, Any]:
        """Return dictionaries, lists, texts and numbers, with shares of the score added."""
        score = self.score
        return {
            "query": self.query,
            "document_id": self.document_id,
            "content": self.content,
            "score": score,
            "prior": self.prior,
            "contributions": [
                {**part._asdict(), "share": part.score / score} for part in self.contributions
            ],
        }


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of cells as lines of equal columns, the first two columns to the right."""
    cells = [[textwrap.shorten(safe(cell), CELL, placeholder="…") for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if place < 2 else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]


def whole(text: str, start: int, end: int) -> Span:
    """Return a span without spaces at its ends, and with the combining marks of its last letter."""
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    while start < end < len(text) and unicodedata.category(text[end])[0] == "M":
        end += 1
    return Span(start, end)


def merged(spans: Iterable[Span]) -> list[Span]:
    """Return the same characters as spans that neither overlap nor touch, in order."""
    apart: list[Span] = []
    for start, end in sorted(spans):
        if apart and start <= apart[-1].end:
            apart[-1] = Span(apart[-1].start, max(apart[-1].end, end))
        elif start < end:
            apart.append(Span(start, end))
    return apart


def spellings(text: str, spans: Iterable[Span]) -> list[str]:
    """Return the distinct strings under spans of a text, in order, ignoring case."""
    strings: dict[str, str] = {}
    for start, end in spans:
        strings.setdefault(text[start:end].casefold(), text[start:end])
    return list(strings.values())


def split_spans(
    document: Document, spans: Iterable[Span]
) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """Return spans of a document's content as spans of its title and spans of its text."""
    title, text = len(document.title), len(document.text)
    joined = f"{document.title} {document.text}"
    stripped = len(joined) - len(joined.lstrip())
    known = list(spans)
    return _within(known, -stripped, title), _within(known, title + 1 - stripped, text)


def _within(spans: Iterable[Span], start: int, length: int) -> tuple[Span, ...]:
    """Return the parts of spans within ``length`` characters from ``start``, counted from there."""
    moved = ((max(first - start, 0), min(last - start, length)) for first, last in spans)
    return tuple(Span(first, last) for first, last in moved if first < last)
