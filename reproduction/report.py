"""Pages of results: ``table.md`` of a run, and RESULTS.md with recorded results and claims.

The papers' main claims are answered by checks of recipes at small size (``claims.yaml``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from lexicept.checks import Items, from_mapping, settings
from lexicept.errors import InputError
from lexicept.storage.files import read_json, replace_file, write_json
from lexicept.storage.yaml_text import read_yaml
from reproduction.jobs import inputs_of
from reproduction.recipe import SIZES, Check, Recipe, find_recipes, load_recipe
from reproduction.run import Outcome, Result, present_results
from reproduction.verdicts import (
    LEVEL,
    CheckAnswer,
    Comparison,
    Contrast,
    Verdict,
    combined,
    compare,
    counts_of,
)

CLAIMS = "claims.yaml"

MEASURES = ("nDCG@10", "nDCG@10 from 0.5 to 8", "QD-FLOPs", "document length", "E²")
"""Measures of each row that a claim is answered by."""

_HEAD = """# The papers' claims and tables: results

Written by `python -m reproduction --report` from the recipes and from the results that lie beside
the recipes (`small.json`). A check **holds** or **fails** where the difference is beyond chance:
over queries and, for models trained here, over at least three trainings each, with Holm's
correction over a table's checks; checks that were added after a run are tested over its trainings
alone. A check is undecided within chance, where a row has no result,
and where a trained model finds less than BM25 and than the dense model whose states it reads. A
claim or table is *mixed* where some checks hold and others fail. Small runs measure other,
smaller data than the papers: the runs test a claim's direction, not a number.
"""

_SUFFIXES = ("nDCG@10", "RR@10", "QD-FLOPs", "document length", "E²", "posting mean", "α")
"""Endings of the values that ``table.md`` lists for each row."""


@settings
class Evidence:
    """The checks of a recipe's small size between some rows."""

    recipe: str
    rows: Items[str]
    """Rows to which all rows of a check must belong."""
    value: str | None = None
    """The compared value; null for any."""

    def has(self, check: Check) -> bool:
        """Return True for a check between these rows alone, by this value."""
        return set(check.rows) <= set(self.rows) and self.value in (None, check.value)


@settings
class Claim:
    """A claim of a paper, and the checks that answer the claim."""

    title: str
    paper: str
    """The paper's own numbers, and the place in the paper."""
    apart: str
    """The differences of the small runs from the paper's."""
    evidence: Items[Evidence]

    def __post_init__(self) -> None:
        if not self.evidence:
            raise InputError("evidence is missing: the checks that answer the claim")


class SmallRun(NamedTuple):
    """A recipe with recorded results at small size."""

    recipe: Recipe
    outcome: Outcome
    comparison: Comparison


class ClaimAnswer(NamedTuple):
    """A claim and the answer."""

    claim: Claim
    answer: str
    """holds, fails, mixed, undecided, or "not run" if no check has all results."""
    checks: tuple[tuple[str, CheckAnswer], ...]
    """Recipe and answer of each check."""


def load_claims(recipes: Path) -> list[Claim]:
    """Read the claims beside recipes. Raises InputError naming the file and the place."""
    path = recipes / CLAIMS
    content = read_yaml(path)
    if not isinstance(content, list):
        raise InputError(f"{path}: claims must be a list")
    try:
        return [from_mapping(Claim, claim, f"[{n}]") for n, claim in enumerate(content)]
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def answer_claim(claim: Claim, runs: Mapping[str, SmallRun]) -> ClaimAnswer:
    """Answer a claim by checks.

    Raises:
        InputError: an unknown recipe or row, or rows without a check between them.
    """
    checks: list[tuple[str, CheckAnswer]] = []
    complete = False
    for evidence in claim.evidence:
        place = f"claim {claim.title!r}"
        if (run := runs.get(evidence.recipe)) is None:
            raise InputError(f"{place}: no recipe {evidence.recipe!r}")
        if unknown := [name for name in evidence.rows if name not in run.recipe.row_names]:
            raise InputError(f"{place}: {evidence.recipe} has no row {unknown[0]!r}")
        answers = [answer for answer in run.comparison.checks if evidence.has(answer.check)]
        if not answers:
            names = ", ".join(evidence.rows)
            raise InputError(f"{place}: {evidence.recipe} has no check between {names}")
        complete |= any(set(each.check.rows) <= run.outcome.results.keys() for each in answers)
        checks += [(evidence.recipe, answer) for answer in answers]
    answer = combined(check.answer for _, check in checks) if complete else "not run"
    return ClaimAnswer(claim, answer, tuple(checks))


def record(recipe: Recipe, size: str, outcome: Outcome, comparison: Comparison) -> Path:
    """Write results to the recipe's folder, beside recorded results of other rows; return the file.

    Values of single queries are left out; tests are recorded until the values of a tested row
    change.
    """
    earlier, tests = recorded(recipe, size)
    contents = {}
    for name in recipe.row_names:
        result = outcome.results.get(name) or earlier.results.get(name)
        if result is not None:
            trainings = [
                {**training, "values": _rounded(training["values"]), "per_query": {}}
                for training in result.trainings
            ]
            changes = {"values": _rounded(result.values), "trainings": trainings, "per_query": {}}
            contents[name] = {**asdict(result), **changes}
    changed = {
        name
        for name, result in earlier.results.items()
        if contents[name]["values"] != _rounded(result.values)
    }
    new_keys = {test.key for test in comparison.tests}
    tests = [t for t in tests if not {t.row, t.against} & changed and t.key not in new_keys]
    path = recipe.folder / f"{size}.json"
    all_tests = [test._asdict() for test in (*tests, *comparison.tests)]
    write_json(path, {"rows": contents, "tests": all_tests})
    return path


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {key: float(f"{value:.6g}") for key, value in values.items()}


def recorded(recipe: Recipe, size: str) -> tuple[Outcome, list[Contrast]]:
    """Return the recorded results of the recipe's present jobs, and the tests."""
    path = recipe.folder / f"{size}.json"
    content = read_json(path) if path.exists() else {"rows": {}, "tests": []}
    results = {name: Result.from_json(fields, path) for name, fields in content["rows"].items()}
    outcome = present_results(recipe, size, results)
    absent = set(recipe.row_names) - outcome.results.keys()
    tests = [Contrast(**fields) for fields in content["tests"]]
    return outcome, [
        test
        for test in tests
        if test.row in outcome.results and not {test.row, test.against} & absent
    ]


def write_comparison(recipe: Recipe, size: str, outcome: Outcome, folder: Path) -> Comparison:
    """Write ``table.md`` to a folder."""
    comparison = compare(recipe, size, outcome)
    replace_file(folder / "table.md", _page(recipe, size, outcome, comparison).encode())
    return comparison


def _page(recipe: Recipe, size: str, outcome: Outcome, comparison: Comparison) -> str:
    lines = [f"# {recipe.title}: {size} size", "", *_section(recipe, comparison)]
    lines += [f"Verdict: {comparison.verdict.reason}.", ""]
    tests = []
    for test in comparison.tests:
        low, high = test.tested.interval(1 - LEVEL)
        interval, p = f"{low:+.4f} to {high:+.4f}", f"{test.tested.p():.3g}"
        tests.append((*test.key, f"{test.difference:+.4f}", interval, p))
    head = ("row", "against", "value", "difference", "95 % interval", "p")
    lines += _markdown_table(head, tests)
    for name, result in outcome.results.items():
        summarised = bool(result.per_query or result.trainings)
        values = [
            f"{key} {value:.4g}"
            for key, value in result.values.items()
            if not summarised or key.endswith(_SUFFIXES) or "nDCG@10 at " in key
        ]
        lines.append(f"- **{name}** ({result.seconds:.0f} s): {', '.join(values)}")
    lines += ["", *_markdown_table(("row", "no result because"), list(outcome.missing.items()))]
    return "\n".join(lines)


def _markdown_table(head: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table and an empty line; nothing without a body."""
    if not body:
        return []
    lines: list[Sequence[str]] = [head, ["---"] * len(head), *body]
    return [*(f"| {' | '.join(cells)} |" for cells in lines), ""]


def write_report(recipes: Path, path: Path) -> dict[str, dict[str, Verdict]]:
    """Write the page of all recipes' recorded results; return the verdicts by recipe and size."""
    verdicts: dict[str, dict[str, Verdict]] = {}
    runs: dict[str, SmallRun] = {}
    sections, absent = [], []
    for name in find_recipes(recipes):
        recipe = load_recipe(recipes, name)
        verdicts[name] = {}
        for size in SIZES:
            outcome, tests = recorded(recipe, size)
            comparison = compare(recipe, size, outcome, tests)
            verdicts[name][size] = comparison.verdict
            if size == "small":
                runs[name] = SmallRun(recipe, outcome, comparison)
            if outcome.results:
                title = f"### {name}" + (" at full size" if size == "full" else "")
                sections += [title, "", *_section(recipe, comparison)]
        if all(verdict.word == "not run" for verdict in verdicts[name].values()):
            absent.append((name, recipe.title, _needs(runs[name])))
    lines = [_HEAD]
    if (recipes / CLAIMS).exists():
        answers = [answer_claim(claim, runs) for claim in load_claims(recipes)]
        lines += ["## The claims", "", *claims_table(answers)]
        _update(recipes.parent / "docs" / "papers.md", claims_table(answers))
        for number, answer in enumerate(answers, 1):
            if answer.answer != "not run":
                lines += [f"**{number}.** {answer.claim.paper} Here: {answer.claim.apart}", ""]
                lines += _measures_table(answer.claim, runs)
    lines += ["## The tables", "", *sections]
    if absent:
        lines += [
            "## Not run here",
            "",
            *_markdown_table(("recipe", "table", "what is missing"), absent),
        ]
    replace_file(path, ("\n".join(lines).rstrip() + "\n").encode())
    return verdicts


def _needs(run: SmallRun) -> str:
    """Return why a table has no small run: the recipe's reasons, or what its jobs read."""
    jobs = [row.jobs["small"] for row in run.recipe.rows]
    inputs = set[str]().union(*map(inputs_of, jobs))
    if any(name.startswith("decoder/") for name in inputs):
        return "a small decoder, and hours of a core: none could be had"
    reasons = sorted({job for job in jobs if isinstance(job, str)})
    return "; ".join(reasons) if len(reasons) == len(jobs) or not inputs else "hours of a core"


def _update(page: Path, table: Sequence[str]) -> None:
    """Replace the table of claims in a page, where there is one."""
    lines = page.read_text().splitlines() if page.exists() else []
    if table[0] in lines:
        start = lines.index(table[0])
        end = lines.index("", start) + 1
        replace_file(page, "\n".join([*lines[:start], *table, *lines[end:], ""]).encode())


def claims_table(answers: list[ClaimAnswer]) -> list[str]:
    """Return the lines of the claims' table: title, verdict, checks by answer, and recipes."""
    body = []
    for number, answer in enumerate(answers, 1):
        recipes = ", ".join(dict.fromkeys(recipe for recipe, _ in answer.checks))
        counts = counts_of([check for _, check in answer.checks])
        body.append((str(number), answer.claim.title, f"**{answer.answer}**", counts, recipes))
    return _markdown_table(("", "claim", "verdict", "checks", "recipes"), body)


def _measures_table(claim: Claim, runs: Mapping[str, SmallRun]) -> list[str]:
    """Return the effectiveness, cost and E² of a claim's rows: a claim is not one measure's."""
    body = []
    for recipe, row in dict.fromkeys((e.recipe, row) for e in claim.evidence for row in e.rows):
        result = runs[recipe].outcome.results.get(row)
        for dataset in sorted({name.partition(" ")[0] for name in result.values} if result else ()):
            values = [result.values.get(f"{dataset} {name}") for name in MEASURES] if result else []
            if values and values[0] is not None:
                cells = ["" if value is None else f"{value:.4g}" for value in values]
                body.append((f"{recipe} {row}", dataset, *cells))
    return _markdown_table(("row", "queries of", *MEASURES), body)


def _section(recipe: Recipe, comparison: Comparison) -> list[str]:
    """Return a recipe's claim, verdict, checks, and numbers beside the paper's."""
    lines = [f"{recipe.expected.reference}. **{comparison.verdict.word}**. {recipe.claim}", ""]
    checks = [(answer.check.says, answer.words, answer.values) for answer in comparison.checks]
    lines += _markdown_table(("check", "answer", "values"), checks)
    texts = {
        (c.row, c.column): f"{c.ours:.4g} ({c.paper:g})"
        for c in comparison.cells
        if c.ours is not None
    }
    columns = list(dict.fromkeys(column for _, column in texts))
    body = [
        [name, *(texts.get((name, column), "") for column in columns)]
        for name in dict.fromkeys(name for name, _ in texts)
    ]
    return [*lines, *_markdown_table(("ours (paper)", *columns), body)]
