"""The papers' main claims: data that name checks, with computed answers."""

from types import SimpleNamespace

import pytest
import yaml

from lexicept.checks import from_mapping
from lexicept.errors import InputError
from reproduction import report
from reproduction.recipe import RECIPES, Check, find_recipes, load_recipe
from reproduction.report import (
    Claim,
    RecordedRun,
    answer_claim,
    claims_table,
    load_claims,
    recorded,
    write_report,
)
from reproduction.run import Outcome, Result
from reproduction.systems import load_hub_encoder
from reproduction.verdicts import CheckAnswer, Comparison, Verdict, compare

CLAIM = {
    "title": "b finds more than a",
    "paper": "Table 1.",
    "apart": "Other data.",
    "evidence": [{"recipe": "paper/table1", "rows": ["a", "b"]}],
}


def runs(*answers, results=("a", "b"), missing=None, sentence=()):
    """Return a recipe with rows a, b and c, and checks of b over a with these answers; those of
    the positions in ``sentence`` are checks of the paper's own sentence."""
    checks = [
        Check(f"check {n}", "tiny nDCG@10", rising=("a", "b"), sentence=n in sentence)
        for n in range(len(answers))
    ]
    checks.append(Check("of another row", "tiny nDCG@10", rising=("a", "c")))
    answered = [CheckAnswer(c, a, "", "") for c, a in zip(checks, (*answers, "fails"), strict=True)]
    recipe = SimpleNamespace(name="paper/table1", row_names=list("abc"))
    measured = {name: Result(name, {}, "", {}, (), 0.0, "", {}, "", {}) for name in results}
    comparison = Comparison([], [], answered, Verdict("undecided", ""))
    return {"paper/table1": RecordedRun(recipe, Outcome(measured, missing or {}), comparison)}


def claim_of(**changes):
    return from_mapping(Claim, {**CLAIM, **changes}, "claim")


def test_the_papers_have_ten_claims_with_checks():
    claims = load_claims(RECIPES)
    assert len(claims) == 10
    known = {}
    page = (RECIPES.parent / "docs" / "papers.md").read_text()
    for name in {evidence.recipe for claim in claims for evidence in claim.evidence}:
        assert name in find_recipes(RECIPES)
        recipe = load_recipe(RECIPES, name)
        outcome, tests = recorded(recipe, "small")
        known[name] = RecordedRun(recipe, outcome, compare(recipe, "small", outcome, tests))
    table = "\n".join(claims_table([answer_claim(claim, known) for claim in claims]))
    assert table in page
    assert table in (RECIPES / "RESULTS.md").read_text()


@pytest.mark.parametrize(
    ("answers", "answer"),
    [
        (["holds", "holds"], "holds"),
        (["holds", "fails", "undecided"], "mixed"),
        (["fails", "fails", "undecided"], "fails"),
        (["fails", "undecided"], "undecided"),
        (["holds", "undecided"], "undecided"),
    ],
)
def test_a_claim_is_answered_by_the_checks_between_its_rows(answers, answer):
    answered = answer_claim(claim_of(), runs(*answers, sentence=(0,)))
    assert answered.answer == answer
    assert [check.answer for _, check in answered.checks] == answers
    (cells,) = (line for line in claims_table([answered]) if "b finds" in line)
    assert cells.startswith(f"| 1 | b finds more than a | {answered.words} | 1 {answers[0]} | ")
    assert cells.endswith(" | paper/table1 |")
    lacking = runs(*answers, results=("a",), missing={"b": "not run", "c": "not run"})
    assert answer_claim(claim_of(), lacking).answer == "not run"


@pytest.mark.parametrize(
    ("answers", "sentence", "words"),
    [
        (["fails", "fails"], [], "undecided"),  # no check of the sentence
        (["fails", "undecided", "fails"], [1], "undecided"),  # that of the sentence says nothing
        (["fails", "fails"], [1], "**fails**"),
        (["fails", "holds"], [0], "**mixed**"),
        (["fails", "holds"], [], "mixed"),
        (["holds"], [], "holds"),
        (["holds"], [0], "**holds**"),
    ],
)
def test_a_bold_verdict_needs_a_check_of_the_papers_own_sentence(answers, sentence, words):
    assert answer_claim(claim_of(), runs(*answers, sentence=sentence)).words == words


def test_a_claim_is_not_run_if_no_check_of_its_sentence_is():
    """The checks of the sentence compare with row c, which has no result; others hold."""
    known = runs("holds")
    run = known["paper/table1"]
    own = Check("of the sentence", "tiny nDCG@10", rising=("a", "c"), sentence=True)
    checks = [*run.comparison.checks[:1], CheckAnswer(own, "undecided", "", "")]
    known["paper/table1"] = run._replace(comparison=run.comparison._replace(checks=checks))
    evidence = [{"recipe": "paper/table1", "rows": ["a", "b", "c"]}]
    assert answer_claim(claim_of(evidence=evidence), known).answer == "not run"


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
        answer_claim(claim_of(evidence=evidence), runs("holds"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ([{**CLAIM, "titel": ""}], "titel'; perhaps title?"),
        ([{**CLAIM, "evidence": []}], "evidence is missing"),
        ([{"title": "b"}], "paper is missing"),
        (None, "claims must be a list"),
    ],
)
def test_damaged_claims_are_refused(tmp_path, text, message):
    (tmp_path / "claims.yaml").write_text(yaml.safe_dump(text))
    with pytest.raises(InputError, match=f"claims.yaml: .*{message}"):
        load_claims(tmp_path)


def test_a_page_of_claims_has_the_present_answers(tmp_path):
    page = tmp_path / "papers.md"
    table = claims_table([answer_claim(claim_of(), runs("holds", "fails", sentence=(0,)))])
    old = table[2].replace("**mixed**", "**holds**")
    page.write_text("\n".join(["before", "", *table[:2], old, "", "after", ""]))
    report._update(page, table)
    assert page.read_text().splitlines() == ["before", "", *table, "after"]


def test_a_page_of_other_recipes_needs_no_claims(tmp_path):
    path = tmp_path / "paper" / "table1"
    path.mkdir(parents=True)
    (path / "recipe.yaml").write_text("{title: a, claim: b, kind: settings}")
    (path / "expected.json").write_text('{"reference": "T", "columns": {}, "rows": {}}')
    (path / "README.md").write_text("c")
    write_report(tmp_path, tmp_path / "page.md")
    assert "## The claims" not in (tmp_path / "page.md").read_text()


def test_the_model_in_the_package_is_a_system():
    assert load_hub_encoder("lexicept-mini").get_embedding_dimension() == 8192
