"""The command line. Modules are imported by the commands that use them: words need no torch."""

from __future__ import annotations

import sys

import typer

from lexicept.cli import (
    build,
    concepts,
    convert,
    engine,
    export,
    index,
    lists,
    pretrain,
    push,
    report,
    reproduce,
    sae,
    search,
    serve,
    soup,
    sweep,
    train,
    tune,
)
from lexicept.errors import LexiceptError

app = typer.Typer(
    help="Words and concepts in one inverted index.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(concepts.app)
app.add_typer(convert.app)
app.add_typer(build.app)
app.add_typer(search.app)
app.add_typer(engine.app)
app.add_typer(export.app)
app.add_typer(index.app)
app.add_typer(lists.app)
app.add_typer(pretrain.app)
app.add_typer(push.app)
app.add_typer(report.app)
app.add_typer(reproduce.app)
app.add_typer(sae.app)
app.add_typer(serve.app)
app.add_typer(soup.app)
app.add_typer(sweep.app)
app.add_typer(train.app)
app.add_typer(tune.app)


def main() -> None:
    """Run the command line; errors that name their cause are one line, without a traceback."""
    for stream in (sys.stdout, sys.stderr):
        # Documents hold any character, terminals and pipes do not take every one.
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        app()
    except (LexiceptError, OSError) as error:  # OSError: a full disk, a folder without permission
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
