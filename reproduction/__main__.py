"""``python -m reproduction PAPER/TABLE``: run a paper's table or figure."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

from lexicept.errors import InputError, LexiceptError, require
from lexicept.progress import reporting
from lexicept.sanitize import safe
from reproduction.data import Data, load_sources
from reproduction.figure import write_figure
from reproduction.recipe import RECIPES, SIZES, find_recipes, job_kind, load_recipe
from reproduction.report import record, write_comparison, write_report
from reproduction.run import run_recipe, validate

MODULES = ("sentence_transformers", "accelerate", "peft", "matplotlib")
"""Packages that recipes import."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return the exit status. An error is one line."""
    options = _parser().parse_args(arguments)
    folder = options.recipes
    try:
        require("train", *MODULES)
        if not (folder / "datasets.yaml").exists():
            raise InputError(f"{folder}: no recipes here (datasets.yaml is missing)")
        if options.list:
            _list(folder)
        elif options.report:
            verdicts = write_report(folder, folder / "RESULTS.md")
            words = Counter(verdict.word for each in verdicts.values() for verdict in each.values())
            counts = ", ".join(f"{count} {word}" for word, count in sorted(words.items()))
            print(f"{folder / 'RESULTS.md'}: {counts}")
        elif (options.recipe is None) != options.all:
            raise InputError("name one recipe, or --all; --list shows them")
        else:
            names = find_recipes(folder) if options.all else [options.recipe]
            if options.dry_run:
                _check(folder, names)
            for name in [] if options.dry_run else names:
                _reproduce(folder, name, options)
    except (LexiceptError, OSError) as error:
        print(safe(f"error: {error}"), file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m reproduction",
        description="Run the experiments of a paper's table or figure, and compare with its "
        "numbers. The same command resumes an interrupted run; rows whose data are missing are "
        "skipped. OUT/RECIPE/SIZE holds table.md and the figure.",
    )
    parser.add_argument("recipe", nargs="?", help="PAPER/TABLE, such as rra/table1")
    parser.add_argument("--size", choices=SIZES, default="small", help="small runs on a CPU")
    parser.add_argument("--data", type=Path, help="a folder with a BEIR folder for each dataset")
    parser.add_argument("--out", type=Path, default=Path("reproduced"), help="folder of results")
    parser.add_argument("--rows", default="", help="only these rows, separated by commas")
    parser.add_argument("--list", action="store_true", help="list all recipes")
    parser.add_argument("--all", action="store_true", help="run all recipes")
    parser.add_argument("--dry-run", action="store_true", help="check recipes and list their jobs")
    parser.add_argument("--restart", action="store_true", help="run finished rows again")
    parser.add_argument("--record", action="store_true", help="keep results beside the recipe")
    parser.add_argument("--report", action="store_true", help="write RESULTS.md; runs nothing")
    parser.add_argument("--recipes", type=Path, default=RECIPES, help="folder of other recipes")
    return parser


def _reproduce(recipes: Path, name: str, options: argparse.Namespace) -> None:
    """Run a recipe, and write and print the comparison with the paper."""
    if options.data is not None and not options.data.is_dir():
        raise InputError(f"{options.data}: no such folder of datasets")
    recipe, size = load_recipe(recipes, name), options.size
    names = [row.strip() for row in options.rows.split(",") if row.strip()]
    sources = load_sources(recipes / "datasets.yaml")
    with reporting(True) as progress:
        data = Data(options.data, sources, options.out / "work", progress)
        outcome = run_recipe(recipe, size, data, options.out, names, options.restart)
    folder = options.out / name / size
    comparison = write_comparison(recipe, size, outcome, folder)
    write_figure(recipe, outcome, folder / "figure.png")
    if options.record and outcome.results:
        record(recipe, size, outcome, comparison)
    lines = [f"{name}: {comparison.verdict.word}: {comparison.verdict.reason}"]
    lines += [f"  {c.words}: {c.check.says} ({c.values})" for c in comparison.checks]
    for reason in dict.fromkeys(outcome.missing.values()):
        missing = [row for row, why in outcome.missing.items() if why == reason]
        lines.append(f"  no result of {', '.join(missing)}: {reason}")
    print(safe("\n".join([*lines, f"  {folder / 'table.md'}"])))


def _list(folder: Path) -> None:
    recipes = [load_recipe(folder, name) for name in find_recipes(folder)]
    width = max(len(recipe.name) for recipe in recipes)
    for recipe in recipes:
        print(safe(f"{recipe.name:<{width}}  {recipe.expected.reference}: {recipe.title}"))


def _check(folder: Path, names: list[str]) -> None:
    """Validate recipes with datasets and tasks, and print the number of jobs by kind."""
    recipes = [load_recipe(folder, name) for name in names]
    count = sum(validate(recipe, folder) for recipe in recipes)
    for recipe in recipes:
        for size in SIZES:
            jobs = [row.jobs[size] for row in recipe.rows]
            kinds = Counter(job_kind(job) for job in jobs if not isinstance(job, str))
            if kinds:
                listed = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
                print(f"python -m reproduction {recipe.name} --size {size}: {listed}")
    print(f"{len(names)} recipes, {count} jobs: all valid")
    for package, unchecked in (("ir_datasets", "datasets"), ("mteb", "tasks")):
        if find_spec(package) is None:
            print(f"{unchecked} were not checked: {package} is not installed")


if __name__ == "__main__":
    sys.exit(main())
