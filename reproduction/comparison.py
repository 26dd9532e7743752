"""The comparison of a recipe's results with the paper's numbers and claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lexicept.evaluation.significance import holm
from lexicept.storage.files import replace_file, write_json
from reproduction.answers import LEVEL, Answered, Contrast, answers, deviation, run_tests
from reproduction.recipe import Column, Expected, Recipe, measures_of
from reproduction.run import Outcome, Result

ANSWERS = ("holds", "fails", "undecided")
AT_COST = "nDCG@10 at "
"""Part of the names of values at equal cost."""


class Cell(NamedTuple):
    """The paper's number and ours."""

    row: str
    column: str
    paper: float
    ours: float | None
    comparable: bool
    """True if both belong to the same collection and measure."""
    tolerance: float

    @property
    def difference(self) -> float | None:
        return None if self.ours is None else self.ours - self.paper

    @property
    def agrees(self) -> bool | None:
        """True if both agree; None if they are not comparable."""
        if self.ours is None or not self.comparable:
            return None
        return abs(self.ours - self.paper) <= self.tolerance + 1e-9


class Marks(NamedTuple):
    """The datasets of a column on which a row differs significantly from another (SAE-SPLADE,
    Table 1: ↑ and ↓), by two-sided tests at ``LEVEL``."""

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


class Verdict(NamedTuple):
    """The verdict of a run on a recipe's claim."""

    word: str
    """agrees, disagrees, undecided, not run here, settings or examples."""
    reason: str


class Comparison(NamedTuple):
    """The comparison of a recipe at one size."""

    cells: list[Cell]
    tests: list[Contrast]
    marks: list[Marks]
    checks: list[Answered]
    verdict: Verdict


def compare(
    recipe: Recipe, size: str, outcome: Outcome, tests: Sequence[Contrast] | None = None
) -> Comparison:
    """Return cells, tests, answered checks and the verdict.

    Args:
        tests: of results that are kept without the values of queries; None runs them.
    """
    cells = _cells(recipe, size, outcome.results)
    run = run_tests(recipe, size, outcome.results) if tests is None else list(tests)
    checks = answers(recipe, size, outcome, run)
    verdict = _verdict(recipe, outcome, cells, checks)
    return Comparison(cells, run, marks(recipe, size, run), checks, verdict)


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
    if settings.of and not (size == "small" and settings.small is not None):
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
    names = measures_of(column, size)
    if not names or any(name not in result.values for name in names):
        return None
    return column.scale * float(np.mean([result.values[name] for name in names]))


def marks(recipe: Recipe, size: str, tests: Sequence[Contrast]) -> list[Marks]:
    """Count, for every column and pair of rows, the datasets with a significant difference."""
    rivals = {row.name: row.against for row in recipe.rows}
    known_tests = {(t.row, t.value): t for t in tests if rivals.get(t.row) == t.against}
    counted = []
    for row in recipe.rows:
        for name, column in recipe.expected.columns.items():
            measures = measures_of(column, size) if column.over is None else []
            known = [known_tests[row.name, m] for m in measures if (row.name, m) in known_tests]
            if not known:
                continue
            corrected = holm([test.found.p() for test in known])
            plain = [(test.difference, test.found.p()) for test in known]
            adjusted = [(test.difference, p) for test, p in zip(known, corrected, strict=True)]
            sides = (*_significant(plain), *_significant(adjusted))
            counted.append(Marks(row.name, known[0].against, name, len(known), *sides))
    return counted


def _significant(tests: Sequence[tuple[float, float]]) -> tuple[int, int]:
    """Return how many differences are significantly above 0, and below."""
    signs = [np.sign(difference) for difference, p in tests if p < LEVEL]
    return signs.count(1), signs.count(-1)


def _arrows(better: int, worse: int) -> str:
    parts = [f"{arrow}{count}" for arrow, count in (("↑", better), ("↓", worse)) if count]
    return " ".join(parts) or "–"


def _verdict(
    recipe: Recipe, outcome: Outcome, cells: list[Cell], checks: list[Answered]
) -> Verdict:
    """Return agrees where every check holds, disagrees where one fails, and else undecided.

    Numbers beside the paper's decide only in a table without checks: they have no test.
    """
    if recipe.kind != "measured":
        return Verdict(recipe.kind, "nothing to measure")
    if not outcome.results:
        reasons = sorted(set(outcome.missing.values()))
        return Verdict("not run here", "; ".join(reasons[:2]))
    near = [cell.agrees for cell in cells if cell.agrees is not None]
    if recipe.not_comparable is not None:
        near = []
    parts = [f"{sum(near)} of {len(near)} numbers are the paper's"] if near else []
    if outcome.missing:
        parts.append(f"{len(outcome.results)} of {len(recipe.rows)} rows ran")
    if recipe.not_comparable is not None:
        parts.append(f"numbers are not comparable: {recipe.not_comparable}")
    rest = "".join(f"; {part}" for part in parts)
    if not checks:
        word = "agrees" if near and all(near) else "undecided"
        return Verdict(word, f"the table has no check{rest}")
    counts = {word: [c for c in checks if c.answer == word] for word in ANSWERS}
    said = ", ".join(f"{len(each)} {word}" for word, each in counts.items() if each)
    failed = [f"not so: {c.check.says} ({c.shown})" for c in counts["fails"][:3]]
    if failed:
        return Verdict("disagrees", f"checks: {said}; {'; '.join(failed)}{rest}")
    if not counts["undecided"]:
        return Verdict("agrees", f"checks: {said}{rest}")
    reasons = list(dict.fromkeys(c.reason for c in counts["undecided"]))
    return Verdict("undecided", f"checks: {said} ({'; '.join(reasons[:3])}){rest}")


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
        lines += ["| claim | answer | values |", "| --- " * 3 + "|"]
        lines += [f"| {c.check.says} | {spoken(c)} | {c.shown} |" for c in compared.checks]
        lines.append("")
    if compared.marks:
        lines += [
            f"Datasets with a significant difference (p < {LEVEL:g}, and with Holm's correction "
            "for the datasets of a column):",
            "",
            *("| row | against | column | datasets |", "| --- " * 4 + "|"),
        ]
        lines += [f"| {m.row} | {m.against} | {m.column} | {m.shown} |" for m in compared.marks]
        lines.append("")
    if compared.tests:
        lines += ["| row | against | value | difference | 95 % interval | p |", "| --- " * 6 + "|"]
        for test in compared.tests:
            low, high = test.found.interval()
            lines.append(
                f"| {test.row} | {test.against} | {test.value} | {test.difference:+.4f} "
                f"| {low:+.4f} to {high:+.4f} | {test.found.p():.3g} |"
            )
        lines.append("")
    lines += _values(outcome)
    if outcome.missing:
        lines += ["| row | no result because |", "| --- | --- |"]
        lines += [f"| {name} | {reason} |" for name, reason in outcome.missing.items()]
        lines.append("")
    return "\n".join(lines)


def spoken(answered: Answered) -> str:
    """Return the answer, and why it is undecided."""
    return answered.answer + (f": {answered.reason}" if answered.reason else "")


def _values(outcome: Outcome) -> list[str]:
    """Return a line of values for each row: the usual ones, or all of a row without queries."""
    shown = ("nDCG@10", "RR@10", "QD-FLOPs", "document length", "E²", "posting mean", "α")
    lines = []
    for name, result in outcome.results.items():
        values = {
            key: value
            for key, value in result.values.items()
            if key.endswith(shown) or AT_COST in key or not (result.per_query or result.trainings)
        }
        text = ", ".join(_with_spread(result, key) for key in values)
        lines.append(f"- **{name}** ({result.seconds:.0f} s): {text}")
    return [*lines, ""] if lines else []


def _with_spread(result: Result, name: str) -> str:
    spread = deviation(result, name)
    return f"{name} {result.values[name]:.4g}" + ("" if spread is None else f" ± {spread:.2g}")


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
        "tests": [test._asdict() for test in compared.tests],
        "marks": [one._asdict() for one in compared.marks],
        "checks": [
            {"says": c.check.says, "answer": c.answer, "reason": c.reason, "values": c.shown}
            for c in compared.checks
        ],
        "missing": dict(outcome.missing),
    }
