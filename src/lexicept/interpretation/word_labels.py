"""Labels of concepts from the words that they fire on."""

from __future__ import annotations

from collections.abc import Sequence

from lexicept.vectorizers.words import Tokenizer

WORDS_PER_LABEL = 3

SIGNIFICANT = 1.96
"""z-score above which a word is significant at 95 %."""

FAINT = 0.25
"""Smallest share of the strongest word's z-score that a word of a label has."""


def label_of(ranked: Sequence[tuple[str, float]], tokenizer: Tokenizer) -> str:
    """Make a label of up to three words that a concept fires on, strongest first.

    Of words with the same stem or beginning the first is taken. Stop words and punctuation are
    taken only if no other word comes near their z-score, insignificant words only if there are no
    others. Without words the label is empty.
    """
    least = max([SIGNIFICANT, *(z * FAINT for _, z in ranked[:1])])
    stems = [(word, tokenizer(word)) for word, z in ranked if z >= least]
    stemmed = [(word, stem) for word, stem in stems if stem] or [(w, [w]) for w, _ in stems]
    chosen: list[str] = []
    taken: list[str] = []
    for word, stem in stemmed or [(word, [word]) for word, _ in ranked[:1]]:
        if len(chosen) < WORDS_PER_LABEL and not any(_alike(a, b) for a in stem for b in taken):
            chosen.append(word)
            taken += stem
    return " ".join(chosen)


def _alike(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    return long.startswith(short) and (len(short) > 3 or short == long)
