"""The part of a text that a list of results shows."""

import pytest

from lexicept.explanation.snippets import snippet_bounds

LONG = "word " * 100 + "owl " + "word " * 100 + "cat and owl " + "word " * 100


def marks(text: str, **worth: float) -> list[tuple[int, str, float]]:
    return [
        (start, word, value)
        for word, value in worth.items()
        for start in range(len(text))
        if text.startswith(word, start)
    ]


@pytest.mark.parametrize(
    ("worth", "inside"),
    [({"owl": 2.0}, 500), ({"owl": 2.0, "cat": 1.0}, 1004), ({"owl": 0.0}, 0), ({}, 0)],
)
def test_a_snippet_has_the_marks_that_are_worth_most(worth, inside):
    start, end = snippet_bounds(LONG, marks(LONG, **worth))
    assert start <= inside < end <= start + 240
    # No word is cut.
    assert start == 0 or LONG[start - 1] == " "
    assert LONG[end] == " "


def test_marks_of_one_reason_count_once():
    text = "owl owl owl " + "word " * 100 + "cat cat" + "word " * 100
    start, end = snippet_bounds(text, marks(text, owl=1.0, cat=1.5))
    assert "cat cat" in text[start:end]


def test_a_text_without_blanks_and_a_short_one():
    assert snippet_bounds("x" * 1000, [(500, "x", 1.0)]) == (440, 680)
    assert snippet_bounds("short", []) == (0, 5)
