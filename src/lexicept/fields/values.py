"""Values of fields: texts, numbers, dates, and lists of scalars."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from numbers import Real
from typing import Any, NamedTuple, TypeAlias
from unicodedata import normalize

Scalar: TypeAlias = str | int | float
Value: TypeAlias = Scalar | list[Scalar]
"""A value of a field. Dates are texts in ISO 8601, true and false the texts "true" and "false"."""

Fields: TypeAlias = Mapping[str, Any]
"""The fields of a document by name. ``plain`` says which values there may be."""

NOTHING: Fields = {}

LARGEST_INTEGER = 2**63 - 1

DAY = 86_400_000_000
"""Microseconds of a day."""

MOST_FIELDS = 1_000
"""Most fields of a collection."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_ISO = re.compile(
    r"(?P<day>[0-9]{4}(-?[0-9]{3}|-[0-9]{2}|[0-9]{4}|-?W[0-9]{2}"
    r"|(?P<whole>-[0-9]{2}-[0-9]{2}|-?W[0-9]{2}-?[1-7]))?)"
    r"([T ](?P<time>[0-9]{2}(:?[0-9]{2}(:?[0-9]{2}([.,][0-9]+)?)?)?"
    r" ?(?P<zone>Z|[+-][0-9]{2}(:?[0-9]{2})?)?))?",
    re.IGNORECASE,
)
"""Dates and times of ISO 8601 and RFC 3339, but for years of more than four digits, fractions of
hours or minutes, and the second 60."""


class FieldType(NamedTuple):
    """The type of a field."""

    name: str
    """keyword, number or date."""
    multiple: bool = False
    """True if a document may have a list of them."""

    def __str__(self) -> str:
        return f"list of {self.name}s" if self.multiple else self.name


def is_missing(value: Any) -> bool:
    """Return True for None, NaN, NaT and pandas.NA."""
    if value is None or isinstance(value, str | int | list | Mapping):
        return value is None
    try:
        return bool(value != value)
    except (TypeError, ArithmeticError):  # pandas.NA is neither true nor false
        return True
    except ValueError:  # nor is an array
        return False


class UnkeptError(ValueError):
    """Raised for a kind of value that fields do not hold; documents are read without the value."""


def plain(value: Any) -> Value | None:
    """Return a value as fields hold it; None for a missing value.

    Missing are also the empty text and the empty list. Times without a zone count as UTC. Raises
    UnkeptError for an object, bytes, or a list of objects or lists. Raises ValueError for a number
    that is not finite or has more than 63 bits, a list of texts and numbers, or a text that UTF-8
    can't hold.
    """
    value = _python(value)
    if not isinstance(value, list | tuple | set | frozenset):
        return _scalar(value)
    members = (_scalar(_python(member)) for member in value)
    scalars = [scalar for scalar in members if scalar is not None]
    if len({isinstance(scalar, str) for scalar in scalars}) > 1:
        raise ValueError("a list of texts and numbers")
    return scalars or None


def _python(value: Any) -> Any:
    """Return a scalar or an array of NumPy as Python's values, others as they are: numbers of
    less than double precision with the digits that are shown, times to the microsecond."""
    if not hasattr(value, "tolist"):
        return value
    name = str(getattr(value, "dtype", ""))
    if name.startswith("float") and name != "float64":
        value = value.astype(str).astype(float)
    elif name.endswith(("ns]", "ps]", "fs]", "as]")):  # would be integers
        value = value.astype(f"{value.dtype.kind}8[us]")
    return value.tolist()


def as_typed(
    records: Iterable[Mapping[str, Any]], types: Mapping[str, Any]
) -> Iterator[Mapping[str, Any]]:
    """Yield the records of a data frame or of Parquet; numbers, and lists of numbers, of columns of
    less than double precision get the type of the column back, so that 9.99 is 9.99."""
    import numpy as np  # texts do without

    narrow: dict[str, Any] = {}
    for name, column_type in types.items():
        if match := re.search(r"(?i)(half)?float(16)?(?!64)", str(column_type)):
            narrow[name] = np.float16 if any(match.groups()) else np.float32
    for record in records:
        typed = {name: record[name] for name in narrow if isinstance(record[name], float | list)}
        yield {**record, **{name: narrow[name](value) for name, value in typed.items()}}


def _scalar(value: Any) -> Scalar | None:
    if is_missing(value) or value == "":
        return None
    if isinstance(value, str):
        return _encodable(str(value))
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Real | Decimal):
        return _number(value)
    if isinstance(value, datetime):
        zoned = value.replace(tzinfo=UTC) if value.tzinfo is None else value
        try:
            return iso(microseconds_of(zoned), days=False)
        except OverflowError:
            raise ValueError(f"{value} is not within the years 1 to 9999") from None
    if isinstance(value, date):
        return value.isoformat()
    raise UnkeptError("an object" if isinstance(value, Mapping) else f"a {type(value).__name__}")


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"lone surrogate {text[error.start]!r}: UTF-8 cannot hold it") from None
    return text


def _number(value: Any) -> int | float:
    if value in (float("inf"), -float("inf")):
        raise ValueError(f"{value} is not a finite number")
    if isinstance(value, float) and abs(value) >= 2**53:
        return float(value)
    if not -LARGEST_INTEGER <= value <= LARGEST_INTEGER:
        raise ValueError(f"{value} has more than 63 bits; as a text it would be kept")
    return int(value) if value == int(value) else float(value)


def parse_date(text: str) -> int | None:
    """Return the microseconds from 1970 to a day or time in ISO 8601; None for other texts, and for
    years, months and days that a number or code may look like (see ``period``)."""
    match = _ISO.fullmatch(text)
    if match is None or not (match["whole"] or match["time"]):
        return None
    bounds = period(text)
    return None if bounds is None else bounds[0]


def period(text: str) -> tuple[int, int] | None:
    """Return the first and the last microsecond of a year, month, week, day or time in ISO 8601;
    None for another text. A time without a zone is in UTC."""
    match = _ISO.fullmatch(text)
    if match is None:
        return None
    try:
        day, last_day = _days(match["day"].upper())
        if not match["time"]:
            return microseconds_of(day), microseconds_of(last_day) + DAY - 1
        if day != last_day:
            return None
        time = f"{match['time']}{'' if match['zone'] else 'Z'}".upper().replace(" ", "")
        return (microseconds_of(datetime.fromisoformat(f"{day.date()}T{time}")),) * 2
    except (ValueError, OverflowError):
        return None


def _days(text: str) -> tuple[datetime, datetime]:
    """Return the first and last day of a year, month, week or day. Raises ValueError for none."""
    year, within_year = datetime(int(text[:4]), 1, 1, tzinfo=UTC), text[4:].lstrip("-")
    if not within_year:
        return year, year.replace(month=12, day=31)
    if len(within_year) == 3 and within_year.isdigit():
        day = year + timedelta(days=int(within_year) - 1)
        if day.year != year.year:
            raise ValueError
        return day, day
    if len(within_year) == 2:
        month = year.replace(month=int(within_year))
        return month, month.replace(day=monthrange(year.year, month.month)[1])
    day = datetime.fromisoformat(text).replace(tzinfo=UTC)
    return day, day + timedelta(days=6 * (len(within_year) == 3))


def microseconds_of(moment: datetime) -> int:
    """Return the microseconds from 1970 to a time with a zone."""
    return (moment.astimezone(UTC) - _EPOCH) // _MICROSECOND


def iso(microseconds: int, *, days: bool) -> str:
    """Return a time, or a day, in ISO 8601."""
    moment = _EPOCH + timedelta(microseconds=microseconds)
    return moment.date().isoformat() if days else moment.isoformat().replace("+00:00", "Z")


def family(value: Value) -> str:
    """Return text or number: a field has values of a single family in all documents."""
    sample = value[0] if isinstance(value, list) else value
    return "text" if isinstance(sample, str) else "number"


def conflict(field_type: FieldType, value: Value) -> str | None:
    """Return the reason why a value does not fit a field's type; None for a fitting value."""
    if (field_type.name == "number") != (family(value) == "number"):
        return f"is a {field_type.name}, but here {value!r:.80}"
    texts = (value if isinstance(value, list) else [value]) if field_type.name == "date" else []
    wrong = next((text for text in texts if parse_date(str(text)) is None), None)
    return None if wrong is None else f"is a date, but here {wrong!r:.80}"


class FieldChecker:
    """Checks that a field is texts in all documents, or numbers in all documents, as in ``types``
    of an existing index; ``lenient`` leaves out misfits instead of raising an error."""

    def __init__(self, types: Mapping[str, FieldType] = NOTHING, *, lenient: bool = False) -> None:
        self._types, self._lenient = types, lenient
        self._families: dict[str, tuple[str, str]] = {}
        """By name: texts or numbers, and the first document that has them."""
        self.unkept: dict[str, tuple[int, str, str]] = {}
        """By name: how many documents are read without it, the first, and the problem there."""
        self._names, self._beyond = set(types), ""

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
            reason = "is there in two spellings" if name in checked else None
            if (reason := reason or self._conflict(name, value)) is None:
                checked[name] = value
                self._names.add(name)
            elif self._lenient:
                if name not in self._names:
                    self._beyond = name = self._beyond or name  # one name stands for all of these
                self._leave_out(document_id, name, reason)
            else:
                raise ValueError(f"document {document_id!r}: the field {name!r} {reason}")
        for name, value in checked.items():
            self._families.setdefault(name, (family(value), document_id))
        return checked

    def _conflict(self, name: str, value: Value) -> str | None:
        if name in self._types:
            return conflict(self._types[name], value)
        if name not in self._names and len(self._names) >= MOST_FIELDS:
            return f"is one of more than {MOST_FIELDS:,} fields"
        earliest_family, earliest_id = self._families.get(name, (family(value), ""))
        if earliest_family == family(value):
            return None
        return f"is a {earliest_family} in document {earliest_id!r}, but here {value!r:.80}"

    def _leave_out(self, document_id: str, name: str, reason: str) -> None:
        count, earliest_id, earliest_reason = self.unkept.get(name, (0, document_id, reason))
        self.unkept[name] = count + 1, earliest_id, earliest_reason

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
