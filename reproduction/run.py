"""Runs of recipes. Every finished row is a file, from which an interrupted run resumes."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from lexicept.errors import InputError, LexiceptError
from lexicept.measures import e2
from lexicept.storage.files import fingerprint, read_json, sha256, write_json
from lexicept.storage.locks import lock
from reproduction.data import Data, check_dataset, check_tasks, ignores_identical_ids, load_sources
from reproduction.jobs import (
    E2Job,
    EffectJob,
    ExampleJob,
    Job,
    OverlapJob,
    PairsJob,
    PooledJob,
    RetrievalJob,
    TrainingJob,
    datasets_of,
    inputs_of,
)
from reproduction.measuring import Measurements
from reproduction.recipe import Recipe, load_expected, read_job, to_json

PACKAGES = ("lexicept", "numpy", "scipy", "torch", "transformers", "sentence-transformers")
"""Packages whose versions are recorded with a result."""


@dataclass(frozen=True)
class Result:
    """A row's measurements, and the job."""

    row: str
    job: Mapping[str, Any]
    """The job, as JSON values: a row whose job has changed runs again. A setting newer than the
    result has its default, which must do what was done before."""
    fingerprint: str
    """Fingerprint of further inputs; see ``job_fingerprint``."""
    values: Mapping[str, float]
    notes: tuple[str, ...]
    seconds: float
    machine: str
    versions: Mapping[str, str]
    date: str
    per_query: Mapping[str, Mapping[str, float]]
    """Value by measure and query; empty in the recipe's folder."""
    trainings: tuple[Mapping[str, Any], ...] = ()
    """``seed``, ``values`` and ``per_query`` of separate trainings, averaged to ``values``."""

    @classmethod
    def from_json(cls, content: Mapping[str, Any], path: Path) -> Result:
        """Read a result. Raises InputError for any other content."""
        try:
            lists = {name: tuple(content[name]) for name in ("notes", "trainings")}
            return cls(**{**{name: content[name] for name in cls.__dataclass_fields__}, **lists})
        except (KeyError, TypeError):
            raise InputError(f"{path}: not a result; remove it to run its row again") from None

    def belongs_to(self, job: Job, recipe: Recipe) -> bool:
        """Return True for a result of the present job."""
        try:
            same_job = read_job(self.job, self.row) == job
        except InputError:  # a setting that is no longer there
            return False
        return same_job and self.fingerprint == job_fingerprint(job, recipe)


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
    names: Sequence[str] = (),
    restart: bool = False,
) -> Outcome:
    """Run the rows without results; skip rows whose data are missing.

    Args:
        out: the folder of all recipes' results and of shared work.
        names: rows to run; all by default.
        restart: run finished rows again; new results replace old ones.

    Raises:
        InputError: no such row, another process works there, or data have changed since rows of
            ``out`` were made from them.
        OSError: a full disk, or a folder without permission; nothing half-written stays.
    """
    for name in names:
        if name not in recipe.row_names:
            raise InputError(
                f"{recipe.name} has no row {name!r}, only: {', '.join(recipe.row_names)}"
            )
    folder = out / recipe.name / size
    (folder / "rows").mkdir(parents=True, exist_ok=True)
    descriptor = lock(folder)
    try:
        outcome = known_results(recipe, size, folder)
        results, missing = dict(outcome.results), dict(outcome.missing)
        jobs = {row.name: row.jobs[size] for row in recipe.rows if row.name in names or not names}
        for name in sorted({name for job in jobs.values() for name in inputs_of(job)}):
            data.check_unchanged(name)
        for number, (name, job) in enumerate(jobs.items()):
            data.progress(recipe.name, number, len(jobs), name)
            if isinstance(job, str) or (name in results and not restart):
                continue
            try:
                results[name] = run_row(name, job, recipe, data)
            except LexiceptError as error:
                missing[name] = str(error)
                continue
            write_json(folder / "rows" / f"{name}.json", asdict(results[name]))
            missing.pop(name, None)
        data.progress(recipe.name, len(jobs), len(jobs))
        return Outcome(results, missing)
    finally:
        os.close(descriptor)


def known_results(recipe: Recipe, size: str, folder: Path) -> Outcome:
    """Read a run's results of the recipe's present jobs."""
    paths = {name: folder / "rows" / f"{name}.json" for name in recipe.row_names}
    results = {
        name: Result.from_json(read_json(path), path)
        for name, path in paths.items()
        if path.exists()
    }
    return present_results(recipe, size, results)


def present_results(recipe: Recipe, size: str, results: Mapping[str, Result]) -> Outcome:
    """Return the results of the recipe's present jobs, and why other results are missing."""
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
    """Return the fingerprint of inputs beside the data: another table's numbers, and the datasets
    in which hits of the query's own id are left out."""
    tables = [recipe.recipes / job.table / "expected.json"] if isinstance(job, E2Job) else []
    sources = load_sources(recipe.recipes / "datasets.yaml")
    names = {dataset.name for dataset in datasets_of(job)}
    ignoring = sorted(name for name in names if ignores_identical_ids(name, sources))
    return fingerprint([*map(sha256, tables), *ignoring])


def run_row(name: str, job: Job, recipe: Recipe, data: Data) -> Result:
    """Compute a row; see ``run_recipe``."""
    start = time.perf_counter()
    measurements = _run(job, recipe, data)
    return Result(
        name,
        to_json(job),
        job_fingerprint(job, recipe),
        measurements.values,
        tuple(measurements.notes),
        round(time.perf_counter() - start, 1),
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
        return run_example(job)
    from reproduction import model_pairs, overlap, pooled, systems, trained  # import torch

    match job:
        case RetrievalJob():
            return systems.run_retrieval(job, data)
        case EffectJob():
            return systems.run_effect(job, data)
        case TrainingJob():
            columns = recipe.expected.columns.values()
            metrics = {source.metric for c in columns for source in (c, c.small) if source}
            metrics |= recipe.printed("small") | recipe.printed("full")
            return trained.run_training(job, data, metrics)
        case PooledJob():
            return pooled.run_pooled(job, data)
        case OverlapJob():
            return overlap.run_overlap(job, data)
        case PairsJob():
            return model_pairs.run_pairs(job, data)


def run_e2(job: E2Job, recipes: Path) -> Measurements:
    """Return ΔE² of every printed row, × 100, and the largest difference from a printed value.

    Raises:
        InputError: no row of the table has all three numbers.
    """
    table = load_expected(recipes / job.table / "expected.json")
    base = e2(job.baseline_mrr / 100, job.baseline_flops)
    values, differences = {}, []
    for name, row in table.rows.items():
        mrr, flops, printed = (row.values.get(c) for c in (job.mrr, job.flops, job.printed))
        if isinstance(mrr, float) and isinstance(flops, float) and isinstance(printed, float):
            values[f"{name} ΔE²"] = 100 * (e2(mrr / 100, flops) - base)
            differences.append(abs(values[f"{name} ΔE²"] - printed))
    if not differences:
        raise InputError(f"{job.table}: no row has {job.mrr}, {job.flops} and {job.printed}")
    totals = {"rows": float(len(differences)), "largest difference": max(differences)}
    return Measurements(values | totals)


def run_example(job: ExampleJob) -> Measurements:
    """Pool heads to γ by the code of training, and compute the softmax, FLOPS and L1 of γ; terms
    are numbered from 1."""
    import torch

    from lexicept.neural.kernels.pooling import Activations, pool_sum
    from lexicept.training.ranking.regularizers import flops, l1

    gamma = torch.tensor(job.weights, dtype=torch.float64)
    if job.heads:
        heads = torch.tensor(job.heads, dtype=torch.float64)
        # The heads are the states of an identity map.
        identity = torch.eye(heads.shape[1], dtype=torch.float64)
        text = torch.zeros(len(heads), dtype=torch.long)
        bias = heads.new_zeros(len(identity))
        gamma = pool_sum(Activations(heads, text, 1, identity, bias, None), log=True)
    values = {"FLOPS": job.flops_weight * float(flops(gamma))}
    values["L1"] = job.l1_weight * float(l1(gamma))
    for name, weights in (("γ", gamma.mean(dim=0)), ("p", gamma.softmax(dim=1).mean(dim=0))):
        values |= {f"{name}{number}": value for number, value in enumerate(weights.tolist(), 1)}
    return Measurements(values)


def machine() -> str:
    """Return the CPU, the number of cores and the accelerator."""
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
    """Check the names of all datasets and tasks of a recipe, without the data.

    Returns:
        The number of jobs.

    Raises:
        InputError: naming the recipe, the row and the unknown name.
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
                    check_dataset(dataset.name, sources)
                check_tasks(job.mteb if isinstance(job, RetrievalJob | TrainingJob) else ())
                if isinstance(job, E2Job):
                    run_e2(job, folder)
            except InputError as error:
                raise InputError(f"{recipe.name}, row {row.name}, {size}: {error}") from None
    return count
