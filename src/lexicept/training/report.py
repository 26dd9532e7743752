"""The metrics, curves and model card of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from lexicept.corpora.json_lines import read_objects
from lexicept.models.encoder import Encoder
from lexicept.models.model_card import make_card
from lexicept.storage.files import replace_file, replacing
from lexicept.storage.yaml_text import read_yaml
from lexicept.training.config import TrainingConfig
from lexicept.training.settings import to_mapping

_DETAILS = """
## Validation

{validation}

## Configuration

```yaml
{config}```
"""


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read the lines of a run's ``metrics.jsonl``. Raises InputError for anything else."""
    return [fields for _, fields in read_objects(str(path))]


def saved_validation(run: Path) -> dict[str, float]:
    """Return the step and the measures of the checkpoint that became a run's model; nothing without
    validation."""
    lines = [line for line in read_metrics(run / "metrics.jsonl") if "eval_ndcg" in line]
    config = read_yaml(run / "config.yaml")
    if config["validation"]["checkpoint"] == "last":
        lines = lines[-1:]
    best = max(lines, key=lambda line: float(line["eval_selection"]), default={})
    names = ("step", "eval_ndcg", "eval_mrr", "eval_qd_flops", "eval_e2")
    return {name: best[name] for name in names if name in best}


def write_curves(metrics: list[dict[str, Any]], path: Path) -> None:
    """Plot losses, nDCG@10 and QD-FLOPs against steps as one PNG."""
    from matplotlib.figure import Figure

    training = [line for line in metrics if "loss" in line]
    validation = [line for line in metrics if "eval_ndcg" in line]
    known = {"step", "loss", "grad_norm", "learning_rate"}
    parts = sorted({name for line in training for name in line} - known)
    figure = Figure(figsize=(15, 4), layout="constrained")
    axes = figure.subplots(1, 3)
    for name in ["loss", *parts]:
        lines = [line for line in training if name in line]
        axes[0].plot([line["step"] for line in lines], [line[name] for line in lines], label=name)
    axes[0].legend()
    for axis, name in zip(axes[1:], ("eval_ndcg", "eval_qd_flops"), strict=True):
        steps = [line["step"] for line in validation]
        axis.plot(steps, [line[name] for line in validation], marker="o")
    titles = ("training loss", "validation nDCG@10", "validation QD-FLOPs")
    for axis, title in zip(axes, titles, strict=True):
        axis.set(title=title, xlabel="step")
    with replacing(path) as file:
        figure.savefig(file, format="png", dpi=100)


def write_card(
    encoder: Encoder, config: TrainingConfig, metrics: list[dict[str, Any]], path: Path
) -> None:
    """Write a model card: the model, its validation and its configuration."""
    rows = [line for line in metrics if "eval_ndcg" in line]
    columns = ("step", "eval_ndcg", "eval_mrr", "eval_qd_flops", "eval_document_length", "eval_e2")
    table = "There was none.\n"
    if rows:
        lines = [[str(row["step"]), *(f"{row[c]:.4g}" for c in columns[1:])] for row in rows]
        names = [name.removeprefix("eval_") for name in columns]
        body = [names, ["---"] * len(names), *lines]
        table = "".join(f"| {' | '.join(line)} |\n" for line in body)
    details = _DETAILS.format(
        validation=table, config=yaml.safe_dump(to_mapping(config), sort_keys=False)
    )
    origin = config.model.start or config.model.backbone
    card = make_card(encoder, path.parent.parent.name, origin)
    replace_file(path, (card + details).encode())
