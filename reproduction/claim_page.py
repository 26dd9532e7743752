"""The first part of the page of the papers' tables: their main claims, and the answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

from lexicept.errors import InputError
from reproduction.claim_plots import write_plot
from reproduction.claims import (
    AnsweredClaim,
    Answers,
    Verdicts,
    answer_claim,
    load_claims,
    rows_of,
)
from reproduction.comparison import ANSWERS, Verdict, spoken

_HEAD = """## The claims

{count} claims of the papers, each answered by checks of the tables below at small size. A claim
*holds* where all of its checks do, *fails* where one fails, is *undecided* otherwise, and *not run*
where no check has the rows that it needs. Plots have QD-FLOPs, the mean number of dimensions that a
query and a document share, on a logarithmic axis; a band or bar is one standard deviation over
trainings. Differences have 95 % intervals, before Holm's correction.
"""


def claims_section(recipes: Path, page: Path, known: Answers, now: Sequence[Verdict]) -> list[str]:
    """Return the lines about the claims, and write their plots beside the page.

    Args:
        recipes: the folder with ``claims.yaml``.
        page: the path of the page; plots are in a folder with its name.
        now: the small runs' verdicts of all tables.

    Raises:
        InputError: claims that are not valid, or a page without an ending, whose folder would have
            its own name.
    """
    if not page.suffix:
        raise InputError(f"{page}: a page with plots needs an ending, such as .md")
    before, claims = load_claims(recipes)
    answered = [answer_claim(claim, known) for claim in claims]
    lines = [_HEAD.format(count=len(claims)), "| | claim | answer |", "| --- " * 3 + "|"]
    for number, one in enumerate(answered, 1):
        lines.append(f"| {number} | {one.claim.title} | {_word(one)} |")
    lines += ["", *_counts(before, now), ""]
    for number, one in enumerate(answered, 1):
        plot = page.with_suffix("") / f"claim{number}.png"
        drawn = write_plot(one, known, plot)
        image = f"![{one.claim.title}]({plot.parent.name}/{plot.name})"
        lines += [f"### {number}. {one.claim.title}", "", f"Paper: {one.claim.paper}", ""]
        lines += [f"Here: {_word(one)}.", "", *([image, ""] if drawn else [])]
        lines += [*_checks(one), *_missing(one.missing)]
        lines += [f"What differs from the paper: {one.claim.apart}", ""]
    return lines


def _word(answered: AnsweredClaim) -> str:
    if answered.answer == "not run":
        return "not run"
    counts = [found.answered.answer for found in answered.found]
    said = ", ".join(f"{counts.count(word)} {word}" for word in ANSWERS if word in counts)
    decided = answered.answer != "undecided"
    return f"**{answered.answer}** ({said})" if decided else f"undecided ({said})"


def _counts(before: Verdicts, now: Sequence[Verdict]) -> list[str]:
    words = [verdict.word for verdict in now]
    said = ", ".join(f"{words.count(word)} {word}" for word in sorted(set(words)))
    return [
        f"Verdicts of the {len(words)} tables' small runs now: {said}. At commit {before.commit}, "
        f"of {before.tables} tables: {before.agrees} agrees, {before.disagrees} disagrees, "
        f"{before.not_comparable} not comparable, {before.not_run} not run here, "
        f"{before.nothing_to_measure} settings or examples. A verdict then asked neither for three "
        "trainings nor for a difference beyond chance, nor whether a model found more than BM25."
    ]


def _checks(answered: AnsweredClaim) -> list[str]:
    lines: list[str] = []
    for recipe, some in groupby(answered.found, key=lambda one: one.recipe):
        lines += [f"Checks of [{recipe}](#{recipe.replace('/', '')}):", ""]
        lines += ["| check | answer | values | difference |", "| --- " * 4 + "|"]
        for one in some:
            check = one.answered
            differences = "; ".join(
                f"{test.difference:+.3g} ({low:+.3g} to {high:+.3g})"
                for test in one.tests
                for low, high in [test.found.interval()]
            )
            said = f"**{check.answer}**"
            if check.answer == "undecided":
                absent = answered.missing.get(recipe, {}).keys() & set(rows_of(check.check))
                said = "undecided: no result" if absent else spoken(check)
            lines.append(f"| {check.check.says} | {said} | {check.shown} | {differences} |")
        lines.append("")
    return lines


def _missing(missing: Mapping[str, Mapping[str, str]]) -> list[str]:
    lines = []
    for recipe, rows in missing.items():
        for reason in dict.fromkeys(rows.values()):
            names = ", ".join(row for row, why in rows.items() if why == reason)
            lines.append(f"- {recipe}: {names}: {reason}")
    return ["Rows without a result:", "", *lines, ""] if lines else []
