"""Own parts of a training: classes that a configuration names in place of lexicept's."""

from __future__ import annotations

import importlib
import inspect
import operator
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from functools import reduce
from typing import Annotated, Any

from pydantic import BeforeValidator
from pydantic_core import core_schema

from lexicept.checks import NotNegative, check, from_mapping, settings
from lexicept.errors import InputError, check_known, message_of


def _path_of(value: Any) -> Any:
    """Return the path of a class; other values as they are."""
    return f"{value.__module__}.{value.__qualname__}" if isinstance(value, type) else value


def _refuse_unknown(noun: str, names: Iterable[str], known: Sequence[str]) -> None:
    """Raise InputError for an unknown name, which is no setting and has no path."""
    try:
        check_known(noun, names, known)
    except InputError as error:
        raise InputError(str(error)) from None


@settings
class OwnPart:
    """A class of yours and the arguments of its constructor, checked by the annotations there.

    Raises InputError for a class that can't be imported, an unknown argument, with the nearest
    name, a missing argument, or a value of another type.
    """

    class_path: Annotated[str, BeforeValidator(_path_of)]
    """Path of the class, such as ``my_package.MyLoss``; in Python also the class."""
    init_args: dict[str, Any] = field(default_factory=dict)
    """Arguments of the constructor by name."""

    def __post_init__(self) -> None:
        self._arguments()

    @property
    def name(self) -> str:
        """Name of the class without the module."""
        return self.class_path.rpartition(".")[2]

    def make(self, base: Any = None) -> Any:
        """Call the constructor. Raises InputError if the constructor fails or the object is not of
        type ``base``; without ``base``, if the object can't be called."""
        try:
            built = self._class()(**self._arguments())
        except InputError:
            raise
        except Exception as error:  # a constructor raises what it likes
            raise InputError(f"{self.class_path} can't be made: {message_of(error)}") from error
        if base is not None and not isinstance(built, base):
            needed = f"{base.__module__}.{base.__name__}"
            raise InputError(f"{self.class_path} is no {needed}; see the guide to own parts")
        if base is None and not callable(built):
            raise InputError(f"{self.class_path} has no method __call__")
        return built

    def _class(self) -> Any:
        module_name, _, name = self.class_path.rpartition(".")
        try:
            module = importlib.import_module(module_name)
        except Exception as error:  # the module's code raises what it likes
            reason = message_of(error) if module_name else "the module's name is missing"
            raise InputError(
                f"{self.class_path!r} can't be imported: {reason}; its package must be installed "
                "or on PYTHONPATH"
            ) from None
        if not isinstance(loaded := getattr(module, name, None), type):
            classes = [key for key, value in vars(module).items() if isinstance(value, type)]
            _refuse_unknown(f"class of {module_name}", [name], classes)
        return loaded

    def _arguments(self) -> dict[str, Any]:
        """Return the checked arguments of the constructor."""
        own_class = self._class()
        signature = inspect.signature(own_class)
        if not any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values()):
            names = [*signature.parameters]
            _refuse_unknown(f"argument of {self.class_path}", self.init_args, names)
        try:
            signature.bind(**self.init_args)
        except TypeError as error:
            raise InputError(f"{self.class_path}: {error}") from None
        try:
            hints = typing.get_type_hints(own_class.__init__, include_extras=True)
        except (NameError, AttributeError, TypeError):  # names that only type checkers know
            hints = {}
        return {
            name: check(f"init_args.{name}", value, hints.get(name, Any), True, strict=False)
            for name, value in self.init_args.items()
        }


@settings
class OwnLoss(OwnPart):
    """An own loss, with its weight in the sum."""

    weight: NotNegative = 1.0
    """Weight of the loss."""


class _OrOwn:
    """Annotation of ``Name | OwnPart``: a mapping or a class is an own part, else a name."""

    def __get_pydantic_core_schema__(self, union: Any, handler: Any) -> core_schema.CoreSchema:
        def read(value: Any, by_name: Any) -> Any:
            if isinstance(value, type):
                return OwnPart(value)  # type: ignore[arg-type]
            if isinstance(value, Mapping):
                return from_mapping(OwnPart, value)
            return value if isinstance(value, OwnPart) else by_name(value)

        types = [name_type for name_type in typing.get_args(union) if name_type is not OwnPart]
        names: Any = reduce(operator.or_, types)
        return core_schema.no_info_wrap_validator_function(read, handler.generate_schema(names))


OR_OWN = _OrOwn()
