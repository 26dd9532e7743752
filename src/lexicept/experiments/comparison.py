"""The comparison of a recipe's results with the paper's numbers and claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lexicept.evaluation.significance import holm, paired_t_test
from lexicept.experiments.recipe import Check, Column, Expected, Recipe
from lexicept.experiments.run import Outcome, Result
from lexicept.storage.files import replace_file, write_json

SIGNIFICANT = 0.05
"""Largest p-value of a mark (SAE-SPLADE, Tables 1, 5 and 6)."""


class Cell(NamedTuple):
    """The paper's number and ours."""

    row: str
    column: str
    paper: float
    ours: float | None
    comparable: bool
    """Whether both belong to the same collection and measure."""
    tolerance: float

    @property
    def difference(self) -> float | None:
        return None if self.ours is None else self.ours - self.paper

    @property
    def agrees(self) -> bool | None:
        """Whether both agree; None if they are not comparable."""
        if self.ours is None or not self.comparable:
            return None
        return abs(self.ours - self.paper) <= self.tolerance + 1e-9


class Pair(NamedTuple):
    """The paired test of two rows that ran here, on one dataset."""

    row: str
    against: str
    measure: str
    """``<dataset> <measure>``."""
    difference: float
    p: float


class Marks(NamedTuple):
    """The datasets of a column on which a row differs significantly from another (SAE-SPLADE,
    Table 1: ↑ and ↓), by two-sided paired t-tests at ``SIGNIFICANT``."""

    row: str
    against: str
    column: str
    tested: int
    """Number of datasets."""
    better: int
    worse: int
    better_corrected: int
    """The same after Holm's correction for the column's datasets."""
    worse_corrected: int

    @property
    def shown(self) -> str:
        """The marks as the papers print them, and what the correction leaves of them."""
        plain = _arrows(self.better, self.worse)
        if self.tested == 1:
            return plain
        return f"{plain} of {self.tested}, corrected {_arrows(*self[-2:])}"


class Checked(NamedTuple):
    """A check and its outcome."""

    check: Check
    holds: bool | None
    """Whether it holds; None if a row has not run."""
    shown: str
    """The compared values."""


class Verdict(NamedTuple):
    """The verdict of a run on a recipe's claim."""

    word: str
    """agrees, disagrees, not comparable, not run here, settings or examples."""
    reason: str


class Comparison(NamedTuple):
    """The comparison of a recipe at one size."""

    cells: list[Cell]
    pairs: list[Pair]
    marks: list[Marks]
    checks: list[Checked]
    verdict: Verdict


def compare(recipe: Recipe, size: str, outcome: Outcome) -> Comparison:
    """Return cells, paired tests, checks and the verdict."""
    cells = _cells(recipe, size, outcome.results)
    pairs = _pairs(recipe, size, outcome.results)
    checks = [_check(c, recipe.expected, outcome.results) for c in recipe.checks if c.size == size]
    verdict = _verdict(recipe, outcome, cells, checks)
    return Comparison(cells, pairs, marks(recipe, size, pairs), checks, verdict)


def _cells(recipe: Recipe, size: str, results: Mapping[str, Result]) -> list[Cell]:
    cells = []
    for name, row in recipe.expected.rows.items():
        for column, printed in row.values.items():
            if isinstance(printed, int | float) and column in recipe.expected.columns:
                settings = recipe.expected.columns[column]
                ours = cell_value(recipe.expected, name, column, size, results)
                same = size == "full" or (settings.small is not None and settings.small.same)
                cells.append(Cell(name, column, float(printed), ours, same, settings.tolerance))
    return cells


def cell_value(
    expected: Expected, row: str, column: str, size: str, results: Mapping[str, Result]
) -> float | None:
    """Return our value in the paper's units; None if the row has not measured it."""
    settings = expected.columns[column]
    if settings.of:
        parts = [cell_value(expected, row, part, size, results) for part in settings.of]
        known = [part for part in parts if part is not None]
        return float(np.mean(known)) if len(known) == len(parts) else None
    own = _value(settings, size, results.get(row))
    if own is None or settings.over is None:
        return own
    base = _value(settings, size, results.get(settings.over))
    return None if base is None else own - base


def _value(column: Column, size: str, result: Result | None) -> float | None:
    if result is None:
        return None
    names = _measures(column, size)
    if not names or any(name not in result.values for name in names):
        return None
    return column.scale * float(np.mean([result.values[name] for name in names]))


def marks(recipe: Recipe, size: str, pairs: Sequence[Pair]) -> list[Marks]:
    """Count, for every column and pair of rows, the datasets with a significant difference."""
    tests = {(pair.row, pair.measure): pair for pair in pairs}
    counted = []
    for row in recipe.rows:
        for name, column in recipe.expected.columns.items():
            measures = _measures(column, size) if column.over is None else []
            known = [tests[row.name, m] for m in measures if (row.name, m) in tests]
            if not known:
                continue
            corrected = holm([pair.p for pair in known])
            plain = [(pair.difference, pair.p) for pair in known]
            adjusted = [(pair.difference, p) for pair, p in zip(known, corrected, strict=True)]
            sides = (*_significant(plain), *_significant(adjusted))
            counted.append(Marks(row.name, known[0].against, name, len(known), *sides))
    return counted


def _significant(tests: Sequence[tuple[float, float]]) -> tuple[int, int]:
    """Return how many differences are significantly above 0, and below."""
    signs = [np.sign(difference) for difference, p in tests if p < SIGNIFICANT]
    return signs.count(1), signs.count(-1)


def _arrows(better: int, worse: int) -> str:
    parts = [f"{arrow}{count}" for arrow, count in (("↑", better), ("↓", worse)) if count]
    return " ".join(parts) or "–"


def _measures(column: Column, size: str) -> list[str]:
    """Return the names of a column's values."""
    source = column.small if size == "small" else column
    if source is None or not source.metric:
        return []
    return [f"{dataset} {source.metric}" for dataset in source.datasets] or [source.metric]


def _pairs(recipe: Recipe, size: str, results: Mapping[str, Result]) -> list[Pair]:
    """Test nDCG@10 and whatever the table prints, on every dataset."""
    pairs = []
    columns = recipe.expected.columns.values()
    printed = {name for column in columns for name in _measures(column, size)}
    for row in recipe.rows:
        if row.against is None or row.name not in results or row.against not in results:
            continue
        first, second = results[row.name].per_query, results[row.against].per_query
        for measure in first:
            same = measure in second and first[measure].keys() == second[measure].keys()
            wanted = measure in printed or measure.endswith(" nDCG@10")
            if wanted and same and len(first[measure]) > 1:
                test = paired_t_test(first[measure], second[measure])
                pairs.append(Pair(row.name, row.against, measure, test.difference, test.p))
    return pairs


def _check(check: Check, expected: Expected, results: Mapping[str, Result]) -> Checked:
    names = check.rising or (str(check.row),)
    if check.value in expected.columns:
        values = [cell_value(expected, n, check.value, check.size, results) for n in names]
    else:
        values = [results[n].values.get(check.value) if n in results else None for n in names]
    shown = ", ".join(
        f"{name} {'–' if v is None else f'{v:.4g}'}" for name, v in zip(names, values, strict=True)
    )
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return Checked(check, None, shown)
    if check.rising:
        holds = all(b > a - check.slack for a, b in pairwise(known))
    else:
        least = -np.inf if check.least is None else check.least
        most = np.inf if check.most is None else check.most
        holds = bool(least <= known[0] <= most)
    return Checked(check, holds, shown)


def _verdict(recipe: Recipe, outcome: Outcome, cells: list[Cell], checks: list[Checked]) -> Verdict:
    if recipe.kind != "measured":
        return Verdict(recipe.kind, "nothing to measure")
    if not outcome.results:
        reasons = sorted(set(outcome.missing.values()))
        return Verdict("not run here", "; ".join(reasons[:2]))
    if recipe.not_comparable is not None:
        return Verdict("not comparable", recipe.not_comparable)
    wrong = [f"not so: {c.check.says} ({c.shown})" for c in checks if c.holds is False]
    wrong += [
        f"{c.row}, {c.column}: {c.ours:.4g} where the paper has {c.paper:g}"
        for c in cells
        if c.agrees is False
    ]
    right = sum(c.holds is True for c in checks) + sum(c.agrees is True for c in cells)
    part = ""
    if outcome.missing:
        part = f"; {len(outcome.results)} of {len(recipe.rows)} rows ran"
    if wrong:
        return Verdict("disagrees", "; ".join(wrong[:3]) + part)
    if not right:
        return Verdict("not comparable", "no claim could be tested by the rows that ran" + part)
    return Verdict("agrees", f"{right} claims and values hold{part}")


def markdown(recipe: Recipe, size: str, outcome: Outcome, compared: Comparison) -> str:
    """Return the comparison as Markdown."""
    lines = [f"# {recipe.title}: {size} size", "", recipe.claim, ""]
    lines += [f"**{compared.verdict.word}**: {compared.verdict.reason}", ""]
    ran = [cell for cell in compared.cells if cell.ours is not None]
    if ran:
        lines += ["| row | column | paper | ours | difference | |", "| --- " * 6 + "|"]
        for c in ran:
            word = {True: "agrees", False: "disagrees", None: "other data"}[c.agrees]
            lines.append(
                f"| {c.row} | {c.column} | {c.paper:g} | {c.ours:.4g} | {c.difference:+.3g} "
                f"| {word} |"
            )
        lines.append("")
    if compared.checks:
        lines += ["| claim | holds | values |", "| --- " * 3 + "|"]
        for checked in compared.checks:
            word = {True: "yes", False: "no", None: "not run"}[checked.holds]
            lines.append(f"| {checked.check.says} | {word} | {checked.shown} |")
        lines.append("")
    if compared.marks:
        lines += [
            f"Datasets with a significant difference (paired t-test, p < {SIGNIFICANT:g}, "
            "and with Holm's correction for the datasets of a column):",
            "",
            *("| row | against | column | datasets |", "| --- " * 4 + "|"),
        ]
        lines += [f"| {m.row} | {m.against} | {m.column} | {m.shown} |" for m in compared.marks]
        lines.append("")
    if compared.pairs:
        lines += ["| row | against | measure | difference | p |", "| --- " * 5 + "|"]
        for pair in compared.pairs:
            lines.append(
                f"| {pair.row} | {pair.against} | {pair.measure} | {pair.difference:+.4f} "
                f"| {pair.p:.3g} |"
            )
        lines.append("")
    lines += _values(outcome)
    if outcome.missing:
        lines += ["| row | no result because |", "| --- | --- |"]
        lines += [f"| {name} | {reason} |" for name, reason in outcome.missing.items()]
        lines.append("")
    return "\n".join(lines)


def _values(outcome: Outcome) -> list[str]:
    """Return a line of values for each row: the usual ones, or all of a row without queries."""
    shown = ("nDCG@10", "RR@10", "QD-FLOPs", "document length", "E²", "posting mean", "α")
    lines = []
    for name, result in outcome.results.items():
        values = {
            key: value
            for key, value in result.values.items()
            if key.endswith(shown) or not result.per_query
        }
        text = ", ".join(f"{key} {value:.4g}" for key, value in values.items())
        lines.append(f"- **{name}** ({result.seconds:.0f} s): {text}")
    return [*lines, ""] if lines else []


def write_comparison(recipe: Recipe, size: str, outcome: Outcome, folder: Path) -> Comparison:
    """Write ``table.md`` and ``table.json`` to a folder, each atomically."""
    compared = compare(recipe, size, outcome)
    page = markdown(recipe, size, outcome, compared)
    write_json(folder / "table.json", to_json(compared, outcome))
    replace_file(folder / "table.md", page.encode())
    return compared


def to_json(compared: Comparison, outcome: Outcome) -> dict[str, Any]:
    """Return the comparison as JSON values."""
    return {
        "verdict": compared.verdict._asdict(),
        "cells": [
            {**c._asdict(), "difference": c.difference, "agrees": c.agrees}
            for c in compared.cells
            if c.ours is not None
        ],
        "pairs": [pair._asdict() for pair in compared.pairs],
        "marks": [one._asdict() for one in compared.marks],
        "checks": [
            {"says": c.check.says, "holds": c.holds, "values": c.shown} for c in compared.checks
        ],
        "missing": dict(outcome.missing),
    }
