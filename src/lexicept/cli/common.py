"""What several commands share: arguments, and how results are printed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from lexicept.errors import InputError

CorpusArgument = Annotated[
    str,
    typer.Argument(
        help="A BEIR folder, a .jsonl or .tsv file, a folder of .txt and .md files, an "
        "ir_datasets name, or python-docs."
    ),
]
IndexArgument = Annotated[Path, typer.Argument(help="An index folder.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def require_concepts() -> None:
    """Raises InputError where torch and sentence-transformers are missing."""
    require("concepts", "sentence_transformers", hint=", or build with --vocabulary words")


def require(extra: str, *modules: str, hint: str = "") -> None:
    """Raises InputError where a package of an optional extra is missing."""
    from importlib.util import find_spec

    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        raise InputError(f"{', '.join(missing)} missing: pip install 'lexicept[{extra}]'{hint}")


def print_report(values: dict[str, Any], as_json: bool) -> None:
    """A few values, as a table or as JSON."""
    if as_json:
        print_json(values)
    else:
        print_table("", [(key, str(value)) for key, value in values.items()])


def print_table(title: str, rows: list[tuple[str, str]]) -> None:
    """Names and values in two columns."""
    from rich.console import Console

    from lexicept.display import key_values

    Console().print(key_values(title, rows))


def print_json(content: dict[str, Any]) -> None:
    """JSON that a terminal can show."""
    text = json.dumps(content, ensure_ascii=False, indent=1)
    # JSON lets C1 controls through, which a terminal obeys.
    print(re.sub("[\x7f-\x9f]", lambda control: f"\\u{ord(control[0]):04x}", text))
