"""Labels of concepts from the words that they fire on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lexicept.vectors import Floats

WORDS_PER_LABEL = 3

SIGNIFICANT = 1.96
"""z-score above which a word is significant at 95 %."""

FAINT = 0.25
"""Smallest share of the first word's z-score that another word of a label has."""

COHERENT = 0.25
"""Smallest cosine of two words that have a common meaning."""

COVERED = 0.4
"""Smallest share of a concept's evidence that its label speaks for; chosen on CACM and Vaswani
(docs/how-it-works.md)."""


@dataclass
class _Meaning:
    """A word of a concept, with all its other forms."""

    word: str
    """The strongest form."""
    place: int
    """Its place among the concept's words."""
    content: bool
    """True if it is no stop word."""
    evidence: float = 0.0
    """The sum of the squared z-scores of all forms."""


def label_of(
    ranked: Sequence[tuple[str, float]], cosines: Floats, stems: Callable[[str], Sequence[str]]
) -> str:
    """Make a label of up to three words that have a common meaning, strongest first.

    The evidence of a word is its squared z-score; words with the same stem add up. A label begins
    with one word, and speaks for all those whose cosine with it is at least ``COHERENT``, unless
    they begin with the same two letters: pieces of rare words are alike for their spelling. A stop
    word speaks for itself alone. The word that speaks for most evidence is taken, and those of its
    words that are near each other.

    Args:
        ranked: the words and their z-scores, strongest first.
        cosines: of the words' vectors [words, words].
        stems: the stems of a word; none for a stop word.

    Returns:
        An empty text if no word is significant, or if the label would speak for less than
        ``COVERED`` of the evidence, that of punctuation included: the concept fires on words
        without a common meaning.
    """
    total = 0.0
    meanings: dict[str, _Meaning] = {}
    for place, (word, z) in enumerate(ranked):
        if z < SIGNIFICANT:
            continue
        total += z * z
        if any(map(str.isalnum, word)):
            form = " ".join(stems(word))
            first = meanings.setdefault(form or word, _Meaning(word, place, bool(form)))
            first.evidence += z * z
    best: list[_Meaning] = []
    most = COVERED * total
    for meaning in meanings.values():
        near = [other for other in meanings.values() if _near(meaning, other, cosines)]
        spoken_for = meaning.evidence + sum(other.evidence for other in near)
        if spoken_for > most or (spoken_for == most and not best):
            best, most = _agreeing(meaning, near, cosines), spoken_for
    return " ".join(meaning.word for meaning in best)


def _agreeing(first: _Meaning, near: Sequence[_Meaning], cosines: Floats) -> list[_Meaning]:
    """Return the strongest words near the first and each other, strongest first."""
    chosen = [first]
    for other in sorted(near, key=lambda meaning: -meaning.evidence):
        strong = other.evidence >= FAINT**2 * first.evidence
        if strong and len(chosen) < WORDS_PER_LABEL:
            chosen += [other] * all(_near(other, one, cosines) for one in chosen)
    return sorted(chosen, key=lambda meaning: -meaning.evidence)


def _near(one: _Meaning, other: _Meaning, cosines: Floats) -> bool:
    """Return whether two different words have a common meaning, and not only a beginning."""
    apart = one.content and other.content and one.word[:2] != other.word[:2]
    return apart and bool(cosines[one.place, other.place] >= COHERENT)
