"""The syntax of queries: exact phrases, words to leave out, and conditions on fields.

    query  = { phrase | "-" phrase | "-" word | field ":" value | "-" field ":" value | words }
    phrase = a text in double quotation marks of a language, such as " ", “ ”, « » and 「 」
    field  = the name of a field of the index, in ` if it has spaces
    value  = a word, or a text in quotes; for numbers and dates also <, <=, > or >= and a value, or
             two values with ".." between them, of which one may be missing

Opening brackets and "+" may stand before each of these. Everything else is plain words, and a query
of plain words stays as it is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias
from unicodedata import category, normalize

from lexicept.errors import InputError
from lexicept.fields.filters import RANGE, Condition, Expression, Not, all_of
from lexicept.fields.normal_forms import normal, pattern
from lexicept.fields.values import FieldType, Scalar, period

DimensionNumbers: TypeAlias = Mapping[tuple[str, int], float]
"""Weights of dimensions, or factors on weights, by vocabulary and dimension."""

# Single marks, of which some are apostrophes, are plain.
_MARKS = r"[\p{Quotation_Mark}--['＇\u2018-\u201b]]"
_BRACKETS = rf"[\p{{Ps}}--{_MARKS}]"

_START = (
    rf"\s*(?P<item>[+{_BRACKETS}]*(?P<minus>-?)(?P<inside>{_BRACKETS}*))"
    r"(?:(?P<field>`(?:\\.|[^`\\])+`|[^\W\d][\w.-]*):)?"
)

# Straight marks close each other, and so do all others, whose roles differ by language.
_QUOTED = (
    rf'["＂](?P<text>[^"＂]*)["＂]|[{_MARKS}--["＂]](?P<text>[^{_MARKS}--["＂]]*)[{_MARKS}--["＂]]'
)

# Marks within a word are plain, but for those that only open; a colon belongs to the word before.
_PLAIN = rf"(?P<text>(?:\S(?!(?<![\w\p{{M}}:-]){_MARKS}|[{_MARKS}&&\p{{Ps}}]))*\S?)"

_CLOSING = r"(?r)\p{Pe}*"
"""The closing brackets at the end of a text."""

_SIGN = re.compile(r'[-:"]|[^\x00-\x7f]')
"""Signs that the syntax may have: a query without a sign is plain words."""

_WORD = r"[^\W\d_]\w"

_COMPARED = re.compile(r"(?P<operator><=|>=|<|>)(?P<value>.+)", re.DOTALL)

MOST_PHRASES = 32
"""Phrases and excluded words of a query; each is looked up in the texts of documents."""

_RANGE = re.compile(r"(?P<first>.*?)\.\.(?P<last>.*)", re.DOTALL)


class Conditions(NamedTuple):
    """The conditions of a query on its results; see ``ParsedQuery``."""

    phrases: tuple[str, ...]
    without: tuple[str, ...]
    condition: Expression | None
    hidden: tuple[str, ...]
    filter: Expression | None

    @property
    def expression(self) -> Expression | None:
        """The conditions on fields together; None without any."""
        given = [each for each in (self.condition, self.filter) if each is not None]
        return all_of(given) if given else None


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
    def conditions(self) -> Conditions:
        """All conditions on results; hashable."""
        return Conditions(self.phrases, self.without, self.condition, self.hidden, self.filter)

    @property
    def conditions_alone(self) -> bool:
        """True for conditions without a text or dimension to score documents by."""
        scored = self.added or self.text.strip()
        return not scored and bool(self.phrases or self.without or self.condition)


def parse(text: str, field_types: Mapping[str, FieldType]) -> ParsedQuery:
    """Return the parts of a query.

    Args:
        text: the query as a person wrote it.
        field_types: the fields of the index. Any other name before a colon is plain text.
    """
    return _QueryParser(text, field_types).parsed() if _SIGN.search(text) else ParsedQuery(text)


class _QueryParser:
    def __init__(self, text: str, field_types: Mapping[str, FieldType]) -> None:
        self._text, self._types = text, field_types
        self._words: list[str] = []
        self._phrases: list[str] = []
        self._without: list[str] = []
        self._conditions: list[Expression] = []
        self._required: list[bool | None] = []
        """Of each item: True for a phrase or condition, None for the word OR."""

    def parsed(self) -> ParsedQuery:
        position, end = 0, len(self._text.rstrip())
        while position < end:
            position = self._item(position)
        if not (self._phrases or self._without or self._conditions):
            return ParsedQuery(self._text)
        if len(self._phrases) + len(self._without) > MOST_PHRASES:
            raise InputError(f"more than {MOST_PHRASES} phrases and excluded words")
        items = self._required
        for before, item, after in zip(items, items[1:], items[2:], strict=False):
            if item is None and (before or after):
                reason = "OR beside a phrase or a condition, of which all must hold"
                raise InputError(f"{reason}: search for each alone, or leave out the quotes")
        condition = all_of(self._conditions) if self._conditions else None
        words = " ".join(self._words)
        return ParsedQuery(words, tuple(self._phrases), tuple(self._without), condition)

    def _item(self, position: int) -> int:
        """Take the item at a position, behind spaces; return the item's end."""
        start = pattern(_START).match(self._text, position)
        # A name before a colon counts only as a field of the index.
        name = _name(start["field"])
        name = name if name in self._types else None
        quoted = pattern(_QUOTED).match(self._text, start.end() if name else start.end("inside"))
        end_of_sign = start.end() if name else start.end("minus")
        match = quoted or pattern(_PLAIN).match(self._text, end_of_sign)
        negated, written = bool(start["minus"]), self._text[start.start("item") : match.end()]
        inner = match["text"]
        if name and not quoted and not pattern(r"\p{Ps}").search(inner):
            inner = inner[: pattern(_CLOSING).search(inner).start()]
        end = match.end() if quoted else match.start() + len(inner)
        after = self._text[end : end + 1] or " "
        if negated and start["inside"] and (name or quoted) and category(after) != "Pe":
            raise InputError("a minus before a bracket leaves out a single phrase or value")
        word = re.search(r"\w", inner) if quoted else pattern(_WORD).match(normal(inner))
        if name and inner:
            type_name = self._types[name].name
            condition = _equal(name, inner) if quoted else _condition(name, inner, type_name)
            self._conditions.append(Not(condition) if negated else condition)
            self._required.append(not negated)
        elif word and (quoted or negated):
            (self._without if negated else self._phrases).append(inner)
            self._words += [] if negated else [inner]
            self._required.append(not negated)
        # Punctuation by itself, such as the bracket behind a phrase, is no text to score by.
        elif pattern(r"[^\p{P}+]").search(written):
            self._words.append(written)
            self._required.append(None if re.findall(r"\w+", written) == ["OR"] else False)
        return int(match.end())


def _name(written: str | None) -> str | None:
    """Return a field's name without backquotes."""
    if written is not None and written.startswith("`"):
        written = re.sub(r"\\(.)", r"\1", written[1:-1], flags=re.DOTALL)
    return None if written is None else normalize("NFC", written)


def _equal(name: str, value: Scalar) -> Condition:
    return Condition(name, "=", (value,))


def _condition(name: str, value: str, type_name: str) -> Expression:
    """Return the condition ``name:value`` on a field of a type."""
    compared, between = _COMPARED.fullmatch(value), _RANGE.fullmatch(value)
    ends = [("=", value)]
    if compared is not None:
        ends = [(compared["operator"], compared["value"])]
    elif between is not None and (between["first"] or between["last"]):
        ends = [(">=", between["first"]), ("<=", between["last"])]
    ends = [(sign, end) for sign, end in ends if end]
    if type_name == "keyword" and not all(period(end) for _, end in ends):
        return _equal(name, value)
    values = tuple(_scalar(end, type_name) for _, end in ends)
    return Condition(name, RANGE if len(ends) == 2 else ends[0][0], values)


def _scalar(value: str, type_name: str) -> Scalar:
    """Return the number of a numeric field; other text is refused later, with the field's name."""
    if type_name != "number":
        return value
    if re.fullmatch(r"[+-]?[0-9]{1,40}", value):
        return int(value)
    if re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?\d+)?", value):
        parsed = float(value)
        return parsed if math.isfinite(parsed) else value
    return value
