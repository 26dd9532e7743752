"""The command that averages models: soup."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lexicept.cli.common import JsonOption, print_report, require_concepts


def soup(
    models: Annotated[list[Path], typer.Argument(help="Trained models of the same form.")],
    out: Annotated[Path, typer.Option(help="Where their mean will be; must not exist.")],
    as_json: JsonOption = False,
) -> None:
    """Average the weights of models that were trained from the same start."""
    require_concepts()
    from lexicept.models import soup as souping

    souping.soup(models, out)
    print_report({"model": str(out), "models": len(models)}, as_json)
