"""Contributions of dimensions to a score, and the text that activates them."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import NamedTuple

from lexicept.corpora import Document


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
