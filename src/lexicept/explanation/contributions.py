"""Contributions of dimensions to a score, and the text that activates them."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

from lexicept.corpora import Document

SPELLED = 5
"""Strings that ``spelled`` shows with their shares."""


class Span(NamedTuple):
    """Characters of a text, counted as Python does: in Unicode code points."""

    start: int
    end: int


class Sources(NamedTuple):
    """The places of a text that activate a dimension, the largest share first."""

    spans: tuple[Span, ...] = ()
    shares: tuple[float, ...] = ()
    """The share of each span in the activation. They add up to 1, less the shares of a prompt that
    the encoder puts before the text and, where it counts them, of special tokens: both have no
    characters."""

    @classmethod
    def of(cls, parts: Iterable[tuple[Span, float]]) -> Self:
        """Order spans with their shares; the shares of the same characters are added."""
        shares: dict[Span, float] = {}
        for span, share in parts:
            shares[span] = shares.get(span, 0.0) + share
        ordered = sorted(shares.items(), key=lambda part: (-part[1], part[0]))
        return cls(tuple(span for span, _ in ordered), tuple(share for _, share in ordered))

    @classmethod
    def alike(cls, spans: Sequence[Span]) -> Self:
        """Give all spans the same share."""
        return cls.of((span, 1 / len(spans)) for span in spans)


class QueryTerm(NamedTuple):
    """One dimension of a query and its weight."""

    vocabulary: str
    dimension: int
    """The number within the vocabulary: for concepts the latent's."""
    term: str
    """The dimension's name: a stem, or a concept's label; its number, as in "#12", for a concept
    without a name."""
    weight: float
    spans: tuple[Span, ...]
    """Characters of the query, as in ``Contribution``."""
    shares: tuple[float, ...]
    """The share of each, as in ``Contribution``."""

    @property
    def in_query(self) -> Sources:
        """``spans`` with their shares."""
        return Sources(self.spans, self.shares)


class Contribution(NamedTuple):
    """The part of a score that one dimension adds."""

    vocabulary: str
    dimension: int
    """The number within the vocabulary: for concepts the latent's."""
    term: str
    """The dimension's name: a stem, or a concept's label; its number, as in "#12", for a concept
    without a name."""
    score: float
    """``query_weight * document_weight``."""
    query_weight: float
    document_weight: float
    query_spans: tuple[Span, ...]
    """Characters of the query that activate the dimension; empty where spans were not asked for.
    For a word all its occurrences. For a concept the word whose token has the largest activation
    with max pooling, and with other poolings all words whose tokens add to it; for a query that
    needs no inference, the tokens that name the dimension."""
    query_shares: tuple[float, ...]
    """The share of each in the query's activation, the largest first; together 1, less the share of
    a prompt and of special tokens. A span's part of the score is its share of ``score``."""
    document_spans: tuple[Span, ...]
    """Characters of the document's content (title and text) that activate it, likewise."""
    document_shares: tuple[float, ...]
    """The share of each in the document's activation, likewise."""

    @property
    def in_query(self) -> Sources:
        """``query_spans`` with their shares."""
        return Sources(self.query_spans, self.query_shares)

    @property
    def in_document(self) -> Sources:
        """``document_spans`` with their shares."""
        return Sources(self.document_spans, self.document_shares)


def whole(text: str, start: int, end: int) -> Span:
    """Return a span without spaces at its ends, and with the combining marks of its last letter."""
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    while start < end < len(text) and unicodedata.category(text[end])[0] == "M":
        end += 1
    return Span(start, end)


def strong_and_weak(sources: Sources) -> tuple[list[Span], list[Span]]:
    """Return the spans with at least half of the largest share, and the others."""
    largest = max(sources.shares, default=0.0)
    parts: tuple[list[Span], list[Span]] = ([], [])
    for span, share in zip(*sources, strict=True):
        parts[share < largest / 2].append(span)
    return parts


def spellings(text: str, sources: Sources) -> dict[str, float]:
    """Return the distinct strings under spans of a text, ignoring case, with their shares, the
    largest first."""
    strings: dict[str, str] = {}
    shares: dict[str, float] = {}
    for (start, end), share in zip(*sources, strict=True):
        spelling = strings.setdefault(text[start:end].casefold(), text[start:end])
        shares[spelling] = shares.get(spelling, 0.0) + share
    return dict(sorted(shares.items(), key=lambda part: -part[1]))


def spelled(text: str, sources: Sources, most: int = SPELLED) -> str:
    """Return the strings under spans of a text as one line, with their shares if there are several:
    "heart 60%, cardiac 25%, 3 more 15%"."""
    strings = spellings(text, sources)
    if len(strings) < 2:
        return "".join(strings)
    parts = [f"{spelling} {share:.0%}" for spelling, share in [*strings.items()][:most]]
    rest = math.fsum([*strings.values()][most:])
    return ", ".join(parts + [f"{len(strings) - most} more {rest:.0%}"] * (len(strings) > most))


def unnamed(number: int) -> str:
    """Return the term of a concept without a name."""
    return f"#{number}"


def shown_term(part: Contribution, query: str, content: str) -> str:
    """Return what a term is called: a concept without a name after the strongest word of the query
    and that of the document that fire it, as in "fracture ↔ fractures"."""
    if part.vocabulary == "concepts" and part.term == unnamed(part.dimension):
        pair = (spellings(query, part.in_query), spellings(content, part.in_document))
        if all(pair):
            return " ↔ ".join(next(iter(strings)) for strings in pair)
    return part.term


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
