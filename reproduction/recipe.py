"""Recipes: what a paper's table or figure claims, the rows that test it, and the paper's numbers.

A recipe is a folder ``<paper>/<table>`` with ``recipe.yaml``, ``expected.json`` and ``README.md``.
Nothing in it is code. In ``recipe.yaml``, ``sizes`` has a job for each size, small and full. A row
starts from these, or from those of the row above that ``like`` names; ``set`` has its changes to
both, ``small`` and ``full`` those to one, or the reason why nothing is run.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lexicept.errors import InputError
from lexicept.storage.yaml_text import read_yaml
from lexicept.training.settings import Flag, Items, Number, Text, from_mapping, settings
from reproduction.jobs import JOBS, Job, PooledJob

RECIPES = Path(__file__).parent
"""Folder of the papers' recipes."""
SIZES = ("small", "full")
BASELINE = "bm25"
"""Name of the row that is BM25, in every recipe."""

Kind = Literal["measured", "settings", "examples", "quoted"]


@dataclass(frozen=True)
class Row:
    """A row of the table."""

    name: str
    label: str
    jobs: Mapping[str, Job | str]
    """Size → what is computed, or why it is not at this size."""
    against: str | None = None
    """A row that this one is compared with, query by query."""
    at: float | None = None
    """The row's position on a figure's x axis."""
    series: str = ""
    """The figure's line that it belongs to."""


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


@dataclass(frozen=True)
class ExpectedRow:
    """A row of the paper's table."""

    kind: Kind
    values: Mapping[str, float | str | None]
    """Column → what is printed."""


@dataclass(frozen=True)
class Expected:
    """A paper's table."""

    reference: str
    columns: Mapping[str, Column]
    rows: Mapping[str, ExpectedRow]


@dataclass(frozen=True)
class Recipe:
    """A table or figure, ready to run."""

    name: str
    folder: Path
    title: str
    claim: str
    kind: Kind
    rows: tuple[Row, ...]
    checks: tuple[Check, ...]
    expected: Expected
    figure: FigureSettings | None = None
    not_comparable: str | None = None
    """Why neither size can be compared with the paper's numbers; checks are answered all the
    same."""
    backbone: str | None = None
    """The row that searches with the vectors of the dense model whose states the trained models
    read."""

    @property
    def baselines(self) -> tuple[str, ...]:
        """The rows of which a trained model must reach at least one: ``bm25`` where there is one,
        and ``backbone``."""
        words = [row.name for row in self.rows if row.name == BASELINE]
        return (*words, *([self.backbone] if self.backbone else []))


def recipes_folder(path: Path | None) -> Path:
    """Return ``path``, or the papers' recipes for None. Raises InputError for any other folder."""
    if path is None:
        return RECIPES
    if not (path / "datasets.yaml").exists():
        raise InputError(f"{path}: no recipes here (datasets.yaml is missing)")
    return path


def find_recipes(folder: Path) -> list[str]:
    """Return the names ``<paper>/<table>`` of all recipes, sorted. Raises InputError if none."""
    names = sorted(path.parent.relative_to(folder).as_posix() for path in _files(folder))
    if not names:
        raise InputError(f"{folder}: no recipes (PAPER/TABLE/recipe.yaml) here")
    return names


def _files(folder: Path) -> list[Path]:
    return list(folder.glob("*/*/recipe.yaml"))


def load_recipe(folder: Path, name: str) -> Recipe:
    """Read and validate a recipe.

    Raises:
        InputError: no such recipe, with the nearest name, or the file and place of what is wrong.
    """
    if name not in (known := find_recipes(folder)):
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
        raise InputError(f"no recipe {name!r}; the nearest name is {near[0]!r}")
    path = folder / name / "recipe.yaml"
    content = read_yaml(path)
    if not _text(path.with_name("README.md")).strip():
        raise InputError(f"{path.with_name('README.md')}: empty")
    expected = load_expected(path.with_name("expected.json"))
    try:
        recipe = _recipe(name, path.parent, content, expected)
        _check_names(recipe)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return recipe


def load_expected(path: Path) -> Expected:
    """Read the paper's numbers. Raises InputError naming file and place."""
    try:
        content = json.loads(_text(path))
    except ValueError as error:
        raise InputError(f"{path}: not JSON: {error}") from None
    try:
        _only(content, ("reference", "columns", "rows"), "")
        columns = {
            name: from_mapping(Column, column, f"columns.{name}")
            for name, column in _mapping(content["columns"], "columns").items()
        }
        rows = {
            name: _expected_row(row, name, columns)
            for name, row in _mapping(content["rows"], "rows").items()
        }
        return Expected(str(content["reference"]), columns, rows)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _expected_row(content: Any, name: str, columns: Mapping[str, Column]) -> ExpectedRow:
    place = f"rows.{name}"
    _only(content, ("kind", "values"), place)
    if content["kind"] not in (kinds := ("measured", "settings", "examples", "quoted")):
        raise InputError(f"{place}.kind is one of {', '.join(kinds)}, not {content['kind']!r}")
    values = _mapping(content["values"], f"{place}.values")
    for column, value in values.items():
        if content["kind"] in ("measured", "quoted"):
            _known(column, columns, f"{place}.values", "column")
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and not (number and math.isfinite(value)):
                raise InputError(f"{place}.values.{column} must be a number, not {value!r}")
    return ExpectedRow(content["kind"], values)


_FIELDS = (
    *("title", "claim", "kind", "sizes", "rows", "checks", "figure"),
    *("not_comparable", "backbone"),
)
_ROW_FIELDS = ("name", "label", "like", "set", *SIZES, "against", "at", "series")


def _recipe(name: str, folder: Path, content: Any, expected: Expected) -> Recipe:
    _only(content, _FIELDS, "", required=("title", "claim", "kind"))
    sizes = _mapping(content.get("sizes", {}), "sizes")
    for size in sizes:
        _known(size, SIZES, "sizes", "size")
    bases: dict[str | None, Any] = {None: sizes}
    rows = tuple(_row(row, bases, n) for n, row in enumerate(content.get("rows", [])))
    checks = tuple(
        from_mapping(Check, check, f"checks[{n}]")
        for n, check in enumerate(content.get("checks", []))
    )
    figure = content.get("figure")
    drawn = None if figure is None else from_mapping(FigureSettings, figure, "figure")
    if content["kind"] not in ("measured", "settings", "examples"):
        raise InputError(f"kind is measured, settings or examples, not {content['kind']!r}")
    texts = (str(content["title"]), " ".join(str(content["claim"]).split()))
    kind, reason, dense = (content.get(key) for key in ("kind", "not_comparable", "backbone"))
    return Recipe(name, folder, *texts, kind, rows, checks, expected, drawn, reason, dense)


def _row(content: Any, bases: dict[str | None, Any], number: int) -> Row:
    """Read a row, and add its jobs to ``bases``, by its name; None has those of ``sizes``."""
    place = f"rows[{number}]"
    _only(content, _ROW_FIELDS, place, required=("name",))
    name, like = str(content["name"]), content.get("like")
    if like is not None:
        _known(like, [row for row in bases if row is not None], f"{place}.like", "row above")
    own = {size: content.get(size, {}) for size in SIZES}
    bases[name] = made = {
        size: _changed(bases[like].get(size, {}), content.get("set", {}), own[size])
        for size in SIZES
    }
    jobs: dict[str, Job | str] = {}
    for size, job in made.items():
        if not job:
            raise InputError(f"{place} ({name}): no job for the size {size}, and no reason why")
        jobs[size] = job if isinstance(job, str) else read_job(job, f"{name}.{size}")
    at = content.get("at")
    label, series = str(content.get("label", name)), str(content.get("series", ""))
    return Row(name, label, jobs, content.get("against"), None if at is None else float(at), series)


def _changed(base: Any, both: Any, own: Any) -> Any:
    """Return a job with the changes of a row, or the reason why there is none."""
    if isinstance(own, str) or (isinstance(base, str) and not own):
        return own or base
    return _override(_override({} if isinstance(base, str) else base, both), own)


def _override(base: Any, own: Any) -> Any:
    """Return a job's changed values: another kind replaces the size's, the same kind changes it."""
    same = isinstance(base, Mapping) and isinstance(own, Mapping) and base.keys() & own.keys()
    return merge(base, own) if same or not own else own


def merge(base: Any, changes: Any) -> Any:
    """Return nested mappings with changes; values other than mappings are replaced whole."""
    if not (isinstance(base, Mapping) and isinstance(changes, Mapping)):
        return changes
    return {**base, **{k: merge(base[k], v) if k in base else v for k, v in changes.items()}}


def read_job(content: Any, place: str) -> Job:
    """Read a job from a mapping with its kind's name. Raises InputError naming the place."""
    kinds = _mapping(content, place)
    if len(kinds) != 1:
        raise InputError(f"{place} must have one of {', '.join(JOBS)}, not {list(kinds)}")
    (kind,) = kinds
    _known(kind, JOBS, place, "job")
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
    for field in dataclasses.fields(settings):
        value, default = getattr(settings, field.name), field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        if value != default:
            changes[field.name] = _plain(value)
    return changes


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return _changes(value)
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _check_names(recipe: Recipe) -> None:
    """Check that rows, checks and expected numbers name the same rows."""
    names = [row.name for row in recipe.rows]
    if twice := {name for name in names if names.count(name) > 1}:
        raise InputError(f"rows that are there twice: {', '.join(sorted(twice))}")
    for row in recipe.rows:
        if row.against is not None:
            _known(row.against, names, f"{row.name}.against", "row")
    if recipe.backbone is not None:
        _known(recipe.backbone, names, "backbone", "row")
        dense = next(row for row in recipe.rows if row.name == recipe.backbone)
        if not any(isinstance(job, PooledJob) and job.dense for job in dense.jobs.values()):
            raise InputError(f"backbone: row {dense.name} has no job pooled with dense: true")
    for number, check in enumerate(recipe.checks):
        place = f"checks[{number}]"
        for name in (*check.rising, *([check.row] if check.row else [])):
            _known(name, names, place, "row")
        if bool(check.rising) == bool(check.row):
            raise InputError(f"{place}: set either rising or row")
        if check.row and check.least is None and check.most is None:
            raise InputError(f"{place}: set least or most for {check.row}")
    for name, expected in recipe.expected.rows.items():
        if expected.kind == "measured" and name not in names:
            near = difflib.get_close_matches(name, names, n=1, cutoff=0.0)
            hint = f"; the nearest is {near[0]!r}" if near else ""
            raise InputError(f"expected.json measures {name!r}, which is no row{hint}")
    for column, described in recipe.expected.columns.items():
        if described.over is not None:
            _known(described.over, [*names, *recipe.expected.rows], f"columns.{column}.over", "row")
        for other in described.of:
            _known(other, recipe.expected.columns, f"columns.{column}.of", "column")


def _only(
    content: Any, known: Sequence[str], place: str, required: Sequence[str] | None = None
) -> None:
    for key in _mapping(content, place or "the file"):
        _known(key, known, place, "key")
    for name in known if required is None else required:
        if name not in content:
            raise InputError(f"{place + ': ' if place else ''}{name} is missing")


def _known(name: Any, known: Any, place: str, what: str) -> None:
    if name not in known:
        near = difflib.get_close_matches(str(name), list(known), n=1, cutoff=0.0)
        hint = f"; the nearest is {near[0]!r}" if near else ""
        where = f"{place}: " if place else ""
        raise InputError(f"{where}unknown {what} {name!r}{hint}")


def _mapping(content: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(content, Mapping):
        raise InputError(f"{place} must be a mapping, not {type(content).__name__}")
    return content


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8: {error.reason}") from None
