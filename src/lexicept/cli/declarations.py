"""Options, read from the functions and dataclasses that declare them.

A parameter of a public function, or a field of a settings dataclass, is an option's only
declaration: name, type, default and help. The functions check the ranges of numbers.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import is_dataclass
from functools import cache
from importlib import import_module
from typing import Any, Literal, NamedTuple

from docstring_parser import DocstringStyle, parse_from_object

from lexicept.checks import members_of, resolved_annotations

TRAINING = {"SAESettings": "lexicept.training.sae.settings:SAESettings"}
"""Dataclasses that need the extra ``train``, by name; annotations have stand-ins for them."""

HELP = {
    "as_json": "Print JSON.",
    "dataset": "Judged queries: a BEIR folder or an ir_datasets name.",
    "documents": "Documents: a folder of files (text, Markdown, HTML, PDF, CSV, JSON, Parquet), "
    "one such file, a BEIR folder, an ir_datasets name, or python-docs (docstrings of the standard "
    "library).",
    "index": "Folder of the index; serve also takes documents.",
    "out": "Folder to write; must not exist.",
    "ray": "HOST:PORT of the head of a Ray cluster, or local to start one here. Ray listens on all "
    "network interfaces.",
    "ray_workers": "Number of Ray processes. By default one for each processor, or GPU.",
    "restart": "Discard unfinished work and start over.",
    "split": "Split of the judged queries.",
}
"""Help of parameters that take more than a text in Python, or that no public function has."""


class Option(NamedTuple):
    """An option or argument of a command."""

    name: str
    """Name of the parameter or field."""
    annotation: Any
    default: Any
    """``inspect.Parameter.empty`` for a required option."""
    help: str
    positional: bool = False
    panel: str | None = None
    """Title of the panel in the help."""
    settings: SettingsOptions | None = None
    """Fields of a dataclass that the parameter takes, as options of their own."""

    @property
    def members(self) -> list[Any]:
        """Members of the annotation's union, without metadata and None."""
        return [member for member in members_of(self.annotation) if member is not type(None)]

    @property
    def items(self) -> list[Any]:
        """Members of the type of a sequence's items; empty if the option takes one text."""
        for member in self.members:
            if (
                typing.get_origin(member) in (Sequence, Iterable, list, tuple)
                and str not in self.members
            ):
                return members_of(typing.get_args(member)[0])
        return []

    @property
    def is_flag(self) -> bool:
        return bool in self.members

    @property
    def choices(self) -> list[str]:
        """Values of literals, if the option takes nothing else; "none" is no limit."""
        kinds = [kind for kind in self.items or self.members if kind is not type(None)]
        if any(typing.get_origin(kind) is not Literal for kind in kinds):
            return []
        return [str(choice) for kind in kinds for choice in typing.get_args(kind)]


class SettingsOptions(NamedTuple):
    """A dataclass, and its fields as options."""

    path: str
    options: list[Option]


def load(path: str) -> Any:
    """Import an attribute by its path, ``module:name`` or ``module:Class.method``."""
    module, _, name = path.partition(":")
    value = import_module(module)
    for attribute in name.split("."):
        value = getattr(value, attribute)
    return value


def takes(*paths: str, without: Sequence[str] = ()) -> Callable[[Callable[..., Any]], Any]:
    """Give a command the options of public functions and dataclasses, as keyword arguments.

    Args:
        paths: ``module:function``, ``module:Class.method`` or ``module:Dataclass``.
        without: parameters that are no options.
    """

    def note(command: Callable[..., Any]) -> Callable[..., Any]:
        command.takes = paths, {"self", "progress", *without}  # type: ignore[attr-defined]
        return command

    return note


def options_of(command: Callable[..., Any]) -> list[Option]:
    """Return the options of a command: its own, and those that ``takes`` names.

    A parameter of the command without help text gets the declaration of that name.
    """
    own = declared(f"{command.__module__}:{command.__name__}")
    paths, without = getattr(command, "takes", ((), set()))
    public: dict[str, Option] = {}
    for option in (option for path in paths for option in declared(path)):
        if option.name not in without:
            public.setdefault(option.name, option)
    merged = {
        option.name: public.get(option.name, option) if not option.help else option
        for option in own
    }
    merged |= {name: option for name, option in public.items() if name not in merged}
    options = [option._replace(help=option.help or HELP[option.name]) for option in merged.values()]
    return sorted(options, key=lambda option: (not option.positional, option.name == "as_json"))


@cache
def declared(path: str) -> list[Option]:
    """Return the parameters of a function, or the fields of a dataclass, as options; none of a
    dataclass whose packages are missing."""
    try:
        owner = load(path)
    except ModuleNotFoundError:
        return []
    is_settings = isinstance(owner, type)
    documented = parse_from_object(owner, DocstringStyle.GOOGLE)
    texts = {parameter.arg_name: parameter.description for parameter in documented.params}
    panel = re.sub(r"(?<=\w)Settings$", " settings", owner.__name__) if is_settings else None
    annotations = resolved_annotations(owner)
    return [
        _option(
            parameter,
            annotations.get(name, str),
            texts.get(name) or "",
            not is_settings and _is_positional(parameter),
            panel,
        )
        for name, parameter in inspect.signature(owner).parameters.items()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]


def _is_positional(parameter: inspect.Parameter) -> bool:
    """Return True for a parameter before a ``/`` or without a default, except ``out``: an argument
    of the command line, not an option."""
    required = parameter.default is inspect.Parameter.empty
    positional = parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD and required
    positional = positional or parameter.kind is inspect.Parameter.POSITIONAL_ONLY
    return positional and parameter.name != "out"


def _option(
    parameter: inspect.Parameter, annotation: Any, text: str, positional: bool, panel: str | None
) -> Option:
    name, text = parameter.name, " ".join(text.replace("``", "").split())
    text = HELP[name] if name in ("documents", "index", "ray") else text[:1].upper() + text[1:]
    panel = "Ray" if name in ("ray", "ray_workers") else panel
    option = Option(name, annotation, parameter.default, text, positional, panel)
    classes = [member for member in option.members if member is not bool]
    if len(classes) == 1 and (is_dataclass(classes[0]) or classes[0].__name__ in TRAINING):
        (settings,) = classes
        path = TRAINING.get(settings.__name__, f"{settings.__module__}:{settings.__name__}")
        option = option._replace(settings=SettingsOptions(path, declared(path)))
        option = option._replace(panel=next((o.panel for o in declared(path)[::-1]), panel))
    return option
