"""Answers of checks: holds, fails or undecided, and the verdict of a table."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lexicept.encoding.sources import DEFAULT_BACKBONE
from reproduction.estimates import CostCurve, Estimate, recorded_cost
from reproduction.recipe import Check, Column, Expected, ExpectedRow, Recipe, Row, read_job
from reproduction.run import Outcome, Result
from reproduction.verdicts import (
    Comparison,
    Contrast,
    Table,
    combined,
    compare,
    mean_difference,
    run_tests,
)

QUERIES = [f"q{i}" for i in range(60)]
RETRIEVAL = read_job({"retrieval": {"datasets": [{"name": "tiny"}]}}, "row")
CONFIG = {"data": {"corpus": "tiny"}}
TRAINING = read_job({"training": {"config": CONFIG, "test": [{"name": "tiny"}]}}, "row")
NDCG, COST = "tiny nDCG@10", "tiny QD-FLOPs"


def result(
    name: str, mean: float, seeds: int = 0, cost: float = 1.0, noise: float = 0.05
) -> Result:
    """Return a row with queries around a mean, and with trainings if there are seeds."""
    random = np.random.default_rng(sum(map(ord, name)))

    def measured(seed: int) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
        shift = random.normal(0, 0.005) if seeds else 0.0
        drawn = random.normal(0, 0.05, 60)
        own = dict(zip(QUERIES, mean + shift + drawn - drawn.mean(), strict=True))
        return {NDCG: float(np.mean(list(own.values()))), COST: cost + shift}, {NDCG: own}

    runs = [measured(seed) for seed in range(max(seeds, 1))]
    trainings = tuple(
        {"seed": n, "values": values, "per_query": own} for n, (values, own) in enumerate(runs)
    )
    values = {k: float(np.mean([run[0][k] for run in runs])) for k in (NDCG, COST)}
    job: dict[str, Any] = {}
    own = {} if seeds else runs[0][1]
    return Result(name, job, "", values, (), 1.0, "", {}, "", own, trainings if seeds else ())


def recipe(*checks: Check, trained: bool = False, baseline: bool = True, **more: Any) -> Recipe:
    names = ["a", "b", "c", *(["bm25"] if baseline else [])]
    systems = tuple(
        Row(name, {"small": TRAINING if trained and name != "bm25" else RETRIEVAL})
        for name in names
    )
    expected = Expected("Table 1", {}, {})
    return Recipe("p/t", Path(), "T", "C", "measured", systems, checks, expected, **more)


def compared(table: Recipe, *results: Result, missing: dict[str, str] | None = None) -> Comparison:
    return compare(table, "small", Outcome({each.row: each for each in results}, missing or {}))


RISES = Check("b is better than a", NDCG, rising=("a", "b"))
BM25 = result("bm25", 0.3)


@pytest.mark.parametrize(
    ("a", "b", "slack", "answer"),
    [
        (0.5, 0.6, 0.0, "holds"),
        (0.6, 0.5, 0.0, "fails"),
        (0.5, 0.5, 0.0, "undecided"),
        (0.5, 0.5, 0.05, "holds"),  # at most .05 worse
        (0.6, 0.5, 0.05, "fails"),
        (0.6, 0.55, 0.05, "undecided"),
        (0.5, 0.55, -0.1, "fails"),  # at least .1 better
    ],
)
def test_a_difference_decides_beyond_chance_only(a, b, slack, answer):
    check = Check("claim", NDCG, rising=("a", "b"), slack=slack)
    (checked,) = compared(recipe(check), result("a", a), result("b", b)).checks
    assert checked.answer == answer
    assert checked.reason.startswith("within chance (a difference of ") == (answer == "undecided")


@pytest.mark.parametrize(
    ("costs", "trainings", "answer"),
    [
        ((1.0, 2.0), 3, "holds"),
        ((2.0, 1.0), 3, "fails"),
        ((1.0, 1.0), 3, "undecided"),
        ((1.0, 2.0), 2, "undecided"),
    ],
)
def test_a_check_added_after_a_run_is_tested_over_its_trainings(costs, trainings, answer):
    checks = (RISES, Check("b costs more than a", COST, rising=("a", "b")))
    results = [result(name, 0.6, trainings, cost) for name, cost in zip("ab", costs, strict=True)]
    outcome = Outcome({each.row: each for each in [*results, BM25]}, {})
    recorded = [Contrast("b", "a", NDCG, 0.1, 0.01, 59.0)]
    checked = compare(recipe(*checks, trained=True), "small", outcome, recorded).checks
    assert [each.answer for each in checked] == ["holds" if trainings > 2 else "undecided", answer]


@pytest.mark.parametrize(("seeds", "answer"), [((), "holds"), ((7, 8, 9), "undecided")])
def test_a_pruned_model_is_compared_training_by_training(seeds, answer):
    """Trainings differ by .1, and pruning loses .01 in each; others' trainings are not paired."""

    def measured(name: str, loss: float) -> Result:
        values = [{NDCG: 0.5 + 0.1 * n - loss * (10 + n) / 10} for n in range(3)]
        trainings = tuple({"seed": n, "values": v, "per_query": {}} for n, v in enumerate(values))
        return replace(result(name, 0.6, 3), trainings=trainings)

    table = recipe(Check("pruning loses", NDCG, rising=("b", "a")), trained=True)
    jobs = {"small": replace(TRAINING, document_max_active_dims=5, seeds=seeds)}
    rows = tuple(replace(row, jobs=jobs) if row.name == "b" else row for row in table.rows)
    results = measured("a", 0.0), measured("b", 0.01), BM25
    assert compared(replace(table, rows=rows), *results).checks[0].answer == answer


def test_one_step_that_fails_decides_and_one_that_is_open_does_not():
    check = Check("rises", NDCG, rising=("a", "b", "c"))
    rows = {"a": 0.5, "b": 0.6, "c": 0.7}
    for changes, answer in (
        ({}, "holds"),
        ({"c": 0.6}, "undecided"),
        ({"a": 0.7, "c": 0.6}, "fails"),
    ):
        values = rows | changes
        results = [result(name, mean) for name, mean in values.items()]
        assert compared(recipe(check), *results).checks[0].answer == answer


def test_a_bound_is_a_test_too():
    for least, most, answer in (
        (0.4, None, "holds"),
        (0.6, None, "fails"),
        (None, 0.6, "holds"),
        (None, 0.4, "fails"),
        (0.5, None, "undecided"),
        (0.4, 0.6, "holds"),
        (0.4, 0.45, "fails"),
    ):
        check = Check("claim", NDCG, row="a", least=least, most=most)
        assert compared(recipe(check), result("a", 0.5)).checks[0].answer == answer


def test_costs_without_training_have_no_chance():
    table = recipe(Check("cheaper", COST, rising=("a", "b")))
    for cost, answer in ((1.001, "holds"), (0.999, "fails"), (1.0, "undecided")):
        checked = compared(table, result("a", 0.5), result("b", 0.5, cost=cost)).checks[0]
        assert checked.answer == answer


def test_trainings_that_datasets_share_make_their_mean_no_surer():
    tests = [Estimate(0.1, 0.03, 2.0), Estimate(0.3, 0.04, 50.0), Estimate(0.2, 0.0, 1.0)]
    for shared, error in ((False, 0.05 / 3), (True, 0.07 / 3)):
        assert mean_difference(tests, 100.0, shared) == pytest.approx((20.0, 100 * error, 2.0))


def test_a_missing_row_is_named():
    checked = compared(recipe(RISES), result("a", 0.5), missing={"b": "no data"})
    assert checked.checks[0].reason == "row b has no result: no data"
    assert checked.verdict.word == "undecided"


def test_a_trained_model_needs_three_trainings():
    table = recipe(RISES, trained=True)
    for seeds, reason in ((0, "row a has 1 training, not 3"), (2, "row a has 2 trainings, not 3")):
        checked = compared(table, BM25, result("a", 0.5, seeds), result("b", 0.6, seeds)).checks[0]
        assert (checked.answer, checked.reason) == ("undecided", reason)
    checked = compared(table, BM25, result("a", 0.5, 3), result("b", 0.6, 3)).checks[0]
    assert checked.answer == "holds"
    assert "±" in checked.values


def test_a_model_below_bm25_decides_nothing():
    table = recipe(RISES, trained=True)
    weak, strong = result("a", 0.2, 3), result("b", 0.6, 3)
    checked = compared(table, BM25, weak, strong).checks[0]
    assert checked.answer == "undecided"
    assert checked.reason.startswith("a (0.2")
    assert "is below bm25 (0.3" in checked.reason
    assert compared(table, weak, strong).checks[0].reason == f"the control bm25 has no {NDCG}"
    alone = recipe(RISES, trained=True, baseline=False)
    assert "no row bm25" in compared(alone, weak, strong).checks[0].reason


def with_dense(table: Recipe, model: str) -> Recipe:
    """Return a recipe with a row ``dense`` of a dense model, as the trained models' backbone."""
    job = read_job({"pooled": {"datasets": [{"name": "tiny"}], "model": model, "dense": True}}, "d")
    return replace(table, rows=(*table.rows, Row("dense", {"small": job})), backbone="dense")


def test_a_model_below_bm25_decides_where_it_reaches_the_dense_backbone_that_it_reads():
    own = with_dense(recipe(RISES, trained=True), DEFAULT_BACKBONE)
    weak, strong = result("a", 0.2, 3), result("b", 0.6, 3)
    assert compared(own, BM25, result("dense", 0.1), weak, strong).checks[0].answer == "holds"
    assert compared(own, result("dense", 0.1), weak, strong).checks[0].answer == "holds"
    low = compared(own, BM25, result("dense", 0.25), weak, strong).checks[0]
    assert low.answer == "undecided"
    assert "is below bm25 (0.300) and dense (0.250)" in low.reason
    alone = compared(own, weak, strong).checks[0]
    assert alone.reason == f"the control bm25 or dense has no {NDCG}"
    other = with_dense(recipe(RISES, trained=True), "another-model")
    checked = compared(other, BM25, result("dense", 0.1), weak, strong).checks[0]
    assert checked.reason.endswith("is below bm25 (0.300)")


def test_many_checks_need_stronger_evidence():
    """One difference at p .02 holds alone, and is open among five checks."""
    queries = 60
    zigzag = np.where(np.arange(queries) % 2, 1.0, -1.0)
    target = 2.4 / np.sqrt(queries)  # t = 2.4 where the differences have a deviation of about 1
    base = result("a", 0.5)
    other = Result(
        **{**vars(base), "row": "b", "per_query": {NDCG: {
            name: value + 0.01 * (target + step)
            for (name, value), step in zip(base.per_query[NDCG].items(), zigzag, strict=True)
        }}}
    )  # fmt: skip
    alone = compared(recipe(RISES), base, other)
    assert 0.015 < alone.tests[0].tested.p() < 0.025
    assert alone.checks[0].answer == "holds"
    equal = result("c", 0.5)
    more = [Check(f"claim {n}", NDCG, rising=("a", "c"), slack=n * 1e-4) for n in range(4)]
    assert compared(recipe(RISES, *more), base, other, equal).checks[0].answer == "undecided"


def test_the_verdict_is_made_of_checks():
    falls = Check("a is better than b", NDCG, rising=("b", "a"))
    a, b = result("a", 0.5), result("b", 0.6)
    assert compared(recipe(RISES), a, b).verdict.word == "holds"
    assert compared(recipe(RISES, falls), a, b).verdict == ("mixed", "checks: 1 holds, 1 fails")
    hidden = compared(recipe(falls, not_comparable="private data"), a, b).verdict
    assert hidden.word == "fails"
    assert "private data" in hidden.reason
    open_ = compared(recipe(RISES, Check("open", NDCG, rising=("a", "c"))), a, b).verdict
    assert (open_.word, open_.reason) == ("undecided", "checks: 1 holds, 1 undecided")
    assert compared(recipe(RISES)).verdict.word == "not run"


def test_numbers_beside_the_papers_do_not_fail_a_table():
    columns = {"N": Column("nDCG@10", ("tiny",), tolerance=0.01)}
    expected = Expected("Table 1", columns, {"a": ExpectedRow("measured", {"N": 0.9})})
    table = Recipe(
        "p/t", Path(), "T", "C", "measured",
        (Row("a", {"full": RETRIEVAL}),), (), expected,
    )  # fmt: skip
    checked = compare(table, "full", Outcome({"a": result("a", 0.5)}, {}))
    assert checked.verdict.word == "undecided"
    assert "0 of 1 numbers are the paper's" in checked.verdict.reason


def test_tests_that_were_kept_give_the_same_answers():
    table = recipe(RISES, Check("cheaper", COST, rising=("a", "b")), trained=True)
    results = {"bm25": BM25, "a": result("a", 0.5, 3), "b": result("b", 0.6, 3, 1.5)}
    tests = run_tests(Table(table, "small", Outcome(results, {})))
    bare = {
        name: Result(**{**vars(each), "per_query": {}, "trainings": tuple(
            {**training, "per_query": {}} for training in each.trainings
        )})
        for name, each in results.items()
    }  # fmt: skip
    kept = compare(table, "small", Outcome(bare, {}), tests)
    assert kept.checks == compare(table, "small", Outcome(results, {})).checks
    assert [check.answer for check in kept.checks] == ["holds", "holds"]


@pytest.mark.parametrize(
    ("holds", "fails", "undecided", "word"),
    [
        (2, 0, 0, "holds"),
        (2, 0, 1, "undecided"),
        (0, 1, 0, "fails"),
        (0, 2, 1, "fails"),
        (0, 1, 1, "undecided"),  # half of the checks say nothing
        (0, 7, 21, "undecided"),
        (1, 1, 20, "mixed"),
        (0, 0, 0, "undecided"),
    ],
)
def test_a_verdict_of_fails_needs_more_than_half_of_the_checks(holds, fails, undecided, word):
    answers = ["holds"] * holds + ["fails"] * fails + ["undecided"] * undecided
    assert combined(answers) == word


def test_a_detectable_difference_is_that_of_tables_of_power():
    # With a known variance, 1.960 + 0.842 standard errors show in 80 % of all tests.
    assert Estimate(0.0, 0.01, 1e9).detectable(0.05) == pytest.approx(0.02802, abs=1e-5)


@pytest.mark.parametrize(
    ("value", "cost"),
    [(0.5, 1.0), (0.6, 1.0), (0.7, 2.0), (0.75, np.sqrt(8)), (0.8, 4.0), (0.81, float("inf"))],
)
def test_the_least_cost_of_a_value_lies_between_points_in_the_logarithm(value, cost):
    curve = CostCurve.of([4, 1, 2, 8], [[0.8], [0.6], [0.7], [0.79]])
    assert curve.cost_of(value) == pytest.approx(cost)


@pytest.mark.parametrize(("target", "cost"), [(0.5, 0.5), (0.7, 1.0), (0.8, 1.5), (0.81, 8.0)])
def test_a_recorded_cost_is_within_the_range_of_the_curve(target, cost):
    readings = {0.5: 0.6, 1: 0.7, 2: 0.8, 4: 0.8, 8: 0.8}
    values = {f"{NDCG} at {at:g}": value for at, value in readings.items()}
    unpruned = {NDCG: 0.8, COST: 1.5}
    assert recorded_cost(values | unpruned, "tiny", target) == pytest.approx(cost)
    assert recorded_cost(unpruned, "tiny", target) is None


def with_curve(row: str, *readings: tuple[float, float, float]) -> Result:
    """Return a row with trainings that find each of the readings at 0.5, 1 and 2 QD-FLOPs."""
    trainings = tuple(
        {"seed": seed, "per_query": {}, "values": {
            **{f"{NDCG} at {at:g}": value for at, value in zip((0.5, 1, 2), own, strict=True)},
            NDCG: own[-1], COST: 2.0,
        }}
        for seed, own in enumerate(readings)
    )  # fmt: skip
    values = {NDCG: float(np.mean([own[-1] for own in readings])), COST: 2.0}
    return Result(row, {}, "", values, (), 1.0, "", {}, "", {}, trainings)


def test_costs_are_compared_at_equal_effectiveness():
    """B reaches .79, a point below A's .8, at half of A's cost; neither unpruned cost is less."""
    value = "tiny QD-FLOPs for the nDCG@10 of a"
    cheaper = Check("b costs less than a", value, rising=("b", "a"))
    dearer = Check("a costs less than b", value, rising=("a", "b"))
    a = with_curve("a", (0.5, 0.6, 0.8), (0.5, 0.61, 0.8), (0.5, 0.62, 0.8))
    b = with_curve("b", (0.5, 0.8, 0.81), (0.5, 0.79, 0.82), (0.5, 0.81, 0.82))
    answered = compared(recipe(cheaper, dearer, trained=True), BM25, a, b).checks
    assert [each.answer for each in answered] == ["holds", "fails"]
    assert answered[0].values.startswith("b 0.9778 ± ")
    low = compared(recipe(cheaper, trained=True), result("bm25", 0.795), a, b).checks[0]
    assert low.reason == "b (0.790) is below bm25 (0.795)"


def test_controls_are_looked_at_where_the_check_is():
    """Unpruned both models pass BM25; at half a QD-FLOP one does not."""
    a = with_curve("a", (0.2, 0.6, 0.8), (0.2, 0.6, 0.81), (0.2, 0.6, 0.82))
    b = with_curve("b", (0.5, 0.8, 0.9), (0.51, 0.8, 0.9), (0.52, 0.8, 0.9))
    for row in (a, b):
        at = f"{NDCG} at 0.5"
        row.values[at] = float(np.mean([each["values"][at] for each in row.trainings]))
    pruned = Check("pruned", f"{NDCG} at 0.5", rising=("a", "b"))
    answered = compared(recipe(RISES, pruned, trained=True), BM25, a, b).checks
    assert [each.answer for each in answered] == ["holds", "undecided"]
    assert answered[1].reason == "a (0.200) is below bm25 (0.300)"
