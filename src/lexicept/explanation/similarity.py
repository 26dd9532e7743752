"""The words behind the similarity of two texts.

A text's vector is the mean of its tokens' states, so that a cosine is a sum over pairs of tokens:
``Σᵢⱼ hᵢ·hⱼ / |Σᵢ hᵢ| |Σⱼ hⱼ|``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from lexicept.explanation.contributions import Span
from lexicept.fields.normal_forms import caseless
from lexicept.vectors import Floats

PAIRS = 12
"""Most pairs of words that an explanation has."""


class WordStates(NamedTuple):
    """The words of a text and their states."""

    spans: Sequence[Span]
    """Characters of each word; empty for tokens outside of the text, such as a prompt's."""
    states: Floats
    """Sum of the states of each word's tokens [words, d]."""


class WordPair(NamedTuple):
    """A word of a query that meets a word of a document."""

    query: str
    document: str
    share: float
    """Share of the cosine, over all occurrences of both words."""


def word_pairs(
    query: str,
    of_query: WordStates,
    document: str,
    of_document: WordStates,
    stems: Callable[[str], Sequence[str]],
) -> tuple[WordPair, ...]:
    """Return the pairs of words with the largest shares of two texts' cosine, largest first.

    Args:
        stems: returns the stems of a word; none for a word to leave out, such as a function word.
    """
    if not (len(of_query.spans) and len(of_document.spans)):
        return ()
    total = float(of_query.states.sum(axis=0) @ of_document.states.sum(axis=0))
    if total <= 0:
        return ()
    by_query_word = _by_spelling(query, of_query, stems)
    by_document_word = _by_spelling(document, of_document, stems)
    if not by_query_word or not by_document_word:
        return ()
    shares = np.stack([*by_query_word.values()]) @ np.stack([*by_document_word.values()]).T / total
    best = np.argsort(-shares, axis=None, kind="stable")[:PAIRS]
    names = [*by_query_word], [*by_document_word]
    cells = zip(*(axis.tolist() for axis in np.unravel_index(best, shares.shape)), strict=True)
    pairs = (WordPair(names[0][i], names[1][j], float(shares[i, j])) for i, j in cells)
    return tuple(pair for pair in pairs if pair.share > 0)


def _by_spelling(
    text: str, words: WordStates, stems: Callable[[str], Sequence[str]]
) -> dict[str, Floats]:
    """Return the sum of the states of each distinct word, in normal form."""
    sums: dict[str, Floats] = {}
    for (start, end), state in zip(words.spans, words.states, strict=True):
        name = caseless(text[start:end])
        if stems(name):
            sums[name] = sums.get(name, 0) + state
    return sums


def described(pairs: Sequence[WordPair], most: int = 3) -> str:
    """Return the first pairs of different words as a text: "sleeping ↔ sleep, laptop ↔ power"."""
    partners: dict[str, str] = {}
    for pair in pairs:
        if pair.query not in partners and pair.document not in partners.values():
            partners[pair.query] = pair.document
    return ", ".join(f"{asked} ↔ {met}" for asked, met in [*partners.items()][:most])
