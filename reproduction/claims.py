"""The papers' main claims, each answered by checks of recipes at small size (``claims.yaml``)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from lexicept.errors import InputError
from lexicept.storage.yaml_text import read_yaml
from lexicept.training.settings import Items, Text, from_mapping, settings
from reproduction.recipe import Check, Recipe
from reproduction.run import Outcome
from reproduction.verdicts import CheckAnswer, Comparison, combined

FILE = "claims.yaml"


@settings
class Evidence:
    """The checks of a recipe's small size between some of its rows."""

    recipe: Text
    rows: Items[Text]
    """Rows to which all rows of a check must belong."""
    value: Text | None = None
    """The compared value; null for any."""

    def has(self, check: Check) -> bool:
        """Return True if a check compares only these rows, by this value."""
        return set(check.rows) <= set(self.rows) and self.value in (None, check.value)


@settings
class Claim:
    """A claim of a paper, and the checks that answer it."""

    title: Text
    paper: Text
    """The paper's own numbers, and their place in the paper."""
    apart: Text
    """The differences of the small runs from the paper's."""
    evidence: Items[Evidence]

    def __post_init__(self) -> None:
        if not self.evidence:
            raise InputError("evidence is missing: the checks that answer the claim")


class SmallRun(NamedTuple):
    """A recipe with its recorded results at small size."""

    recipe: Recipe
    outcome: Outcome
    comparison: Comparison


class ClaimAnswer(NamedTuple):
    """A claim and its answer."""

    claim: Claim
    answer: str
    """holds, fails, mixed, undecided, or "not run" where no check has all of its results."""
    checks: tuple[tuple[str, CheckAnswer], ...]
    """Recipe and answer of each check."""


def load_claims(recipes: Path) -> list[Claim]:
    """Read the claims beside recipes. Raises InputError naming the file and the place."""
    path = recipes / FILE
    content = read_yaml(path)
    if not isinstance(content, list):
        raise InputError(f"{path}: claims must be a list")
    try:
        return [from_mapping(Claim, claim, f"[{n}]") for n, claim in enumerate(content)]
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def answer_claim(claim: Claim, runs: Mapping[str, SmallRun]) -> ClaimAnswer:
    """Answer a claim by its checks.

    Raises:
        InputError: an unknown recipe or row, or rows without a check between them.
    """
    checks: list[tuple[str, CheckAnswer]] = []
    complete = False
    for evidence in claim.evidence:
        run = runs.get(evidence.recipe)
        if run is None:
            raise InputError(f"claim {claim.title!r}: no recipe {evidence.recipe!r}")
        rows = {row.name for row in run.recipe.rows}
        if unknown := [row for row in evidence.rows if row not in rows]:
            raise InputError(f"claim {claim.title!r}: {evidence.recipe} has no row {unknown[0]!r}")
        answers = [answer for answer in run.comparison.checks if evidence.has(answer.check)]
        if not answers:
            listed = ", ".join(evidence.rows)
            raise InputError(
                f"claim {claim.title!r}: {evidence.recipe} has no check between {listed}"
            )
        complete |= any(set(each.check.rows) <= run.outcome.results.keys() for each in answers)
        checks += [(evidence.recipe, answer) for answer in answers]
    answer = combined(check.answer for _, check in checks) if complete else "not run"
    return ClaimAnswer(claim, answer, tuple(checks))
