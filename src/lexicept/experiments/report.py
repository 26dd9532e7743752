"""The page of all tables: the papers' numbers, ours, and the verdicts."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from lexicept.errors import InputError
from lexicept.experiments.comparison import Comparison, Pair, Verdict, compare, marks
from lexicept.experiments.recipe import SIZES, Recipe, find_recipes, load_recipe
from lexicept.experiments.run import Outcome, Result, job_fingerprint
from lexicept.storage.files import read_json, replace_file, write_json

RECIPES = Path(__file__).parent / "recipes"
"""Folder of the package's recipes."""

_HEAD = """# The papers' tables, reproduced

Written by `lexicept reproduce --all --report docs/reproduction.md` from the recipes and the results
that their folders keep (`small.json`, `full.json`). A verdict concerns one run:
*agrees* and *disagrees* say that the rows which ran bear out the table's claims, or do not;
*not comparable*, that the run can't decide; *not run here*, that there is no result. A small run
measures on other, smaller data than the papers unless a column says otherwise: what it can bear
out is a claim's direction, not a number.
"""


def record(recipe: Recipe, size: str, outcome: Outcome, compared: Comparison) -> Path:
    """Keep results in the recipe's folder, without the values of single queries, beside those that
    it has of other rows.

    Paired tests need those of both rows, so that they are kept too.
    """
    path = recipe.folder / f"{size}.json"
    before, tested = recorded(recipe, size)
    rows = {}
    for row in recipe.rows:
        result = outcome.results.get(row.name) or before.results.get(row.name)
        if result is not None:
            rows[row.name] = {**asdict(result), "per_query": {}}
            values = {key: float(f"{v:.6g}") for key, v in result.values.items()}
            rows[row.name]["values"] = values
    pairs = [
        pair
        for pair in tested
        if pair["row"] not in outcome.results and pair["against"] not in outcome.results
    ]
    pairs += [pair._asdict() for pair in compared.pairs]
    write_json(path, {"rows": rows, "pairs": pairs})
    return path


def recorded(recipe: Recipe, size: str) -> tuple[Outcome, list[dict[str, Any]]]:
    """Return the recorded results that belong to the recipe's present jobs, and their paired
    tests."""
    path = recipe.folder / f"{size}.json"
    content = read_json(path) if path.exists() else {"rows": {}, "pairs": []}
    results, missing = {}, {}
    for row in recipe.rows:
        job = row.jobs[size]
        kept = content["rows"].get(row.name)
        if isinstance(job, str):
            missing[row.name] = job
        elif kept is None:
            missing[row.name] = "not run"
        elif kept["fingerprint"] != job_fingerprint(job, recipe):
            missing[row.name] = "run with another configuration than the recipe has now"
        else:
            results[row.name] = Result.from_json(kept, path)
    pairs = [p for p in content["pairs"] if p["row"] in results and p["against"] in results]
    return Outcome(results, missing), pairs


def write_report(recipes: Path, path: Path) -> dict[str, dict[str, Verdict]]:
    """Write the page of all recipes; return the verdicts by recipe and size."""
    verdicts: dict[str, dict[str, Verdict]] = {}
    sections = []
    for name in find_recipes(recipes):
        recipe = load_recipe(recipes, name)
        outcomes = {}
        for size in SIZES:
            outcome, pairs = recorded(recipe, size)
            outcomes[size] = (outcome, compare(recipe, size, outcome), pairs)
        verdicts[name] = {size: one[1].verdict for size, one in outcomes.items()}
        sections.append(_section(recipe, outcomes))
    lines = ["| table | claim | small run | full run |", "| --- " * 4 + "|"]
    for name, words in verdicts.items():
        title = load_recipe(recipes, name).title
        small, full = (_cell(words[size]) for size in SIZES)
        lines.append(f"| [{name}](#{_anchor(name)}) | {title} | {small} | {full} |")
    content = "\n".join([_HEAD, *lines, "", *sections])
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
        outcome, compared, pairs = outcomes[size]
        if outcome.results:
            lines += _findings(recipe, size, outcome, compared, pairs)
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
            for size in SIZES:
                cell = cells.get((size, name, column))
                if cell is not None and cell.ours is not None:
                    mark = "" if cell.comparable else "*"
                    text += f" [{size} {cell.ours:.4g}{mark}]"
            texts.append(text)
        lines.append(f"| {name} | {' | '.join(texts)} | {row.kind} |")
    return [*lines, "", "\\* on other data than the paper's.", ""]


def _number(value: Any) -> bool:
    return isinstance(value, int | float)


def _findings(
    recipe: Recipe,
    size: str,
    outcome: Outcome,
    compared: Comparison,
    pairs: list[dict[str, Any]],
) -> list[str]:
    lines = [f"What the {size} run found:", ""]
    for checked in compared.checks:
        word = {True: "yes", False: "**no**", None: "not run"}[checked.holds]
        lines.append(f"- {checked.check.says}: {word} ({checked.shown})")
    tested = [Pair(**pair) for pair in pairs]
    for one in marks(recipe, size, tested):
        lines.append(f"- {one.row} against {one.against}, {one.column}: {one.shown}")
    for pair in tested:
        lines.append(
            f"- {pair.row} against {pair.against}, {pair.measure}: "
            f"{pair.difference:+.4f}, p {pair.p:.2g}"
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


def recipes_folder(given: Path | None) -> Path:
    """The given folder of recipes, or the one in the package.

    Raises:
        InputError: the given folder has no ``datasets.yaml``.
    """
    if given is None:
        return RECIPES
    if not (given / "datasets.yaml").exists():
        raise InputError(f"{given}: no recipes here (datasets.yaml is missing)")
    return given
