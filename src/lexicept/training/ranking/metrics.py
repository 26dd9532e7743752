"""Metrics of a run: the file, progress and the model card."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml
from transformers import TrainerCallback

from lexicept.corpora.json_lines import read_objects
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.encoders.model_card import make_card
from lexicept.progress import Progress
from lexicept.storage.files import replace_file
from lexicept.storage.yaml_text import read_yaml
from lexicept.training.ranking.config import TrainingConfig

_UNTOLD = ("epoch", "eval_samples_per_second", "eval_steps_per_second")
"""Logged values without information."""

_DETAILS = """
## Validation

{validation}

## Configuration

```yaml
{config}```
"""


class MetricsFile(TrainerCallback):  # type: ignore[misc]
    """Report progress, and write logged values as JSON Lines at every checkpoint, each step once.

    The trainer's state has the values, also after a resume.
    """

    def __init__(self, path: Path, progress: Progress) -> None:
        self._path = path
        self._progress = progress

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Write the lines up to the resumed checkpoint."""
        self.on_save(args, state, control)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Log at every checkpoint, so that a killed process loses no mean."""
        if state.global_step % args.save_steps == 0 or state.global_step >= state.max_steps:
            control.should_log = True

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Write all lines."""
        if state.is_world_process_zero:
            lines = [
                {"step": logs["step"], **{n: logs[n] for n in logs if n not in _UNTOLD}}
                for logs in state.log_history
            ]
            replace_file(self._path, "".join(json.dumps(line) + "\n" for line in lines).encode())

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Report progress."""
        values = logs or {}
        if "loss" in values:
            detail = f"loss {float(values['loss']):.4f}"
        elif "eval_ndcg" in values:
            detail = f"nDCG@10 {values['eval_ndcg']:.4f} QD-FLOPs {values['eval_qd_flops']:.2f}"
        else:
            return
        self._progress("training", state.global_step, state.max_steps, detail)


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read a run's ``metrics.jsonl``. Raises InputError for a file of another format."""
    return [fields for _, fields in read_objects(str(path))]


def saved_validation(run: Path) -> dict[str, float]:
    """Return step and measures of the published checkpoint; nothing without validation."""
    lines = [line for line in read_metrics(run / "metrics.jsonl") if "eval_ndcg" in line]
    config = read_yaml(run / "config.yaml")
    if config["validation"]["checkpoint"] == "last":
        lines = lines[-1:]
    best = max(lines, key=lambda line: float(line["eval_selection"]), default={})
    names = ("step", "eval_ndcg", "eval_mrr", "eval_qd_flops", "eval_e2")
    return {name: best[name] for name in names if name in best}


def write_card(
    encoder: Encoder, config: TrainingConfig, metrics: list[dict[str, Any]], path: Path
) -> None:
    """Write a model card with validation and configuration."""
    validations = [line for line in metrics if "eval_ndcg" in line]
    columns = ("step", "eval_ndcg", "eval_mrr", "eval_qd_flops", "eval_document_length", "eval_e2")
    table = "There was none.\n"
    if validations:
        lines = [
            [str(line["step"]), *(f"{line[name]:.4g}" for name in columns[1:])]
            for line in validations
        ]
        names = [name.removeprefix("eval_") for name in columns]
        body = [names, ["---"] * len(names), *lines]
        table = "".join(f"| {' | '.join(line)} |\n" for line in body)
    details = _DETAILS.format(
        validation=table, config=yaml.safe_dump(asdict(config), sort_keys=False)
    )
    origin = config.model.start or config.model.backbone
    replace_file(path, (make_card(encoder, path.parent.parent.name, origin) + details).encode())
