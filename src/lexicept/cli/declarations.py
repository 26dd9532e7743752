"""Options, read from the source text of functions and dataclasses that declare them.

A parameter of a public function, or a field of a settings dataclass, is an option's only
declaration: name, type, default and help. The text is parsed instead of imported, so that
``--help`` loads neither NumPy nor torch.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple

from lexicept.errors import UnknownClass, members_of, without_metadata

PACKAGE = Path(__file__).parents[1]

NUMBERS: dict[str, Any] = {
    **dict.fromkeys(("Count", "Whole", "Seed"), int),
    **dict.fromkeys(("Number", "Positive", "NotNegative", "Share"), float),
    "Flag": bool,
    "Items": Sequence,
}
"""Types with a range, by name; the functions check the range."""

HELP = {
    "as_json": "Print JSON.",
    "dataset": "Judged queries: a BEIR folder or an ir_datasets name.",
    "documents": "Documents: a folder of files (text, Markdown, HTML, PDF, CSV, JSON, Parquet), "
    "one such file, a BEIR folder, an ir_datasets name, or python-docs (docstrings of the standard "
    "library).",
    "index": "Folder of the index.",
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
        return [member for member in members(self.annotation) if member is not type(None)]

    @property
    def items(self) -> list[Any]:
        """Members of the type of a sequence's items; empty if the option takes one text."""
        for member in self.members:
            if typing.get_origin(member) in (Sequence, Iterable, list) and str not in self.members:
                return members(typing.get_args(member)[0])
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


def members(annotation: Any) -> list[Any]:
    """Return the members of a union, or the annotation alone, without metadata."""
    return [without_metadata(member) for member in members_of(without_metadata(annotation))]


def load(path: str) -> Any:
    """Import an attribute by its path, ``module:name`` or ``module:Class.method``."""
    module, _, name = path.partition(":")
    value = import_module(module)
    for part in name.split("."):
        value = getattr(value, part)
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
    """Return the parameters of a function, or the fields of a dataclass, as options."""
    module, _, name = path.partition(":")
    names = names_of(module)
    first, _, method = name.partition(".")
    node = names.nodes[first]
    if method:
        node = next(item for item in node.body if getattr(item, "name", "") == method)
    panel = None
    if isinstance(node, ast.ClassDef):
        entries = _fields(node)
        panel = re.sub(r"(?<=\w)Settings$", " settings", node.name)
    else:
        entries = _parameters(node)
    return [_option(names, entry, panel) for entry in entries]


class _Entry(NamedTuple):
    name: str
    annotation: ast.expr | None
    default: ast.expr | None
    help: str
    positional: bool = False


def _option(names: Names, entry: _Entry, panel: str | None) -> Option:
    annotation = str if entry.annotation is None else names.evaluate(entry.annotation)
    empty = inspect.Parameter.empty
    default = empty if entry.default is None else names.evaluate(entry.default)
    text = " ".join(entry.help.replace("``", "").split())
    text = HELP[entry.name] if entry.name in ("documents", "index") else text[:1].upper() + text[1:]
    panel = "Ray" if entry.name in ("ray", "ray_workers") else panel
    option = Option(entry.name, annotation, default, text, entry.positional, panel)
    kinds = [kind for kind in option.members if kind is not bool]
    if len(kinds) == 1 and "settings" in getattr(kinds[0], "__dict__", ()):
        settings = SettingsOptions(kinds[0].settings, declared(kinds[0].settings))
        option = option._replace(settings=settings, panel=settings.options[-1].panel)
    return option


def _parameters(node: Any) -> Iterator[_Entry]:
    """Yield a function's parameters.

    Parameters before a ``/`` or without a default are arguments of the command line, except
    ``out``; all others are options.
    """
    texts = _argument_help(inspect.cleandoc(ast.get_docstring(node) or ""))
    ordered = [*node.args.posonlyargs, *node.args.args]
    defaults = [None] * (len(ordered) - len(node.args.defaults)) + node.args.defaults
    for number, (argument, default) in enumerate(zip(ordered, defaults, strict=True)):
        first = number < len(node.args.posonlyargs) or default is None
        positional = first and argument.arg != "out"
        help_text = texts.get(argument.arg, "")
        yield _Entry(argument.arg, argument.annotation, default, help_text, positional)
    for argument, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
        yield _Entry(argument.arg, argument.annotation, default, texts.get(argument.arg, ""))


def _argument_help(docstring: str) -> dict[str, str]:
    """Return the texts of a docstring's "Args" section, by parameter."""
    section = re.search(r"^Args:\n((?:(?: .*)?\n?)*)", docstring, re.M)
    found = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", section[1] if section else "", re.M)
    return dict(found)


def _fields(node: ast.ClassDef) -> Iterator[_Entry]:
    for item, following in zip(node.body, [*node.body[1:], ast.Pass()], strict=True):
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            if ast.unparse(item.annotation).startswith("ClassVar"):
                continue
            text = following.value if isinstance(following, ast.Expr) else None
            help_text = text.value if isinstance(text, ast.Constant) else ""
            yield _Entry(item.target.id, item.annotation, item.value, str(help_text))


class Names(dict[str, Any]):
    """The names of a module, evaluated from its source text when asked for."""

    def __init__(self, module: str) -> None:
        super().__init__()
        self.module = module
        place = PACKAGE.joinpath(*module.split(".")[1:])
        place = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        self.nodes: dict[str, Any] = {}
        body = ast.parse(place.read_text("utf-8")).body
        for node in body:
            if isinstance(node, ast.If):  # TYPE_CHECKING
                body += node.body
            elif isinstance(node, ast.ImportFrom | ast.Import):
                self.nodes |= {alias.asname or alias.name: (node, alias) for alias in node.names}
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                self.nodes[node.name] = node
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                self.nodes[getattr(target, "id", "")] = node.value

    def evaluate(self, expression: ast.expr) -> Any:
        """Return the value of an annotation or default."""
        if isinstance(expression, ast.Constant) and isinstance(expression.value, str):
            return expression.value
        return eval(compile(ast.Expression(expression), self.module, "eval"), {}, self)

    def __missing__(self, name: str) -> Any:
        self[name] = value = NUMBERS[name] if name in NUMBERS else self._value(name)
        return value

    def _value(self, name: str) -> Any:
        match self.nodes.get(name):
            case ast.ImportFrom(module=str(module)), ast.alias(name=origin):
                if module.startswith("lexicept"):
                    return names_of(module)[origin]
                if module.partition(".")[0] in sys.stdlib_module_names:
                    return getattr(import_module(module), origin)
            case ast.Import(), ast.alias(name=module) if module in sys.stdlib_module_names:
                return import_module(module)
            case ast.ClassDef(decorator_list=decorators):
                kinds = {ast.unparse(decorator).partition("(")[0] for decorator in decorators}
                path = f"{self.module}:{name}"
                content = {"settings": path} if kinds & {"dataclass", "settings"} else {}
                return type(name, (UnknownClass,), content)
            case ast.expr() as expression:
                return self.evaluate(expression)
        return getattr(builtins, name, None) or type(name, (UnknownClass,), {})


@cache
def names_of(module: str) -> Names:
    return Names(module)
