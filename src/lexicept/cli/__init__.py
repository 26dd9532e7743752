"""The command line. Modules are imported by the commands that use them: words need no torch."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import typer

from lexicept.cli import (
    build,
    concepts,
    convert,
    data,
    engine,
    evaluate,
    explain,
    export,
    index,
    mcp,
    pairs,
    pretrain,
    push,
    report,
    sae,
    search,
    serve,
    soup,
    sweep,
    sync,
    train,
    tune,
)
from lexicept.errors import LexiceptError, LexiceptWarning
from lexicept.sanitize import safe

START = """\
lexicept searches your documents by words and by concepts, and explains every score.
  lexicept build DOCUMENTS --out my.index     index a folder of files, or a .jsonl or .csv file
  lexicept search my.index "a question"       search it; --explain shows why
  lexicept demo                               search Python's documentation on a page
  lexicept --help                             show all commands"""
"""Printed by ``lexicept`` alone."""

Panels = dict[str, dict[str, Callable[..., Any]]]
"""Commands by name, by the panel of the help that lists them."""

PANELS: Panels = {
    "Search your documents": {
        "build": build.build,
        "sync": sync.sync,
        "search": search.search,
        "explain": explain.explain,
        "add": index.add,
        "delete": index.delete,
        "serve": serve.serve,
        "mcp": mcp.mcp,
        "demo": serve.demo,
    },
    "Measure and train": {
        "evaluate": evaluate.evaluate,
        "report": report.report,
        "train": train.train,
    },
}
"""The everyday commands."""

GROUPS: dict[str, tuple[str, Panels]] = {
    "index": (
        "Inspect, merge, reweight, export and label an index.",
        {
            "Inspect": {"info": index.info, "verify": index.verify},
            "Changes": {"merge": index.merge},
            "Concepts": {
                "concepts": concepts.concepts,
                "describe": concepts.describe,
                "label": concepts.label,
            },
            "Two models": {"pairs": pairs.pairs},
            "Effectiveness and cost": {"sweep": sweep.sweep, "reweight": index.reweight},
            "Other engines": {"engine": engine.engine, "export": export.export},
        },
    ),
    "model": (
        "Pretrain, tune, average, convert and publish models.",
        {
            "Train": {"pretrain": pretrain.pretrain, "tune": tune.tune, "soup": soup.soup},
            "Exchange": {"convert": convert.convert, "push": push.push},
        },
    ),
    "data": (
        "Make training data: queries, candidate lists, teacher scores.",
        {
            "Commands": {
                "pseudo-queries": data.pseudo_queries,
                "import": data.import_texts,
                "mine": data.mine,
                "score": data.score,
            }
        },
    ),
    "sae": (
        "Measure sparse autoencoders (SAEs), the source of concepts.",
        {"Commands": {"report": sae.report}},
    ),
}
"""The help and the commands of each group."""


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"lexicept {version('lexicept')}")
        raise typer.Exit


def start(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Search documents by words and concepts in one inverted index, with explanations."""
    if context.invoked_subcommand is None:
        print(START)


def make_app() -> typer.Typer:
    """Return the whole command line."""
    app = typer.Typer(pretty_exceptions_enable=False)
    app.callback(invoke_without_command=True)(start)
    _add(app, PANELS)
    for group, (summary, panels) in GROUPS.items():
        child = typer.Typer(help=summary, no_args_is_help=True)
        _add(child, panels)
        app.add_typer(child, name=group, rich_help_panel="More commands, in groups")
    return app


def _add(app: typer.Typer, panels: Panels) -> None:
    for panel, commands in panels.items():
        for name, command in commands.items():
            app.command(name, rich_help_panel=panel)(command)


app = make_app()


def main() -> None:
    """Run the command line; errors that name their cause are one line, without a traceback."""
    for stream in (sys.stdout, sys.stderr):
        # Documents may have characters that a terminal or pipe can't encode.
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default", LexiceptWarning)
            warnings.showwarning = partial(_show_warning, warnings.showwarning)
            app(prog_name="lexicept")
    except (LexiceptError, OSError) as error:  # OSError: a full disk, a folder without permission
        print(safe(f"error: {_reason(error)}"), file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)


def _reason(error: LexiceptError | OSError) -> str:
    """Return an error's message; the system's as "file: reason", without its number."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _show_warning(
    others: Callable[..., None], message: Warning | str, category: type[Warning], *place: Any
) -> None:
    """Print lexicept's own warnings without their place, and others as ``others`` does."""
    if issubclass(category, LexiceptWarning):
        print(safe(f"warning: {message}"), file=sys.stderr)
    else:
        others(message, category, *place)
