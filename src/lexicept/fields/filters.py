"""Filters: conditions on fields, as a text or as a dict.

    or          = and { "or" and }
    and         = not { "and" not }
    not         = "not" not | "(" or ")" | comparison
    comparison  = name ( operator value | [ "not" ] "in" list | "exists" )
    operator    = "=" | "==" | "!=" | "<" | "<=" | ">" | ">="
    list        = "[" value { "," value } "]"
    name        = letters, digits, "_", "." and "-", not first a digit or "-"; or any text in `
    value       = number | date | text in ' or " | "true" | "false"

A backslash in a quoted text escapes the next character.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple, NoReturn, TypeAlias
from unicodedata import normalize

from lexicept.errors import InputError
from lexicept.fields.normal_forms import with_marks
from lexicept.fields.values import Scalar, UnkeptError, plain

Filter: TypeAlias = str | Mapping[str, Any]
"""A filter as people write it: a text, or a dict of fields and their conditions."""

ORDERS = ("<", "<=", ">", ">=")

RANGE = ".."
"""Operator of a value from a first to a last, both included; of the query language alone."""

DEEPEST = 100
"""Most parentheses and negations inside each other."""

LONGEST = 100_000
"""Most characters of a filter's text."""


@dataclass(frozen=True)
class Condition:
    """Condition on a field: ``=``, an order, ``..``, ``in`` or ``exists``."""

    field: str
    operator: str
    values: tuple[Scalar, ...]
    """A single value for = and orders, two for .., any number for in, none for exists."""
    position: int | None = None
    """The position of the field's name in the text of the filter."""
    value_positions: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "field", normalize("NFC", self.field))


@dataclass(frozen=True)
class Not:
    """Negation of a condition."""

    expression: Expression


@dataclass(frozen=True)
class All:
    """Conjunction of conditions."""

    expressions: tuple[Expression, ...]


@dataclass(frozen=True)
class Some:
    """Disjunction of conditions."""

    expressions: tuple[Expression, ...]


Expression: TypeAlias = Condition | Not | All | Some


def _compared(
    name: str,
    operator: str,
    values: tuple[Scalar, ...],
    position: int | None = None,
    value_positions: tuple[int, ...] = (),
) -> Expression:
    """Return a condition; != and "not in" are negations."""
    sign = {"==": "=", "!=": "=", "not in": "in"}.get(operator, operator)
    condition = Condition(name, sign, values, position, value_positions)
    return Not(condition) if operator in ("!=", "not in") else condition


def all_of(expressions: Sequence[Expression]) -> Expression:
    """Return the conjunction of conditions."""
    return expressions[0] if len(expressions) == 1 else All(tuple(expressions))


class FilterError(InputError):
    """Raised for a filter that is malformed or misfits the fields, at a position from 0."""

    def __init__(self, message: str, position: int | None = None) -> None:
        where = "" if position is None else f" at character {position + 1}"
        super().__init__(f"filter{where}: {message}")


def parse(filter_: Filter) -> Expression:
    """Return the expression of a filter. Raises FilterError, with the position
    in a text or the field of a dict."""
    if isinstance(filter_, str):
        return _FilterParser(filter_).whole()
    if isinstance(filter_, Mapping):
        return _from_dict(filter_, 0)
    raise FilterError(f"a filter is a text or a dict, not {filter_!r:.80}")


class _Token(NamedTuple):
    type: str
    """name, word, number, date, text, sign, or end."""
    value: Any
    position: int


_TOKENS = re.compile(
    r"""
    (?P<space>\s+)
    | (?P<date>[0-9]{4}(-[0-9Ww][0-9-]*|[Ww][0-9-]+|[0-9]{4}(?=[Tt]))
        ([Tt][0-9:.]+([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)?)?(?![\w.-]))
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
    position = 0
    while position < len(text):
        match = with_marks(_TOKENS, text).match(text, position)
        if match is None:
            if text[position] in "'\"`":
                raise FilterError(f"a quote {text[position]} without its end", position)
            raise FilterError(f"unexpected {text[position : position + 20]!r}", position)
        token_type, text_of_token = str(match.lastgroup), match[0]
        position = match.end()
        if token_type == "space":
            continue
        if token_type in ("text", "quoted"):
            value = re.sub(r"\\(.)", r"\1", text_of_token[1:-1], flags=re.DOTALL)
            yield _Token("name" if token_type == "quoted" else "text", value, match.start())
        elif token_type == "name" and text_of_token.lower() in _WORDS:
            yield _Token("word", text_of_token.lower(), match.start())
        elif token_type == "number":
            whole = re.fullmatch(r"[+-]?[0-9]{1,40}", text_of_token)
            numeric = int(text_of_token) if whole else float(text_of_token)
            if abs(numeric) == float("inf"):
                raise FilterError(f"the number {text_of_token:.40} is too large", match.start())
            yield _Token("number", numeric, match.start())
        else:
            yield _Token(token_type, "=" if text_of_token == "==" else text_of_token, match.start())
    yield _Token("end", "the end", len(text))


class _FilterParser:
    """Parses the text of a filter."""

    def __init__(self, text: str) -> None:
        if len(text) > LONGEST:
            raise FilterError(f"a text of more than {LONGEST:,} characters")
        self._tokens = list(_tokens(text))
        self._next = 0
        self._depth = 0

    def whole(self) -> Expression:
        expression = self._either()
        if self._token.type != "end":
            self._refuse("and, or, or the end")
        return expression

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _refuse(self, expected: str) -> NoReturn:
        token = self._token
        shown_token = token.value if token.type == "end" else repr(token.value)
        raise FilterError(f"expected {expected}, found {shown_token}", token.position)

    def _took(self, token_type: str, *values: str) -> bool:
        """Consume the next token if it matches; return True if it did."""
        if self._token.type == token_type and (not values or self._token.value in values):
            self._next += 1
            return True
        return False

    def _either(self) -> Expression:
        expressions = self._joined("or", lambda: all_of(self._joined("and", self._negated)))
        return expressions[0] if len(expressions) == 1 else Some(tuple(expressions))

    def _joined(self, word: str, read: Callable[[], Expression]) -> list[Expression]:
        expressions = [read()]
        while self._took("word", word):
            expressions.append(read())
        return expressions

    def _negated(self) -> Expression:
        position = self._token.position
        self._depth += 1
        if self._depth > DEEPEST:
            raise FilterError(f"more than {DEEPEST} conditions inside each other", position)
        expression: Expression
        if self._took("word", "not"):
            expression = Not(self._negated())
        elif self._took("sign", "("):
            expression = self._either()
            if not self._took("sign", ")"):
                self._refuse("and, or, or )")
        else:
            expression = self._comparison()
        self._depth -= 1
        return expression

    def _comparison(self) -> Expression:
        name, position = self._token.value, self._token.position
        if not self._took("name"):
            self._refuse("the name of a field, not, or (")
        operator = self._token
        if self._took("sign", "=", "!=", *ORDERS):
            value_position = self._token.position
            return _compared(name, operator.value, (self._value(),), position, (value_position,))
        if self._took("word", "exists"):
            return Condition(name, "exists", (), position)
        negated = self._took("word", "not")
        if not self._took("word", "in"):
            self._refuse("in" if negated else "=, !=, <, <=, >, >=, in, not in or exists")
        if not self._took("sign", "["):
            self._refuse("[")
        values: list[Scalar] = []
        positions: list[int] = []
        while not values or self._took("sign", ","):
            positions.append(self._token.position)
            values.append(self._value())
        if not self._took("sign", "]"):
            self._refuse(", or ]")
        operator_name = "not in" if negated else "in"
        return _compared(name, operator_name, tuple(values), position, tuple(positions))

    def _value(self) -> Scalar:
        value: Scalar = self._token.value
        literal_types = ("number", "date", "text")
        if not (self._token.type in literal_types or self._token.value in ("true", "false")):
            self._refuse("a number, a date, true, false, or a text in quotes")
        self._next += 1
        return value


def _from_dict(conditions: Mapping[str, Any], depth: int) -> Expression:
    """Return the conjunction of a dict's conditions.

    ``{"year": {">=": 2020}, "tag": ["a", "b"], "lang": "en", "or": [{...}, {...}]}``
    """
    if depth > DEEPEST:
        raise FilterError(f"more than {DEEPEST} conditions inside each other")
    by_key = (_key_conditions(key, value, depth) for key, value in conditions.items())
    return all_of(list(chain.from_iterable(by_key)))


def _key_conditions(key: object, value: Any, depth: int) -> list[Expression]:
    """Return the conditions of a key."""
    if not isinstance(key, str):
        raise FilterError(f"the name of a field is a text, not {key!r:.80}")
    if key in ("and", "or"):
        operands = _listed(value, f"{key!r} takes a list of filters")
        inner = tuple(_member(operand, depth) for operand in operands)
        return [All(inner) if key == "and" else Some(inner)]
    if key == "not":
        return [Not(_member(value, depth))]
    if not isinstance(value, Mapping):
        is_list = isinstance(value, list | tuple | set | frozenset)
        return [_condition(key, "in" if is_list else "=", value)]
    if not value:
        raise FilterError(f"{key!r} has no condition")
    return [_condition(key, operator, operand) for operator, operand in value.items()]


def _member(member: Any, depth: int) -> Expression:
    return _from_dict(member, depth + 1) if isinstance(member, Mapping) else parse(member)


def _listed(value: Any, message: str) -> Iterable[Any]:
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        raise FilterError(f"{message}, not {value!r:.80}")
    return value


def _condition(name: str, operator: object, value: Any) -> Expression:
    if operator == "exists":
        if not isinstance(value, bool):
            raise FilterError(f"{name!r}: exists takes True or False, not {value!r:.80}")
        condition = Condition(name, "exists", ())
        return condition if value else Not(condition)
    if operator in ("in", "not in"):
        members = _listed(value, f"{name!r}: {operator} takes a list")
        return _compared(name, str(operator), tuple(_scalar(name, member) for member in members))
    if operator in ("=", "==", "!=", *ORDERS):
        return _compared(name, str(operator), (_scalar(name, value),))
    raise FilterError(f"{name!r}: no operator {operator!r:.80}")


def _scalar(name: str, value: Any) -> Scalar:
    try:
        scalar = value if value == "" else plain(value)
    except (UnkeptError, ValueError) as error:
        raise FilterError(f"{name!r}: {error}") from None
    if scalar is None or isinstance(scalar, list):
        raise FilterError(f"{name!r}: compared with {value!r:.80}")
    return scalar
