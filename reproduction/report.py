"""What is written about results: ``table.md`` of a run, recorded results, and RESULTS.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from lexicept.storage.files import read_json, replace_file, write_json
from reproduction.claims import FILE, ClaimAnswer, SmallRun, answer_claim, load_claims
from reproduction.recipe import SIZES, Recipe, find_recipes, load_recipe
from reproduction.run import Outcome, Result, present_results
from reproduction.verdicts import (
    LEVEL,
    Comparison,
    Contrast,
    Verdict,
    compare,
    counts_of,
    to_json,
)

_HEAD = """# The papers' claims and tables: results

Written by `python -m reproduction --report` from the recipes and from the results that lie beside
the recipes (`small.json`). A check **holds** or **fails** where the difference is beyond chance:
over queries and, for models trained here, over at least three trainings each, with Holm's
correction over a table's checks. A check is undecided within chance, where a row has no result,
and where a trained model finds less than BM25 and than the dense model whose states it reads. A
claim or table is *mixed* where some checks hold and others fail. Small runs measure other,
smaller data than the papers: the runs test a claim's direction, not a number.
"""

_SUFFIXES = ("nDCG@10", "RR@10", "QD-FLOPs", "document length", "E²", "posting mean", "α")
"""Endings of the values that ``table.md`` lists for each row."""


def record(recipe: Recipe, size: str, outcome: Outcome, comparison: Comparison) -> Path:
    """Write results to the recipe's folder, beside recorded results of other rows; return the file.

    Values of single queries are left out. Their tests are kept until the values of a tested row
    change.
    """
    path = recipe.folder / f"{size}.json"
    before, old_tests = recorded(recipe, size)
    rows = {}
    for row in recipe.rows:
        result = outcome.results.get(row.name) or before.results.get(row.name)
        if result is not None:
            trainings = [
                {**training, "values": _rounded(training["values"]), "per_query": {}}
                for training in result.trainings
            ]
            changes = {"values": _rounded(result.values), "trainings": trainings, "per_query": {}}
            rows[row.name] = {**asdict(result), **changes}
    changed = {
        name
        for name, result in before.results.items()
        if rows[name]["values"] != _rounded(result.values)
    }
    new_keys = {test.key for test in comparison.tests}
    tests = [
        test
        for test in old_tests
        if not {test.row, test.against} & changed and test.key not in new_keys
    ]
    tests += comparison.tests
    write_json(path, {"rows": rows, "tests": [test._asdict() for test in tests]})
    return path


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {key: float(f"{value:.6g}") for key, value in values.items()}


def recorded(recipe: Recipe, size: str) -> tuple[Outcome, list[Contrast]]:
    """Return the recorded results of the recipe's present jobs, and their tests."""
    path = recipe.folder / f"{size}.json"
    content = read_json(path) if path.exists() else {"rows": {}, "tests": []}
    results = {name: Result.from_json(fields, path) for name, fields in content["rows"].items()}
    outcome = present_results(recipe, size, results)
    names = {row.name for row in recipe.rows}
    tests = [
        test
        for test in (Contrast(**fields) for fields in content["tests"])
        if test.row in outcome.results
        and (test.against in outcome.results or test.against not in names)
    ]
    return outcome, tests


def write_comparison(recipe: Recipe, size: str, outcome: Outcome, folder: Path) -> Comparison:
    """Write ``table.md`` and ``table.json`` to a folder, each atomically."""
    comparison = compare(recipe, size, outcome)
    write_json(folder / "table.json", to_json(comparison, outcome))
    replace_file(folder / "table.md", _page(recipe, size, outcome, comparison).encode())
    return comparison


def _page(recipe: Recipe, size: str, outcome: Outcome, comparison: Comparison) -> str:
    lines = [f"# {recipe.title}: {size} size", "", recipe.claim, ""]
    lines += [f"**{comparison.verdict.word}**: {comparison.verdict.reason}", ""]
    agreement = {True: "agrees", False: "disagrees", None: "other data"}
    lines += _markdown_table(
        ("row", "column", "paper", "ours", ""),
        [
            (c.row, c.column, f"{c.paper:g}", f"{c.ours:.4g}", agreement[c.agrees])
            for c in comparison.cells
            if c.ours is not None
        ],
    )
    lines += _markdown_table(
        ("check", "answer", "values"),
        [(c.check.says, c.words, c.values) for c in comparison.checks],
    )
    intervals = [(test, *test.tested.interval(1 - LEVEL)) for test in comparison.tests]
    lines += _markdown_table(
        ("row", "against", "value", "difference", "95 % interval", "p"),
        [
            (
                test.row,
                test.against,
                test.value,
                f"{test.difference:+.4f}",
                f"{low:+.4f} to {high:+.4f}",
                f"{test.tested.p():.3g}",
            )
            for test, low, high in intervals
        ],
    )
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


def _checks_table(comparison: Comparison) -> list[str]:
    body = [(answer.check.says, answer.words, answer.values) for answer in comparison.checks]
    return _markdown_table(("check", "answer", "values"), body)


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
                sections += _section(recipe, size, outcome, comparison)
        if all(verdict.word == "not run" for verdict in verdicts[name].values()):
            absent.append((name, recipe.title))
    lines = [_HEAD]
    if (recipes / FILE).exists():
        answers = [answer_claim(claim, runs) for claim in load_claims(recipes)]
        lines += ["## The claims", "", *claims_table(answers)]
        for number, answer in enumerate(answers, 1):
            if answer.answer != "not run":
                lines += [f"**{number}.** {answer.claim.paper} Here: {answer.claim.apart}", ""]
    lines += ["## The tables", "", *sections]
    if absent:
        lines += ["## Not run here", "", *_markdown_table(("recipe", "table"), absent)]
    replace_file(path, ("\n".join(lines).rstrip() + "\n").encode())
    return verdicts


def claims_table(answers: list[ClaimAnswer]) -> list[str]:
    """Return the lines of the claims' table: title, verdict, checks by answer, and recipes."""
    body = []
    for number, answer in enumerate(answers, 1):
        recipes = ", ".join(dict.fromkeys(recipe for recipe, _ in answer.checks))
        counts = counts_of([check for _, check in answer.checks])
        body.append((str(number), answer.claim.title, f"**{answer.answer}**", counts, recipes))
    return _markdown_table(("", "claim", "verdict", "checks", "recipes"), body)


def _section(recipe: Recipe, size: str, outcome: Outcome, comparison: Comparison) -> list[str]:
    """Return a recipe's claim, verdict, checks, and numbers beside the paper's."""
    lines = [f"### {recipe.name}" + (" at full size" if size == "full" else ""), ""]
    lines += [f"{recipe.expected.reference}. **{comparison.verdict.word}**. {recipe.claim}", ""]
    lines += _markdown_table(
        ("check", "answer", "values"),
        [(c.check.says, c.words, c.values) for c in comparison.checks],
    )
    cells = {(c.row, c.column): c for c in comparison.cells if c.ours is not None}
    rows = list(dict.fromkeys(row for row, _ in cells))
    columns = list(dict.fromkeys(column for _, column in cells))
    body = []
    for row in rows:
        texts = [row]
        for column in columns:
            cell = cells.get((row, column))
            texts.append("" if cell is None else f"{cell.ours:.4g} ({cell.paper:g})")
        body.append(texts)
    lines += _markdown_table(("ours (paper)", *columns), body)
    return lines
