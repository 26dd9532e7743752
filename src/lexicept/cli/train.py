"""Commands that train models: train, pretrain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lexicept.cli.common import print_report, require_concepts
from lexicept.cli.declarations import takes
from lexicept.errors import require
from lexicept.pipelines.train import MODULES


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
