"""Training an encoder for ranking."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lexicept.cli.common import JsonOption, RestartOption, print_report
from lexicept.errors import require
from lexicept.pipelines.train import MODULES

ConfigArgument = Annotated[Path, typer.Argument(help="A YAML file; see configs/.")]
ChangesOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Change a value: data.corpus=PATH."),
]


def train(
    config: ConfigArgument,
    out: Annotated[Path, typer.Option(help="Folder of the run.")],
    changes: ChangesOption = None,
    restart: RestartOption = False,
    as_json: JsonOption = False,
) -> None:
    """Train an encoder for ranking, with labels or from documents alone.

    Re-running the command resumes an interrupted run.
    `lexicept build --model OUT/model` indexes with the result. On several devices:
    `torchrun --nproc-per-node 4 --no-python lexicept train ...`.
    """
    require("train", *MODULES)
    from accelerate import PartialState

    from lexicept.pipelines.train import train as run
    from lexicept.training.report import best_validation

    model = run(config, out, changes=changes or (), restart=restart, progress=True)
    if PartialState().is_main_process:
        print_report({"model": str(model), **best_validation(out)}, as_json)
