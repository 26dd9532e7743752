"""Labels of concepts, made of the words that they fire on."""

from __future__ import annotations

from collections.abc import Sequence

from lexicept.vectorizers.words import Tokenizer

WORDS_PER_LABEL = 3

SIGNIFICANT = 1.96
"""The z-score from which a word is no accident, at 95 %."""

FAINT = 0.25
"""A word's share of the strongest one's z-score below which it is left out of a label."""


def label_of(ranked: Sequence[tuple[str, float]], tokenizer: Tokenizer) -> str:
    """A label of up to three words from those that fire a concept, strongest first.

    Words of one stem, or that begin alike, stand there once. Stop words and punctuation only where
    no other word comes near them, and what may be accidents only where there is nothing else.
    Empty without words.
    """
    least = max([SIGNIFICANT, *(z * FAINT for _, z in ranked[:1])])
    stems = [(word, tokenizer(word)) for word, z in ranked if z >= least]
    found = [(word, stem) for word, stem in stems if stem] or [(w, [w]) for w, _ in stems]
    chosen: list[str] = []
    taken: list[str] = []
    for word, stem in found or [(word, [word]) for word, _ in ranked[:1]]:
        if len(chosen) < WORDS_PER_LABEL and not any(_alike(a, b) for a in stem for b in taken):
            chosen.append(word)
            taken += stem
    return " ".join(chosen)


def _alike(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    return long.startswith(short) and (len(short) > 3 or short == long)
