"""The papers' main claims: data that name checks, whose answers are computed."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import yaml

from lexicept.errors import InputError
from reproduction.answers import Answered, Contrast
from reproduction.claim_page import claims_section
from reproduction.claim_plots import curve, point, write_plot
from reproduction.claims import Claim, Evidence, Plot, answer_claim, load_claims
from reproduction.comparison import Comparison, Verdict
from reproduction.recipe import RECIPES, Check, find_recipes, load_recipe
from reproduction.report import recorded, write_report
from reproduction.run import Outcome, Result
from reproduction.systems import load_hub_encoder

BEFORE = {
    "commit": "0bac0f6",
    "tables": 2,
    **{"agrees": 1, "disagrees": 1, "not_comparable": 0, "not_run": 0, "nothing_to_measure": 0},
}
CLAIM = {
    "title": "b finds more than a",
    "paper": "Table 1.",
    "apart": "Other data.",
    "evidence": [{"recipe": "paper/table1", "rows": ["a", "b"]}],
    "plot": {"dataset": "tiny", "rows": ["a", "b"]},
}


def result(name, trainings=(), **values):
    trained = tuple({"seed": n, "values": each} for n, each in enumerate(trainings))
    return Result(name, {}, "", values, (), 0.0, "", {}, "", {}, trained)


def known(*answers, results=("a", "b"), missing=None):
    """One recipe with rows a, b and c, and checks of b over a with these answers."""
    checks = [Check(f"check {n}", "tiny nDCG@10", rising=("a", "b")) for n in range(len(answers))]
    checks.append(Check("of another row", "tiny nDCG@10", rising=("a", "c")))
    compared = Comparison(
        [],
        [Contrast("b", "a", "tiny nDCG@10", 0.1, 0.02, 30.0)],
        [],
        [Answered(c, a, "", "") for c, a in zip(checks, (*answers, "fails"), strict=True)],
        Verdict("undecided", ""),
    )
    rows = tuple(SimpleNamespace(name=name, label=name, series="") for name in "abc")
    recipe = SimpleNamespace(name="paper/table1", rows=rows, expected=SimpleNamespace(columns={}))
    values = {"tiny nDCG@10": 0.5, "tiny QD-FLOPs": 2.0}
    outcome = Outcome({name: result(name, **values) for name in results}, missing or {})
    return {"paper/table1": (recipe, outcome, compared)}


def claim_of(**changes):
    given = {**CLAIM, **changes}
    evidence = tuple(Evidence(**{**e, "rows": tuple(e["rows"])}) for e in given["evidence"])
    plot = Plot(given["plot"]["dataset"], tuple(given["plot"]["rows"]))
    return Claim(given["title"], given["paper"], given["apart"], evidence, plot)


def write(folder, *claims, before=BEFORE):
    (folder / "claims.yaml").write_text(yaml.safe_dump({"before": before, "claims": list(claims)}))


def test_the_papers_have_ten_claims_with_checks(tmp_path):
    _, claims = load_claims(RECIPES)
    assert len(claims) == 10
    named = {evidence.recipe for claim in claims for evidence in claim.evidence}
    assert named <= set(find_recipes(RECIPES))
    for claim in claims:
        for evidence in claim.evidence:
            recipe = load_recipe(RECIPES, evidence.recipe)
            outcome, tests = recorded(recipe, "small")
            checks = [Answered(c, "undecided", "", "") for c in recipe.checks if c.size == "small"]
            compared = Comparison([], tests, [], checks, Verdict("undecided", ""))
            one = replace(claim, evidence=(evidence,), plot=Plot())
            assert answer_claim(one, {recipe.name: (recipe, outcome, compared)}).found


@pytest.mark.parametrize(
    ("answers", "answer"),
    [
        (["holds", "holds"], "holds"),
        (["holds", "fails", "undecided"], "fails"),
        (["holds", "undecided"], "undecided"),
    ],
)
def test_a_claim_is_answered_by_the_checks_between_its_rows(answers, answer):
    answered = answer_claim(claim_of(), known(*answers))
    assert answered.answer == answer
    assert [found.answered.answer for found in answered.found] == answers
    assert answered.found[0].tests[0].difference == 0.1


def test_a_claim_without_results_is_not_run_and_names_the_rows():
    lacking = known("undecided", results=("a",), missing={"b": "not run", "c": "not run"})
    answered = answer_claim(claim_of(), lacking)
    assert answered.answer == "not run"
    assert answered.missing == {"paper/table1": {"b": "not run"}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"recipe": "paper/table2"}, "no recipe 'paper/table2'"),
        ({"rows": ["a", "d"]}, "paper/table1 has no row 'd'"),
        ({"rows": ["b", "c"]}, "paper/table1 has no check between b, c"),
        ({"value": "tiny RR@10"}, "paper/table1 has no check between a, b"),
    ],
)
def test_evidence_that_there_is_not(changes, message):
    evidence = [{**CLAIM["evidence"][0], **changes}]
    with pytest.raises(InputError, match=message):
        answer_claim(claim_of(evidence=evidence), known("holds"))


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        ({**CLAIM, "titel": ""}, "titel'; the nearest name is 'title'"),
        ({**CLAIM, "evidence": []}, "evidence is missing"),
        ({**CLAIM, "plot": {"rows": ["a"]}}, "a plot of rows needs their dataset"),
        ({"title": "b"}, "paper is missing"),
    ],
)
def test_damaged_claims_are_refused(tmp_path, claim, message):
    write(tmp_path, claim)
    with pytest.raises(InputError, match=f"claims.yaml: .*{message}"):
        load_claims(tmp_path)
    write(tmp_path, CLAIM, before={**BEFORE, "tables": "two"})
    with pytest.raises(InputError, match=r"before\.tables must be"):
        load_claims(tmp_path)
    (tmp_path / "claims.yaml").write_text(yaml.safe_dump({"before": BEFORE, "claims": None}))
    with pytest.raises(InputError, match="claims must be a list"):
        load_claims(tmp_path)


def test_the_page_has_answers_counts_and_plots(tmp_path):
    write(tmp_path, CLAIM)
    verdicts = [Verdict("agrees", ""), Verdict("undecided", "")]
    page = tmp_path / "page.md"
    lines = claims_section(tmp_path, page, known("holds"), verdicts)
    assert "| 1 | b finds more than a | **holds** (1 holds) |" in lines
    assert "| check 0 | **holds** |  | +0.1 (+0.0592 to +0.141) |" in lines
    assert "![b finds more than a](page/claim1.png)" in lines
    assert (tmp_path / "page" / "claim1.png").read_bytes().startswith(b"\x89PNG")
    (counts,) = [line for line in lines if line.startswith("Verdicts of the 2 tables'")]
    assert "now: 1 agrees, 1 undecided. At commit 0bac0f6" in counts
    lacking = known("undecided", results=("a",), missing={"b": "its data are missing"})
    lines = claims_section(tmp_path, page, lacking, verdicts)
    assert "- paper/table1: b: its data are missing" in lines
    assert "| check 0 | undecided: no result |  | +0.1 (+0.0592 to +0.141) |" in lines
    assert not list((tmp_path / "page").glob("*.png"))  # nothing to compare
    with pytest.raises(InputError, match="page: a page with plots needs an ending"):
        claims_section(tmp_path, tmp_path / "page", lacking, verdicts)


def test_a_page_of_other_recipes_needs_no_claims(tmp_path):
    place = tmp_path / "paper" / "table1"
    place.mkdir(parents=True)
    (place / "recipe.yaml").write_text("{title: a, claim: b, kind: settings}")
    (place / "expected.json").write_text('{"reference": "T", "columns": {}, "rows": {}}')
    (place / "README.md").write_text("c")
    write_report(tmp_path, tmp_path / "page.md")
    assert "## The claims" not in (tmp_path / "page.md").read_text()


def test_differences_are_drawn_where_no_rows_are(tmp_path):
    claim = replace(claim_of(), plot=Plot())
    answered = answer_claim(claim, known("holds"))
    assert write_plot(answered, known("holds"), tmp_path / "plots" / "claim.png")
    assert (tmp_path / "plots" / "claim.png").exists()


def test_a_curve_has_the_costs_that_every_training_reaches():
    name = "tiny nDCG@10 at {}".format
    first = {name(0.5): 0.2, name(1): 0.4, name(8): 0.6}
    both = result("a", [first, {name(1): 0.5, name(8): 0.6}])
    costs, mean, deviation = curve(both, "tiny")
    assert costs.tolist() == [1, 8]
    assert mean == pytest.approx([0.45, 0.6])
    assert deviation == pytest.approx([0.0707107, 0])
    assert curve(result("a", **first), "tiny")[2].tolist() == [0, 0, 0]
    assert curve(both, "other") is None


def test_a_point_is_the_mean_of_trainings():
    measured = [{"tiny QD-FLOPs": 2.0, "tiny nDCG@10": v} for v in (0.4, 0.6)]
    assert point(result("a", measured), "tiny") == pytest.approx((2, 0.5, 0, 0.1414214))
    assert point(result("a"), "tiny") is None


def test_the_model_in_the_package_is_a_system():
    encoder = load_hub_encoder("lexicept-mini")
    assert encoder.get_embedding_dimension() == 8192
