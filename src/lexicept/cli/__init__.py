"""The command line. Modules are imported by the commands that use them: words need no torch."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from lexicept.errors import LexiceptError, LexiceptWarning
from lexicept.sanitize import safe

if TYPE_CHECKING:
    from cyclopts import App

START = """\
lexicept searches your documents by words and by concepts, and explains every score.
  lexicept build DOCUMENTS --out my.index     index a folder of files, or a .jsonl or .csv file
  lexicept search my.index "a question"       search it; --explain shows why
  lexicept serve my.index                     a search page and an HTTP API
  lexicept --help                             show all commands"""
"""Printed by ``lexicept`` alone."""

COMMANDS = {
    "Search your documents": {
        "build": "build:build",
        "sync": "build:sync",
        "search": "search:search",
        "explain": "explain:explain",
        "add": "index:add",
        "delete": "index:delete",
        "serve": "serve:serve",
        "mcp": "serve:mcp",
    },
    "Measure and train": {
        "evaluate": "evaluate:evaluate",
        "report": "evaluate:report",
        "train": "models:train",
    },
    "Inspect": {"index info": "index:info", "index verify": "index:verify"},
    "Changes": {"index merge": "index:merge"},
    "Concepts": {
        "index concepts": "concepts:concepts",
        "index describe": "concepts:describe",
        "index label": "concepts:label",
    },
    "Effectiveness and cost": {"index sweep": "evaluate:sweep", "index reweight": "index:reweight"},
    "Other engines": {"index export": "export:export"},
    "Train": {"model pretrain": "models:pretrain"},
    "Exchange": {"model convert": "models:convert"},
    "Training data": {
        "data pseudo-queries": "data:pseudo_queries",
        "data import": "data:import_texts",
        "data mine": "data:mine",
        "data score": "data:score",
    },
    "Commands": {"sae report": "models:report"},
}
"""Functions by command, by the panel of the help that lists the command."""

GROUPS = {
    "index": "Inspect, merge, reweight, export and label an index.",
    "model": "Pretrain and convert models.",
    "data": "Make training data: queries, candidate lists, teacher scores.",
    "sae": "Measure sparse autoencoders (SAEs), the source of concepts.",
}
"""Help of each group of commands."""


def make_app(words: Sequence[str] | None = None) -> App:
    """Return the application: all of it, or what a call with some arguments needs."""
    from lexicept.cli import app

    commands = {
        tuple(name.split()): (f"lexicept.cli.{path}", panel)
        for panel, paths in COMMANDS.items()
        for name, path in paths.items()
    }
    return app.make_app(commands, GROUPS, words)


def main() -> None:
    """Run the command line; errors that name their cause are one line, without a traceback."""
    os.environ["PYTHONSAFEPATH"] = "1"  # no child imports from the current folder
    for stream in filter(None, (sys.stdout, sys.stderr)):  # None if closed
        # Documents may have characters that a terminal or pipe can't encode.
        stream.reconfigure(errors="replace")
    from cyclopts import CycloptsError, UnknownOptionError

    if not (words := sys.argv[1:]):
        print(START)
        sys.exit(0)
    app = make_app(None if "--install-completion" in words else words)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default", LexiceptWarning)
            warnings.showwarning = partial(_show_warning, warnings.showwarning)
            app(words, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        dashed = isinstance(error, UnknownOptionError) and re.search(": -[^-]", str(error))
        hint = " Write -- before a text that begins with a dash." if dashed else ""
        print(safe(f"error: {error}{hint}"), file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:  # the reader of the output is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (LexiceptError, OSError) as error:  # OSError: a full disk, a folder without permission
        print(safe(f"error: {_reason(error)}"), file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt as error:
        notes = "; ".join(getattr(error, "__notes__", ()))
        print(safe(f"interrupted: {notes}" if notes else "interrupted"), file=sys.stderr)
        sys.exit(130)
    sys.exit(0)


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
