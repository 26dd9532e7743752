"""Training of an encoder for ranking."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexicept.checks import checked_arguments
from lexicept.errors import require
from lexicept.progress import Progress, reporting

if TYPE_CHECKING:
    from lexicept.training.ranking.config import TrainingConfig

MODULES = ("sentence_transformers", "datasets", "accelerate", "peft", "yaml")
"""Packages that training imports."""


@checked_arguments
def train(
    config: TrainingConfig | Mapping[str, Any] | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    changes: Sequence[str] = (),
    restart: bool = False,
    progress: bool | Progress = False,
) -> Path:
    """Train an encoder for ranking, with labels or from documents alone.

    Calling it again with the same configuration resumes an interrupted run. The folder ``out``
    holds the configuration, metrics and the model (see ``training.ranking.run.train``).

    Args:
        config: a ``TrainingConfig``, a mapping as its YAML file has it, or the path of such a file.
        out: the folder of the run.
        changes: ``NAME=VALUE`` each, such as ``data.corpus=PATH``, in place of the configuration's
            values.
        restart: discard an earlier run in ``out`` instead of resuming it.
        progress: True shows a line on standard error; a callback gets the reports.

    Returns:
        The folder of the model, which ``lexicept.build`` takes.

    Raises:
        InputError: a configuration with unknown names or impossible values, data that do not fit
            together, ``out`` holds a finished run or one of another configuration, or the vectors
            of all queries or documents end up empty.
        NotFiniteError: the loss is not finite.

    Examples:
        >>> data, optimizer = {"corpus": "judged"}, {"steps": 1}
        >>> settings = {"data": data, "teacher": {"bm25_weight": 1}, "optimizer": optimizer}
        >>> lexicept.train(settings, "run")  # doctest: +SKIP
        PosixPath('run/model')
    """
    require("train", *MODULES)
    from lexicept.training.ranking.config import load_config
    from lexicept.training.ranking.run import train as run

    settings = load_config(config, changes)
    with reporting(progress) as report:
        return run(settings, out, report, restart=restart)
