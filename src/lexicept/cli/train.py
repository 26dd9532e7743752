"""Training an encoder for ranking."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lexicept.cli.common import JsonOption, print_report
from lexicept.errors import require

MODULES = (
    *("sentence_transformers", "datasets", "accelerate", "peft", "pydantic", "yaml", "matplotlib"),
)
"""What training imports."""

ConfigArgument = Annotated[Path, typer.Argument(help="A YAML file; see configs/.")]
ChangesOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Change a value: data.corpus=PATH."),
]


def train(
    config: ConfigArgument,
    out: Annotated[Path, typer.Option(help="The folder of the run.")],
    changes: ChangesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train an encoder for ranking, with labels or from documents alone.

    A run that was killed goes on from its last checkpoint when the same command is run again.
    `lexicept build --model OUT/model` indexes with the result. On several devices:
    `torchrun --nproc-per-node 4 --no-python lexicept train ...`.
    """
    require("train", *MODULES)
    from accelerate import PartialState

    from lexicept.progress import ProgressBars
    from lexicept.training.config_file import load_config
    from lexicept.training.report import read_metrics
    from lexicept.training.run import train as run

    settings = load_config(config, changes or ())
    with ProgressBars() as progress:
        model = run(settings, out, progress)
    if not PartialState().is_main_process:
        return
    lines = [line for line in read_metrics(out / "metrics.jsonl") if "eval_ndcg" in line]
    best = max(lines, key=lambda line: line["eval_selection"], default={})
    names = ("step", "eval_ndcg", "eval_mrr", "eval_qd_flops", "eval_e2")
    print_report(
        {"model": str(model), **{name: best[name] for name in names if name in best}}, as_json
    )
