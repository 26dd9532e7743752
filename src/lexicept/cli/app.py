"""The application: cyclopts commands, generated from the options of each command's function."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from cyclopts import App, Group, Parameter, Token

from lexicept.checks import members_of
from lexicept.cli.declarations import Option, load, options_of
from lexicept.errors import InputError, ParameterError

NAMES = {"as_json": "json", "changes": "set", "measures": "measure", "systems": "system"}
"""Options with another name than the parameter: repeated options, and ``--json``."""

NEGATIVES = {"bidirectional": "--causal"}
"""The negative of a flag, if it is not ``--no-NAME``."""

ARGUMENTS, OPTIONS = Group("Arguments", sort_key=0), Group("Options", sort_key=1)
"""Panels of every command."""

HELP = ("--help", "-h")
"""Options that show the help of a command, before or after the command's name."""

NO_LIMIT = "none"
"""None on the command line."""


def complete(function: Callable[..., None]) -> Callable[..., None]:
    """Return a command with the signature that cyclopts reads the options from."""
    options = options_of(function)
    flat = list(flattened(options))
    titles = dict.fromkeys(option.panel for option in flat if option.panel)
    groups = {title: Group(title, sort_key=n) for n, title in enumerate(titles, 2)}
    names = {option.name: option_name(option) for option in flat}
    parameters = inspect.signature(function).parameters.values()
    first = [p.name for p in parameters if p.kind is inspect.Parameter.POSITIONAL_ONLY]
    signature = inspect.Signature([_parameter(option, groups) for option in flat])

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> None:
        arguments = signature.bind(*args, **kwargs).arguments
        try:
            values = _values(options, arguments)
            function(*[values.pop(name, None) for name in first], **values)
        except ParameterError as error:  # of options, as a person typed them
            text = error.text.format(*(names.get(n, n) for n in error.names))
            raise InputError(text) from None

    call.__signature__ = signature  # type: ignore[attr-defined]
    text = (inspect.getdoc(function) or "").partition("\n\nArgs:")[0]
    call.__doc__ = re.sub(r"(?<=.)\n(?=.)", " ", text)
    call.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}
    del call.__wrapped__
    return call


def summary(function: Callable[..., None]) -> Callable[[], None]:
    """Return a command without options, for a list of commands."""

    def call() -> None: ...

    call.__doc__ = function.__doc__
    return call


def flattened(options: Sequence[Option]) -> Iterator[Option]:
    """Yield the options, with the fields of settings in place of the settings."""
    for option in options:
        if option.settings is None or option.is_flag:
            yield option
        if option.settings is not None:
            yield from flattened(option.settings.options)


def _values(options: Sequence[Option], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a function, with settings made of their fields. Raises ParameterError
    for a field without the flag that its settings need."""
    values = {}
    for option in options:
        name, value = option.name, given.get(option.name)
        if option.settings is None:
            if name in given:
                values[name] = value
            continue
        fields = _values(option.settings.options, given)
        if option.is_flag and not value:
            if fields:
                raise ParameterError("{0} requires {1}", next(iter(fields)), name)
        elif fields:
            values[name] = load(option.settings.path)(**fields)
        elif option.is_flag:
            values[name] = value
    return values


def option_name(option: Option) -> str:
    """Return an option as a person types it: ``--top-k`` for ``top_k``."""
    dashed = NAMES.get(option.name, option.name).replace("_", "-")
    return dashed.upper() if option.positional else f"--{dashed}"


def _parameter(option: Option, groups: Mapping[str, Group]) -> inspect.Parameter:
    """Return an option as a parameter that cyclopts understands."""
    group = ARGUMENTS if option.positional else OPTIONS
    settings: dict[str, Any] = {
        "help": option.help,
        "group": groups[option.panel] if option.panel else group,
        "show_default": _shown(option.default) or False,
        "allow_repeating": True,
    }
    if not option.positional:
        settings["name"] = option_name(option)
    value_type: Any = bool | None
    if option.is_flag:
        optional = option.default in (None, True)
        settings["negative"] = NEGATIVES.get(option.name) if optional else ()
    else:
        # cyclopts checks no value of type Any: ``_converted`` does.
        value_type = list[Any] if option.items and not _joined(option) else Any
        settings["negative"] = ()
        settings["converter"] = partial(_converted, option)
        settings["metavar"] = None if option.positional else metavar(option)
        settings["choices"] = option.choices or None
    parameter_kind = (
        inspect.Parameter.POSITIONAL_ONLY if option.positional else inspect.Parameter.KEYWORD_ONLY
    )
    annotation = Annotated[value_type, Parameter(**settings)]
    return inspect.Parameter(
        option.name, parameter_kind, default=option.default, annotation=annotation
    )


def _joined(option: Option) -> bool:
    """Return True for a list of numbers, whose values are separated by commas."""
    return bool({int, float} & set(option.items))


def metavar(option: Option) -> str:
    kinds = set(option.members)
    if _joined(option) or option.choices:
        return "VALUES" if option.items else "CHOICE"
    if kinds & {int, float}:
        return "NUMBER"
    return "PATH" if kinds & {Path, os.PathLike, os.PathLike[str]} else "TEXT"


def _shown(default: Any) -> str:
    """Return a default as the command line takes it; empty for none."""
    if isinstance(default, bool | type) or default in (None, "", ()):
        return ""
    if isinstance(default, tuple):
        return ",".join(NO_LIMIT if value is None else str(value) for value in default)
    return f"{default:g}" if isinstance(default, float) else str(default)


def _converted(option: Option, _: Any, tokens: Sequence[Token]) -> Any:
    texts = [token.value for token in tokens]
    kinds = option.items or members_of(option.annotation)
    if _joined(option):
        return tuple(_value(kinds, text.strip()) for text in texts[0].split(","))
    return [_value(kinds, text) for text in texts] if option.items else _value(kinds, texts[0])


def _value(kinds: Sequence[Any], text: str) -> Any:
    """Return a text as the first type that takes it. Raises ValueError if there is none."""
    descriptions = []
    for value_type in kinds:
        if value_type is int or value_type is float:
            descriptions.append("a whole number" if value_type is int else "a number")
            try:
                return value_type(text)
            except ValueError:
                continue
        choices = (
            {NO_LIMIT: None}
            if value_type is type(None)
            else {str(c): c for c in get_args(value_type)}
        )
        if value_type is not type(None) and get_origin(value_type) is not Literal:
            return Path(text) if value_type is Path else text
        if text in choices and not (choices[text] is None and str in kinds):
            return choices[text]
        descriptions += choices
    raise ValueError(f"{text!r} is not {' or '.join(descriptions)}")


def make_app(
    commands: Mapping[tuple[str, ...], tuple[str, str]],
    groups: Mapping[str, str],
    words: Sequence[str] | None = None,
) -> App:
    """Return the application.

    Args:
        commands: the path of a function and the panel of the help, by words of the command.
        groups: help of each group of commands.
        words: arguments of a call, which names a command: the application has only that command.
            If it names none, all commands have summaries; None gives the whole application.
    """
    from importlib.metadata import version

    app = App(
        name="lexicept",
        help="Search documents by words and concepts in one inverted index, with explanations.",
        version=lambda: f"lexicept {version('lexicept')}",
        help_flags=HELP,
        help_format="plaintext",
        suppress_keyboard_interrupt=False,  # ``main`` says what an interrupted command leaves
        group_arguments=ARGUMENTS,
        group_parameters=OPTIONS,
        group_commands=Group("Options", sort_key=len(commands) + 1),
    )
    app.register_install_completion_command()
    more = Group("More commands, in groups", sort_key=len(commands))
    children = {name: App(name=name, help=text, group=more) for name, text in groups.items()}
    for child in children.values():
        app.command(child)
    panels = {panel: Group(panel, sort_key=n) for n, (_, panel) in enumerate(commands.values())}
    named = tuple(word for word in words or () if word not in HELP)
    called = next((command for command in commands if named[: len(command)] == command), None)
    for number, (name, (path, panel)) in enumerate(commands.items()):
        if called is None or name == called:
            command = load(path)
            function = complete(command) if called or words is None else summary(command)
            parent = children[name[0]] if len(name) > 1 else app
            parent.command(function, name=name[-1], group=panels[panel], sort_key=number)
    return app
