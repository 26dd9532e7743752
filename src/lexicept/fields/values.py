"""Values of fields: texts, numbers, dates, and lists of scalars."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias
from unicodedata import normalize

Scalar: TypeAlias = str | int | float
Value: TypeAlias = Scalar | list[Scalar]
"""A value of a field. Dates are texts in ISO 8601, true and false the texts "true" and "false"."""

Fields: TypeAlias = Mapping[str, Any]
"""The fields of a document by name. ``plain`` says which values there may be."""

NOTHING: Fields = {}

LARGEST_INTEGER = 2**63 - 1

MOST_FIELDS = 1_000
"""Most fields of a collection."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_ISO = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?(Z|[+-][0-9]{2}:?[0-9]{2})?)?"
)


class FieldKind(NamedTuple):
    """The type of a field."""

    kind: str
    """keyword, number or date."""
    many: bool = False
    """True if a document may have a list of them."""

    def __str__(self) -> str:
        return f"list of {self.kind}s" if self.many else self.kind


def is_missing(value: Any) -> bool:
    """Return True for None, NaN, NaT and pandas.NA."""
    if value is None or isinstance(value, str | int | list | Mapping):
        return value is None
    try:
        return bool(value != value)
    except TypeError:  # pandas.NA is neither true nor false
        return True
    except ValueError:  # nor is an array
        return False


class UnkeptError(ValueError):
    """Raised for a kind of value that fields do not hold; documents are read without the value."""


def plain(value: Any) -> Value | None:
    """Return a value as fields hold it; None for a missing value.

    Missing are also the empty text and the empty list. Times without a zone count as UTC. Raises
    UnkeptError for an object, bytes, or a list of objects or lists. Raises ValueError for a number
    that is not finite or has more than 64 bits, a list of texts and numbers, or a text that UTF-8
    can't hold.
    """
    if hasattr(value, "tolist"):  # NumPy's scalars and arrays
        value = value.tolist()
    if not isinstance(value, list | tuple | set | frozenset):
        return _scalar(value)
    scalars = [scalar for scalar in (_scalar(member) for member in value) if scalar is not None]
    if len({isinstance(scalar, str) for scalar in scalars}) > 1:
        raise ValueError("a list of texts and numbers")
    return scalars or None


def _scalar(value: Any) -> Scalar | None:
    if is_missing(value) or value == "":
        return None
    if isinstance(value, str):
        return _encodable(str(value))
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | Decimal):
        return _number(value)
    if isinstance(value, datetime):
        zoned = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        return iso(microseconds_of(zoned), days=False)
    if isinstance(value, date):
        return value.isoformat()
    raise UnkeptError("an object" if isinstance(value, Mapping) else f"a {type(value).__name__}")


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"lone surrogate {text[error.start]!r}: UTF-8 cannot hold it") from None
    return text


def _number(value: float | Decimal) -> int | float:
    if value != value or abs(value) == float("inf"):
        raise ValueError(f"{value} is not a finite number")
    whole = value == int(value) and (not isinstance(value, float) or abs(value) < 2**53)
    number = int(value) if whole else float(value)
    if isinstance(number, int) and abs(number) > LARGEST_INTEGER:
        raise ValueError(f"{number} has more than 64 bits; as a text it would be kept")
    return number


def parse_date(text: str) -> int | None:
    """Return the microseconds from 1970 to an ISO 8601 date or time; None for a text without."""
    if not _ISO.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text)
        zoned = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return microseconds_of(zoned)


def microseconds_of(moment: datetime) -> int:
    """Return the microseconds from 1970 to a time with a zone."""
    return (moment - _EPOCH) // _MICROSECOND


def iso(microseconds: int, *, days: bool) -> str:
    """Return a time, or a day, in ISO 8601."""
    moment = _EPOCH + timedelta(microseconds=microseconds)
    return moment.date().isoformat() if days else moment.isoformat().replace("+00:00", "Z")


def family(value: Value) -> str:
    """Return text or number: a field has values of a single family in all documents."""
    first = value[0] if isinstance(value, list) else value
    return "text" if isinstance(first, str) else "number"


def conflict(kind: FieldKind, value: Value) -> str | None:
    """Return the reason why a value does not fit a field's kind; None for a fitting value."""
    value_family = family(value)
    if kind.kind == "number" or value_family == "number":
        if (kind.kind == "number") == (value_family == "number"):
            return None
        return f"is a {kind.kind}, but here {value!r:.80}"
    texts = value if isinstance(value, list) else [value]
    wrong = next((text for text in texts if parse_date(str(text)) is None), None)
    return None if kind.kind != "date" or wrong is None else f"is a date, but here {wrong!r:.80}"


class FieldChecker:
    """Checks that a field is texts in all documents, or numbers in all documents, as in ``kinds``
    of an existing index; ``lenient`` leaves out a value that does not fit instead of raising an
    error."""

    def __init__(self, kinds: Mapping[str, FieldKind] = NOTHING, *, lenient: bool = False) -> None:
        self._kinds, self._lenient = kinds, lenient
        self._families: dict[str, tuple[str, str]] = {}
        """By name: texts or numbers, and the first document that has them."""
        self.unkept: dict[str, tuple[int, str, str]] = {}
        """By name: how many documents are read without it, the first, and the problem there."""
        self._names, self._beyond = set(kinds), ""

    def check(self, document_id: str, fields: Fields) -> dict[str, Value]:
        """Return a document's fields as an index stores them. Raises ValueError for a value that
        no field may have, or of another type than before."""
        if not isinstance(fields, Mapping):
            raise ValueError(f"fields must be a mapping, not {fields!r:.80}")
        checked: dict[str, Value] = {}
        for name, raw_value in fields.items():
            value = self._value(document_id, name, raw_value)
            if value is None:
                continue
            name = normalize("NFC", name)
            problem = "is there in two spellings" if name in checked else None
            if (problem := problem or self._conflict(name, value)) is None:
                checked[name] = value
                self._names.add(name)
            elif self._lenient and name not in self._names:
                self._beyond = self._beyond or name  # one name stands for all beyond the limit
                self._leave_out(document_id, self._beyond, problem)
            elif self._lenient:
                self._leave_out(document_id, name, problem)
            else:
                raise ValueError(f"document {document_id!r}: the field {name!r} {problem}")
        for name, value in checked.items():
            self._families.setdefault(name, (family(value), document_id))
        return checked

    def _conflict(self, name: str, value: Value) -> str | None:
        if name in self._kinds:
            return conflict(self._kinds[name], value)
        if name not in self._names and len(self._names) >= MOST_FIELDS:
            return f"is one of more than {MOST_FIELDS:,} fields"
        first_family, first = self._families.get(name, (family(value), ""))
        if first_family == family(value):
            return None
        return f"is a {first_family} in document {first!r}, but here {value!r:.80}"

    def _leave_out(self, document_id: str, name: str, problem: str) -> None:
        count, first, first_problem = self.unkept.get(name, (0, document_id, problem))
        self.unkept[name] = count + 1, first, first_problem

    def _value(self, document_id: str, name: object, raw_value: Any) -> Value | None:
        if not isinstance(name, str):
            raise ValueError(f"document {document_id!r}: a field's name is no text: {name!r:.80}")
        try:
            if not name or not name.isprintable():
                raise UnkeptError("a value without a printable name")
            return plain(raw_value)
        except ValueError as error:
            if not self._lenient and not isinstance(error, UnkeptError):
                raise ValueError(f"document {document_id!r}: the field {name!r}: {error}") from None
            self._leave_out(document_id, name, str(error))
            return None


def fields_in(values: Mapping[str, Any], reserved: Collection[str]) -> dict[str, Any]:
    """Return the members of a record that are fields: all unreserved names. The members of
    an object ``fields`` or ``metadata`` count as members of the record.
    """
    fields = {name: value for name, value in values.items() if name not in reserved}
    for group in ("metadata", "fields"):
        if isinstance(fields.get(group), Mapping):
            inner = fields.pop(group)
            fields = {**{n: v for n, v in inner.items() if n not in reserved}, **fields}
    return fields
