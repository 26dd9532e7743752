"""Which words become a label."""

import pytest

from lexicept.interpretation.word_labels import label_of
from lexicept.vectorizers.words import Tokenizer


@pytest.mark.parametrize(
    ("ranked", "label"),
    [
        ([("paths", 9.0), ("path", 8.0), ("pathlib", 7.0), ("file", 6.0)], "paths file"),
        ([("join", 9.0), ("link", 8.0), ("merge", 7.0), ("unite", 6.0)], "join link merge"),
        ([("join", 9.0), ("link", 2.2), ("merge", 2.0)], "join"),
        ([("the", 9.0), ("cats", 8.0), (",", 8.0)], "cats"),
        ([("the", 90.0), ("of", 80.0), ("cats", 8.0)], "the of"),
        ([("b", 9.0)], "b"),
        ([("cats", 1.0), ("dogs", 0.9)], "cats"),
        ([], ""),
    ],
)
def test_labels(ranked: list[tuple[str, float]], label: str) -> None:
    assert label_of(ranked, Tokenizer("en")) == label
