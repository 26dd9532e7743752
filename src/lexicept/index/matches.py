"""What results share with a query, and words of their texts behind it: no model runs."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from lexicept.explanation.contributions import Contribution
from lexicept.index.hits import Hit
from lexicept.index.queries import WeightedQueries
from lexicept.index.reader import IndexReader
from lexicept.sanitize import around

SNIPPET = 240
"""Most characters of a snippet."""

LONGEST = 10_000
"""Characters of a text that are read."""


class Match(NamedTuple):
    """A dimension that a result shares with a query."""

    contribution: Contribution
    """By the best passage alone, without characters."""
    word: str
    """A word behind it: of the dimension, or one firing the concept in the atlas, or empty."""


def matches_of(
    index: IndexReader, query: WeightedQueries, hits: Sequence[Hit]
) -> list[tuple[list[Match], str]]:
    """Return the matches of each result, largest contribution first, and a snippet there."""
    contributions = index.explainer.contributions(query, [hit.number for hit in hits])
    described = []
    for hit, shared in zip(hits, contributions, strict=True):
        terms = _terms(index, f"{hit.text[:LONGEST]}\n{hit.title}")
        words: dict[int | str | None, str] = {}
        for dimension, _, word in terms:
            words.setdefault(dimension, word)
            words.setdefault(word.lower(), word)
        matches = []
        for contribution in shared:
            keys: Iterable[int | str] = (contribution.dimension,)
            if contribution.vocabulary == "concepts":
                keys = () if index.atlas is None else index.atlas.words_of(contribution.dimension)
            word = next((words[key] for key in keys if key in words), "")
            matches.append(Match(contribution, word))
        worth = {match.word.lower(): match.contribution.score for match in reversed(matches)}
        marks = [(start, word.lower(), worth.get(word.lower(), 0.0)) for _, start, word in terms]
        length = min(len(hit.text), LONGEST)  # marks beyond are of the title
        start, end = snippet_bounds(hit.text, (mark for mark in marks if mark[0] < length))
        snippet = " ".join(hit.text[start:end].split())
        described.append((matches, f"{'…' * (start > 0)}{snippet}{'…' * (end < len(hit.text))}"))
    return described


def _terms(index: IndexReader, text: str) -> list[tuple[int | None, int, str]]:
    """Return the dimension, start and spelling of each word of a text that can be searched."""
    if (vectorizer := index.word_vectorizer()) is None:
        return [(None, match.start(), match[0]) for match in re.finditer(r"\w+", text)]
    return [(n, start, text[start:end]) for n, (start, end) in vectorizer.terms_in(text)]


def snippet_bounds(text: str, marks: Iterable[tuple[int, Hashable, float]]) -> tuple[int, int]:
    """Return start and end of the part of a text whose marks are worth most.

    Args:
        marks: start, reason and worth; marks of one reason are worth as much as one of them.
    """
    ordered = sorted(marks, key=lambda mark: mark[0])
    best, position, side = 0.0, 0, SNIPPET // 4
    for number, (start, _, worth) in enumerate(ordered):
        if worth <= 0:
            continue
        end = bisect_right(ordered, start + 3 * side, key=lambda mark: mark[0])
        total = math.fsum({reason: worth for _, reason, worth in ordered[number:end]}.values())
        if total > best:
            best, position = total, start
    start = max(0, min(position - side, len(text) - SNIPPET))
    return around(text, start + side, start + SNIPPET - side, side)
