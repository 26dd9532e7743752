"""Verdicts: a recipe's checks, each answered by a paired test, and numbers beside the paper's.

A check holds or fails if the difference of its rows is beyond chance: over the queries and, for
models trained here, over at least ``TRAININGS`` trainings, with Holm's correction over a table's
checks. Rows that search with the same trained models are compared training by training. A check is
undecided within chance, for a row without result, and for a trained model that finds less, at the
check's own value, than both BM25 and the dense model whose states it reads. A table or claim fails
if a check fails, none holds, and more than half of the checks are decided.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from lexicept.evaluation.significance import holm
from reproduction.estimates import Estimate, recorded_cost, seeded_difference, trainings_difference
from reproduction.jobs import SEARCH, Job, OverlapJob, PooledJob, TrainingJob
from reproduction.recipe import Check, Recipe, measures_of
from reproduction.run import Outcome, Result

Answer = Literal["holds", "fails", "undecided"]

TRAININGS = 3
"""Least number of trainings of a model that a check is decided on."""

LEVEL = 0.05
"""Level of significance."""

EQUAL = " QD-FLOPs for the nDCG@10 of "
"""What a value's name has between the dataset and the row whose effectiveness is to be reached."""

POINT = 0.01
"""The nDCG@10 by which equal effectiveness may be less."""


class Contrast(NamedTuple):
    """The test of a row against another row, or against a number."""

    row: str
    against: str
    """Name of the other row, or the number."""
    value: str
    """Name of the measured value."""
    difference: float
    error: float
    freedom: float

    @property
    def tested(self) -> Estimate:
        return Estimate(self.difference, self.error, self.freedom)

    @property
    def key(self) -> tuple[str, str, str]:
        return self.row, self.against, self.value


class CheckAnswer(NamedTuple):
    """A check and the answer."""

    check: Check
    answer: Answer
    reason: str
    """Reason of an undecided answer, else empty."""
    values: str
    """The compared values, with standard deviations over trainings."""

    @property
    def words(self) -> str:
        """The answer, with the reason of an undecided answer."""
        return f"{self.answer}: {self.reason}" if self.reason else self.answer


class Cell(NamedTuple):
    """A number of the paper, and ours."""

    row: str
    column: str
    paper: float
    ours: float | None
    comparable: bool
    """True if both belong to the same collection and measure."""
    tolerance: float

    @property
    def agrees(self) -> bool | None:
        """True if both agree; None if the numbers are not comparable."""
        if self.ours is None or not self.comparable:
            return None
        return abs(self.ours - self.paper) <= self.tolerance + 1e-9


class Verdict(NamedTuple):
    """The verdict of a run on a table."""

    word: str
    """holds, fails, mixed, undecided, not run, settings or examples."""
    reason: str


class Comparison(NamedTuple):
    """A recipe's results at one size, compared with the paper."""

    cells: list[Cell]
    tests: list[Contrast]
    checks: list[CheckAnswer]
    verdict: Verdict


class _Step(NamedTuple):
    """An inequality of a check: a row's value exceeds another row's, or a number, by ``least``."""

    row: str
    against: str | float
    least: float
    below: bool = False
    """True if the row's value is to be less than the number instead."""


def steps_of(check: Check) -> list[_Step]:
    """Return the inequalities that a check consists of."""
    if check.rising:
        return [_Step(after, before, -check.slack) for before, after in pairwise(check.rising)]
    least = [] if check.least is None else [_Step(str(check.row), float(check.least), 0.0)]
    most = [] if check.most is None else [_Step(str(check.row), float(check.most), 0.0, below=True)]
    return least + most


def _key(step: _Step, check: Check) -> tuple[str, str, str]:
    """Return the key of the step's ``Contrast``."""
    return step.row, str(step.against), check.value


def combined(answers: Iterable[str]) -> str:
    """Return holds if all answers hold, mixed if some hold and some fail, fails if some fail and
    less than half of all are undecided; else undecided."""
    counts = Counter(answers)
    if counts["fails"] and counts["holds"]:
        return "mixed"
    if counts["fails"] and 2 * counts["undecided"] < counts.total():
        return "fails"
    return "holds" if set(counts) == {"holds"} else "undecided"


@dataclass(frozen=True)
class Table:
    """The results of a recipe at one size."""

    recipe: Recipe
    size: str
    outcome: Outcome

    def result(self, row: str) -> Result | None:
        return self.outcome.results.get(row)

    def job(self, row: str) -> Job | str:
        return self.recipe.rows[self.recipe.row_names.index(row)].jobs[self.size]

    def is_trained(self, row: str) -> bool:
        """Return True if the row's job trains a model."""
        job = self.job(row)
        if isinstance(job, OverlapJob):
            return job.training is not None
        return isinstance(job, TrainingJob) or (isinstance(job, PooledJob) and not job.dense)

    def same_models(self, row: str, against: str) -> bool:
        """Return True if two rows search with the same trained models, pruned or re-weighted in
        another way."""
        job, other = self.job(row), self.job(against)
        if not (isinstance(job, TrainingJob) and isinstance(other, TrainingJob)):
            return False
        return replace(job, **{name: getattr(other, name) for name in SEARCH}) == other

    def is_published(self, row: str) -> bool:
        """Return True if the row has the latents of a published SAE."""
        job = self.job(row)
        latents = job.latents if isinstance(job, OverlapJob) else None
        return latents is not None and not latents.untrained

    def value(self, row: str, name: str) -> float | None:
        """Return a measured value, or a column's mean over datasets in the paper's units."""
        result, column = self.result(row), self.recipe.expected.columns.get(name)
        if result is None:
            return None
        if EQUAL in name:
            costs = self.numbers(row, name)
            return float(np.mean(costs)) if costs else None
        if column is None:
            return result.values.get(name)
        measures = measures_of(column, self.size)
        if not measures or any(measure not in result.values for measure in measures):
            return None
        return column.scale * float(np.mean([result.values[measure] for measure in measures]))

    def cell(self, row: str, name: str) -> float | None:
        """Return the value of a column in the paper's units: a mean of columns, or a difference."""
        column = self.recipe.expected.columns[name]
        if column.of and not (self.size == "small" and column.small is not None):
            values = [self.cell(row, averaged) for averaged in column.of]
            numbers = [value for value in values if value is not None]
            return float(np.mean(numbers)) if len(numbers) == len(values) else None
        value = self.value(row, name)
        if value is None or column.over is None:
            return value
        base = self.value(column.over, name)
        return None if base is None else value - base

    def numbers(self, row: str, name: str) -> list[float]:
        """Return the value of each training, or the only value; nothing without a curve."""
        result = self.outcome.results[row]
        measured = [training["values"] for training in result.trainings] or [result.values]
        if EQUAL not in name:
            return [float(values[name]) for values in measured]
        target = self.target(name)
        dataset = name.partition(EQUAL)[0]
        costs = [recorded_cost(values, dataset, target) for values in measured if target]
        return [cost for cost in costs if cost is not None]

    def target(self, name: str) -> float | None:
        """Return the nDCG@10 that a value asks the cost of: a row's less a point."""
        dataset, _, row = name.partition(EQUAL)
        result = self.result(row)
        reached = None if result is None else result.values.get(f"{dataset} nDCG@10")
        return None if reached is None else reached - POINT

    def per_query(self, row: str) -> list[Mapping[str, Mapping[str, float]]]:
        """Return the values by measure and query of each training, or the only values."""
        result = self.outcome.results[row]
        return [training["per_query"] for training in result.trainings] or [result.per_query]

    def by_training(self, row: str, name: str) -> list[Mapping[str, float]] | None:
        """Return each training's values by query; None without values of two or more queries."""
        values = [measured.get(name, {}) for measured in self.per_query(row)]
        complete = all(len(each) > 1 and each.keys() == values[0].keys() for each in values)
        return values if complete else None

    def described(self, row: str, name: str) -> str:
        """Return a row's name and value, with the standard deviation over trainings."""
        value, result = self.value(row, name), self.result(row)
        if value is None or result is None:
            return f"{row} –"
        if len(result.trainings) < 2 or not (name in result.values or EQUAL in name):
            return f"{row} {value:.4g}"
        return f"{row} {value:.4g} ± {np.std(self.numbers(row, name), ddof=1):.2g}"

    def difference(self, row: str, against: str | float, name: str) -> Estimate | None:
        """Test over queries if both rows have values of queries, else over trainings, else exactly.

        A column is tested by the mean over datasets. None means that results are missing.
        """
        column = self.recipe.expected.columns.get(name)
        measures = [] if column is None else measures_of(column, self.size)
        if column is not None and name not in measures and against in self.outcome.results:
            tests = [self.difference(row, against, measure) for measure in measures]
            trained = any(self.is_trained(each) for each in (row, against) if isinstance(each, str))
            return mean_difference(tests, column.scale, trained)
        names = [row] if isinstance(against, float) else [row, against]
        for each in names:
            result = self.result(each)
            if result is None:
                return None
            known = {**result.values, **self.per_query(each)[0]}
            if name not in known and not (EQUAL in name and self.numbers(each, name)):
                return None
        first, last = (self.by_training(each, name) for each in (names[0], names[-1]))
        if first is not None and isinstance(against, float):
            return seeded_difference(_matrix(first, first[0]), [[against] * len(first[0])])
        paired = isinstance(against, str) and self.same_models(row, against)
        if first is not None and last is not None and first[0].keys() == last[0].keys():
            matrices = _matrix(first, first[0]), _matrix(last, first[0])
            return seeded_difference(*matrices, paired=paired)
        numbers = {each: self.numbers(each, name) for each in names}
        if any(self.is_trained(each) and len(numbers[each]) < 2 for each in names):
            return None
        base = [against] if isinstance(against, float) else numbers[against]
        return trainings_difference(numbers[row], base, paired=paired)

    def undecidable(self, check: Check, tests: Mapping[tuple[str, str, str], Estimate]) -> str:
        """Return the reason why a check can't be decided by any test; empty if it can."""
        for row in check.rows:
            if row not in self.outcome.results:
                return f"row {row} has no result: {self.outcome.missing.get(row, 'not run')}"
            if self.value(row, check.value) is None:
                return f"row {row} has no {check.value}"
        trained = [row for row in check.rows if self.is_trained(row)]
        published = [row for row in check.rows if self.is_published(row)]
        if reason := self._below_controls([*trained, *published], check.value):
            return reason
        for row in trained:
            if (count := len(self.outcome.results[row].trainings) or 1) < TRAININGS:
                return f"row {row} has {count} training{'s' * (count > 1)}, not {TRAININGS}"
        if any(_key(step, check) not in tests for step in steps_of(check)):
            return "its rows were not tested against each other"
        return ""

    def _below_controls(self, rows: Sequence[str], value: str) -> str:
        """Return the model that finds less than all of its controls in the value's dataset, as
        much pruned as the value is (controls are not pruned); what translations share is judged by
        searches in another language than the question's."""
        for row in rows:
            across = "across " if isinstance(self.job(row), OverlapJob) else ""
            measure = f"{value.partition(' ')[0]} {across}nDCG@10"
            ours = self._effectiveness(row, measure, value)
            if ours is None:
                continue
            if not self.recipe.baselines:
                return "there is no row bm25 as a control"
            controls = [name for name in self.recipe.baselines if self._is_control(name, row)]
            results = [(name, self.result(name)) for name in controls]
            scores = {
                name: result.values[measure]
                for name, result in results
                if result is not None and measure in result.values
            }
            if not scores:
                return f"the control {' or '.join(controls)} has no {measure}"
            if ours < min(scores.values()):
                listed = " and ".join(f"{name} ({score:.3f})" for name, score in scores.items())
                return f"{row} ({ours:.3f}) is below {listed}"
        return ""

    def _effectiveness(self, row: str, unpruned: str, value: str) -> float | None:
        """Return what a row finds at a check's value: pruned, for equal effectiveness the target,
        else unpruned."""
        if EQUAL in value:
            return self.target(value)
        values = self.outcome.results[row].values
        pruned = value.startswith((f"{unpruned} at ", f"{unpruned} from "))
        return values.get(value if pruned else unpruned)

    def _is_control(self, baseline: str, row: str) -> bool:
        """Return True for BM25, and for the dense model whose states the row's model reads."""
        if baseline != self.recipe.backbone:
            return True
        dense, job = self.job(baseline), self.job(row)
        return (
            isinstance(dense, PooledJob)
            and isinstance(job, TrainingJob)
            and job.config.model.backbone == dense.model
        )


def _matrix(trainings: Sequence[Mapping[str, float]], queries: Iterable[str]) -> list[list[float]]:
    return [[values[query] for query in queries] for values in trainings]


def mean_difference(
    tests: Sequence[Estimate | None], scale: float, same_trainings: bool
) -> Estimate | None:
    """Return the mean over datasets, which are independent but for trainings of the same models:
    these leave the error of the mean as large as of a dataset."""
    measured = [test for test in tests if test is not None]
    if not measured or len(measured) < len(tests):
        return None
    mean = scale * float(np.mean([test.difference for test in measured]))
    errors = [test.error for test in measured]
    error = float(np.mean(errors) if same_trainings else np.linalg.norm(errors) / len(errors))
    freedom = min((test.freedom for test in measured if test.error), default=1.0)
    return Estimate(mean, scale * error, freedom)


def run_tests(table: Table) -> list[Contrast]:
    """Return the tests of all checks, and of each row's nDCG@10 and printed measures against the
    row that the recipe compares it with; tests without results are left out."""
    recipe, pairs = table.recipe, dict[tuple[str, str, str], str | float]()
    printed = recipe.printed(table.size)
    for row in recipe.rows:
        if row.against is not None and row.name in table.outcome.results:
            for value in table.per_query(row.name)[0]:
                if value in printed or value.endswith(" nDCG@10"):
                    pairs[row.name, row.against, value] = row.against
    for check in recipe.checks:
        if check.size == table.size:
            pairs |= {_key(step, check): step.against for step in steps_of(check)}
    tests = [(key, table.difference(key[0], against, key[2])) for key, against in pairs.items()]
    return [
        Contrast(*key, test.difference, test.error, test.freedom)
        for key, test in tests
        if test is not None
    ]


def _over_trainings(table: Table, recorded: Sequence[Contrast]) -> Iterator[Contrast]:
    """Yield the tests of checks between trained rows that are not recorded."""
    keys = {test.key for test in recorded}
    for check in table.recipe.checks:
        trained = [row for row in check.rows if row in table.outcome.results]
        trained = [row for row in trained if len(table.outcome.results[row].trainings) >= TRAININGS]
        if check.size == table.size and len(trained) == len(check.rows):
            for step in steps_of(check):
                test = table.difference(step.row, step.against, check.value)
                if _key(step, check) not in keys and test is not None:
                    yield Contrast(*_key(step, check), test.difference, test.error, test.freedom)


def answer_checks(table: Table, tests: Sequence[Contrast]) -> list[CheckAnswer]:
    """Answer the checks of a size, with Holm's correction over all of their inequalities."""
    checks = [check for check in table.recipe.checks if check.size == table.size]
    differences = {test.key: test.tested for test in tests}
    reasons = [table.undecidable(check, differences) for check in checks]
    steps = [
        (number, step, differences[_key(step, check)])
        for number, check in enumerate(checks)
        if not reasons[number]
        for step in steps_of(check)
    ]
    # Differences without an error are exact and have no p-value.
    random = [place for place, (_, _, test) in enumerate(steps) if test.error]
    corrected = holm([steps[place][2].p(steps[place][1].least) for place in random])
    p_values = dict(zip(random, corrected, strict=True))
    answers: list[list[str]] = [[] for _ in checks]
    detectable = [0.0] * len(checks)
    for place, (number, step, test) in enumerate(steps):
        true = test.difference < 0 if step.below else test.difference > step.least
        within_chance = p_values.get(place, test.p(step.least)) >= LEVEL
        if within_chance:
            least = test.detectable(LEVEL / max(1, len(random)))
            detectable[number] = max(detectable[number], least)
        answers[number].append("undecided" if within_chance else "holds" if true else "fails")
    return [
        _answered(table, check, answers[number], reasons[number], detectable[number])
        for number, check in enumerate(checks)
    ]


def _answered(
    table: Table, check: Check, steps: Sequence[str], reason: str, detectable: float
) -> CheckAnswer:
    answer: Answer = "undecided"
    if "fails" in steps:
        answer = "fails"
    elif steps and set(steps) == {"holds"}:
        answer = "holds"
    elif not reason:
        power = f" (a difference of {detectable:.2g} would show)" if detectable else ""
        reason = f"within chance{power}"
    values = ", ".join(table.described(row, check.value) for row in check.rows)
    return CheckAnswer(check, answer, reason, values)


def compare(
    recipe: Recipe, size: str, outcome: Outcome, tests: Sequence[Contrast] | None = None
) -> Comparison:
    """Return cells, tests, answered checks and the verdict.

    Args:
        tests: recorded tests, for results without values of queries; checks without a recorded test
            are tested over trainings alone. None runs all tests.
    """
    table = Table(recipe, size, outcome)
    contrasts = run_tests(table) if tests is None else [*tests, *_over_trainings(table, tests)]
    checks, cells = answer_checks(table, contrasts), list(_cells(table))
    return Comparison(cells, contrasts, checks, _verdict(table, cells, checks))


def _cells(table: Table) -> Iterator[Cell]:
    columns = table.recipe.expected.columns
    for name, expected in table.recipe.expected.rows.items():
        for title, printed in expected.values.items():
            if isinstance(printed, int | float) and (column := columns.get(title)) is not None:
                same = table.size == "full" or bool(column.small and column.small.same)
                ours = table.cell(name, title)
                yield Cell(name, title, float(printed), ours, same, column.tolerance)


def _verdict(table: Table, cells: Sequence[Cell], checks: Sequence[CheckAnswer]) -> Verdict:
    """Combine the answers; numbers beside the paper's decide only in a table without checks."""
    recipe, outcome = table.recipe, table.outcome
    if recipe.kind != "measured":
        return Verdict(recipe.kind, "nothing to measure")
    if not outcome.results:
        return Verdict("not run", "; ".join(sorted(set(outcome.missing.values()))[:2]))
    near = [cell.agrees for cell in cells if cell.agrees is not None]
    remarks = []
    if recipe.not_comparable is not None:
        near, remarks = [], [f"numbers are not comparable: {recipe.not_comparable}"]
    if outcome.missing:
        remarks.insert(0, f"{len(outcome.results)} of {len(recipe.rows)} rows ran")
    if near:
        remarks.insert(0, f"{sum(near)} of {len(near)} numbers are the paper's")
    if not checks:
        word = "holds" if near and all(near) else "undecided"
        return Verdict(word, "; ".join(["the table has no check", *remarks]))
    word = combined(check.answer for check in checks)
    return Verdict(word, "; ".join([f"checks: {counts_of(checks)}", *remarks]))


def counts_of(checks: Sequence[CheckAnswer]) -> str:
    """Return the number of checks by answer, such as "2 holds, 1 undecided"."""
    answers = [check.answer for check in checks]
    words = [word for word in ("holds", "fails", "undecided") if word in answers]
    return ", ".join(f"{answers.count(word)} {word}" for word in words)
