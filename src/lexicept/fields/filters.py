"""Filters: conditions on fields, as a text or as a dict, and what they mean.

    or          = and { "or" and }
    and         = not { "and" not }
    not         = "not" not | "(" or ")" | comparison
    comparison  = name ( operator value | [ "not" ] "in" list | "exists" )
    operator    = "=" | "==" | "!=" | "<" | "<=" | ">" | ">="
    list        = "[" value { "," value } "]"
    name        = letters, digits, "_", "." and "-", not first a digit or "-"; or any text in `
    value       = number | date | text in ' or " | "true" | "false"

A backslash in a quoted text takes the next character as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn, TypeAlias

from lexicept.errors import InputError
from lexicept.fields.values import Scalar, UnkeptError, plain

Filter: TypeAlias = str | Mapping[str, Any]
"""A filter as people write it: a text, or a dict of fields and their conditions."""

ORDERS = ("<", "<=", ">", ">=")

DEEPEST = 100
"""Most parentheses and negations inside each other."""

LONGEST = 100_000
"""Most characters of a filter's text."""


@dataclass(frozen=True)
class Condition:
    """A condition on one field: ``=``, an order, ``in`` or ``exists``."""

    field: str
    operator: str
    values: tuple[Scalar, ...]
    """One for = and orders, any number for in, none for exists."""
    place: int | None = None
    """The position of the field's name in the text of the filter."""
    value_places: tuple[int, ...] = ()


@dataclass(frozen=True)
class Not:
    """Condition that documents must not meet."""

    part: Expression


@dataclass(frozen=True)
class All:
    """Conditions of which documents must meet all."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True)
class Some:
    """Conditions of which documents must meet one."""

    parts: tuple[Expression, ...]


Expression: TypeAlias = Condition | Not | All | Some


def all_of(parts: Sequence[Expression]) -> Expression:
    """Return the condition of meeting all of some, of which there is at least one."""
    return parts[0] if len(parts) == 1 else All(tuple(parts))


class FilterError(InputError):
    """Raised for something that is no filter, or a filter that does not fit the fields.

    Args:
        problem: what is wrong.
        place: where, in characters of the filter's text from 0.
    """

    def __init__(self, problem: str, place: int | None = None) -> None:
        where = "" if place is None else f" at character {place + 1}"
        super().__init__(f"filter{where}: {problem}")


def parse(given: Filter) -> Expression:
    """Return what a filter says.

    Raises:
        FilterError: naming the position in a text, or the field in a dict.
    """
    if isinstance(given, str):
        return _Parser(given).whole()
    if isinstance(given, Mapping):
        return _from_dict(given, 0)
    raise FilterError(f"a filter is a text or a dict, not {given!r:.80}")


class _Token(NamedTuple):
    kind: str
    """name, word, number, date, text, sign, or end."""
    value: Any
    place: int


_TOKENS = re.compile(
    r"""
    (?P<space>\s+)
    | (?P<date>[0-9]{4}-[0-9]{2}(-[0-9]{2}(T[0-9:.]+(Z|[+-][0-9]{2}:?[0-9]{2})?)?)?(?![\w.-]))
    | (?P<number>[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?(?![\w.]))
    | (?P<name>[^\W\d][\w.-]*)
    | (?P<quoted>`(\\.|[^`\\])+`)
    | (?P<text>'(\\.|[^'\\])*'|"(\\.|[^"\\])*")
    | (?P<sign><=|>=|!=|==|[=<>()\[\],])
    """,
    re.VERBOSE | re.DOTALL,
)

_WORDS = ("and", "or", "not", "in", "exists", "true", "false")


def _tokens(text: str) -> Iterable[_Token]:
    place = 0
    while place < len(text):
        match = _TOKENS.match(text, place)
        if match is None:
            if text[place] in "'\"`":
                raise FilterError(f"a quote {text[place]} without its end", place)
            raise FilterError(f"unexpected {text[place : place + 20]!r}", place)
        kind, found = str(match.lastgroup), match[0]
        place = match.end()
        if kind == "space":
            continue
        if kind in ("text", "quoted"):
            value = re.sub(r"\\(.)", r"\1", found[1:-1], flags=re.DOTALL)
            yield _Token("name" if kind == "quoted" else "text", value, match.start())
        elif kind == "name" and found.lower() in _WORDS:
            yield _Token("word", found.lower(), match.start())
        elif kind == "number":
            number = int(found) if re.fullmatch(r"[+-]?[0-9]{1,40}", found) else float(found)
            if abs(number) == float("inf"):
                raise FilterError(f"the number {found:.40} is too large", match.start())
            yield _Token("number", number, match.start())
        else:
            yield _Token(kind, "=" if found == "==" else found, match.start())
    yield _Token("end", "the end", len(text))


class _Parser:
    """Parses the text of a filter."""

    def __init__(self, text: str) -> None:
        if len(text) > LONGEST:
            raise FilterError(f"a text of more than {LONGEST:,} characters")
        self._tokens = list(_tokens(text))
        self._next = 0
        self._depth = 0

    def whole(self) -> Expression:
        found = self._either()
        if self._token.kind != "end":
            self._refuse("and, or, or the end")
        return found

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _refuse(self, expected: str) -> NoReturn:
        token = self._token
        found = token.value if token.kind == "end" else repr(token.value)
        raise FilterError(f"expected {expected}, found {found}", token.place)

    def _took(self, kind: str, *values: str) -> bool:
        """Go on and return true if the next token is one of these."""
        if self._token.kind == kind and (not values or self._token.value in values):
            self._next += 1
            return True
        return False

    def _either(self) -> Expression:
        parts = [self._both()]
        while self._took("word", "or"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else Some(tuple(parts))

    def _both(self) -> Expression:
        parts = [self._negated()]
        while self._took("word", "and"):
            parts.append(self._negated())
        return all_of(parts)

    def _negated(self) -> Expression:
        place = self._token.place
        self._depth += 1
        if self._depth > DEEPEST:
            raise FilterError(f"more than {DEEPEST} conditions inside each other", place)
        found: Expression
        if self._took("word", "not"):
            found = Not(self._negated())
        elif self._took("sign", "("):
            found = self._either()
            if not self._took("sign", ")"):
                self._refuse("and, or, or )")
        else:
            found = self._comparison()
        self._depth -= 1
        return found

    def _comparison(self) -> Expression:
        name, place = self._token.value, self._token.place
        if not self._took("name"):
            self._refuse("the name of a field, not, or (")
        operator = self._token
        if self._took("sign", "=", "!=", *ORDERS):
            value_place = self._token.place
            value = self._value()
            wanted = "=" if operator.value == "!=" else operator.value
            found = Condition(name, wanted, (value,), place, (value_place,))
            return Not(found) if operator.value == "!=" else found
        if self._took("word", "exists"):
            return Condition(name, "exists", (), place)
        negated = self._took("word", "not")
        if not self._took("word", "in"):
            self._refuse("in" if negated else "=, !=, <, <=, >, >=, in, not in or exists")
        members = Condition(name, "in", *self._list(place))
        return Not(members) if negated else members

    def _list(self, place: int) -> tuple[tuple[Scalar, ...], int, tuple[int, ...]]:
        """Return the values of a list, the field's place, and the places of the values."""
        if not self._took("sign", "["):
            self._refuse("[")
        values: list[Scalar] = []
        places: list[int] = []
        while not values or self._took("sign", ","):
            places.append(self._token.place)
            values.append(self._value())
        if not self._took("sign", "]"):
            self._refuse(", or ]")
        return tuple(values), place, tuple(places)

    def _value(self) -> Scalar:
        value: Scalar = self._token.value
        kinds = ("number", "date", "text")
        if not (self._token.kind in kinds or self._token.value in ("true", "false")):
            self._refuse("a number, a date, true, false, or a text in quotes")
        self._next += 1
        return value


def _from_dict(given: Mapping[str, Any], depth: int) -> Expression:
    """Return a dict's conditions, all of which are to be met.

    ``{"year": {">=": 2020}, "tag": ["a", "b"], "lang": "en", "or": [{...}, {...}]}``
    """
    if depth > DEEPEST:
        raise FilterError(f"more than {DEEPEST} conditions inside each other")
    parts = [part for key, value in given.items() for part in _entry(key, value, depth)]
    return parts[0] if len(parts) == 1 else All(tuple(parts))


def _entry(key: object, value: Any, depth: int) -> list[Expression]:
    """Return the conditions of one key of a dict."""
    if not isinstance(key, str):
        raise FilterError(f"the name of a field is a text, not {key!r:.80}")
    if key in ("and", "or"):
        if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
            raise FilterError(f"{key!r} takes a list of filters, not {value!r:.80}")
        inner = tuple(_part(one, depth) for one in value)
        return [All(inner) if key == "and" else Some(inner)]
    if key == "not":
        return [Not(_part(value, depth))]
    if not isinstance(value, Mapping):
        several = isinstance(value, list | tuple | set | frozenset)
        return [_condition(key, "in" if several else "=", value)]
    if not value:
        raise FilterError(f"{key!r} has no condition")
    return [_condition(key, operator, one) for operator, one in value.items()]


def _part(given: Any, depth: int) -> Expression:
    if isinstance(given, Mapping):
        return _from_dict(given, depth + 1)
    return parse(given)


def _condition(name: str, operator: object, value: Any) -> Expression:
    if operator == "exists":
        if not isinstance(value, bool):
            raise FilterError(f"{name!r}: exists takes True or False, not {value!r:.80}")
        found = Condition(name, "exists", ())
        return found if value else Not(found)
    if operator in ("in", "not in"):
        if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
            raise FilterError(f"{name!r}: {operator} takes a list, not {value!r:.80}")
        members = Condition(name, "in", tuple(_scalar(name, one) for one in value))
        return members if operator == "in" else Not(members)
    if operator in ("=", "==", "!=", *ORDERS):
        wanted = "=" if operator in ("==", "!=") else str(operator)
        found = Condition(name, wanted, (_scalar(name, value),))
        return Not(found) if operator == "!=" else found
    raise FilterError(f"{name!r}: no operator {operator!r:.80}")


def _scalar(name: str, value: Any) -> Scalar:
    try:
        kept = value if value == "" else plain(value)
    except (UnkeptError, ValueError) as error:
        raise FilterError(f"{name!r}: {error}") from None
    if kept is None or isinstance(kept, list):
        raise FilterError(f"{name!r}: compared with {value!r:.80}")
    scalar: Scalar = kept
    return scalar
