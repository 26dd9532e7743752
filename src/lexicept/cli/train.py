"""Commands that train models: train, tune, pretrain."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexicept.cli.common import print_json, print_report, require_concepts, show
from lexicept.cli.declarations import takes
from lexicept.errors import require
from lexicept.pipelines.train import MODULES

if TYPE_CHECKING:
    from rich.table import Table

    from lexicept.training.tuning import Trial


@takes("lexicept.pipelines.train:train")
def train(config: Path, out: Path, as_json: bool = False, **options: Any) -> None:
    """Train an encoder for ranking, on judged queries or on documents alone.

    `lexicept build --model OUT/model` builds an index with the result. Re-running the command
    resumes an interrupted run. On several devices:
    `torchrun --nproc-per-node 4 --no-python lexicept train ...`.
    """
    require("train", *MODULES)
    from accelerate import PartialState

    from lexicept.pipelines.train import train
    from lexicept.training.metrics import saved_validation

    model = train(config, out, **options, progress=True)
    if PartialState().is_main_process:
        print_report({"model": str(model), **saved_validation(Path(out))}, as_json)


@takes("lexicept.pipelines.train:train")
def tune(
    config: Path,
    *,
    vary: list[str],
    out: Path,
    steps: int = 100,
    changes: Sequence[str] = (),
    restart: bool = False,
    as_json: bool = False,
) -> None:
    """Choose values of a training configuration by short trials, compared on validation data.

    Several --vary options try all combinations. `lexicept train OUT/best.yaml` trains with the
    best values. Re-running the command resumes interrupted tuning.

    Args:
        vary: values to try: loss.temperature=10,20,50; may be repeated.
        out: folder of the trials.
        steps: optimiser steps of a trial.
    """
    require("train", *MODULES)
    from dataclasses import asdict

    from lexicept.progress import ProgressBars
    from lexicept.training import tuning

    with ProgressBars() as progress:
        trials = tuning.tune(config, vary, steps, out, changes, progress, restart=restart)
    if as_json:
        best = str(out / "best.yaml")
        print_json({"best": best, "trials": [asdict(trial) for trial in trials]})
    else:
        show(_table(trials, f"{len(trials)} trials of {steps} steps: {out}"))


@takes(
    "lexicept.pipelines.pretrain:pretrain",
    "lexicept.training.pretraining.settings:PretrainingSettings",
)
def pretrain(as_json: bool = False, **options: Any) -> None:
    """Train a backbone and its language head to predict masked words of a corpus.

    The result serves as the start of a training (model.start in its configuration), as a model to
    build with (--model), or as a backbone (--backbone).
    Re-running the command resumes interrupted pretraining.
    """
    require_concepts()
    from lexicept.models.encoder import Encoder
    from lexicept.pipelines.pretrain import pretrain
    from lexicept.training.pretraining.settings import PretrainingSettings

    model = pretrain(**options, progress=True)
    size = Encoder.load(model).head.size
    steps = options.get("steps", PretrainingSettings.steps)
    print_report({"model": str(model), "dimensions": size, "steps": steps}, as_json)


def _table(trials: list[Trial], title: str) -> Table:
    """Return the trials as a table, the best first."""
    from lexicept.cli.display import BORDERS, grid, plain, right

    names = ("selection", "ndcg", "mrr", "qd_flops", "query_length", "document_length", "e2")
    columns = [right(name.replace("_", " ")) for name in ("step", *names)]
    table = grid(["values", *columns], title, box=BORDERS)
    for trial in trials:
        numbers = [getattr(trial, name) for name in names]
        shown = ["not finite" if value is None else f"{value:.4g}" for value in numbers]
        table.add_row(plain(" ".join(trial.changes)), str(trial.step), *shown)
    return table
