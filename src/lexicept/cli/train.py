"""The command that trains an encoder: train."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lexicept.cli.common import JsonOption, RestartOption, print_report
from lexicept.errors import require
from lexicept.pipelines.train import MODULES

ConfigArgument = Annotated[Path, typer.Argument(help="YAML file; see configs/ for examples.")]
ChangesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="Override a value: data.corpus=PATH; may be repeated."
    ),
]


def train(
    config: ConfigArgument,
    out: Annotated[Path, typer.Option(help="Folder of the run; its model is in OUT/model.")],
    changes: ChangesOption = None,
    restart: RestartOption = False,
    as_json: JsonOption = False,
) -> None:
    """Train an encoder for ranking, on judged queries or on documents alone.

    `lexicept build --model OUT/model` builds an index with the result. Re-running the command
    resumes an interrupted run. On several devices:
    `torchrun --nproc-per-node 4 --no-python lexicept train ...`.
    """
    require("train", *MODULES)
    from accelerate import PartialState

    from lexicept.pipelines.train import train as run
    from lexicept.training.metrics import saved_validation

    model = run(config, out, changes=changes or (), restart=restart, progress=True)
    if PartialState().is_main_process:
        print_report({"model": str(model), **saved_validation(out)}, as_json)
