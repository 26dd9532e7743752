"""``--config FILE``: options of a command, read from a YAML file."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer

from lexicept.errors import InputError


def _read_options(context: typer.Context, path: Path | None) -> Path | None:
    """Take the options in a file as the command's defaults.

    Raises:
        InputError: the file can't be read, holds no mapping, names an option that the command does
            not have, or holds a value that no option takes.
    """
    if path is None or context.resilient_parsing:
        return path
    known = _options(context)
    defaults: dict[str, Any] = {}
    for key, value in _mapping(path).items():
        name = str(key).replace("_", "-")
        if name not in known:
            near = get_close_matches(name, known, 1, 0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"options: {', '.join(sorted(known))}"
            raise InputError(f"{path}: {_name(context)} has no option {str(key)!r}; {hint}")
        if isinstance(value, dict) or (isinstance(value, list) and not known[name].multiple):
            raise InputError(f"{path}: option {name!r} takes one value")
        several = known[name].multiple and not isinstance(value, list)
        defaults[str(known[name].name)] = [value] if several else value
    context.default_map = {**(context.default_map or {}), **defaults}
    return path


def _name(context: typer.Context) -> str:
    """Return a command's name with its group: "data mine"."""
    return context.command_path.partition(" ")[2]


def _options(context: typer.Context) -> dict[str, Any]:
    """Return the options of a command by their long names, without dashes."""
    options = {}
    for parameter in context.command.params:
        long = [name for name in parameter.opts if name.startswith("--")]
        if long and long[0] not in ("--config", "--help"):
            options[long[0].removeprefix("--")] = parameter
    return options


def _mapping(path: Path) -> dict[Any, Any]:
    from lexicept.storage.yaml_text import read_yaml

    content = read_yaml(path, typed=False)  # texts, as on the command line: "no" is no boolean
    if not isinstance(content, dict):
        raise InputError(f"{path}: a mapping of options to values is needed, such as 'top-k: 20'")
    return content


ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        is_eager=True,
        callback=_read_options,
        help="Read options from a YAML file: long names without the leading dashes, such as "
        "'port: 8080'. Options on the command line win.",
    ),
]
