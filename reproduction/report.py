"""The page of the papers' claims and tables: their numbers, ours, and the verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lexicept.storage.files import read_json, replace_file, write_json
from reproduction.answers import Contrast
from reproduction.claim_page import claims_section
from reproduction.claims import FILE
from reproduction.comparison import Comparison, Verdict, compare, spoken
from reproduction.recipe import SIZES, Recipe, find_recipes, load_recipe
from reproduction.run import Outcome, Result

_HEAD = """# The papers' claims and tables, reproduced

Written by `python -m reproduction --report` from the recipes and the results
that their folders keep (`small.json`, `full.json`). A verdict concerns one run:
*agrees* says that all of the table's checks hold, *disagrees* that one fails, *undecided* anything
else, and *not run here* that there is no result. A check holds or fails beyond chance only: over
queries and, for models that are trained here, over at least three trainings each, with Holm's
correction over the table's checks. It is undecided within chance, where a row that it needs is
missing, and where a trained model finds less than BM25 and, in tables that have it as a row, than
the dense model whose states it reads. A small run measures on other, smaller data than the papers
unless a column says otherwise: what it can bear out is a claim's direction, not a number.
"""


def record(recipe: Recipe, size: str, outcome: Outcome, compared: Comparison) -> Path:
    """Write results to the recipe's folder, beside its results of other rows; return the file.

    Values of single queries are left out. Tests need them, so tests are kept until the values of
    one of their rows change.
    """
    path = recipe.folder / f"{size}.json"
    before, tested = recorded(recipe, size)
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
    known = before.results
    changed = {name for name in known if rows[name]["values"] != _rounded(known[name].values)}
    compared_now = {test.key for test in compared.tests}
    tests = [
        test
        for test in tested
        if not {test.row, test.against} & changed and test.key not in compared_now
    ]
    write_json(path, {"rows": rows, "tests": [t._asdict() for t in (*tests, *compared.tests)]})
    return path


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {key: float(f"{value:.6g}") for key, value in values.items()}


def recorded(recipe: Recipe, size: str) -> tuple[Outcome, list[Contrast]]:
    """Return the recorded results that belong to the recipe's present jobs, and their tests."""
    path = recipe.folder / f"{size}.json"
    content = read_json(path) if path.exists() else {"rows": {}, "tests": []}
    results, missing = {}, {}
    for row in recipe.rows:
        job = row.jobs[size]
        kept = content["rows"].get(row.name)
        if isinstance(job, str):
            missing[row.name] = job
        elif kept is None:
            missing[row.name] = "not run"
        elif (result := Result.from_json(kept, path)).belongs_to(job, recipe):
            results[row.name] = result
        else:
            missing[row.name] = "run with another configuration than the recipe has now"
    names = {row.name for row in recipe.rows}
    tests = [
        test
        for test in (Contrast(**fields) for fields in content["tests"])
        if test.row in results and (test.against in results or test.against not in names)
    ]
    return Outcome(results, missing), tests


def write_report(recipes: Path, path: Path) -> dict[str, dict[str, Verdict]]:
    """Write the page of all recipes, and the plots of claims, in a folder beside it with its name;
    return the verdicts by recipe and size."""
    verdicts: dict[str, dict[str, Verdict]] = {}
    sections, known = [], {}
    lines = ["## The tables", "", "| table | claim | small run | full run |", "| --- " * 4 + "|"]
    for name in find_recipes(recipes):
        recipe = load_recipe(recipes, name)
        outcomes = {}
        for size in SIZES:
            outcome, tests = recorded(recipe, size)
            outcomes[size] = (outcome, compare(recipe, size, outcome, tests))
        verdicts[name] = {size: one[1].verdict for size, one in outcomes.items()}
        known[name] = (recipe, *outcomes["small"])
        sections.append(_section(recipe, outcomes))
        small, full = (_cell(verdicts[name][size]) for size in SIZES)
        lines.append(f"| [{name}](#{_anchor(name)}) | {recipe.title} | {small} | {full} |")
    claims = []
    if (recipes / FILE).exists():
        now = [words["small"] for words in verdicts.values()]
        claims = claims_section(recipes, path, known, now)
    content = "\n".join([_HEAD, *claims, *lines, "", *sections])
    replace_file(path, (content.rstrip() + "\n").encode())
    return verdicts


def _cell(verdict: Verdict) -> str:
    return f"**{verdict.word}**" if verdict.word in ("agrees", "disagrees") else verdict.word


def _anchor(name: str) -> str:
    return name.replace("/", "")


def _section(recipe: Recipe, outcomes: dict[str, Any]) -> str:
    lines = [f"## {recipe.name}", "", f"{recipe.expected.reference}. {recipe.claim}", ""]
    for size in SIZES:
        verdict = outcomes[size][1].verdict
        lines.append(f"- {size}: **{verdict.word}**: {verdict.reason}")
    lines.append("")
    lines += _table(recipe, outcomes)
    for size in SIZES:
        outcome, compared = outcomes[size]
        if outcome.results:
            lines += _findings(size, outcome, compared)
    return "\n".join(lines)


def _table(recipe: Recipe, outcomes: dict[str, Any]) -> list[str]:
    """Return the paper's table with our values in brackets: small, then full size."""
    columns = list(recipe.expected.columns)
    if not columns:
        return []
    cells = {
        (size, cell.row, cell.column): cell for size in SIZES for cell in outcomes[size][1].cells
    }
    lines = [f"| row | {' | '.join(columns)} | kind |", "| --- " * (len(columns) + 2) + "|"]
    for name, row in recipe.expected.rows.items():
        texts = []
        for column in columns:
            printed = row.values.get(column)
            text = "–" if printed is None else f"{printed:g}" if _number(printed) else str(printed)
            found = [(size, cells.get((size, name, column))) for size in SIZES]
            ours = [
                f"{size} {cell.ours:.4g}{'' if cell.comparable else '*'}"
                for size, cell in found
                if cell is not None and cell.ours is not None
            ]
            texts.append(f"{text} ({', '.join(ours)})" if ours else text)
        lines.append(f"| {name} | {' | '.join(texts)} | {row.kind} |")
    return [*lines, "", "\\* on other data than the paper's.", ""]


def _number(value: Any) -> bool:
    return isinstance(value, int | float)


def _findings(size: str, outcome: Outcome, compared: Comparison) -> list[str]:
    lines = [f"What the {size} run found:", ""]
    lines += [f"- {c.check.says}: **{spoken(c)}** ({c.shown})" for c in compared.checks]
    lines += [f"- {m.row} against {m.against}, {m.column}: {m.shown}" for m in compared.marks]
    for test in compared.tests:
        low, high = test.found.interval()
        lines.append(
            f"- {test.row} against {test.against}, {test.value}: {test.difference:+.4f} "
            f"({low:+.4f} to {high:+.4f}), p {test.found.p():.2g}"
        )
    for result in outcome.results.values():
        lines += [f"- {result.row}: {note}" for note in result.notes]
    seconds = sum(result.seconds for result in outcome.results.values())
    last = list(outcome.results.values())[-1]
    used = ", ".join(f"{name} {number}" for name, number in last.versions.items())
    lines.append(f"- {len(outcome.results)} rows, {seconds:.0f} s; {last.machine}; {used}")
    not_run = [name for name, why in outcome.missing.items() if why == "not run"]
    if not_run:
        lines.append(f"- not run here: {', '.join(not_run)}")
    return [*lines, ""]
