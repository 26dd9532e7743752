"""Normal forms of texts, in which equivalent spellings are equal, and their words.

A word is a run of letters, digits and marks; an apostrophe of any sort ends it. Format characters,
such as the soft hyphen, belong to the word around (UAX #29, rule WB4), not to the normal form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any
from unicodedata import digit, normalize

_IGNORED = r"[\p{Default_Ignorable_Code_Point}\p{Cf}\p{Me}]"
"""Characters without a part in the normal form."""

# Letters that are typed for an apostrophe, as U+0027 and U+2019, which are no letters: Unicode's
# confusables, and the half rings of transliterations.
_APOSTROPHES = r"\u02b9\u02bb-\u02bf\u02ee\u07f4\u07f5\ua78b\ua78c"

# Python's \w without these, and signs that are compatible with letters: Ⓐ, ㎏, the radical ⼀.
_LETTER = (
    rf"[[\p{{L}}--[{_APOSTROPHES}]]\p{{N}}\p{{Pc}}"
    r"[\p{So}&&[\p{dt=Circle}\p{dt=Square}[\p{Han}&&\p{dt=Compat}]]]]"
)
# The zero-width space separates words. Signs such as № stand by themselves.
_WORD = rf"{_LETTER}[{_LETTER}\p{{M}}[{_IGNORED}--\u200b]]*|[\p{{S}}&&\p{{dt=Compat}}]"

# Vowel points and accents of consonant alphabets, and signs that lengthen the line, as tatweel.
_OPTIONAL = (
    r"\p{Joining_Type=Join_Causing}"
    r"|[\p{Mn}&&[\p{scx=Arab}\p{sc=Hebr}\p{sc=Syrc}\p{sc=Samr}]]"
)

MARKS = 30
"""Marks on a letter that count (UAX #15, stream-safe texts): sorting more takes quadratic time."""

_MANY_MARKS = rf"([\p{{M}}\p{{Grapheme_Extend}}]{{{MARKS}}})[\p{{M}}\p{{Grapheme_Extend}}]+"


@cache
def pattern(expression: str) -> Any:
    """Compile an expression with Unicode's properties, which ``re`` does not know."""
    import regex  # texts in ASCII do without

    return regex.compile(expression, regex.VERSION1)


def with_marks(expression: re.Pattern[str], text: str) -> Any:
    """Return an expression for a text: unlike in ``re``, ``\\w`` includes combining marks."""
    return expression if text.isascii() else _with_marks(expression)


@cache
def _with_marks(expression: re.Pattern[str]) -> Any:
    import regex

    return regex.compile(expression.pattern, expression.flags & (re.VERBOSE | re.DOTALL))


def words_of(text: str) -> list[str]:
    """Return the words of a text in order, as they are written."""
    words: list[str] = pattern(_WORD).findall(text)
    return words


def word_matches(text: str) -> Iterator[Any]:
    """Yield a match for each word of a text."""
    matches: Iterator[Any] = pattern(_WORD).finditer(text)
    return matches


def normal(text: str) -> str:
    """Return the normal form of a text: NFKC without ignored characters, in the text's case.

    Fractions stay as they are: 2½ is not 21⁄2. So do Thai's and Lao's am, a letter each.
    """
    if text.isascii():
        return text
    text = pattern(_IGNORED).sub("", text)
    if len(text) > MARKS:
        text = pattern(_MANY_MARKS).sub(r"\1", text)
    composed = normalize("NFKC", text)
    if "\u2044" in composed:
        composed = normalize("NFC", text)
    return composed.replace("\u0e4d\u0e32", "\u0e33").replace("\u0ecd\u0eb2", "\u0eb3")


def without_optional(text: str) -> str:
    """Return a text without optional vowel points, with 0 to 9 for digits of all scripts."""
    if text.isascii():
        return text
    text = pattern(_OPTIONAL).sub("", text)
    decimal: str = pattern(r"\p{Nd}").sub(lambda match: str(digit(match[0], match[0])), text)
    return decimal


def caseless(text: str) -> str:
    """Return the normal form of a text, without case."""
    return normal(text).casefold()


def origins(text: str, form: Callable[[str], str]) -> list[tuple[int, int]]:
    """Return the characters of a text, start and end, behind each character of ``form(text)``."""
    spans: list[tuple[int, int]] = []
    # Marks and jamo compose within a grapheme cluster only.
    for cluster in pattern(r"\X").finditer(text):
        start, end = cluster.span()
        size = len(form(cluster.group()))
        each = [(position, position + 1) for position in range(start, end)]
        spans += each if size == end - start else [(start, end)] * size
    size = len(form(text))
    return spans if len(spans) == size else [(0, len(text))] * size
