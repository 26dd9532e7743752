"""Making text of documents and models safe and short enough to show."""

from __future__ import annotations

import re

# C0 and C1 would let a document send commands to a terminal, bidi marks reorder other text, and
# lone surrogates can't be written.
_CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_BLANK = re.compile(r"\s")


def safe(text: str) -> str:
    """Replace control characters except line breaks; the length stays the same.

    Tabs and other blanks become spaces, the rest U+FFFD.
    """
    return _CONTROLS.sub(lambda match: " " if match[0].isspace() else "\ufffd", text)


def one_line(text: str) -> str:
    """Remove line breaks, control characters and repeated spaces, but not joiners inside words."""
    joiners = "\u200c\u200d\xad"
    return " ".join("".join(c if c.isprintable() or c in joiners else " " for c in text).split())


def shortened(text: str, most: int) -> str:
    """Return a text of at most ``most`` characters, the last an ellipsis if the text is cut."""
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


def around(text: str, start: int, end: int, characters: int) -> tuple[int, int]:
    """Return the first and last character + 1 of a passage around ``start`` to ``end``.

    It has up to ``characters`` on each side, and is cut between words where it can be.
    """
    begin, stop = max(0, start - characters), min(len(text), end + characters)
    if begin and (blank := _BLANK.search(text, begin - 1, start)):
        begin = blank.end()
    if stop < len(text) and (blanks := list(_BLANK.finditer(text, end, stop + 1))):
        stop = blanks[-1].start()
    return begin, stop
