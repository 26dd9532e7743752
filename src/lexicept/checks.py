"""Types of values with their ranges, and checks by pydantic: of arguments, settings and files.

An annotation is a value's only declaration: ``steps: Count = 1000`` is a whole number of at least
1. pydantic takes a tenth of a second to import, so the first check imports it.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import functools
import inspect
import os
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from reprlib import repr as shown
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    NamedTuple,
    ParamSpec,
    TypeVar,
    Union,
    dataclass_transform,
)

from annotated_types import Ge, Gt, Le, Lt

from lexicept.errors import InputError, ParameterError, check_known

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

P = ParamSpec("P")
R = TypeVar("R")
Item = TypeVar("Item")


class _Read(NamedTuple):
    """Metadata of an annotation: a function that reads a value before the check."""

    read: Callable[[Any, Any], Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core.core_schema import with_info_before_validator_function

        return with_info_before_validator_function(self.read, handler(source))


def _whole(value: Any, _: Any) -> Any:
    """Read NumPy's integers."""
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else value


def _number(value: Any, information: Any) -> Any:
    """Read a text of a file such as ``1e-3``, which is no number in YAML 1.1."""
    try:
        return float(value) if information.context and isinstance(value, str) else value
    except ValueError:
        return value


class _Shallow:
    """Metadata of an annotation whose class alone is checked: no item is read or copied."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core.core_schema import is_instance_schema

        return is_instance_schema(_origin(source))


def _items(value: Any, _: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


Integer = Annotated[int, _Read(_whole)]
"""A whole number, of NumPy too."""
Count = Annotated[Integer, Ge(1)]
"""A whole number of at least 1."""
Whole = Annotated[Integer, Ge(0)]
"""A whole number of at least 0."""
Seed = Annotated[Integer, Ge(0), Lt(2**32)]
"""A whole number of 32 bits."""
Number = Annotated[float, _Read(_number)]
"""A finite number."""
Positive = Annotated[Number, Gt(0)]
"""A number above 0."""
NotNegative = Annotated[Number, Ge(0)]
"""A number of at least 0."""
Share = Annotated[Number, Ge(0), Le(1)]
"""A number from 0 to 1."""
Table = Annotated[Mapping[str, Item], _Shallow()]
"""A mapping whose items the function checks."""
Items = Annotated[tuple[Item, ...], _Read(_items)]
"""A tuple, also from a list of YAML."""

_ALLOWED = {
    "bool_type": "true or false",
    "float_type": "a number",
    "greater_than": "above {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "int_type": "a whole number",
    "is_instance_of": "{class}",
    "iterable_type": "a list",
    "less_than": "below {lt}",
    "less_than_equal": "at most {le:g}",
    "list_type": "a list",
    "mapping_type": "a mapping",
    "dict_type": "a mapping",
    "sequence_str": "a list",
    "string_type": "a text",
    "tuple_type": "a list",
}
"""Type of pydantic's error → the allowed values, in plain words."""

_CLASSES = {
    "Mapping": "a mapping",
    "PathLike": "a path",
    "Progress": "a function",
    "Sequence": "a list",
    "Snapshot": "an opened index",
}
"""Names of classes in messages."""


def check(
    path: str, value: Any, annotation: Any, from_file: bool = False, *, strict: bool = True
) -> Any:
    """Return a value as its annotation says, in a tuple of ``Items`` for example.

    Args:
        path: the value's name in messages.
        from_file: settings are read from mappings.
        strict: values are not converted, except for what the types of this module read.

    Raises:
        ParameterError: a value of another type or out of range.
    """
    from pydantic import ValidationError

    try:
        checked = _adapter(annotation, strict).validate_python(value, context=from_file)
    except ValidationError as error:
        raise _refused(path, error) from None
    if isinstance(value, str | os.PathLike) and os.PathLike in map(_origin, members_of(annotation)):
        text = os.fspath(value)
        if not text or "\0" in text:
            raise _must_be(path, "a path", text)
    return checked


@functools.cache
def _adapter(annotation: Any, strict: bool) -> TypeAdapter[Any]:
    from pydantic import ConfigDict, TypeAdapter

    config = ConfigDict(strict=strict, arbitrary_types_allowed=True, allow_inf_nan=False)
    return TypeAdapter(annotation, config=None if dataclasses.is_dataclass(annotation) else config)


def _refused(path: str, error: ValidationError) -> InputError:
    """Return pydantic's errors as one: each member of a union has its own."""
    causes = error.errors(include_url=False)
    depth = max(len(_steps(cause, causes)) for cause in causes)
    causes = [cause for cause in causes if len(_steps(cause, causes)) == depth]
    inner = ""
    for step in _steps(causes[0], causes):
        inner += f"[{step}]" if isinstance(step, int) else f".{step}"
    allowed = []
    for cause in causes:
        context: Any = cause.get("ctx", {})
        if cause["type"] == "value_error":  # of settings in a mapping
            return _within(path + inner, context["error"])
        words = cause["msg"].removeprefix("Input should be ")
        words = _ALLOWED.get(cause["type"], _escaped(words)).format(**context)
        allowed += _CLASSES.get(words, words).split(" or ")
    allowed = list(dict.fromkeys(allowed))
    text = " or ".join([", ".join(allowed[:-1]), allowed[-1]] if len(allowed) > 1 else allowed)
    return _must_be(path, text, causes[0]["input"], inner)


def _steps(cause: Any, causes: Sequence[Any]) -> list[int | str]:
    """Return the keys and indices of a refused item, without the names of a union's members."""
    return [step for step in cause["loc"] if len(causes) == 1 or isinstance(step, int)]


def _must_be(path: str, allowed: str, value: object, inner: str = "") -> ParameterError:
    text = f"{inner} must be {allowed}, not {shown(value)}"
    return ParameterError("{0}" + _escaped(text), path)


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _within(path: str, error: InputError) -> InputError:
    """Return an error of settings with their path before its names."""
    if not path:
        return error
    if isinstance(error, ParameterError):
        return ParameterError(error.text, *(f"{path}.{name}" for name in error.names))
    return ParameterError("{0}: " + _escaped(str(error)), path)


def checked_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function with a check of its arguments, which raises ParameterError. The function
    gets the arguments as they are: none is copied, and no iterator is read."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            arguments = signature.bind(*args, **kwargs).arguments
        except TypeError:  # unknown or missing parameters: the call below raises a better message
            return function(*args, **kwargs)
        for name, annotation in _annotations(function).items():
            if name in arguments:
                check(name, arguments[name], annotation)
        return function(*args, **kwargs)

    return call


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def settings(cls: type[R]) -> type[R]:
    """Make a class a frozen dataclass that checks its values before its own ``__post_init__``."""
    further = getattr(cls, "__post_init__", None)

    def read(self: Any) -> None:
        for field in dataclasses.fields(self):
            annotation = _annotations(self.__class__)[field.name]
            value = check(field.name, getattr(self, field.name), annotation)
            object.__setattr__(self, field.name, value)
        if further is not None:
            further(self)

    setattr(cls, "__post_init__", read)  # noqa: B010
    setattr(cls, "__get_pydantic_core_schema__", classmethod(_schema))  # noqa: B010
    return dataclasses.dataclass(frozen=True)(cls)


def _schema(settings_type: Any, source: Any, handler: Any) -> Any:
    """Return pydantic's schema of settings: an instance or, in a file, a mapping."""
    from pydantic_core import PydanticKnownError, core_schema

    def read(value: Any, information: Any) -> Any:
        if isinstance(value, settings_type):
            return value
        if information.context and isinstance(value, Mapping):
            return from_mapping(settings_type, value)
        if information.context:
            raise PydanticKnownError("dict_type")
        raise PydanticKnownError("is_instance_of", {"class": settings_type.__name__})

    return core_schema.with_info_plain_validator_function(read)


def from_mapping(settings_type: type[R], mapping: Any, path: str = "", source: object = "") -> R:
    """Return settings from nested mappings, as in YAML or JSON.

    Args:
        path: the settings' path in the file.
        source: the file.

    Raises:
        InputError: an unknown name, with the nearest name, a missing one, or a value of another
            type or out of range; after ``source`` and ``path``.
    """
    if not isinstance(mapping, Mapping):
        raise _must_be(path or "the configuration", "a mapping", mapping)
    try:
        return settings_type(**_values(settings_type, mapping))
    except InputError as error:
        error = _within(path, error)
        raise InputError(f"{source}: {error}") if source else error from None


def _values(settings_type: Any, mapping: Mapping[str, Any]) -> dict[str, Any]:
    fields, annotations = dataclasses.fields(settings_type), _annotations(settings_type)
    check_known("setting", mapping, [field.name for field in fields])
    for field in fields:
        required = field.default is field.default_factory is dataclasses.MISSING
        if required and field.name not in mapping:
            raise ParameterError("{0} is missing", field.name)
    return {n: check(n, value, annotations[n], from_file=True) for n, value in mapping.items()}


@functools.cache
def _annotations(owner: Callable[..., Any]) -> dict[str, Any]:
    return resolved_annotations(owner)


def resolved_annotations(owner: Any) -> dict[str, Any]:
    """Return the annotations of a function or class, with stand-ins for unimported classes."""
    names = dict(vars(sys.modules[owner.__module__]))
    for annotated in getattr(owner, "__mro__", (owner,)):
        known = vars(sys.modules[annotated.__module__]).keys() | vars(builtins).keys()
        for text in inspect.get_annotations(annotated).values():
            nodes = ast.walk(ast.parse(text, mode="eval")) if isinstance(text, str) else ()
            used = {node.id for node in nodes if isinstance(node, ast.Name)}
            for name in used - known:  # imported for type checkers only
                names.setdefault(name, _ByName(name, (), {}))
    annotations = typing.get_type_hints(owner, localns=names, include_extras=True)
    return {name: hint for name, hint in annotations.items() if name != "return"}


class _ByName(type):
    """Type of stand-ins: classes of the same name are their subclasses, so none is imported."""

    def __instancecheck__(cls, value: object) -> bool:
        return cls.__name__ in [ancestor.__name__ for ancestor in type(value).__mro__]

    def __getitem__(cls, _: object) -> _ByName:
        return cls


def members_of(annotation: Any) -> list[Any]:
    """Return the members of a union, or the annotation alone, without metadata."""
    if hasattr(annotation, "__metadata__"):
        return members_of(annotation.__origin__)
    if _origin(annotation) in (Union, types.UnionType):
        return [m for member in typing.get_args(annotation) for m in members_of(member)]
    return [type(None) if annotation is None else annotation]


def _origin(annotation: Any) -> Any:
    return typing.get_origin(annotation) or annotation
