"""Recipes: the claim of a paper's table or figure, rows that test the claim, the paper's numbers.

A recipe is a folder ``<paper>/<table>`` with ``recipe.yaml``, ``expected.json`` and ``README.md``,
without code. In ``recipe.yaml``, ``sizes`` has a job for each size, small and full. A row starts
from these jobs, or from the jobs of the row above named by ``like``; ``set`` changes both jobs,
``small`` and ``full`` the job of a size; a text instead of a job says why nothing is run.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from lexicept.checks import Items, Number, from_mapping, settings
from lexicept.errors import InputError
from lexicept.storage.yaml_text import read_yaml
from reproduction.jobs import JOBS, Job, PooledJob

RECIPES = Path(__file__).parent
"""Folder of the papers' recipes."""

Size = Literal["small", "full"]
SIZES: tuple[Size, ...] = ("small", "full")
BASELINE = "bm25"
"""Name of BM25's row in every recipe."""


@dataclass(frozen=True)
class Row:
    """A row of the table; see ``RowSettings``."""

    name: str
    jobs: Mapping[str, Job | str]
    """Size → the job, or the reason why there is none."""
    against: str | None = None
    at: float | None = None
    series: str = ""


@settings
class Check:
    """A claim of the table, as an inequality of measured values; see ``reproduction.verdicts``."""

    says: str
    """The claim, in words."""
    value: str
    """A value's name, ``scifact nDCG@10``, or a column's; ``scifact QD-FLOPs for the nDCG@10 of
    ROW`` is the least cost, along the pruning curve, of ROW's unpruned nDCG@10 less a point."""
    size: Literal["small", "full"] = "small"
    rising: Items[str] = ()
    """Rows with rising values."""
    slack: Number = 0.0
    """The largest decrease that still counts as a rise; a negative slack is the least increase."""
    row: str | None = None
    """A row whose value is compared with numbers alone."""
    least: Number | None = None
    """The least value of ``row``."""
    most: Number | None = None
    """The largest value of ``row``."""
    sentence: bool = False
    """True for a check of the paper's own sentence, not of a part or a consequence of it."""

    @property
    def rows(self) -> tuple[str, ...]:
        """The compared rows."""
        return self.rising or (str(self.row),)


@settings
class FigureSettings:
    """A plot of the rows, a line for each series and value."""

    y: Items[str]
    """Names of values; rows without the value are left out."""
    x: str | None = None
    """A value; null for the rows' ``at``."""
    label: str = ""
    """The x axis' label."""
    log: bool = False
    """True for a logarithmic x axis."""
    contours: bool = False
    """Lines of equal E², if x is QD-FLOPs and y MRR@10."""


@settings
class Substitute:
    """The measure that stands in for a column in the small run."""

    metric: str
    datasets: Items[str]
    same: bool = False
    """True for the paper's own collection and measure, so that the numbers are comparable."""


@settings
class Column:
    """A column of the paper's table."""

    metric: str
    """As results are named: ``nDCG@10``, ``QD-FLOPs``, ``document length``."""
    datasets: Items[str] = ()
    """The value is the mean over them; none for a value that belongs to no dataset."""
    scale: Number = 1.0
    """The factor from a result to the number as the paper prints it."""
    tolerance: Number = 0.0
    """Largest difference of numbers that agree; an estimate of seeds and rounding, not the
    paper's."""
    of: Items[str] = ()
    """Columns to average, in place of a metric."""
    over: str | None = None
    """A row whose value is subtracted, as ΔE² is over BM25's."""
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
    """Column → the printed value."""


@settings
class Expected:
    """A paper's table: ``expected.json``."""

    reference: str
    columns: dict[str, Column]
    rows: dict[str, ExpectedRow]


@settings
class RowSettings:
    """A row of ``recipe.yaml``."""

    name: str
    label: str | None = None
    """A description for readers of the file."""
    like: str | None = None
    set: dict[str, Any] = field(default_factory=dict)
    small: dict[str, Any] | str = ""
    full: dict[str, Any] | str = ""
    against: str | None = None
    """A row to compare with, query by query."""
    at: Number | None = None
    """The position on a figure's x axis."""
    series: str = ""
    """The line in a figure."""


@settings
class RecipeSettings:
    """The content of ``recipe.yaml``."""

    title: str
    claim: str
    kind: Literal["measured", "settings", "examples"]
    sizes: dict[Size, dict[str, Any] | str] = field(default_factory=dict)
    rows: Items[RowSettings] = ()
    checks: Items[Check] = ()
    figure: FigureSettings | None = None
    not_comparable: str | None = None
    """Why neither size can be compared with the paper's numbers; checks are answered all the
    same."""
    backbone: str | None = None
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
    def row_names(self) -> list[str]:
        return [row.name for row in self.rows]

    @property
    def baselines(self) -> list[str]:
        """BM25 and ``backbone``, of which a trained model must reach at least the weaker."""
        return [name for name in (BASELINE, self.backbone) if name in self.row_names]

    @property
    def recipes(self) -> Path:
        """The folder of all recipes."""
        return self.folder.parents[1]

    def printed(self, size: str) -> set[str]:
        """Return the names of all values in the table's columns."""
        columns = self.expected.columns.values()
        return {measure for column in columns for measure in measures_of(column, size)}


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
        raise InputError(f"no recipe {name!r}{_nearest(name, names)}")
    path = folder / name / "recipe.yaml"
    if not _text(path.with_name("README.md")).strip():
        raise InputError(f"{path.with_name('README.md')}: empty")
    expected = load_expected(path.with_name("expected.json"))
    try:
        content = from_mapping(RecipeSettings, read_yaml(path))
        values = {name: value for name, value in vars(content).items() if name != "sizes"}
        values |= {"claim": " ".join(content.claim.split()), "rows": _rows(content)}
        recipe = Recipe(name=name, folder=path.parent, expected=expected, **values)
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
                place = f"rows.{name}.values"
                for column, value in row.values.items():
                    _check_name(column, expected.columns, place, "column")
                    if isinstance(value, str):
                        raise InputError(f"{place}.{column} must be a number, not {value!r}")
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: not JSON: {error}") from None
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return expected


def _rows(content: RecipeSettings) -> tuple[Row, ...]:
    contents: dict[str, dict[Size, Any]] = {}
    rows = []
    for number, row in enumerate(content.rows):
        if row.like is not None:
            _check_name(row.like, contents, f"rows[{number}].like", "row above")
        base = content.sizes if row.like is None else contents[row.like]
        changes = {"small": row.small, "full": row.full}
        jobs: dict[str, Job | str] = {}
        contents[row.name] = {}
        for size in SIZES:
            job = _changed(base.get(size, {}), row.set, changes[size])
            if not job:
                place = f"rows[{number}] ({row.name})"
                raise InputError(f"{place}: no job for the size {size}, and no reason why")
            contents[row.name][size] = job
            jobs[size] = job if isinstance(job, str) else read_job(job, f"{row.name}.{size}")
        rows.append(Row(row.name, jobs, row.against, row.at, row.series))
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
    """Read a job from a mapping with the name of a kind. Raises InputError naming the place."""
    if len(content) != 1:
        raise InputError(f"{place} must have one of {', '.join(JOBS)}, not {list(content)}")
    (kind,) = content
    _check_name(kind, JOBS, place, "job")
    return from_mapping(JOBS[kind], content[kind], f"{place}.{kind}")


def job_kind(job: Job) -> str:
    """Return the name of a job's kind in recipes, such as "retrieval"."""
    return next(name for name, job_class in JOBS.items() if isinstance(job, job_class))


def to_json(job: Job) -> dict[str, Any]:
    """Return a job as JSON values, without settings that have their defaults: a recorded job stays
    the same when settings are added, and when constants replace settings that nothing sets."""
    content: dict[str, Any] = json.loads(json.dumps({job_kind(job): _plain(job)}))
    return content


def _plain(value: Any) -> Any:
    if not dataclasses.is_dataclass(value):
        return [_plain(item) for item in value] if isinstance(value, tuple) else value
    changes = {}
    for setting in dataclasses.fields(value):
        default: Any = setting.default
        if setting.default_factory is not dataclasses.MISSING:
            default = setting.default_factory()
        if (current := getattr(value, setting.name)) != default:
            changes[setting.name] = _plain(current)
    return changes


def _check_names(recipe: Recipe) -> None:
    """Check that rows, checks and expected numbers name the same rows."""
    names = recipe.row_names
    if duplicates := {name for name in names if names.count(name) > 1}:
        raise InputError(f"rows that are there twice: {', '.join(sorted(duplicates))}")
    for row in recipe.rows:
        if row.against is not None:
            _check_name(row.against, names, f"{row.name}.against", "row")
    if recipe.backbone is not None:
        _check_name(recipe.backbone, names, "backbone", "row")
        jobs = recipe.rows[names.index(recipe.backbone)].jobs.values()
        if not any(isinstance(job, PooledJob) and job.dense for job in jobs):
            raise InputError(f"backbone: row {recipe.backbone} has no job pooled with dense: true")
    for number, check in enumerate(recipe.checks):
        place = f"checks[{number}]"
        if bool(check.rising) == bool(check.row):
            raise InputError(f"{place}: set either rising or row")
        for name in check.rows:
            _check_name(name, names, place, "row")
        if check.row and check.least is None and check.most is None:
            raise InputError(f"{place}: set least or most for {check.row}")
    columns = recipe.expected.columns
    for name, expected in recipe.expected.rows.items():
        if expected.kind == "measured" and name not in names:
            nearest = _nearest(name, names)
            raise InputError(f"expected.json measures {name!r}, which is no row{nearest}")
    for title, column in columns.items():
        if column.over is not None:
            all_rows = [*names, *recipe.expected.rows]
            _check_name(column.over, all_rows, f"columns.{title}.over", "row")
        for averaged in column.of:
            _check_name(averaged, columns, f"columns.{title}.of", "column")


def _check_name(name: str, names: Iterable[str], place: str, what: str) -> None:
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
