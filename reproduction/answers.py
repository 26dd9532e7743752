"""Checks of a recipe, each answered: it holds, it fails, or it is undecided.

A claim is a difference between rows. It holds or fails where the difference is beyond chance, over
the queries and, for models that were trained here, over at least ``TRAININGS`` trainings each; the
p-values of a table are corrected by Holm's procedure. It is undecided where chance may explain it,
where a row that it needs has no result, or where a trained model finds less than BM25 and less than
the dense model whose states it reads, if the recipe names that: such a model says nothing about a
paper.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from lexicept.evaluation.significance import (
    Difference,
    holm,
    seeded_difference,
    trainings_difference,
)
from reproduction.jobs import OverlapJob, PooledJob, TrainingJob
from reproduction.recipe import Check, Recipe, measures_of
from reproduction.run import Outcome, Result

Answer = Literal["holds", "fails", "undecided"]

TRAININGS = 3
"""Least number of trainings of a model that a claim is tested on."""

LEVEL = 0.05


class Contrast(NamedTuple):
    """The comparison of a row with another one, or with a number."""

    row: str
    against: str
    """Name of the other row, or the number."""
    value: str
    """Name of the measured value."""
    difference: float
    error: float
    freedom: float

    @property
    def found(self) -> Difference:
        return Difference(self.difference, self.error, self.freedom)

    @property
    def key(self) -> tuple[str, str, str]:
        return self.row, self.against, self.value


class Answered(NamedTuple):
    """A check and its answer."""

    check: Check
    answer: Answer
    reason: str
    """Why it is undecided; empty for other answers."""
    shown: str
    """The compared values."""


class _Step(NamedTuple):
    """A part of a check: a row's value is more than another's, or than a number, plus ``least``."""

    row: str
    against: str | float
    least: float
    below: bool = False
    """True if the row's value is to be less instead."""

    @property
    def key(self) -> tuple[str, str]:
        return self.row, str(self.against)


def run_tests(recipe: Recipe, size: str, results: Mapping[str, Result]) -> list[Contrast]:
    """Return the tests of all checks, and of each row's nDCG@10 and printed measures against the
    row that it names; those for which the results have too little are left out."""
    columns = recipe.expected.columns.values()
    printed = {name for column in columns for name in measures_of(column, size)}
    wanted: dict[tuple[str, str, str], tuple[str, str | float, str]] = {}
    for row in recipe.rows:
        if row.against is not None and row.name in results:
            for value in _by_query(results[row.name]):
                if value in printed or value.endswith(" nDCG@10"):
                    wanted[row.name, row.against, value] = (row.name, row.against, value)
    for check in recipe.checks:
        if check.size == size:
            for step in _steps(check):
                wanted[(*step.key, check.value)] = (step.row, step.against, check.value)
    tests = []
    for row_name, against, value in wanted.values():
        found = _difference(recipe, size, results, row_name, against, value)
        if found is not None:
            tests.append(Contrast(row_name, str(against), value, *found))
    return tests


def _difference(
    recipe: Recipe,
    size: str,
    results: Mapping[str, Result],
    row: str,
    against: str | float,
    value: str,
) -> Difference | None:
    """Compare over queries where there are values of each, else over trainings, else exactly; a
    column of untrained rows by the mean over its datasets."""
    column = recipe.expected.columns.get(value)
    if column is not None and value not in measures_of(column, size) and against in results:
        parts = [
            _difference(recipe, size, results, row, against, measure)
            for measure in measures_of(column, size)
        ]
        known = [part for part in parts if part is not None]
        if not known or len(known) < len(parts):
            return None
        mean = column.scale * float(np.mean([part.difference for part in known]))
        spread = column.scale * float(np.sqrt(sum(part.error**2 for part in known))) / len(known)
        return Difference(mean, spread, min(part.freedom for part in known))
    names = [row] if isinstance(against, float) else [row, against]
    if any(name not in results for name in names):
        return None
    if any(value not in {**results[n].values, **_by_query(results[n])} for n in names):
        return None
    sides = [_queries(results[name], value) for name in names]
    first = sides[0]
    if first is not None and isinstance(against, float):
        return seeded_difference(_matrix(first, list(first[0])), [[against] * len(first[0])])
    second = sides[-1]
    if first is not None and second is not None and first[0].keys() == second[0].keys():
        order = list(first[0])
        return seeded_difference(_matrix(first, order), _matrix(second, order))
    numbers = [_numbers(results[name], value) for name in names]
    learned = [is_trained(recipe, size, name) for name in names]
    if any(one and len(each) < 2 for one, each in zip(learned, numbers, strict=True)):
        return None
    other = [against] if isinstance(against, float) else numbers[1]
    return trainings_difference(numbers[0], other)


def _matrix(parts: Sequence[Mapping[str, float]], order: Sequence[str]) -> list[list[float]]:
    return [[part[query] for query in order] for part in parts]


def _queries(result: Result, value: str) -> list[Mapping[str, float]] | None:
    """Return each training's values by query; None where there are none, or of one query."""
    if result.trainings:
        parts = [training["per_query"].get(value) for training in result.trainings]
    else:
        parts = [result.per_query.get(value)]
    known = [part for part in parts if part is not None and len(part) > 1]
    same = len(known) == len(parts) and all(part.keys() == known[0].keys() for part in known)
    return known if same else None


def _value(recipe: Recipe, size: str, result: Result, name: str) -> float | None:
    """Return a measured value, or that of a column, in the paper's units."""
    column = recipe.expected.columns.get(name)
    if column is None:
        return result.values.get(name)
    parts = [result.values.get(measure) for measure in measures_of(column, size)]
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts):
        return None
    return column.scale * float(np.mean(known))


def _by_query(result: Result) -> Mapping[str, Mapping[str, float]]:
    """Return the values that there are for each query, of the first training where there are
    several."""
    if not result.trainings:
        return result.per_query
    first: Mapping[str, Mapping[str, float]] = result.trainings[0]["per_query"]
    return first


def _numbers(result: Result, value: str) -> list[float]:
    if result.trainings:
        return [float(training["values"][value]) for training in result.trainings]
    return [float(result.values[value])]


def is_trained(recipe: Recipe, size: str, name: str) -> bool:
    """Return whether a row's model is trained by its job."""
    (job,) = (row.jobs[size] for row in recipe.rows if row.name == name)
    match job:
        case TrainingJob():
            return True
        case PooledJob(dense=dense):
            return not dense
        case OverlapJob(training=training):
            return training is not None
    return False


def answers(
    recipe: Recipe, size: str, outcome: Outcome, tests: Sequence[Contrast]
) -> list[Answered]:
    """Answer the checks of a size."""
    checks = [check for check in recipe.checks if check.size == size]
    known = {test.key: test.found for test in tests}
    reasons = [_undecidable(recipe, size, outcome, check, known) for check in checks]
    steps = [
        (number, step, known[(*step.key, check.value)])
        for number, check in enumerate(checks)
        if not reasons[number]
        for step in _steps(check)
    ]
    random = [place for place, (_, _, found) in enumerate(steps) if found.error]
    adjusted = holm([steps[place][2].p(steps[place][1].least) for place in random])
    p_values = dict(zip(random, adjusted, strict=True))
    parts: dict[int, list[Answer]] = {}
    for place, (number, step, found) in enumerate(steps):
        more = found.difference < 0 if step.below else found.difference > step.least
        if p_values.get(place, 0.0) >= LEVEL:
            parts.setdefault(number, []).append("undecided")
        else:
            parts.setdefault(number, []).append("holds" if more else "fails")
    answered = []
    for number, check in enumerate(checks):
        shown = ", ".join(_values(recipe, size, check, outcome.results))
        each = parts.get(number, [])
        answer: Answer = "undecided"
        if "fails" in each:
            answer = "fails"
        elif each and set(each) == {"holds"}:
            answer = "holds"
        reason = reasons[number] or ("within chance" if answer == "undecided" else "")
        answered.append(Answered(check, answer, reason, shown))
    return answered


def _steps(check: Check) -> list[_Step]:
    if check.rising:
        return [_Step(b, a, -check.slack) for a, b in pairwise(check.rising)]
    row, steps = str(check.row), []
    if check.least is not None:
        steps.append(_Step(row, float(check.least), 0.0))
    if check.most is not None:
        steps.append(_Step(row, float(check.most), 0.0, below=True))
    return steps


def _undecidable(
    recipe: Recipe,
    size: str,
    outcome: Outcome,
    check: Check,
    known: Mapping[tuple[str, str, str], Difference],
) -> str:
    """Return why a check can't be decided, before any test; empty where it can."""
    names = check.rising or (str(check.row),)
    for name in names:
        if name not in outcome.results:
            return f"row {name} has no result: {outcome.missing.get(name, 'not run')}"
        if _value(recipe, size, outcome.results[name], check.value) is None:
            return f"row {name} has no {check.value}"
    learned = [name for name in names if is_trained(recipe, size, name)]
    reason = _below_baselines(recipe, size, outcome, learned, check.value)
    if reason:
        return reason
    for name in learned:
        if (count := len(outcome.results[name].trainings) or 1) < TRAININGS:
            return f"row {name} has {count} training{'s' * (count > 1)}, not {TRAININGS}"
    if any((*step.key, check.value) not in known for step in _steps(check)):
        return "its rows were not tested against each other"
    return ""


def _below_baselines(
    recipe: Recipe, size: str, outcome: Outcome, names: Sequence[str], value: str
) -> str:
    """Return which model finds less than every baseline in the value's dataset, or that there is no
    baseline; empty where all models reach one, or the dataset has no nDCG@10."""
    measure = f"{value.partition(' ')[0]} nDCG@10"
    measured = [name for name in names if measure in outcome.results[name].values]
    if not measured:
        return ""
    if not recipe.baselines:
        return "there is no row bm25 as a control"
    for name in measured:
        rivals = [each for each in recipe.baselines if _is_baseline(recipe, size, each, name)]
        known = {
            rival: outcome.results[rival].values[measure]
            for rival in rivals
            if rival in outcome.results and measure in outcome.results[rival].values
        }
        if not known:
            return f"the control {' or '.join(rivals)} has no {measure}"
        ours = outcome.results[name].values[measure]
        if ours < min(known.values()):
            said = " and ".join(f"{rival} ({least:.3f})" for rival, least in known.items())
            return f"{name} ({ours:.3f}) is below {said} in {measure}"
    return ""


def _is_baseline(recipe: Recipe, size: str, baseline: str, name: str) -> bool:
    """Return whether a model is compared with a baseline: with BM25 always, and with a dense model
    whose states it reads."""
    if baseline != recipe.backbone:
        return True
    jobs = {row.name: row.jobs[size] for row in recipe.rows}
    dense, trained = jobs[baseline], jobs[name]
    match dense, trained:
        case PooledJob(model=model), TrainingJob(config=config):
            return config.model.backbone == model
    return False


def _values(
    recipe: Recipe, size: str, check: Check, results: Mapping[str, Result]
) -> Iterator[str]:
    for name in check.rising or (str(check.row),):
        result = results.get(name)
        value = None if result is None else _value(recipe, size, result, check.value)
        if result is None or value is None:
            yield f"{name} –"
            continue
        spread = deviation(result, check.value)
        yield f"{name} {value:.4g}" + ("" if spread is None else f" ± {spread:.2g}")


def deviation(result: Result, value: str) -> float | None:
    """Return the standard deviation of a value over trainings; None for fewer than two."""
    if len(result.trainings) < 2 or value not in result.values:
        return None
    return float(np.std(_numbers(result, value), ddof=1))
