"""The papers' main claims, each answered by the checks of recipes.

``claims.yaml``, beside the recipes, says which checks answer a claim; the answer is computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Literal

from lexicept.errors import InputError
from lexicept.storage.yaml_text import read_yaml
from lexicept.training.settings import Count, Items, Text, Whole, from_mapping, settings
from reproduction.answers import Answered, Contrast
from reproduction.comparison import Comparison
from reproduction.recipe import Check, Recipe
from reproduction.run import Outcome

FILE = "claims.yaml"

Answer = Literal["holds", "fails", "undecided", "not run"]


@settings
class Evidence:
    """Checks of a recipe that answer a claim: those of its small size between some rows."""

    recipe: Text
    rows: Items[Text]
    """Rows to which all rows of a check must belong."""
    value: Text | None = None
    """The value that a check compares; null for any."""

    def has(self, check: Check) -> bool:
        """Return whether a check is one of these."""
        return set(rows_of(check)) <= set(self.rows) and self.value in (None, check.value)


@settings
class Plot:
    """A claim's plot: the cost and effectiveness of some rows, with a band of one standard
    deviation over trainings; without rows, the differences of its checks with their intervals.

    Raises:
        InputError: rows without their dataset, or a dataset without rows.
    """

    dataset: Text | None = None
    """The dataset of the rows' values; null without rows."""
    rows: Items[Text] = ()
    """Rows of the first evidence's recipe."""

    def __post_init__(self) -> None:
        if bool(self.rows) != (self.dataset is not None):
            raise InputError("a plot of rows needs their dataset, and a dataset needs rows")


@settings
class Claim:
    """A claim of a paper, and the checks that answer it.

    Raises:
        InputError: no evidence.
    """

    title: Text
    paper: Text
    """The paper's own numbers, and where they are."""
    apart: Text
    """The differences of the small runs from the paper's."""
    evidence: Items[Evidence]
    plot: Plot = field(default_factory=Plot)

    def __post_init__(self) -> None:
        if not self.evidence:
            raise InputError("evidence is missing: the checks that answer the claim")


@settings
class Verdicts:
    """How many tables had which verdict at an earlier commit."""

    commit: Text
    tables: Count
    agrees: Whole
    disagrees: Whole
    not_comparable: Whole
    not_run: Whole
    nothing_to_measure: Whole


@dataclass(frozen=True)
class Found:
    """An answered check of a claim."""

    recipe: str
    answered: Answered
    tests: tuple[Contrast, ...]
    """Tests of each row against the one before, or the number that it is compared with."""


@dataclass(frozen=True)
class AnsweredClaim:
    """A claim and its answer."""

    claim: Claim
    answer: Answer
    """``holds`` where all checks hold, ``fails`` where one fails, ``not run`` where no check has
    the results that it needs, and else ``undecided``."""
    found: tuple[Found, ...]
    missing: Mapping[str, Mapping[str, str]]
    """Recipe → row that a check needs and that has no result → its reason."""


Answers = Mapping[str, tuple[Recipe, Outcome, Comparison]]
"""Recipe → what is known of it at small size."""


def load_claims(recipes: Path) -> tuple[Verdicts, list[Claim]]:
    """Read the claims beside recipes.

    Raises:
        InputError: there is no such file, or what is wrong in it, with its place.
    """
    path = recipes / FILE
    content = read_yaml(path)
    try:
        if not isinstance(content, Mapping) or content.keys() != {"before", "claims"}:
            raise InputError("the keys must be before and claims")
        if not isinstance(content["claims"], list):
            raise InputError("claims must be a list")
        before = from_mapping(Verdicts, content["before"], "before")
        claims = [
            from_mapping(Claim, claim, f"claims[{number}]")
            for number, claim in enumerate(content["claims"])
        ]
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return before, claims


def answer_claim(claim: Claim, known: Answers) -> AnsweredClaim:
    """Answer a claim by its checks.

    Raises:
        InputError: an unknown recipe or row, or rows without a check between them.
    """
    found: list[Found] = []
    missing: dict[str, dict[str, str]] = {}
    for evidence in claim.evidence:
        if evidence.recipe not in known:
            raise InputError(f"claim {claim.title!r}: no recipe {evidence.recipe!r}")
        recipe, outcome, compared = known[evidence.recipe]
        names = {row.name for row in recipe.rows}
        for row in (*evidence.rows, *(claim.plot.rows if evidence is claim.evidence[0] else ())):
            if row not in names:
                raise InputError(f"claim {claim.title!r}: {recipe.name} has no row {row!r}")
        chosen = [each for each in compared.checks if evidence.has(each.check)]
        if not chosen:
            rows = ", ".join(evidence.rows)
            raise InputError(f"claim {claim.title!r}: {recipe.name} has no check between {rows}")
        for answered in chosen:
            found.append(Found(recipe.name, answered, _tests(answered.check, compared)))
            for row in rows_of(answered.check):
                if row in outcome.missing:
                    missing.setdefault(recipe.name, {})[row] = outcome.missing[row]
    return AnsweredClaim(claim, _answer(found, known), tuple(found), missing)


def rows_of(check: Check) -> tuple[str, ...]:
    """Return the rows that a check compares."""
    return check.rising or (str(check.row),)


def _answer(found: Sequence[Found], known: Answers) -> Answer:
    answers = [each.answered.answer for each in found]
    if "fails" in answers:
        return "fails"
    if set(answers) == {"holds"}:
        return "holds"
    for each in found:
        results = known[each.recipe][1].results
        if all(row in results for row in rows_of(each.answered.check)):
            return "undecided"
    return "not run"


def _tests(check: Check, compared: Comparison) -> tuple[Contrast, ...]:
    """Return the tests of a check's pairs, as far as they were run."""
    tests = {test.key: test for test in compared.tests}
    if check.rising:
        pairs = [(after, before) for before, after in pairwise(check.rising)]
    else:
        numbers = (check.least, check.most)
        pairs = [(str(check.row), str(float(n))) for n in numbers if n is not None]
    keys = [(*pair, check.value) for pair in pairs]
    return tuple(tests[key] for key in keys if key in tests)
