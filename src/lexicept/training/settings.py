"""Settings: frozen dataclasses, validated by pydantic, for Python, YAML and the command line.

A field is an option's only declaration: name, type with range, default and help, a docstring under
the field. ``steps: Count = 1000`` is a whole number of at least 1. An error is an InputError of one
line with the field's path, the value and the allowed values.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import typing
from collections.abc import Mapping
from reprlib import repr as shown
from typing import Annotated, Any, TypeVar, dataclass_transform

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    FiniteFloat,
    Strict,
    StrictBool,
    StrictInt,
    StrictStr,
    TypeAdapter,
    ValidationError,
)
from pydantic.dataclasses import dataclass as validated

from lexicept.errors import InputError

T = TypeVar("T")
Item = TypeVar("Item")


def _number(value: Any) -> Any:
    """Read YAML 1.1's text ``1e-3`` as the number it is."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


Flag = StrictBool
Text = StrictStr
Count = Annotated[StrictInt, Field(ge=1)]
"""A whole number of at least 1."""
Whole = Annotated[StrictInt, Field(ge=0)]
"""A whole number of at least 0."""
Seed = Annotated[StrictInt, Field(ge=0, lt=2**32)]
"""A whole number of 32 bits."""
Number = Annotated[FiniteFloat, Strict(), BeforeValidator(_number)]
"""A finite number, also as text: YAML 1.1 reads ``1e-3`` as a text."""
Positive = Annotated[Number, Field(gt=0)]
"""A number above 0."""
NotNegative = Annotated[Number, Field(ge=0)]
"""A number of at least 0."""
Share = Annotated[Number, Field(ge=0, le=1)]
"""A number from 0 to 1."""
Items = Annotated[tuple[Item, ...], Strict(), BeforeValidator(_tuple)]
"""A tuple, also from a YAML list."""


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def settings(cls: type[T]) -> type[T]:
    """Make a class a frozen dataclass with checked values.

    Construction raises InputError for unknown names and for values of another type or out of range.
    InputErrors of ``__post_init__`` get the path of the settings.
    """
    checked: Any = validated(frozen=True, config=ConfigDict(extra="forbid"))(cls)
    pydantic_init = checked.__init__

    @functools.wraps(pydantic_init)
    def init(self: Any, *args: Any, **values: Any) -> None:
        try:
            pydantic_init(self, *args, **values)
        except ValidationError as error:
            raise InputError(_message(error, checked, "")) from None

    checked.__init__ = init
    return typing.cast(type[T], checked)


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def from_mapping(kind: type[T], content: Any, place: str = "") -> T:
    """Return settings from nested mappings.

    Args:
        place: path of the mapping in the file, for errors.

    Raises:
        InputError: an unknown name, with the nearest name, or a value of another type or out of
            range, with the path.
    """
    if not isinstance(content, Mapping):
        raise InputError(f"{place or 'the configuration'} must be a mapping, not {shown(content)}")
    try:
        return typing.cast(T, _adapter(typing.cast(Any, kind)).validate_python(content))
    except ValidationError as error:
        raise InputError(_message(error, kind, place)) from None


def to_mapping(values: Any) -> dict[str, Any]:
    """Return settings as nested mappings, defaults included."""
    return dataclasses.asdict(values)


def _message(error: ValidationError, kind: Any, place: str) -> str:
    """Return the first of pydantic's errors as one line."""
    first = error.errors(include_url=False)[0]
    path = _joined(place, first["loc"])
    value = shown(first.get("input"))
    match first["type"]:
        case "unexpected_positional_argument":
            return f"{kind.__name__}: too many values: {value}"
        case "unexpected_keyword_argument" | "extra_forbidden" | "invalid_key":
            return _unknown(place, first["loc"], kind)
        case "missing" | "missing_argument":
            return f"{path} is missing"
        case "value_error":  # an InputError of ``__post_init__``, or of pydantic's own
            reason = str(first["ctx"]["error"])
            return f"{path}: {reason}" if path else reason
        case "dataclass_type":
            return f"{path} must be a mapping, not {value}"
        case "tuple_type":
            return f"{path} must be a list, not {value}"
    plain = _PLAIN.get(first["type"])
    if plain is not None:
        allowed = plain.format(**first.get("ctx", {}))
    else:
        allowed = " ".join(first["msg"].removeprefix("Input should be ").split())
    return f"{path} must be {allowed}, not {value}"


_PLAIN = {
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "a text",
    "bool_type": "true or false",
    "greater_than": "above {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "less_than": "below {lt}",
    "less_than_equal": "at most {le:g}",
}
"""Type of pydantic's error → what is allowed, in plain words."""


def _joined(place: str, path: tuple[int | str, ...]) -> str:
    for step in path:
        if isinstance(step, int):
            place = f"{place}[{step}]"
        else:
            place = f"{place}.{step}" if place else step
    return place


def _unknown(place: str, loc: tuple[int | str, ...], kind: Any) -> str:
    """Return the error of an unknown name, with the nearest name."""
    names = [field.name for field in dataclasses.fields(_kind_at(kind, loc[:-1]))]
    name = str(loc[-1])
    path = _joined(_joined(place, loc[:-1]), (name,))
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
    hint = f"; the nearest name is {near[0]!r}" if near else ""
    return f"unknown key {path!r}{hint} (known: {', '.join(names)})"


def _kind_at(kind: Any, path: tuple[int | str, ...]) -> Any:
    """Return the dataclass at a path of names and list places."""
    for step in path:
        if isinstance(step, str):
            kind = typing.get_type_hints(kind)[step]
        else:
            kind = typing.get_args(kind)[0]
        kind = _dataclass_in(kind)
    return kind


def _dataclass_in(kind: Any) -> Any:
    """Return the dataclass, or the tuple of dataclasses, of an optional type."""
    options = [option for option in typing.get_args(kind) if option is not type(None)]
    if dataclasses.is_dataclass(kind) or typing.get_origin(kind) is tuple or not options:
        return kind
    return _dataclass_in(options[0])
