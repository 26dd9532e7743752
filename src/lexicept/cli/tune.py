"""The command that chooses values of a configuration: tune."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lexicept.cli.common import JsonOption, RestartOption, print_json
from lexicept.cli.train import ChangesOption, ConfigArgument
from lexicept.errors import require
from lexicept.pipelines.train import MODULES

if TYPE_CHECKING:
    from rich.table import Table

    from lexicept.training.tuning import Trial


def tune(
    config: ConfigArgument,
    vary: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=VALUE,...",
            help="Values to try: loss.temperature=10,20,50; may be repeated.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder of the trials.")],
    steps: Annotated[int, typer.Option(min=1, help="Optimiser steps per trial.")] = 100,
    changes: ChangesOption = None,
    restart: RestartOption = False,
    as_json: JsonOption = False,
) -> None:
    """Choose values of a training configuration by short trials, compared on validation data.

    Several --vary options try all combinations. `lexicept train OUT/best.yaml` trains with the
    best values. Re-running the command resumes interrupted tuning.
    """
    require("train", *MODULES)
    from dataclasses import asdict

    from lexicept.progress import ProgressBars
    from lexicept.training import tuning

    with ProgressBars() as progress:
        trials = tuning.tune(config, vary, steps, out, changes or (), progress, restart=restart)
    if as_json:
        best = str(out / "best.yaml")
        print_json({"best": best, "trials": [asdict(trial) for trial in trials]})
    else:
        from rich.console import Console

        Console().print(_table(trials, f"{len(trials)} trials of {steps} steps: {out}"))


def _table(trials: list[Trial], title: str) -> Table:
    """Return the trials as a table, the best first."""
    from rich.table import Table
    from rich.text import Text

    from lexicept.sanitize import safe

    table = Table(title=Text(safe(title)), title_justify="left")
    names = ("selection", "ndcg", "mrr", "qd_flops", "query_length", "document_length", "e2")
    for column in ("values", "step", *names):
        table.add_column(
            column.replace("_", " "), justify="left" if column == "values" else "right"
        )
    for trial in trials:
        numbers = [getattr(trial, name) for name in names]
        shown = ["not finite" if value is None else f"{value:.4g}" for value in numbers]
        table.add_row(Text(safe(" ".join(trial.changes))), str(trial.step), *shown)
    return table
