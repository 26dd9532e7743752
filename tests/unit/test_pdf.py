"""PDF: words divided at line ends, and titles given by authors."""

import pytest

from lexicept.corpora.passages import authored
from lexicept.corpora.pdf import undivided


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("an infor-\nmation desk", "an information\n desk"),
        ("the har\u2010\n  bour", "the harbour\n"),
        ("a well-\nknown guide", "a well-known\n guide"),
        ("a well\xad\nknown guide", "a wellknown\n guide"),
        ("Gesell-\nschaft", "Gesellschaft\n"),
        ("die Größen-\ufb01lter", "die Größen-\ufb01lter"),
        ("half a zwib-\nble on a page, zwib and ble", "half a zwib-ble\n on a page, zwib and ble"),
        ("at the end of a page: infor-\fmation", "at the end of a page: information\f"),
        ("Jean-\nLuc, 1990-\n95, A-\nb, a -\nb", "Jean-\nLuc, 1990-\n95, A-\nb, a -\nb"),
        ("Infor-\nmation", "Information\n"),
    ],
)
def test_words_divided_at_line_ends_are_whole(text, whole):
    assert undivided(text) == whole


@pytest.mark.parametrize(
    "title",
    ["", "untitled", "(anonymous)", "Untitled-1", "Slide 1", "Layout 1", "Document1", "paper.dvi",
     "PowerPoint Presentation", "Microsoft Word - Final report v2", "C:\\work\\a b.doc"],
)  # fmt: skip
def test_programs_write_no_titles(title):
    assert authored(title) == ""


@pytest.mark.parametrize(
    "title", ["Birds of  prey", "Slides on owls", "Unknown pleasures", "Node.js"]
)
def test_authors_write_titles(title):
    assert authored(title) == " ".join(title.split())
