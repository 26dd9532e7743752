"""Runs of recipes. Every finished row is one file, from which an interrupted run resumes."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from lexicept.errors import InputError, LexiceptError
from lexicept.measures import e2
from lexicept.storage.files import fingerprint, read_json, sha256, write_json
from lexicept.storage.locks import lock
from reproduction.data import (
    Data,
    check_dataset,
    check_tasks,
    ignores_identical_ids,
    load_sources,
)
from reproduction.jobs import (
    DatasetSettings,
    E2Job,
    EffectJob,
    ExampleJob,
    Job,
    OverlapJob,
    PairsJob,
    PooledJob,
    RetrievalJob,
    TrainingJob,
)
from reproduction.measuring import Measurements
from reproduction.recipe import (
    Recipe,
    Row,
    load_expected,
    measures_of,
    read_job,
    to_json,
)

PACKAGES = ("lexicept", "numpy", "scipy", "torch", "transformers", "sentence-transformers")
"""Packages whose versions are recorded with a result."""


@dataclass(frozen=True)
class Result:
    """A row's measurements, and the job that they belong to."""

    row: str
    job: Mapping[str, Any]
    """The job, as JSON values: a row whose job has changed runs again. A setting that is newer than
    the result has its default, which must do what was done before."""
    fingerprint: str
    """Fingerprint of what else the values depend on; see ``job_fingerprint``."""
    values: Mapping[str, float]
    notes: tuple[str, ...]
    seconds: float
    machine: str
    versions: Mapping[str, str]
    date: str
    per_query: Mapping[str, Mapping[str, float]]
    """Value by measure and query; empty in the recipe's folder."""
    trainings: tuple[Mapping[str, Any], ...] = ()
    """``seed``, ``values`` and ``per_query`` of separate trainings, whose means the values are."""

    @classmethod
    def from_json(cls, content: Mapping[str, Any], path: Path) -> Result:
        """Read a result. Raises InputError for any other content."""
        try:
            fields = {name: content[name] for name in cls.__dataclass_fields__}
            lists = {name: tuple(fields[name]) for name in ("notes", "trainings")}
            return cls(**{**fields, **lists})
        except (KeyError, TypeError):
            raise InputError(f"{path}: not a result; remove it to run its row again") from None

    def belongs_to(self, job: Job, recipe: Recipe) -> bool:
        """Return whether this is the result of the job as it is now."""
        try:
            return read_job(self.job, self.row) == job and self.fingerprint == job_fingerprint(
                job, recipe
            )
        except InputError:  # a setting that is no longer there
            return False


@dataclass(frozen=True)
class Outcome:
    """The results of a recipe at one size."""

    results: Mapping[str, Result]
    missing: Mapping[str, str]
    """Reason by row without a result."""


def run_recipe(
    recipe: Recipe,
    size: str,
    data: Data,
    out: Path,
    rows: Sequence[str] = (),
    restart: bool = False,
) -> Outcome:
    """Run the rows that have no result yet; skip rows whose data are missing.

    Args:
        out: the folder of all recipes' results and of what they share.
        rows: only these; all by default.
        restart: run rows again that have a result; it is replaced when the new one is there.

    Raises:
        InputError: no such row, another process works there, or data have changed since rows of
            ``out`` were made from them.
        OSError: a full disk, or a folder without permission; nothing half-written stays.
    """
    names = [row.name for row in recipe.rows]
    for name in rows:
        if name not in names:
            raise InputError(f"{recipe.name} has no row {name!r}, only: {', '.join(names)}")
    folder = out / recipe.name / size
    (folder / "rows").mkdir(parents=True, exist_ok=True)
    descriptor = lock(folder)
    try:
        outcome = known_results(recipe, size, folder)
        results, missing = dict(outcome.results), dict(outcome.missing)
        todo = [row for row in recipe.rows if row.name in (rows or names)]
        for name in sorted({name for row in todo for name in read_by(row.jobs[size])}):
            data.check_unchanged(name)
        for number, row in enumerate(todo):
            data.progress(recipe.name, number, len(todo), row.name)
            job = row.jobs[size]
            if isinstance(job, str) or (row.name in results and not restart):
                continue
            try:
                known = None if restart else same_training(row, job, recipe, size, out)
                result = known or run_row(row, job, recipe, data)
            except LexiceptError as error:
                missing[row.name] = str(error)
                continue
            write_json(row_file(folder, row.name), asdict(result))
            results[row.name] = result
            missing.pop(row.name, None)
        data.progress(recipe.name, len(todo), len(todo))
        return Outcome(results, missing)
    finally:
        os.close(descriptor)


def same_training(row: Row, job: Job, recipe: Recipe, size: str, out: Path) -> Result | None:
    """Return the result of another row of ``out`` that trains and tests the same, as tables share
    models; None where there is none, or where it lacks a value of this recipe's table."""
    if not isinstance(job, TrainingJob):
        return None
    titles = tuple(f"{dataset.title} " for dataset in job.test)
    columns = recipe.expected.columns.values()
    printed = {name for column in columns for name in measures_of(column, size)}
    wanted = {name for name in printed if name.startswith(titles)}
    for path in sorted(out.glob(f"*/*/{size}/rows/*.json")):
        with suppress(LexiceptError):  # errors in it are reported when its own recipe runs
            result = Result.from_json(read_json(path), path)
            if wanted <= result.values.keys() and result.belongs_to(job, recipe):
                return replace(result, row=row.name)
    return None


def row_file(folder: Path, row: str) -> Path:
    """Return the path of a row's result."""
    return folder / "rows" / f"{row}.json"


def known_results(recipe: Recipe, size: str, folder: Path) -> Outcome:
    """Read a run's results that belong to the recipe's present jobs."""
    results = {}
    for row in recipe.rows:
        if (path := row_file(folder, row.name)).exists():
            results[row.name] = Result.from_json(read_json(path), path)
    return present_results(recipe, size, results)


def present_results(recipe: Recipe, size: str, results: Mapping[str, Result]) -> Outcome:
    """Return the results that belong to the recipe's present jobs, and why others are missing."""
    present, missing = {}, {}
    for row in recipe.rows:
        job, result = row.jobs[size], results.get(row.name)
        if isinstance(job, str):
            missing[row.name] = job
        elif result is None:
            missing[row.name] = "not run"
        elif result.belongs_to(job, recipe):
            present[row.name] = result
        else:
            missing[row.name] = "run with another configuration than the recipe has now"
    return Outcome(present, missing)


def job_fingerprint(job: Job, recipe: Recipe) -> str:
    """Return the fingerprint of what a job reads beside its data: another table's numbers, and the
    datasets in which hits of the query's own id are left out."""
    content = (
        [sha256(recipe.recipes / job.table / "expected.json")] if isinstance(job, E2Job) else []
    )
    sources = load_sources(recipe.recipes / "datasets.yaml")
    names = {dataset.name for dataset in datasets_of(job)}
    return fingerprint(content + sorted(n for n in names if ignores_identical_ids(n, sources)))


def run_row(row: Row, job: Job, recipe: Recipe, data: Data) -> Result:
    """Compute one row; see ``run_recipe``."""
    start = time.perf_counter()
    measurements = _run(job, recipe, data)
    seconds = round(time.perf_counter() - start, 1)
    return Result(
        row.name,
        to_json(job),
        job_fingerprint(job, recipe),
        measurements.values,
        tuple(measurements.notes),
        seconds,
        machine(),
        versions(),
        date.today().isoformat(),
        measurements.per_query,
        tuple(measurements.trainings),
    )


def _run(job: Job, recipe: Recipe, data: Data) -> Measurements:
    if isinstance(job, E2Job):
        return run_e2(job, recipe.recipes)
    if isinstance(job, ExampleJob):
        from reproduction.example import run_example

        return run_example(job)
    from reproduction import pooled, systems, trained

    match job:
        case RetrievalJob():
            return systems.run_retrieval(job, data)
        case EffectJob():
            return systems.run_effect(job, data)
        case TrainingJob():
            columns = recipe.expected.columns.values()
            sources = [source for column in columns for source in (column, column.small) if source]
            metrics = {source.metric for source in sources}
            metrics |= {f"{d} {source.metric}" for source in sources for d in source.datasets}
            return trained.run_training(job, data, metrics)
        case PooledJob():
            return pooled.run_pooled(job, data)
        case OverlapJob():
            from reproduction.overlap import run_overlap

            return run_overlap(job, data)
        case PairsJob():
            from reproduction.model_pairs import run_pairs

            return run_pairs(job, data)


def run_e2(job: E2Job, recipes: Path) -> Measurements:
    """Return ΔE² of every printed row, × 100, and the largest difference from a printed value.

    Raises:
        InputError: no row of the table has all three numbers.
    """
    table = load_expected(recipes / job.table / "expected.json")
    base = e2(job.baseline_mrr / 100, job.baseline_flops)
    measurements = Measurements()
    off = []
    for name, row in table.rows.items():
        mrr, flops, printed = (row.values.get(c) for c in (job.mrr, job.flops, job.printed))
        if isinstance(mrr, float) and isinstance(flops, float) and isinstance(printed, float):
            computed = 100 * (e2(mrr / 100, flops) - base)
            measurements.values[f"{name} ΔE²"] = computed
            off.append(abs(computed - printed))
    if not off:
        raise InputError(f"{job.table}: no row has {job.mrr}, {job.flops} and {job.printed}")
    measurements.values |= {"rows": float(len(off)), "largest difference": max(off)}
    return measurements


def machine() -> str:
    """Return the CPU, its number of cores and the accelerator."""
    import torch

    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return f"{(names or [platform.machine()])[0]}, {os.cpu_count()} cores{gpu}"


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that results depend on."""
    installed = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            installed[name] = "none"
    return installed


def validate(recipe: Recipe, folder: Path) -> int:
    """Check that all datasets and tasks of a recipe are known, without their data.

    Returns:
        The number of jobs that were looked at.

    Raises:
        InputError: naming the recipe, the row and what is not known.
    """
    sources = load_sources(folder / "datasets.yaml")
    count = 0
    for row in recipe.rows:
        for size, job in row.jobs.items():
            if isinstance(job, str):
                continue
            count += 1
            try:
                for dataset in datasets_of(job):
                    check_dataset(dataset.name, dataset.split, sources)
                check_tasks(job.mteb if isinstance(job, RetrievalJob | TrainingJob) else ())
                if isinstance(job, E2Job):
                    run_e2(job, folder)
            except InputError as error:
                raise InputError(f"{recipe.name}, row {row.name}, {size}: {error}") from None
    return count


def read_by(job: Job | str) -> set[str]:
    """Return the names of all datasets and models that a job reads."""
    if isinstance(job, str):
        return set()
    if isinstance(job, PairsJob):
        return {job.dataset} | read_by(job.tokens) | read_by(job.latents)
    names = {dataset.name for dataset in datasets_of(job)}
    match job:
        case TrainingJob(config=config) | OverlapJob(training=TrainingJob(config=config)):
            models = [config.model.backbone, config.model.start, config.model.pretrained]
        case RetrievalJob() | PooledJob():
            models = [job.model]
        case _:
            models = []
    if isinstance(job, RetrievalJob | TrainingJob) and job.rra is not None:
        models.append(job.rra.generator)
    return names | {name for name in models if name}


def datasets_of(job: Job) -> list[DatasetSettings]:
    """Return the names that a job reads."""
    match job:
        case RetrievalJob():
            extra = [job.vocabulary] if job.vocabulary else []
            return [*job.datasets, *map(DatasetSettings, extra)]
        case TrainingJob():
            return [*job.test, *_learned_from(job)]
        case PooledJob():
            return list(job.datasets)
        case OverlapJob():
            learned = [] if job.training is None else _learned_from(job.training)
            return [DatasetSettings(job.dataset), *learned]
        case EffectJob():
            return [DatasetSettings(job.dataset)]
        case PairsJob():
            return [
                DatasetSettings(job.dataset),
                *datasets_of(job.tokens),
                *datasets_of(job.latents),
            ]
        case E2Job() | ExampleJob():
            return []


def _learned_from(job: TrainingJob) -> list[DatasetSettings]:
    config = job.config
    names = [config.data.corpus, config.data.queries, config.data.lists]
    names += [config.validation.queries, config.validation.corpus]
    names += [] if job.pretraining is None else [job.pretraining.corpus]
    return [DatasetSettings(name) for name in names if name]
