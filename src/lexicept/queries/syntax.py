"""The syntax of queries: exact phrases, words to leave out, and conditions on fields.

    query  = { phrase | "-" phrase | "-" word | field ":" value | "-" field ":" value | words }
    phrase = a text in " or in “ and ”
    field  = the name of a field of the index, in ` if it has spaces
    value  = a word, or a text in quotes; for numbers and dates also <, <=, > or >= and a value, or
             two values with ".." between them, of which one may be missing

Everything else is plain words, and a query of plain words stays as it is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias
from unicodedata import normalize

from lexicept.errors import InputError
from lexicept.fields.filters import Condition, Expression, Not, all_of
from lexicept.fields.normal_forms import normal, with_marks
from lexicept.fields.values import FieldKind, Scalar

DimensionNumbers: TypeAlias = Mapping[tuple[str, int], float]
"""Weights of dimensions, or factors on weights, by vocabulary and dimension."""

_QUOTES = {'"': '"', "“": "”"}

_SIGN = re.compile('[-:"“]')
"""Signs of the syntax: a query without a sign is plain words."""

_START = re.compile(r"(?P<minus>-?)(?:(?P<field>`(?:\\.|[^`\\])+`|[^\W\d][\w.-]*):)?")

_WORD = re.compile(r"[^\W\d_]\w")

_COMPARED = re.compile(r"(?P<operator><=|>=|<|>)(?P<value>.+)", re.DOTALL)

_RANGE = re.compile(r"(?P<first>.*?)\.\.(?P<last>.*)", re.DOTALL)


@dataclass(frozen=True)
class ParsedQuery:
    """The parts of a query, checked once.

    ``lexicept.Index.parse`` parses a text; ``lexicept.Index.search`` takes a text or a parsed
    query. The text of a parsed query has no syntax: every word is searched literally.

    Raises:
        InputError: the text is no text, or not valid UTF-8.
    """

    text: str
    """The words and phrases that documents are scored by."""
    phrases: tuple[str, ...] = ()
    """Texts whose words documents must have side by side, in this order."""
    without: tuple[str, ...] = ()
    """Words and phrases that documents must not have."""
    condition: Expression | None = None
    """The condition that documents must meet by their fields."""
    hidden: tuple[str, ...] = ()
    """Ids of documents that may not be results."""
    boosts: Mapping[str, float] = field(default_factory=dict)
    """Factors on the weights of whole vocabularies, such as ``{"concepts": 0.5}``."""
    added: DimensionNumbers = field(default_factory=dict)
    """Weights of dimensions that are searched beside the text's, and add to them."""
    steering: DimensionNumbers = field(default_factory=dict)
    """Factors on weights, after pruning: 0 removes a dimension; none adds a dimension."""
    filter: Expression | None = None
    """A condition that a caller adds; by itself, unlike the others, it has no results."""

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise InputError(f"a query is a text, not {self.text!r:.40}")
        try:
            self.text.encode()
            for text in (*self.phrases, *self.without):
                text.encode()
        except UnicodeEncodeError:
            raise InputError("the query is not valid UTF-8") from None

    @property
    def conditions(self) -> tuple[object, ...]:
        """All conditions on results; hashable."""
        return self.phrases, self.without, self.condition, self.hidden, self.filter

    @property
    def conditions_alone(self) -> bool:
        """True for conditions without a text or dimension to score documents by."""
        if self.added or self.text.strip():
            return False
        return bool(self.phrases or self.without or self.condition or self.hidden)


def parse(text: str, kinds: Mapping[str, FieldKind]) -> ParsedQuery:
    """Return the parts of a query.

    Args:
        text: the query as a person wrote it.
        kinds: the fields of the index. Any other name before a colon is plain text.
    """
    return _QueryParser(text, kinds).parsed() if _SIGN.search(text) else ParsedQuery(text)


class _QueryParser:
    def __init__(self, text: str, kinds: Mapping[str, FieldKind]) -> None:
        self._text, self._kinds = text, kinds
        self._words: list[str] = []
        self._phrases: list[str] = []
        self._without: list[str] = []
        self._conditions: list[Expression] = []
        self._last = {opening: text.rfind(closing) for opening, closing in _QUOTES.items()}

    def parsed(self) -> ParsedQuery:
        place = 0
        while (place := self._skip_spaces(place)) < len(self._text):
            place = self._item(place)
        if not (self._phrases or self._without or self._conditions):
            return ParsedQuery(self._text)
        condition = all_of(self._conditions) if self._conditions else None
        words = " ".join(self._words)
        return ParsedQuery(words, tuple(self._phrases), tuple(self._without), condition)

    def _skip_spaces(self, place: int) -> int:
        while place < len(self._text) and self._text[place].isspace():
            place += 1
        return place

    def _item(self, place: int) -> int:
        """Take the item at a place; return the item's end."""
        # A name before a colon counts only as a field of the index.
        start = with_marks(_START, self._text).match(self._text, place)
        assert start is not None  # all of it is optional
        negated, name = bool(start["minus"]), _name(start["field"])
        is_field = name is not None and name in self._kinds
        after = start.end() if is_field else place + negated
        end = self._closing_quote(after)
        if end is not None and (is_field or name is None):
            inner = self._text[after + 1 : end]
            return self._take(inner, name, negated, quoted=True, place=place, end=end + 1)
        end = after
        while end < len(self._text) and not self._text[end].isspace():
            end += 1
        inner = self._text[after:end]
        return self._take(inner, name if is_field else None, negated, False, place, end)

    def _closing_quote(self, place: int) -> int | None:
        """Return the place of the closing quote; None without a quoted text here."""
        opening = self._text[place : place + 1]
        if opening not in _QUOTES or self._last[opening] <= place:
            return None
        return self._text.index(_QUOTES[opening], place + 1)

    def _take(
        self, inner: str, name: str | None, negated: bool, quoted: bool, place: int, end: int
    ) -> int:
        if name is not None and inner:
            kind = self._kinds[name].kind
            condition = _condition(name, inner, kind) if not quoted else _equal(name, inner)
            self._conditions.append(Not(condition) if negated else condition)
        elif quoted and re.search(r"\w", inner):
            (self._without if negated else self._phrases).append(inner)
            if not negated:
                self._words.append(inner)
        elif negated and not quoted and with_marks(_WORD, inner).match(normal(inner)):
            self._without.append(inner)
        else:
            self._words.append(self._text[place:end])
        return end


def _name(written: str | None) -> str | None:
    """Return a field's name without backquotes."""
    if written is not None and written.startswith("`"):
        written = re.sub(r"\\(.)", r"\1", written[1:-1], flags=re.DOTALL)
    return None if written is None else normalize("NFC", written)


def _equal(name: str, value: Scalar) -> Condition:
    return Condition(name, "=", (value,))


def _condition(name: str, value: str, kind: str) -> Expression:
    """Return the condition ``name:value`` on a field of a kind."""
    if kind == "keyword":
        return _equal(name, value)
    compared, between = _COMPARED.fullmatch(value), _RANGE.fullmatch(value)
    if compared is not None:
        return Condition(name, compared["operator"], (_scalar(compared["value"], kind),))
    if between is not None and (between["first"] or between["last"]):
        ends = ((">=", between["first"]), ("<=", between["last"]))
        return all_of([Condition(name, sign, (_scalar(end, kind),)) for sign, end in ends if end])
    return _equal(name, _scalar(value, kind))


def _scalar(value: str, kind: str) -> Scalar:
    """Return the number of a numeric field; other text is refused later, with the field's name."""
    if kind == "number" and re.fullmatch(r"[+-]?[0-9]{1,40}", value):
        return int(value)
    if kind == "number" and re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?\d+)?", value):
        number = float(value)
        return number if math.isfinite(number) else value
    return value
