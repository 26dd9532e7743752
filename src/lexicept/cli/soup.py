"""The command that averages models: soup."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lexicept.cli.common import JsonOption, print_report, require_concepts, working


def soup(
    models: Annotated[
        list[Path], typer.Argument(help="Folders of models with the same architecture.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of the averaged model; must not exist.")],
    as_json: JsonOption = False,
) -> None:
    """Average the weights of models that were trained from the same start (a model soup)."""
    require_concepts()
    from lexicept.models import soup as souping

    with working("averaging"):
        souping.soup(models, out)
    print_report({"model": str(out), "models": len(models)}, as_json)
