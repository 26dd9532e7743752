"""Answers of checks: holds, fails or undecided, and what a table's verdict is made of."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lexicept.encoding.sources import DEFAULT_BACKBONE
from reproduction.recipe import Check, Column, Expected, ExpectedRow, Recipe, Row, read_job
from reproduction.run import Outcome, Result
from reproduction.verdicts import Comparison, Contrast, Table, compare, run_tests

QUERIES = [f"q{number}" for number in range(60)]
RETRIEVAL = read_job({"retrieval": {"datasets": [{"name": "tiny"}]}}, "row")
CONFIG = {"data": {"corpus": "tiny"}}
TRAINING = read_job({"training": {"config": CONFIG, "test": [{"name": "tiny"}]}}, "row")
NDCG, COST = "tiny nDCG@10", "tiny QD-FLOPs"


def result(
    name: str, mean: float, seeds: int = 0, cost: float = 1.0, noise: float = 0.05
) -> Result:
    """Return a row whose queries vary around a mean, with trainings where there are seeds."""
    random = np.random.default_rng(sum(map(ord, name)))

    def measured(seed: int) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
        shift = random.normal(0, 0.005) if seeds else 0.0
        drawn = random.normal(0, 0.05, 60)
        own = dict(zip(QUERIES, mean + shift + drawn - drawn.mean(), strict=True))
        values = {NDCG: float(np.mean(list(own.values()))), COST: cost + shift}
        return values, {NDCG: own}

    parts = [measured(seed) for seed in range(max(seeds, 1))]
    trainings = tuple(
        {"seed": n, "values": values, "per_query": own} for n, (values, own) in enumerate(parts)
    )
    values = {k: float(np.mean([part[0][k] for part in parts])) for k in (NDCG, COST)}
    job: dict[str, Any] = {}
    own = {} if seeds else parts[0][1]
    return Result(name, job, "", values, (), 1.0, "", {}, "", own, trainings if seeds else ())


def recipe(*checks: Check, trained: bool = False, baseline: bool = True, **more: Any) -> Recipe:
    names = ["a", "b", "c", *(["bm25"] if baseline else [])]
    rows = tuple(
        Row(name, {"small": TRAINING if trained and name != "bm25" else RETRIEVAL})
        for name in names
    )
    expected = Expected("Table 1", {}, {})
    return Recipe("p/t", Path(), "T", "C", "measured", rows, checks, expected, **more)


def compared(table: Recipe, *results: Result, missing: dict[str, str] | None = None) -> Comparison:
    outcome = Outcome({each.row: each for each in results}, missing or {})
    return compare(table, "small", outcome)


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
    (found,) = compared(recipe(check), result("a", a), result("b", b)).checks
    assert found.answer == answer
    assert found.reason == ("within chance" if answer == "undecided" else "")


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
    rows = [result(name, 0.6, trainings, cost) for name, cost in zip("ab", costs, strict=True)]
    outcome = Outcome({each.row: each for each in [*rows, BM25]}, {})
    recorded = [Contrast("b", "a", NDCG, 0.1, 0.01, 59.0)]
    found = compare(recipe(*checks, trained=True), "small", outcome, recorded).checks
    assert [each.answer for each in found] == ["holds" if trainings > 2 else "undecided", answer]


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
    check = Check("cheaper", COST, rising=("a", "b"))
    table = recipe(check)
    for cost, answer in ((1.001, "holds"), (0.999, "fails"), (1.0, "fails")):
        found = compared(table, result("a", 0.5), result("b", 0.5, cost=cost)).checks[0]
        assert found.answer == answer


def test_a_missing_row_is_named():
    found = compared(recipe(RISES), result("a", 0.5), missing={"b": "no data"})
    assert found.checks[0].reason == "row b has no result: no data"
    assert found.verdict.word == "undecided"


def test_a_trained_model_needs_three_trainings():
    table = recipe(RISES, trained=True)
    for seeds, reason in ((0, "row a has 1 training, not 3"), (2, "row a has 2 trainings, not 3")):
        found = compared(table, BM25, result("a", 0.5, seeds), result("b", 0.6, seeds)).checks[0]
        assert (found.answer, found.reason) == ("undecided", reason)
    found = compared(table, BM25, result("a", 0.5, 3), result("b", 0.6, 3)).checks[0]
    assert found.answer == "holds"
    assert "±" in found.values


def test_a_cost_of_trained_models_is_tested_over_trainings():
    check = Check("cheaper", COST, rising=("a", "b"))
    table = recipe(check, trained=True)
    a = result("a", 0.5, 3)
    for cost, answer in ((1.5, "holds"), (0.5, "fails"), (1.0, "undecided")):
        found = compared(table, BM25, a, result("b", 0.5, 3, cost)).checks[0]
        assert found.answer == answer


def test_a_model_below_bm25_decides_nothing():
    table = recipe(RISES, trained=True)
    weak, strong = result("a", 0.2, 3), result("b", 0.6, 3)
    found = compared(table, BM25, weak, strong).checks[0]
    assert found.answer == "undecided"
    assert found.reason.startswith("a (0.2")
    assert "is below bm25 (0.3" in found.reason
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
    found = compared(other, BM25, result("dense", 0.1), weak, strong).checks[0]
    assert found.reason.endswith("is below bm25 (0.300)")


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
    mixed = compared(recipe(RISES, falls), a, b).verdict
    assert mixed == ("mixed", "checks: 1 holds, 1 fails")
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
    found = compare(table, "full", Outcome({"a": result("a", 0.5)}, {}))
    assert found.verdict.word == "undecided"
    assert "0 of 1 numbers are the paper's" in found.verdict.reason


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
    assert [found.answer for found in kept.checks] == ["holds", "holds"]
