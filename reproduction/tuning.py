"""Values of a configuration, such as a temperature, chosen by short trainings (SPLARE, App. B)."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

from lexicept.errors import IndexFormatError, InputError
from lexicept.progress import Progress, silent
from lexicept.storage.files import read_json, write_json
from lexicept.storage.workspace import Workspace
from lexicept.training.loop import NotFiniteError
from lexicept.training.ranking.config import load_config, write_yaml
from lexicept.training.ranking.metrics import read_metrics
from lexicept.training.ranking.run import train

_SHARING = re.compile(
    r"(loss|query_regularizer|document_regularizer|joint_regularizer)\."
    r"|optimizer\.(?!(seed|bf16)=)"
)
"""Changes that leave data and cached states as they are."""


@dataclass(frozen=True)
class Trial:
    """A short training and its best validation."""

    changes: list[str]
    """``NAME=VALUE`` each; see ``load_config``."""
    step: int = 0
    selection: float | None = None
    """Validation's value to maximise; None for diverged training."""
    ndcg: float | None = None
    mrr: float | None = None
    qd_flops: float | None = None
    query_length: float | None = None
    document_length: float | None = None
    e2: float | None = None


def tune(
    config: Path,
    vary: Sequence[str],
    steps: int,
    out: Path,
    changes: Sequence[str] = (),
    progress: Progress = silent,
    *,
    restart: bool = False,
    prepared: Path | None = None,
) -> list[Trial]:
    """Train with every combination of values, for a few steps each.

    The folder holds ``trials.json``, ``best.yaml`` (the configuration with the best values), and
    the configuration and metrics of every trial. Trials share prepared data if no value
    changes the data. Calling it again resumes interrupted tuning, or adds values. Raises InputError
    for malformed or unknown values, a folder of another configuration, another process there, no
    judged queries for validation, or only infinite losses.

    Args:
        vary: ``NAME=VALUE,VALUE,...`` each.
        changes: changes of the configuration, ``NAME=VALUE`` each.
        prepared: folder of shared data and states, in place of ``out/work``.

    Returns:
        All trials, the best first, diverged trials last.
    """
    short = [*changes, f"optimizer.steps={steps}"]
    values = dict(map(_values, vary))
    settings = {"config": asdict(load_config(config, short)), "vary": list(values)}
    named = [[f"{name}={value}" for value in options] for name, options in values.items()]
    grid = [list(assignments) for assignments in product(*named)]
    for assignments in grid:
        load_config(config, [*short, *assignments])  # before an hour is spent on the others
    with Workspace(out, "tune", settings, restart=restart, in_place=True):
        path = out / "trials.json"
        trials = _read_trials(path)
        for number, assignments in enumerate(grid, 1):
            name = ",".join(assignments)
            progress("trials", number - 1, len(grid), name)
            if name not in trials:
                shared = prepared or out / "work"
                trials[name] = _trial(config, short, assignments, out, progress, shared)
                write_json(path, {"trials": [asdict(trial) for trial in trials.values()]})
                for large in ("work", "model", "adapter"):
                    shutil.rmtree(_folder(out, assignments) / large, ignore_errors=True)
        progress("trials", len(grid), len(grid))
        # The first of equals is the best, as in the order of the grid.
        order = sorted(
            trials.values(),
            key=lambda trial: math.inf if trial.selection is None else -trial.selection,
        )
        if order[0].selection is None:
            raise InputError(f"{out}: no trial has a finite loss; try lower rates or other values")
        write_yaml(load_config(config, [*changes, *order[0].changes]), out / "best.yaml")
        return order


def _values(text: str) -> tuple[str, list[str]]:
    """Return a name and its values."""
    name, equals, values = text.partition("=")
    if not equals or not all(values.split(",")):
        raise InputError(f"{text!r} is not of the form loss.temperature=10,20,50")
    return name, values.split(",")


def _read_trials(path: Path) -> dict[str, Trial]:
    """Return finished trials by their changes; nothing for a damaged file."""
    try:
        return {",".join(trial["changes"]): Trial(**trial) for trial in read_json(path)["trials"]}
    except (IndexFormatError, KeyError, TypeError):
        return {}


def _folder(out: Path, assignments: Sequence[str]) -> Path:
    return out / re.sub(r"[^\w.=+-]", "_", ",".join(assignments))


def _trial(
    config: Path,
    changes: Sequence[str],
    assignments: list[str],
    out: Path,
    progress: Progress,
    shared: Path,
) -> Trial:
    folder = _folder(out, assignments)
    if not (folder / "model").exists():
        prepared = shared if all(map(_SHARING.match, assignments)) else None
        try:
            train(load_config(config, [*changes, *assignments]), folder, progress, prepared)
        except NotFiniteError:  # a temperature that does not suit
            return Trial(assignments)
    validated = [line for line in read_metrics(folder / "metrics.jsonl") if "eval_ndcg" in line]
    if not validated:
        raise InputError("tuning needs judged queries: there are none in validation.queries")
    best = max(validated, key=lambda line: line["eval_selection"])
    names = Trial.__dataclass_fields__.keys() - {"changes", "step"}
    return Trial(assignments, best["step"], **{name: best[f"eval_{name}"] for name in names})
