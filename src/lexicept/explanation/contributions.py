"""Why a document has its score: what each dimension adds, and the characters that fired it."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from lexicept.corpora import Document


class Span(NamedTuple):
    """Characters of a text, counted as Python does: in Unicode code points."""

    start: int
    end: int


class QueryTerm(NamedTuple):
    """One dimension of a query."""

    vocabulary: str
    dimension: int
    """Within its vocabulary: a latent's number."""
    term: str
    """What a person sees for it."""
    weight: float
    spans: tuple[Span, ...]
    """Of the query, as in ``Contribution``."""


class Contribution(NamedTuple):
    """What one dimension adds to a score."""

    vocabulary: str
    dimension: int
    """Within its vocabulary: a latent's number."""
    term: str
    """What a person sees for it."""
    score: float
    """``query_weight * document_weight``."""
    query_weight: float
    document_weight: float
    query_spans: tuple[Span, ...]
    """Of the query; empty where spans were not asked for. For a word all its occurrences, for a
    concept the word whose token has the largest activation. A query side without inference has the
    tokens that name the dimension."""
    document_spans: tuple[Span, ...]
    """Of the document's content, title and text, in the same way."""


@dataclass(frozen=True)
class Explanation:
    """The exact decomposition of one score."""

    query: str
    document_id: str
    content: str
    """The document's title and text."""
    contributions: tuple[Contribution, ...]
    """All that are above 0, largest first."""
    prior: float
    """RRA's offset of the document times the query's factor on it; 0 without RRA."""

    @property
    def score(self) -> float:
        """The sum of the contributions and the prior.

        It is exact up to double precision. A search adds the same n numbers, none of them negative,
        in single precision: the two differ by at most (n + 1) · 2⁻²⁴ of the score.
        """
        return math.fsum([self.prior, *(part.score for part in self.contributions)])

    def to_json(self) -> dict[str, Any]:
        """The same as dictionaries, lists, texts and numbers, with shares of the score added."""
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


def whole(text: str, start: int, end: int) -> Span:
    """A span of a text without spaces at its ends, and with the marks on its last letter."""
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    while start < end < len(text) and unicodedata.category(text[end])[0] == "M":
        end += 1
    return Span(start, end)


def merged(spans: Iterable[Span]) -> list[Span]:
    """The same characters in spans that neither overlap nor touch, in order."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1].end:
            found[-1] = Span(found[-1].start, max(found[-1].end, end))
        elif start < end:
            found.append(Span(start, end))
    return found


def spellings(text: str, spans: Iterable[Span]) -> list[str]:
    """The different strings that spans of a text hold, in order; case makes no difference."""
    found: dict[str, str] = {}
    for start, end in spans:
        found.setdefault(text[start:end].casefold(), text[start:end])
    return list(found.values())


def split_spans(
    document: Document, spans: Iterable[Span]
) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """Spans of a document's content as spans of its title and spans of its text."""
    title, text = len(document.title), len(document.text)
    joined = f"{document.title} {document.text}"
    stripped = len(joined) - len(joined.lstrip())
    known = list(spans)
    return _within(known, -stripped, title), _within(known, title + 1 - stripped, text)


def _within(spans: Iterable[Span], start: int, length: int) -> tuple[Span, ...]:
    """What of the spans lies in ``length`` characters from ``start`` on, counted from there."""
    moved = ((max(first - start, 0), min(last - start, length)) for first, last in spans)
    return tuple(Span(first, last) for first, last in moved if first < last)
