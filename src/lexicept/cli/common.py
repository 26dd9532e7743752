"""Views that several commands share, and how results are printed."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lexicept.errors import InputError, require

if TYPE_CHECKING:
    from lexicept.pipelines.index import Index

SearchVocabulary = Literal["words", "concepts", "all"]
"""Vocabularies to search; all is words and concepts."""

UNLIMITED = 10**9
"""Characters of a line where none is wrapped."""


def read_factors(option: str, texts: Sequence[str]) -> dict[str, float]:
    """Return the numbers of texts such as ``words=.5``, by name. Raises InputError for another
    text, or a name twice."""
    factors: dict[str, float] = {}
    for text in texts:
        name, _, factor = (segment.strip() for segment in text.rpartition("="))
        try:
            if not name or name in factors:
                raise ValueError
            factors[name] = float(factor)
        except ValueError:
            raise InputError(f"{option} {text!r:.80}: not one NAME=NUMBER for a name") from None
    return factors


def working(activity: str) -> AbstractContextManager[object]:
    """Show a spinner in a terminal while the block runs."""
    from rich.console import Console

    return Console(stderr=True).status(activity)


def open_to_search(
    path: Path, choice: SearchVocabulary | None = None, boost: str | None = None
) -> tuple[Index, dict[str, Any]]:
    """Return an opened index, and options of its searches: the vocabulary to search alone, or None
    for all of them, and the factors of ``--boost``, if given."""
    from lexicept.pipelines.index import open as open_index
    from lexicept.pipelines.opened import single_vocabulary

    with working("opening index"):
        index = open_index(path)
        options: dict[str, Any] = {"vocabulary": single_vocabulary(index.reader, choice)}
    if boost is not None:
        options["boosts"] = read_factors("--boost", boost.split(","))
    return index, options


def ignored_ids(ignored: bool) -> str:
    """Return the note on ``--ignore-identical-ids`` in a title of results."""
    return ", without hits of the query's own id" if ignored else ""


def require_training() -> None:
    """Raise InputError if the packages that models need are missing."""
    require("train", "sentence_transformers", hint=", or use lexicept-mini as it is")


def print_report(values: dict[str, Any], as_json: bool) -> None:
    """Print a few values, as a table or as JSON."""
    if as_json:
        print_json(values)
    else:
        print_table("", [(key, str(value)) for key, value in values.items()])


def print_table(title: str, rows: list[tuple[str, str]]) -> None:
    """Print names and values in two columns."""
    from lexicept.cli.display import grid, plain

    table = grid(["", ""], title)
    for name, value in rows:
        table.add_row(plain(name), plain(value))
    show(table)


def show(*views: object) -> None:
    """Print views of rich, from top to bottom; in a pipe or file without padding and wrapping."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if console.is_terminal:
        console.print(*views, sep="\n")
        return
    console.width = UNLIMITED
    for view in views:
        if isinstance(view, Table):
            view.box, view.pad_edge = None, False
        with console.capture() as capture:
            console.print(view)
        print("\n".join(line.rstrip() for line in capture.get().split("\n")), end="")


def print_json(content: dict[str, Any], indent: int | None = 1) -> None:
    """Print JSON that a terminal can show, in one line where ``indent`` is None."""
    text = json.dumps(content, ensure_ascii=False, indent=indent)
    # JSON does not escape C1 controls, which a terminal obeys, nor marks that reorder text.
    print(
        re.sub(
            "[\x7f-\x9f\u202a-\u202e\u2066-\u2069]",
            lambda control: f"\\u{ord(control[0]):04x}",
            text,
        )
    )
