"""Views that several commands share, and how results are printed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lexicept.errors import InputError, require

if TYPE_CHECKING:
    from lexicept.pipelines.index import Index

SearchVocabulary = Literal["words", "concepts", "all"]
"""Vocabularies to search; all is words and concepts."""

UNLIMITED = 10**9
"""Characters of a line where none is wrapped."""


def read_boosts(given: str | None) -> dict[str, float] | None:
    """Return the factor of each vocabulary in a text such as ``words=1,concepts=.5``. Raises
    InputError for another text, or a vocabulary twice."""
    if given is None:
        return None
    boosts: dict[str, float] = {}
    for part in given.split(","):
        name, sign, factor = (one.strip() for one in part.partition("="))
        try:
            if not sign or name in boosts:
                raise ValueError
            boosts[name] = float(factor)
        except ValueError:
            problem = "factors such as words=1,concepts=.5 are needed"
            raise InputError(f"--boost {given!r:.80}: {problem}") from None
    return boosts


@contextmanager
def working(activity: str) -> Iterator[None]:
    """Show a spinner in a terminal while the block runs."""
    from rich.console import Console

    with Console(stderr=True).status(activity):
        yield


def open_to_search(
    path: Path,
    choice: SearchVocabulary | None = None,
    *,
    loads_model: bool = True,
) -> tuple[Index, str | None]:
    """Open an index, and load the model that a search needs; a spinner names the step.

    Args:
        loads_model: False leaves the model to the first search that needs it.

    Returns:
        The index, and the vocabulary to search alone, or None for all of them.
    """
    from lexicept.pipelines.index import open as open_index
    from lexicept.pipelines.opened import single_vocabulary

    with working("opening index"):
        index = open_index(path)
        name = single_vocabulary(index.reader, choice)
    if loads_model and name != "words" and "concepts" in index.vocabularies:
        with working("loading model"):
            index.reader.encoders["concepts"].for_queries()
    return index, name


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
