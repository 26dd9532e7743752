"""The command that reproduces the papers' tables and figures: reproduce."""

from __future__ import annotations

from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from lexicept.cli.common import JsonOption, print_json
from lexicept.cli.configuration import ConfigOption
from lexicept.errors import InputError, require
from lexicept.sanitize import safe

if TYPE_CHECKING:
    from lexicept.experiments.reproduce import Reproduction


class SizeChoice(StrEnum):
    """Sizes of a run."""

    small = "small"
    full = "full"


RecipeArgument = Annotated[
    str | None, typer.Argument(help="Recipe, PAPER/TABLE: rra/table1; --list shows all.")
]
DataOption = Annotated[
    Path | None,
    typer.Option(help="Folder with a BEIR folder per dataset; missing ones are downloaded."),
]
RowsOption = Annotated[str, typer.Option(help="Run only these rows, separated by commas.")]
ListOption = Annotated[bool, typer.Option("--list", help="List all recipes.")]
AllOption = Annotated[bool, typer.Option("--all", help="Run all recipes.")]
DryOption = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Check recipes, datasets and tasks, and print what each full-size row takes: data, "
        "backbone, steps, GPU memory, hours, and what is private or missing. Runs nothing.",
    ),
]
RestartOption = Annotated[
    bool, typer.Option("--restart", help="Run rows again that have a result.")
]
RecordOption = Annotated[
    bool, typer.Option("--record", help="Store the results in the recipe's folder, for --report.")
]
ReportOption = Annotated[
    Path | None,
    typer.Option(help="Write a page about the stored results of all recipes; runs nothing."),
]
RecipesOption = Annotated[Path | None, typer.Option(help="Folder of other recipes.")]


def reproduce(
    recipe: RecipeArgument = None,
    size: Annotated[
        SizeChoice, typer.Option(help="small runs on a CPU; full has the paper's size.")
    ] = SizeChoice.small,
    data: DataOption = None,
    out: Annotated[Path, typer.Option(help="Folder of the results.")] = Path("reproduced"),
    rows: RowsOption = "",
    as_list: ListOption = False,
    everything: AllOption = False,
    dry_run: DryOption = False,
    restart: RestartOption = False,
    record: RecordOption = False,
    report: ReportOption = None,
    recipes: RecipesOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run the experiments of a paper's table or figure, and compare with its numbers.

    Re-running the command resumes an interrupted run. Rows whose data are missing are skipped and
    can be run later. OUT/RECIPE/SIZE holds table.md, table.json and the figure.
    """
    require("train", "sentence_transformers", "accelerate", "peft", "yaml", "matplotlib")
    from lexicept.experiments.recipe import find_recipes
    from lexicept.experiments.report import recipes_folder

    folder = recipes_folder(recipes)
    if as_list:
        _list(folder, as_json)
    elif report is not None:
        _report(folder, report)
    else:
        if (recipe is None) != everything:
            raise InputError("name one recipe, or --all; --list shows them")
        names = find_recipes(folder) if recipe is None else [recipe]
        if dry_run:
            _plan(folder, names, data, as_json)
        else:
            chosen = tuple(name.strip() for name in rows.split(",") if name.strip())
            _run(folder, names, size.value, data, out, chosen, restart, record, as_json)


def _list(folder: Path, as_json: bool) -> None:
    from lexicept.experiments.recipe import find_recipes, load_recipe

    loaded = [load_recipe(folder, name) for name in find_recipes(folder)]
    if as_json:
        print_json({r.name: {"title": r.title, "table": r.expected.reference} for r in loaded})
        return
    name = max(len(r.name) for r in loaded)
    reference = max(len(r.expected.reference) for r in loaded)
    for one in loaded:
        print(safe(f"{one.name:<{name}}  {one.expected.reference:<{reference}}  {one.title}"))


def _plan(folder: Path, names: list[str], data: Path | None, as_json: bool) -> None:
    from lexicept.experiments.reproduce import plan

    jobs, plans = plan(names, data=data, recipes=folder)
    if as_json:
        print_json({f"{one.recipe} {one.row}": one.to_json() for one in plans})
        return
    for one in plans:
        memory = "-" if one.gigabytes is None else f"{one.gigabytes:.0f} GB"
        hours = "-" if one.hours is None else f"{one.hours:,.1f} h"
        steps = f"{one.steps:,} steps" if one.stages else "no training"
        print(safe(f"{one.recipe} {one.row}: {one.backbone or '-'}, {steps}, {memory}, {hours}"))
        print(safe(f"  data: {', '.join(one.data) or '-'}"))
        for reason in one.missing:
            print(safe(f"  missing: {reason}"))
    print(f"{len(names)} recipes, {jobs} jobs: all valid")
    for package, unchecked in (("ir_datasets", "datasets"), ("mteb", "tasks")):
        if find_spec(package) is None:
            print(f"{unchecked} were not checked: {package} is not installed")


def _report(folder: Path, path: Path) -> None:
    from lexicept.experiments.report import write_report

    verdicts = write_report(folder, path)
    words = [verdict.word for sizes in verdicts.values() for verdict in sizes.values()]
    counted = ", ".join(f"{words.count(word)} {word}" for word in sorted(set(words)))
    print(safe(f"{path}: {counted}"))


def _run(
    folder: Path,
    names: list[str],
    size: Literal["small", "full"],
    data: Path | None,
    out: Path,
    rows: tuple[str, ...],
    restart: bool,
    record: bool,
    as_json: bool,
) -> None:
    from lexicept.experiments.reproduce import reproduce

    shown = {}
    for name in names:
        result = reproduce(
            name,
            data=data,
            out=out,
            size=size,
            rows=rows,
            restart=restart,
            record=record,
            recipes=folder,
            progress=True,
        )
        shown[result.name] = result.comparison
        if not as_json:
            _show(result)
    if as_json:
        print_json(shown)


def _show(result: Reproduction) -> None:
    print(safe(f"{result.name}: {result.verdict}: {result.reason}"))
    for check in result.comparison["checks"]:
        why = f": {check['reason']}" if check["reason"] else ""
        print(safe(f"  {check['answer']}{why}: {check['says']} ({check['values']})"))
    for reason in dict.fromkeys(result.missing.values()):
        rows = [row for row, why in result.missing.items() if why == reason]
        print(safe(f"  no result of {', '.join(rows)}: {reason}"))
    print(safe(f"  {result.folder / 'table.md'}"))
