"""Words of a vocabulary near a misspelled word."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

LONGEST = 40
"""Characters of the longest word with suggestions."""


def most_edits(word: str) -> int:
    """Return the most edits of a suggestion: 1 for words of four characters, 2 for longer words.

    0 for shorter words (most are a single edit from another word), for numbers, and for words of
    more than ``LONGEST`` characters.
    """
    if not 4 <= len(word) <= LONGEST or not any(letter.isalpha() for letter in word):
        return 0
    return 1 if len(word) == 4 else 2


def edits(word: str, other: str) -> int:
    """Return the edits between two words: a letter added, left out or replaced, or two neighbours
    exchanged (optimal string alignment).
    """
    from rapidfuzz.distance import OSA  # a search without unknown words does without

    return int(OSA.distance(word, other))


def nearest(
    word: str, terms: Sequence[str], df: npt.NDArray[np.integer], most: int, limit: int
) -> list[int]:
    """Return the terms fewest edits away from a word; equally near terms by document frequency.

    Args:
        terms: the vocabulary [V].
        df: document frequency of each term [V]; a term without documents is not suggested.
        most: terms at most.
        limit: edits at most.
    """
    from rapidfuzz.distance import OSA
    from rapidfuzz.process import cdist

    if limit < 1 or not len(terms):
        return []
    distances = cdist([word], terms, scorer=OSA.distance, score_cutoff=limit, dtype=np.uint8)[0]
    near = np.flatnonzero((distances <= limit) & (df > 0))
    order = np.lexsort((near, -df[near], distances[near]))
    return [int(number) for number in near[order[:most]]]
