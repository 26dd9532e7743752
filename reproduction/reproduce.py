"""Run a recipe: a paper's table or figure, measured and compared with its numbers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lexicept.errors import InputError, require
from lexicept.pipelines.arguments import checked_arguments
from lexicept.progress import Progress, reporting
from reproduction.comparison import to_json, write_comparison
from reproduction.data import Data, load_sources
from reproduction.figure import write_figure
from reproduction.recipe import load_recipe, recipes_folder
from reproduction.report import record as write_record
from reproduction.run import run_recipe

MODULES = ("sentence_transformers", "accelerate", "peft", "matplotlib")
"""The packages that recipes import."""


@dataclass(frozen=True)
class Reproduction:
    """A recipe's results beside its paper's."""

    name: str
    verdict: str
    """Answer in a word or two: the results agree with the paper or not."""
    reason: str
    missing: dict[str, str]
    """The reason of each row that has no result."""
    comparison: dict[str, Any]
    """The whole comparison, as JSON values."""
    folder: Path
    """The folder of ``table.md``, ``table.json`` and the figure."""


@checked_arguments
def reproduce(
    name: str,
    *,
    data: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] = "reproduced",
    size: Literal["small", "full"] = "small",
    rows: Sequence[str] = (),
    restart: bool = False,
    record: bool = False,
    recipes: str | os.PathLike[str] | None = None,
    progress: bool | Progress = False,
) -> Reproduction:
    """Run a paper's table or figure, and compare the results with its numbers.

    Finished rows are kept: calling it again resumes an interrupted run, and runs rows whose data
    were missing.

    Args:
        name: the recipe, such as "rra/table1".
        data: a folder with a folder for each dataset; others are fetched by name.
        out: the folder of all results and of what recipes share, such as trained models.
        size: "small" runs on a laptop; "full" is the paper's experiment.
        rows: only these rows; all by default.
        restart: run finished rows again. Models that rows share, in ``out/work``, are kept.
        record: keep the results in the recipe's own folder.
        recipes: another folder of recipes; None takes those of the package.
        progress: True shows bars on standard error.

    Raises:
        InputError: no such recipe, row or folder, data that have changed since rows were made from
            them, or the extra ``train`` is not installed.
    """
    require("train", *MODULES)
    root, folder = Path(out), recipes_folder(None if recipes is None else Path(recipes))
    if data is not None and not Path(data).is_dir():
        raise InputError(f"{data}: no such folder of datasets")
    recipe = load_recipe(folder, name)
    local = None if data is None else Path(data)
    place = root / recipe.name / size
    known = load_sources(folder / "datasets.yaml")
    with reporting(progress) as shown:
        sources = Data(local, known, root / "work", shown)
        outcome = run_recipe(recipe, size, sources, root, tuple(rows), restart, shown)
    compared = write_comparison(recipe, size, outcome, place)
    write_figure(recipe, outcome, place / "figure.png")
    if record and outcome.results:
        write_record(recipe, size, outcome, compared)
    verdict, missing = compared.verdict, dict(outcome.missing)
    described = to_json(compared, outcome)
    return Reproduction(recipe.name, verdict.word, verdict.reason, missing, described, place)
