"""Recipes: what a paper's table or figure claims, the rows that test it, and the paper's numbers.

A recipe is a folder ``<paper>/<table>`` with ``recipe.yaml``, ``expected.json`` and ``README.md``.
Nothing in it is code. In ``recipe.yaml``, ``sizes`` has a job for each size, small and full. A row
starts from these jobs, or from the jobs of the row above that ``like`` names; ``set`` changes both
jobs, ``small`` and ``full`` one of them; a text instead of a job says why nothing is run.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from lexicept.errors import InputError
from lexicept.storage.yaml_text import read_yaml
from lexicept.training.settings import Flag, Items, Number, Text, from_mapping, settings
from reproduction.jobs import JOBS, Job, PooledJob

RECIPES = Path(__file__).parent
"""Folder of the papers' recipes."""

Size = Literal["small", "full"]
SIZES: tuple[Size, ...] = ("small", "full")
BASELINE = "bm25"
"""Name of the row that is BM25, in every recipe."""


@dataclass(frozen=True)
class Row:
    """A row of the table."""

    name: str
    label: str
    jobs: Mapping[str, Job | str]
    """Size → the job, or the reason why there is none."""
    against: str | None = None
    """A row that this row is compared with, query by query."""
    at: float | None = None
    """The row's position on a figure's x axis."""
    series: str = ""
    """The row's line in a figure."""


@settings
class Check:
    """A claim of the table, as an inequality of measured values; see ``reproduction.verdicts``."""

    says: Text
    """The claim, in words."""
    value: Text
    """A value's name, ``scifact nDCG@10``, or a column's."""
    size: Literal["small", "full"] = "small"
    rising: Items[Text] = ()
    """Rows of which every one has more than the one before."""
    slack: Number = 0.0
    """The largest decrease that still counts as a rise; a negative slack is the least increase."""
    row: Text | None = None
    """A row whose value is looked at alone."""
    least: Number | None = None
    """The least value of ``row``."""
    most: Number | None = None
    """The largest value of ``row``."""

    @property
    def rows(self) -> tuple[str, ...]:
        """The compared rows."""
        return self.rising or (str(self.row),)


@settings
class FigureSettings:
    """A plot of the rows, a line for each series and value."""

    y: Items[Text]
    """Values, by name; of each size those that its rows have."""
    x: Text | None = None
    """A value; null for the rows' ``at``."""
    label: Text = ""
    """The x axis' label."""
    log: Flag = False
    """True if the x axis is logarithmic."""
    contours: Flag = False
    """Lines of equal E², where x is QD-FLOPs and y MRR@10."""


@settings
class Substitute:
    """The measure that stands in for a column in the small run."""

    metric: Text
    datasets: Items[Text]
    same: Flag = False
    """True if it is the paper's own collection and measure, so that the numbers are comparable."""


@settings
class Column:
    """A column of the paper's table."""

    metric: Text
    """As results are named: ``nDCG@10``, ``QD-FLOPs``, ``document length``."""
    datasets: Items[Text] = ()
    """The value is the mean over them; none for a value that belongs to no dataset."""
    scale: Number = 1.0
    """The factor from a result to the number as the paper prints it."""
    tolerance: Number = 0.0
    """Printed values as near as this agree; an estimate of seeds and rounding, not the paper's."""
    of: Items[Text] = ()
    """Other columns, whose mean it is; it has no metric of its own then."""
    over: Text | None = None
    """A row whose value is subtracted, as ΔE² is one over BM25's."""
    small: Substitute | None = None


def measures_of(column: Column, size: str) -> list[str]:
    """Return the names of a column's values."""
    source = column.small if size == "small" else column
    if source is None or not source.metric:
        return []
    return [f"{dataset} {source.metric}" for dataset in source.datasets] or [source.metric]


@settings
class ExpectedRow:
    """A row of the paper's table."""

    kind: Literal["measured", "settings", "examples", "quoted"]
    values: dict[str, float | str | None]
    """Column → what is printed."""


@settings
class Expected:
    """A paper's table: ``expected.json``."""

    reference: Text
    columns: dict[str, Column]
    rows: dict[str, ExpectedRow]


@settings
class RowSettings:
    """A row of ``recipe.yaml``."""

    name: Text
    label: Text | None = None
    like: Text | None = None
    set: dict[str, Any] = field(default_factory=dict)
    small: dict[str, Any] | str = ""
    full: dict[str, Any] | str = ""
    against: Text | None = None
    at: Number | None = None
    series: Text = ""


@settings
class RecipeSettings:
    """The content of ``recipe.yaml``."""

    title: Text
    claim: Text
    kind: Literal["measured", "settings", "examples"]
    sizes: dict[Size, dict[str, Any] | str] = field(default_factory=dict)
    rows: Items[RowSettings] = ()
    checks: Items[Check] = ()
    figure: FigureSettings | None = None
    not_comparable: Text | None = None
    """Why neither size can be compared with the paper's numbers; checks are answered all the
    same."""
    backbone: Text | None = None
    """The row that searches with the vectors of the dense model whose states the trained models
    read."""


@dataclass(frozen=True)
class Recipe:
    """A table or figure, ready to run; see ``RecipeSettings``."""

    name: str
    folder: Path
    title: str
    claim: str
    kind: str
    rows: tuple[Row, ...]
    checks: tuple[Check, ...]
    expected: Expected
    figure: FigureSettings | None = None
    not_comparable: str | None = None
    backbone: str | None = None

    @property
    def baselines(self) -> tuple[str, ...]:
        """Rows of which a trained model must reach one: BM25 and ``backbone``, if there are any."""
        names = [row.name for row in self.rows]
        return tuple(name for name in (BASELINE, self.backbone) if name in names)

    @property
    def recipes(self) -> Path:
        """The folder of all recipes."""
        return self.folder.parents[1]


def recipes_folder(path: Path) -> Path:
    """Return a folder of recipes. Raises InputError for any other folder."""
    if not (path / "datasets.yaml").exists():
        raise InputError(f"{path}: no recipes here (datasets.yaml is missing)")
    return path


def find_recipes(folder: Path) -> list[str]:
    """Return the names ``<paper>/<table>`` of all recipes, sorted. Raises InputError if none."""
    paths = folder.glob("*/*/recipe.yaml")
    names = sorted(path.parent.relative_to(folder).as_posix() for path in paths)
    if not names:
        raise InputError(f"{folder}: no recipes (PAPER/TABLE/recipe.yaml) here")
    return names


def load_recipe(folder: Path, name: str) -> Recipe:
    """Read and validate a recipe.

    Raises:
        InputError: no such recipe, with the nearest name, or the file and place of an error.
    """
    if name not in (names := find_recipes(folder)):
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.0)
        raise InputError(f"no recipe {name!r}; the nearest name is {near[0]!r}")
    path = folder / name / "recipe.yaml"
    if not _text(path.with_name("README.md")).strip():
        raise InputError(f"{path.with_name('README.md')}: empty")
    expected = load_expected(path.with_name("expected.json"))
    try:
        content = from_mapping(RecipeSettings, read_yaml(path))
        recipe = Recipe(
            name=name,
            folder=path.parent,
            title=content.title,
            claim=" ".join(content.claim.split()),
            kind=content.kind,
            rows=_rows(content),
            checks=content.checks,
            expected=expected,
            figure=content.figure,
            not_comparable=content.not_comparable,
            backbone=content.backbone,
        )
        _check_names(recipe)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return recipe


def load_expected(path: Path) -> Expected:
    """Read the paper's numbers. Raises InputError naming file and place."""
    try:
        expected = from_mapping(Expected, json.loads(_text(path)))
        for name, row in expected.rows.items():
            if row.kind in ("measured", "quoted"):
                for column, value in row.values.items():
                    place = f"rows.{name}.values"
                    _check_known(column, expected.columns, place, "column")
                    if isinstance(value, str):
                        raise InputError(f"{place}.{column} must be a number, not {value!r}")
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: not JSON: {error}") from None
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return expected


def _rows(content: RecipeSettings) -> tuple[Row, ...]:
    jobs_of: dict[str, dict[Size, Any]] = {}
    rows = []
    for number, row in enumerate(content.rows):
        if row.like is not None:
            _check_known(row.like, jobs_of, f"rows[{number}].like", "row above")
        base = content.sizes if row.like is None else jobs_of[row.like]
        changes = {"small": row.small, "full": row.full}
        jobs_of[row.name] = {
            size: _changed(base.get(size, {}), row.set, changes[size]) for size in SIZES
        }
        jobs: dict[str, Job | str] = {}
        for size, job in jobs_of[row.name].items():
            if not job:
                place = f"rows[{number}] ({row.name})"
                raise InputError(f"{place}: no job for the size {size}, and no reason why")
            jobs[size] = job if isinstance(job, str) else read_job(job, f"{row.name}.{size}")
        rows.append(Row(row.name, row.label or row.name, jobs, row.against, row.at, row.series))
    return tuple(rows)


def _changed(base: Any, both: Any, change: Any) -> Any:
    """Return a job with the changes of a row, or the reason why there is none."""
    if (isinstance(change, str) and change) or (isinstance(base, str) and not change):
        return change or base
    return _override(_override({} if isinstance(base, str) else base, both), change or {})


def _override(base: Any, change: Any) -> Any:
    """Return a job's changed values: another kind replaces the job, the same kind changes it."""
    return merge(base, change) if not change or base.keys() & change.keys() else change


def merge(base: Any, changes: Any) -> Any:
    """Return nested mappings with changes; values other than mappings are replaced whole."""
    if not (isinstance(base, Mapping) and isinstance(changes, Mapping)):
        return changes
    return {**base, **{k: merge(base[k], v) if k in base else v for k, v in changes.items()}}


def read_job(content: Mapping[str, Any], place: str) -> Job:
    """Read a job from a mapping with its kind's name. Raises InputError naming the place."""
    if len(content) != 1:
        raise InputError(f"{place} must have one of {', '.join(JOBS)}, not {list(content)}")
    (kind,) = content
    _check_known(kind, JOBS, place, "job")
    return from_mapping(JOBS[kind], content[kind], f"{place}.{kind}")


def job_kind(job: Job) -> str:
    """Return the name of a job's kind in recipes, such as "retrieval"."""
    return next(name for name, job_class in JOBS.items() if isinstance(job, job_class))


def to_json(job: Job) -> dict[str, Any]:
    """Return a job as JSON values, without settings that have their defaults: a recorded job stays
    the same when settings are added, and when constants replace settings that nothing sets."""
    content: dict[str, Any] = json.loads(json.dumps({job_kind(job): _changes(job)}))
    return content


def _changes(settings: Any) -> dict[str, Any]:
    changes = {}
    for setting in dataclasses.fields(settings):
        value, default = getattr(settings, setting.name), setting.default
        if setting.default_factory is not dataclasses.MISSING:
            default = setting.default_factory()
        if value != default:
            changes[setting.name] = _plain(value)
    return changes


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return _changes(value)
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _check_names(recipe: Recipe) -> None:
    """Check that rows, checks and expected numbers name the same rows."""
    names = [row.name for row in recipe.rows]
    if duplicates := {name for name in names if names.count(name) > 1}:
        raise InputError(f"rows that are there twice: {', '.join(sorted(duplicates))}")
    for row in recipe.rows:
        if row.against is not None:
            _check_known(row.against, names, f"{row.name}.against", "row")
    if recipe.backbone is not None:
        _check_known(recipe.backbone, names, "backbone", "row")
        jobs = next(row.jobs for row in recipe.rows if row.name == recipe.backbone)
        if not any(isinstance(job, PooledJob) and job.dense for job in jobs.values()):
            raise InputError(f"backbone: row {recipe.backbone} has no job pooled with dense: true")
    for number, check in enumerate(recipe.checks):
        place = f"checks[{number}]"
        if bool(check.rising) == bool(check.row):
            raise InputError(f"{place}: set either rising or row")
        for name in check.rows:
            _check_known(name, names, place, "row")
        if check.row and check.least is None and check.most is None:
            raise InputError(f"{place}: set least or most for {check.row}")
    for name, expected in recipe.expected.rows.items():
        if expected.kind == "measured" and name not in names:
            raise InputError(
                f"expected.json measures {name!r}, which is no row{_nearest(name, names)}"
            )
    for column, described in recipe.expected.columns.items():
        if described.over is not None:
            rows = [*names, *recipe.expected.rows]
            _check_known(described.over, rows, f"columns.{column}.over", "row")
        for other in described.of:
            _check_known(other, recipe.expected.columns, f"columns.{column}.of", "column")


def _check_known(name: str, names: Iterable[str], place: str, what: str) -> None:
    if name not in names:
        raise InputError(f"{place}: unknown {what} {name!r}{_nearest(name, names)}")


def _nearest(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(names), n=1, cutoff=0.0)
    return f"; the nearest is {near[0]!r}" if near else ""


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8: {error.reason}") from None
