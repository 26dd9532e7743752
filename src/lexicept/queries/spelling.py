"""Words of a vocabulary that a misspelled one may have been meant for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

LONGEST = 40
"""Characters of the longest word that others are suggested for."""


def most_edits(word: str) -> int:
    """Return how many edits a suggestion may be away: 1 for words of four characters, 2 for longer
    ones, 0 for shorter ones (most are one edit from another word), for numbers, and for those of
    more than ``LONGEST`` characters."""
    if not 4 <= len(word) <= LONGEST or not any(letter.isalpha() for letter in word):
        return 0
    return 1 if len(word) == 4 else 2


def edits(word: str, other: str) -> int:
    """Return the edits that make one word of another: a letter more, less or another one, or two
    neighbours exchanged (optimal string alignment)."""
    from rapidfuzz.distance import OSA  # a search without unknown words does without

    return int(OSA.distance(word, other))


def nearest(
    word: str, terms: Sequence[str], df: npt.NDArray[np.integer], most: int, limit: int
) -> list[int]:
    """Return the terms fewest edits away from a word, those in most documents first.

    Args:
        terms: the vocabulary [V].
        df: documents that have each term [V]; one that none has is not suggested.
        most: how many to return.
        limit: edits, at most.
    """
    from rapidfuzz.distance import OSA
    from rapidfuzz.process import cdist

    if limit < 1 or not len(terms):
        return []
    distances = cdist([word], terms, scorer=OSA.distance, score_cutoff=limit, dtype=np.uint8)[0]
    near = np.flatnonzero((distances <= limit) & (df > 0))
    order = np.lexsort((near, -df[near], distances[near]))
    return [int(number) for number in near[order[:most]]]
