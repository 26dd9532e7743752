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
from collections.abc import Collection, Mapping
from reprlib import repr as shown
from typing import Annotated, Any, TypeVar, dataclass_transform

from pydantic import (
    BeforeValidator,
    Field,
    FiniteFloat,
    Strict,
    StrictBool,
    StrictInt,
    StrictStr,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic.dataclasses import dataclass as validated
from pydantic_core import ArgsKwargs, PydanticCustomError

from lexicept.errors import InputError

T = TypeVar("T")
Item = TypeVar("Item")


def _number(value: Any) -> Any:
    """Read YAML 1.1's text ``1e-3`` as the number it is."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


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
Items = Annotated[
    tuple[Item, ...],
    Strict(),
    BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value),
]
"""A tuple, also from a YAML list."""


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def settings(cls: type[T]) -> type[T]:
    """Make a class a frozen dataclass with checked values.

    Construction raises InputError for unknown names, with the nearest name, and for values of
    another type or out of range. InputErrors of ``__post_init__`` get the path of the settings.
    """
    known_names: Any = classmethod(_known_names)
    setattr(cls, "_known_names", model_validator(mode="before")(known_names))  # noqa: B010
    checked: Any = validated(frozen=True)(cls)
    pydantic_init = checked.__init__

    @functools.wraps(pydantic_init)
    def init(self: Any, *args: Any, **values: Any) -> None:
        try:
            pydantic_init(self, *args, **values)
        except ValidationError as error:
            raise InputError(error_line(error, "")) from None

    checked.__init__ = init
    return typing.cast(type[T], checked)


@functools.cache
def _adapter(settings_type: Any) -> TypeAdapter[Any]:
    return TypeAdapter(settings_type)


def from_mapping(settings_type: type[T], mapping: Any, path: str = "") -> T:
    """Return settings from nested mappings. Raises InputError for an unknown name, with the nearest
    name, or a value of another type or out of range, after ``path``, the path in the file."""
    if not isinstance(mapping, Mapping):
        raise InputError(f"{path or 'the configuration'} must be a mapping, not {shown(mapping)}")
    try:
        return typing.cast(T, _adapter(typing.cast(Any, settings_type)).validate_python(mapping))
    except ValidationError as error:
        raise InputError(error_line(error, path)) from None


def to_mapping(values: Any) -> dict[str, Any]:
    """Return settings as nested mappings, defaults included."""
    return dataclasses.asdict(values)


def _known_names(settings_type: Any, values: Any) -> Any:
    """Refuse unknown names, with the nearest name, before values are checked."""
    names = [field.name for field in dataclasses.fields(settings_type)]
    named = values.kwargs or {} if isinstance(values, ArgsKwargs) else values
    for name in named if isinstance(named, Mapping) else ():
        if name not in names:
            context = {"name": str(name), "hint": nearest(str(name), names)}
            raise PydanticCustomError("unknown_name", "unknown name", context)
    return values


def nearest(name: str, names: Collection[str]) -> str:
    """Return a hint for an error: the nearest name and all known names."""
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
    hint = f"; the nearest name is {near[0]!r}" if near else ""
    return f"{hint} (known: {', '.join(names) or 'none'})"


_ALLOWED = {
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "a text",
    "bool_type": "true or false",
    "dataclass_type": "a mapping",
    "tuple_type": "a list",
    "greater_than": "above {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "less_than": "below {lt}",
    "less_than_equal": "at most {le:g}",
}
"""Type of pydantic's error → the allowed values, in plain words."""


def error_line(error: ValidationError, path: str) -> str:
    """Return the first of pydantic's errors as one line."""
    details = error.errors(include_url=False)[0]
    error_type, context = details["type"], details.get("ctx", {})
    for step in (*details["loc"], *([context["name"]] if error_type == "unknown_name" else [])):
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    if error_type == "unknown_name":
        return f"unknown key {path!r}{context['hint']}"
    if error_type in ("missing", "missing_argument"):
        return f"{path} is missing"
    if error_type == "value_error":  # an InputError of ``__post_init__``, or of pydantic's own
        return f"{path}: {context['error']}" if path else str(context["error"])
    reason = " ".join(details["msg"].removeprefix("Input should be ").split())
    allowed = _ALLOWED[error_type].format(**context) if error_type in _ALLOWED else reason
    return f"{path} must be {allowed}, not {shown(details.get('input'))}"
