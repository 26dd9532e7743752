"""An interactive session: queries typed one after another, for ``lexicept search INDEX``."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

from lexicept.cli.common import show
from lexicept.errors import InputError, LexiceptError
from lexicept.sanitize import safe

if TYPE_CHECKING:
    from collections.abc import Callable

    from lexicept.index.results import Hits
    from lexicept.pipelines.index import Index

HELP = """\
Type a query, or:
  :explain N   show what the score of result N is made of
  :help        show this
  :quit        end the session, as does the end of the input"""


def hold_session(
    index: Index, top_k: int, show: Callable[[str, Hits], None], **options: Any
) -> None:
    """Read queries and commands from standard input until its end or ``:quit``.

    A query or command that can't be answered is one line on standard error, and the session goes
    on.

    Args:
        show: prints a query's results.
        options: of ``Index.search``, for every query.
    """
    if sys.stdin.isatty():
        import readline  # noqa: F401  (``input`` then edits the line and remembers others)

        print(HELP)
    query, count = "", 0
    while (line := _read_line()) not in (None, ":quit", ":q"):
        try:
            if not line:
                continue
            if line.startswith(":"):
                _obey(line, index, query, count, options)
                continue
            hits = index.search(line, top_k, **options)
            show(line, hits)
            query, count = line, len(hits)
        except LexiceptError as error:
            print(safe(f"error: {error}"), file=sys.stderr)


def _read_line() -> str | None:
    """Return the next line, without spaces around it; None at the end of the input."""
    try:
        return input("> " if sys.stdin.isatty() else "").strip()
    except EOFError:
        return None


def _obey(line: str, index: Index, query: str, count: int, options: dict[str, Any]) -> None:
    """Carry out a command. Raises InputError for an unknown command or result.

    Args:
        query: the last query.
        count: the number of its results.
    """
    if line == ":help":
        print(HELP)
        return
    wanted = re.fullmatch(r":explain\s+(\d{1,9})", line)
    if wanted is None:
        raise InputError(f"{line}: no such command; :help lists them")
    rank = int(wanted[1])
    if not 1 <= rank <= count:
        raise InputError(f"{line}: the last query has {count} results")
    hit = index.search(query, rank, **{**options, "explain": True})[rank - 1]
    assert hit.explanation is not None
    from lexicept.cli.display import explanation_view

    show(explanation_view(hit.explanation, hit.document))
