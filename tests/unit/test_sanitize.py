"""Displayed text: nothing in it is obeyed, and passages end between words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexicept.sanitize import around, one_line, safe


def test_what_is_obeyed_is_not_shown():
    assert (
        safe("a\x1b[31m\u202eb\x9b\u2066\ud800\x00") == "a\ufffd[31m\ufffdb\ufffd\ufffd\ufffd\ufffd"
    )
    assert safe("a\tb\r\nc é \u200f漢") == "a b \nc é \u200f漢"
    assert one_line(" a\n\x1bb\u202e  c\t") == "a b c"


@given(st.text(st.characters(exclude_categories=[]), max_size=30))
def test_it_keeps_its_length_and_can_be_written(text):
    rendered = safe(text)
    assert len(rendered) == len(text)
    assert safe(rendered) == rendered
    rendered.encode()


@pytest.mark.parametrize(
    ("start", "end", "characters", "passage"),
    [
        (8, 13, 0, "three"),
        (8, 13, 3, "three"),  # nothing of a word that does not fit
        (8, 13, 4, "two three"),
        (8, 13, 5, "two three four"),
        (8, 13, 99, "one two three\nfour five"),
        (9, 11, 3, "three"),
        (0, 3, 5, "one two"),
    ],
)
def test_passages_end_between_words(start, end, characters, passage):
    text = "one two three\nfour five"
    first, last = around(text, start, end, characters)
    assert text[first:last].replace("\n", " ").strip() == passage.replace("\n", " ")


def test_text_without_blanks_is_cut_anywhere():
    assert around("x" * 50, 20, 22, 5) == (15, 27)
