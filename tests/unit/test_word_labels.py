"""Which words become a label."""

import numpy as np
import pytest

from lexicept.interpretation.word_labels import COHERENT, label_of
from lexicept.vectorizers.words import Tokenizer


def label(ranked: list[tuple[str, float]], *near: str) -> str:
    """The label where words that are named together are near each other, and no others."""
    together = [set(words.split()) for words in near]
    cosines = [[float(any({a, b} <= s for s in together)) for a, _ in ranked] for b, _ in ranked]
    return label_of(
        ranked, COHERENT * np.array(cosines).reshape(len(ranked), len(ranked)), Tokenizer("en")
    )


@pytest.mark.parametrize(
    ("ranked", "near", "expected"),
    [
        ([("join", 9.0), ("link", 8.0), ("merge", 7.0)], "join link merge", "join link merge"),
        ([("join", 9.0), ("link", 8.0), ("merge", 7.0)], "link merge", "link merge"),
        # Forms of a word add up: 81 + 64 of 181.
        ([("paths", 9.0), ("path", 8.0), ("file", 6.0)], "", "paths"),
        # Each speaks for a third.
        ([("locks", 8.0), ("superblocks", 8.0), ("passwords", 8.0)], "", ""),
        # Near each other for the pieces that they share.
        ([("plebeian", 8.0), ("plover", 8.0), ("plenary", 8.0)], "plebeian plover plenary", ""),
        # 64 of 160, which is as much as is asked; 64 of 161 is not.
        ([("cat", 8.0), ("dog", 6.0), ("sky", 2.0), ("sea", 56**0.5)], "", "cat"),
        ([("cat", 8.0), ("dog", 6.0), ("sky", 5**0.5), ("sea", 56**0.5)], "", ""),
        # A stop word speaks for itself alone; punctuation is no name, but it counts.
        ([("is", 9.0), ("are", 8.0), ("be", 4.0)], "is are be", "is"),
        ([("is", 9.0), ("are", 9.0), ("cats", 9.0)], "is are cats", ""),
        ([(",", 9.0), ("cats", 8.0), ("the", 2.0)], ", cats", "cats"),
        ([(",", 9.0), ("cats", 7.0), ("the", 2.0)], ", cats", ""),
        # A faint word is not said, and at most three are.
        ([("cat", 12.0), ("dog", 2.9), ("lion", 3.1)], "cat dog lion", "cat lion"),
        ([("cat", 9.0), ("dog", 8.0), ("lion", 7.0), ("ape", 6.0)], "cat dog lion ape",
         "cat dog lion"),
        # Words near the first, but not each other.
        ([("cat", 9.0), ("dog", 8.0), ("lion", 7.0)], "cat dog|cat lion", "cat dog"),
        # The first word of a label is the strongest, whichever speaks for most.
        ([("cat", 9.0), ("dog", 8.0), ("lion", 7.0)], "dog cat|dog lion", "cat dog"),
        ([("cats", 1.95), ("dogs", 0.9)], "cats dogs", ""),
        ([], "", ""),
    ],
)  # fmt: skip
def test_labels(ranked: list[tuple[str, float]], near: str, expected: str) -> None:
    assert label(ranked, *near.split("|")) == expected
