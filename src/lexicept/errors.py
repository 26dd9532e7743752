"""lexicept's errors, and checks that raise them: each message names the input that caused it."""

from __future__ import annotations

import builtins
import functools
import inspect
import os
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real
from operator import index
from typing import Annotated, Any, Literal, NamedTuple, ParamSpec, TypeVar, Union


class LexiceptError(Exception):
    """Base of every error that lexicept raises on purpose."""


class LexiceptWarning(UserWarning):
    """Base of every warning that lexicept gives; the command line prints its text alone."""


class InputError(LexiceptError, ValueError):
    """Raised for bad input: the message names the file and line, the id or the value."""


class ParameterError(InputError):
    """Parameters that do not go together, or a parameter out of range.

    Args:
        text: the message, with ``{0}``, ``{1}`` and so on in place of the names.
        names: names of parameters.
    """

    def __init__(self, text: str, *names: str) -> None:
        super().__init__(text.format(*names))
        self.text = text
        self.names = names


class IndexFormatError(LexiceptError):
    """Raised for a folder that is no index, is damaged, or has another format version."""


def message_of(error: BaseException, most: int = 300) -> str:
    """Return an error's message in one line of at most ``most`` characters, or the type's name."""
    return " ".join(str(error).split())[:most] or type(error).__name__


def first_line_of(error: BaseException) -> str:
    """Return the first line of an error's message, or the type's name."""
    return str(error).strip().split("\n")[0] or type(error).__name__


def check_count(name: str, value: object) -> None:
    """Raise InputError unless the value is a whole number of at least 1."""
    try:
        count = index(value)  # type: ignore[arg-type]
    except TypeError:
        raise InputError(f"{name} must be a whole number, not {value!r:.40}") from None
    if count < 1:
        raise ParameterError(f"{{0}} must be at least 1, not {count}", name)


def require(extra: str, *modules: str, hint: str = "") -> None:
    """Refuse to start work that a missing package would stop halfway.

    Args:
        extra: the optional extra of lexicept that installs the packages.
        modules: the names that the work imports.
        hint: what to do instead.

    Raises:
        InputError: naming the missing packages.
    """
    from importlib.util import find_spec

    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        raise InputError(f"{', '.join(missing)} missing: pip install 'lexicept[{extra}]'{hint}")


P = ParamSpec("P")
R = TypeVar("R")

_NAMES: dict[Any, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    os.PathLike: "a path",
    Mapping: "a mapping",
    type(None): "None",
}
"""Names of types in messages."""

_NUMBERS: dict[Any, type] = {int: Integral, float: Real}


class AtLeast(NamedTuple):
    """The least value of a number, as metadata of an annotation."""

    least: int


Count = Annotated[int, AtLeast(1)]
"""A whole number of at least 1."""
Whole = Annotated[int, AtLeast(0)]
"""A whole number of at least 0."""


def checked_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function with a check of its arguments, which raises InputError.

    The check knows texts, numbers, truth values, paths, literals, classes, and sequences and unions
    of these. It lets pass what it doesn't know. A path is not empty and holds no NUL.
    """
    signature = inspect.signature(function)

    @functools.cache
    def annotations() -> dict[str, Any]:
        stated = resolved_annotations(function)
        return {name: stated[name] for name in signature.parameters if name in stated}

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            arguments = signature.bind(*args, **kwargs).arguments
        except TypeError:  # unknown or missing parameters: the call below raises a better message
            return function(*args, **kwargs)
        for name, annotation in annotations().items():
            if name in arguments:
                _check(name, arguments[name], annotation)
        return function(*args, **kwargs)

    return call


def resolved_annotations(owner: Any) -> dict[str, Any]:
    """Return the annotations of a function or class, with stand-ins for unimported classes."""
    names = vars(sys.modules[owner.__module__])
    return typing.get_type_hints(owner, localns=_Names(names), include_extras=True)


def check_fields(settings: Any) -> None:
    """Raise InputError for a dataclass's value that does not fit its annotation."""
    settings_type: Any = type(settings)
    for name, annotation in _field_annotations(settings_type).items():
        _check(name, getattr(settings, name), annotation)


def check_known(noun: str, names: Iterable[str], known: Sequence[str]) -> None:
    """Raise InputError, with the nearest name, for a name that is not known."""
    import difflib

    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1, 0.5)
            hint = f"perhaps {near[0]}?" if near else f"there are {', '.join(known) or 'none'}"
            raise InputError(f"no {noun} {name!r:.80}; {hint}")


def read_fields(settings_type: Callable[..., R], mapping: Mapping[str, Any], source: object) -> R:
    """Return a dataclass with the values of a JSON object.

    Raises:
        InputError: an unknown name, or a value that the dataclass refuses; with ``source``.
    """
    try:
        check_known("setting", mapping, list(settings_type.__dataclass_fields__))  # type: ignore[attr-defined]
        return settings_type(**mapping)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None


@functools.cache
def _field_annotations(settings_type: Any) -> dict[str, Any]:
    return resolved_annotations(settings_type)


class _Names(dict[str, Any]):
    """The names of a module, and a stand-in for each that is imported for type checkers only."""

    def __missing__(self, name: str) -> Any:
        return getattr(builtins, name, None) or type(name, (UnknownClass,), {})


class UnknownClass:
    """A class that is known by its name only, so that it need not be imported."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __class_getitem__(cls, _: Any) -> Any:
        return cls


def _check(name: str, value: object, annotation: Any) -> None:
    if not _fits(value, annotation):
        raise _refused(name, _described(annotation), value)
    for member in members_of(annotation):
        for limit in getattr(member, "__metadata__", ()):
            if isinstance(limit, AtLeast) and isinstance(value, Real) and value < limit.least:
                raise _refused(name, f"at least {limit.least}", value)
    if isinstance(value, str | os.PathLike) and os.PathLike in map(_origin, members_of(annotation)):
        path = os.fspath(value)
        if not path or "\0" in path:
            raise _refused(name, "a path", path)


def _refused(name: str, allowed: str, value: object) -> ParameterError:
    message = f" must be {allowed}, not {value!r:.80}"
    return ParameterError("{0}" + message.replace("{", "{{").replace("}", "}}"), name)


def _origin(annotation: Any) -> Any:
    return typing.get_origin(annotation) or annotation


def members_of(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the annotation alone."""
    if _origin(annotation) in (Union, types.UnionType):
        return tuple(m for member in typing.get_args(annotation) for m in members_of(member))
    return (type(None) if annotation is None else annotation,)


def without_metadata(annotation: Any) -> Any:
    """Return an annotation without its metadata."""
    return annotation.__origin__ if hasattr(annotation, "__metadata__") else annotation


def _fits(value: object, annotation: Any) -> bool:
    members = members_of(annotation)
    if len(members) > 1:
        return any(_fits(value, member) for member in members)
    annotated = without_metadata(members[0])
    origin, arguments = _origin(annotated), typing.get_args(annotated)
    if origin is Literal:
        return any(type(value) is type(argument) and value == argument for argument in arguments)
    if annotated in _NUMBERS:
        return isinstance(value, _NUMBERS[annotated]) and not isinstance(value, bool)
    if origin in (Sequence, Iterable):
        if isinstance(value, str | bytes) or not isinstance(value, Iterable):
            return False
        if not isinstance(value, origin):
            return False
        elements: Iterable[object] = value if origin is Sequence else ()
        return all(_fits(element, arguments[0]) for element in elements)
    if origin is Any or not isinstance(origin, type) or getattr(origin, "_is_protocol", False):
        return True
    if issubclass(origin, UnknownClass):
        return origin.__name__ in [ancestor.__name__ for ancestor in type(value).__mro__]
    return isinstance(value, origin)


def _described(annotation: Any) -> str:
    """Return an annotation as people read it."""
    words: list[str] = []
    for member in map(without_metadata, members_of(annotation)):
        origin, arguments = _origin(member), typing.get_args(member)
        if origin is Literal:
            words += [repr(argument) for argument in arguments]
        elif origin in (Sequence, Iterable):
            words.append(f"a list, each item {_described(arguments[0])}")
        elif member is bool:
            words += ["True", "False"]
        else:
            words.append(_NAMES.get(origin, getattr(origin, "__name__", str(origin))))
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
