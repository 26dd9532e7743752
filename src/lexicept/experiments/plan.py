"""The plan of a recipe at full size: data, backbone, steps, GPU memory and hours of every row, and
what is private or missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lexicept.errors import InputError
from lexicept.experiments.data import Data, ir_datasets_name, source_of
from lexicept.experiments.jobs import Job, OverlapJob, PooledJob, RetrievalJob, TrainingJob
from lexicept.experiments.recipe import Recipe
from lexicept.experiments.run import datasets_of
from lexicept.storage.yaml_text import read_yaml
from lexicept.training.plan import GB, Stage, plan_pretraining, plan_training

CONTEXT = 1.0
"""Gigabytes of GPU memory that CUDA and its kernels take besides a step's tensors."""


@dataclass(frozen=True)
class RowPlan:
    """Cost of a row at full size."""

    recipe: str
    row: str
    data: tuple[str, ...]
    """Datasets and MTEB tasks that it reads, each once."""
    backbone: str | None
    """Model that is trained or run; None for a row without one."""
    stages: tuple[Stage, ...]
    """Stages of its training, in order; none for a row without training, or with a backbone of
    unknown size."""
    repeats: int
    """Trainings whose mean is the model."""
    missing: tuple[str, ...]
    """Data and models that are not here and can't be fetched by name, each with the reason."""

    @property
    def steps(self) -> int:
        """Optimiser steps of all stages, once."""
        return sum(stage.steps for stage in self.stages)

    @property
    def gigabytes(self) -> float | None:
        """GPU memory at the peak; None where nothing is trained."""
        if not self.stages:
            return None
        return max(stage.memory.total for stage in self.stages) / GB + CONTEXT

    @property
    def hours(self) -> float | None:
        """Hours of one GPU for all stages, the ranking once for every seed; encoding the tested
        collections comes on top. None where nothing is trained."""
        if not self.stages:
            return None
        return sum(s.hours * (self.repeats if s.name == "training" else 1) for s in self.stages)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        stages = [
            {
                "stage": stage.name,
                "steps": stage.steps,
                "gigabytes": {k: round(v / GB, 2) for k, v in stage.memory._asdict().items()},
                "hours": round(stage.hours, 2),
            }
            for stage in self.stages
        ]
        return {
            "data": list(self.data),
            "backbone": self.backbone,
            "steps": self.steps,
            "gigabytes": None if self.gigabytes is None else round(self.gigabytes, 1),
            "hours": None if self.hours is None else round(self.hours, 1),
            "repeats": self.repeats,
            "stages": stages,
            "missing": list(self.missing),
        }


def plan_recipe(recipe: Recipe, data: Data, backbones: Mapping[str, Any]) -> list[RowPlan]:
    """Return the plans of the rows that have a job at full size; nothing is fetched or loaded.

    Args:
        data: where the user's data are; only their presence is looked at.
        backbones: sizes of models by name; see ``read_backbones``.
    """
    jobs = [(row.name, row.jobs["full"]) for row in recipe.rows]
    return [
        _row_plan(recipe, name, job, data, backbones)
        for name, job in jobs
        if not isinstance(job, str)
    ]


def read_backbones(path: Path) -> dict[str, Any]:
    """Read ``backbones.yaml``. Raises InputError for a file of another kind."""
    content = read_yaml(path)
    known = isinstance(content, dict) and all(
        isinstance(sizes, dict) and "model_type" in sizes for sizes in content.values()
    )
    if not known:
        raise InputError(f"{path}: not a mapping of models to their sizes with model_type")
    return dict(content)


def _row_plan(
    recipe: Recipe, name: str, job: Job, data: Data, backbones: Mapping[str, Any]
) -> RowPlan:
    names = tuple(dict.fromkeys(dataset.name for dataset in datasets_of(job)))
    tasks = len(job.mteb) if isinstance(job, RetrievalJob | TrainingJob) else 0
    model, stages, repeats = _model_of(job), list[Stage](), 1
    missing = [reason for one in names if (reason := _lacking(one, data))]
    if model is not None:
        config = _configuration(data.place(model), backbones.get(model))
        if config is not None and isinstance(job, TrainingJob):
            stages, repeats = _stages(job, config), max(1, len(job.seeds))
        if config is None and isinstance(job, TrainingJob):
            missing.append(f"{model}: its size is unknown here, and so memory and hours")
        if backbones.get(model, {}).get("gated") and data.place(model) == model:
            missing.append(f"{model}: gated, the hub asks for an agreement")
    if recipe.not_comparable is not None:
        missing.append(f"the paper's own: {recipe.not_comparable}")
    read = (*names, f"{tasks} MTEB tasks") if tasks else names
    return RowPlan(recipe.name, name, read, model, tuple(stages), repeats, tuple(missing))


def _stages(job: TrainingJob, config: Any) -> list[Stage]:
    stages = plan_training(job.config, config)
    if job.pretraining is not None:
        own = job.pretraining
        stages.insert(0, plan_pretraining(own.settings, config, own.words))
    return stages


def _model_of(job: Job) -> str | None:
    """Return the backbone or model of a job."""
    match job:
        case TrainingJob(config=config) | OverlapJob(training=TrainingJob(config=config)):
            return config.model.start or config.model.backbone
        case RetrievalJob() | PooledJob():
            return job.model
        case _:
            return None


def _configuration(place: str, sizes: Mapping[str, Any] | None) -> Any:
    """Return a model's configuration, from its folder or from its sizes; None without either."""
    from transformers import AutoConfig

    if (Path(place) / "config.json").exists():
        return AutoConfig.from_pretrained(place, trust_remote_code=False)
    if sizes is None:
        return None
    own = {name: value for name, value in sizes.items() if name != "gated"}
    return AutoConfig.for_model(**own)


def _lacking(name: str, data: Data) -> str | None:
    """Return why a dataset is missing; None where it is here or can be fetched by its name."""
    source = source_of(name, data.sources)
    if data.folder is not None and (data.folder / name).exists():
        return None
    if source is not None and source.subset is not None:
        return _lacking(source.subset.source, data)
    if ir_datasets_name(name, data.sources) is None:
        assert source is not None
        return f"{name}: {source.get}"
    if find_spec("ir_datasets") is None:
        return f"{name}: pip install 'lexicept[ir-datasets]' fetches it"
    return None
