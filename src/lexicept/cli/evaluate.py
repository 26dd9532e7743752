"""The command that measures systems on judged queries: evaluate."""

from __future__ import annotations

import math
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lexicept.cli.common import (
    DatasetArgument,
    IgnoreIdenticalIdsOption,
    IndexArgument,
    JsonOption,
    QueryEncoder,
    QueryEncoderOption,
    RestartOption,
    SearchEngineOption,
    ignored_ids,
    open_to_search,
    option_names,
    print_json,
    working,
)
from lexicept.cli.configuration import ConfigOption

if TYPE_CHECKING:
    from rich.table import Table

    from lexicept.pipelines.evaluate import Evaluation

SystemOption = Annotated[
    list[str] | None,
    typer.Option(
        help="What to measure; may be repeated, and the first is what others are compared with: "
        "words, concepts, all, bm25, bm25:k1=0.9,b=0.4, the folder of another index, or a TREC "
        "run (.gz too). Default: all vocabularies of the index."
    ),
]
MeasureOption = Annotated[
    list[str] | None,
    typer.Option(help="Additional measure, such as AP or P@5 (ir_measures); may be repeated."),
]
SyntaxOption = Annotated[
    bool,
    typer.Option(
        "--syntax", help='Read "exact phrase", -word and field:value in the queries as search does.'
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        help="Folder to write to: evaluation.json, queries.csv (the values of every query), "
        "runs/*.run.gz (TREC runs)."
    ),
]
CurvesOption = Annotated[
    bool,
    typer.Option(
        "--curves",
        help="Also search each index with fewer dimensions, and plot nDCG@10 against QD-FLOPs "
        "(curves.png in --out).",
    ),
]


def evaluate(
    index: IndexArgument,
    dataset: DatasetArgument,
    split: Annotated[str, typer.Option(help="Split of the judged queries.")] = "test",
    system: SystemOption = None,
    engine: SearchEngineOption = "exact",
    query_encoder: QueryEncoderOption = QueryEncoder.model,
    syntax: SyntaxOption = False,
    measure: MeasureOption = None,
    out: OutOption = None,
    curves: CurvesOption = False,
    ignore_identical_ids: IgnoreIdenticalIdsOption = False,
    config: ConfigOption = None,
    restart: RestartOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure systems on judged queries: effectiveness with confidence intervals, and cost.

    Several systems are compared with the first by paired t-tests on every measure, corrected for
    the number of systems.
    """
    from lexicept.pipelines.evaluate import evaluate
    from lexicept.pipelines.systems import needs_model

    with option_names():
        loaded = query_encoder if needs_model(system or ()) else QueryEncoder.lookup  # no model
        opened, _ = open_to_search(index, engine=engine, query_encoder=loaded, one_query=False)
        with opened, nullcontext() if curves else working("searching"):
            report = evaluate(
                opened,
                dataset,
                split,
                systems=system or (),
                measures=measure or (),
                ignore_identical_ids=ignore_identical_ids,
                query_encoder=query_encoder.value,
                syntax=syntax,
                out=out,
                curves=curves,
                restart=restart,
                progress=curves,
            )
    if as_json:
        print_json(report.to_json() | {"ignore_identical_ids": ignore_identical_ids})
    else:
        title = f"{dataset}, {split}: {report.num_queries} queries"
        _print(report, title + ignored_ids(ignore_identical_ids))


def _print(report: Evaluation, title: str) -> None:
    from rich.console import Console
    from rich.text import Text

    from lexicept.measures import explanations

    console = Console()
    console.print(_values(report, title))
    names = dict.fromkeys(key for results in report.systems.values() for key in results.values)
    for note in explanations(names):
        console.print(Text(note, style="dim"))
    if report.comparisons:
        console.print()
        console.print(_differences(report))
        note = "p: paired t-test over the queries; p (Holm): corrected for the number of systems"
        console.print(Text(note, style="dim"))


def _values(report: Evaluation, title: str) -> Table:
    """Return the table of measures and costs, with a column for each system."""
    from rich.table import Table
    from rich.text import Text

    from lexicept.measures import measure_named
    from lexicept.sanitize import safe

    table = Table(title=Text(safe(title)), title_justify="left", box=None, padding=(0, 1))
    table.add_column(no_wrap=True)
    for name in report.systems:
        table.add_column(Text(safe(name)), overflow="fold")
    intervals = report.intervals()
    names = {key: None for results in report.systems.values() for key in results.values}
    for key in names:
        cells = []
        for system, results in report.systems.items():
            value, interval = results.values.get(key), intervals[system].get(key)
            half = "" if interval is None else _half(interval.high - interval.low)
            cells.append("–" if value is None else measure_named(key).format(value) + half)
        table.add_row(key, *cells)
    empty = [results.without_results for results in report.systems.values()]
    if any(empty):
        table.add_row("queries without results", *map(str, empty))
    return table


def _half(width: float) -> str:
    return "" if math.isnan(width) else f" ±{width / 2:.4f}"


def _differences(report: Evaluation) -> Table:
    """Return the table of the differences from the first system."""
    from rich.table import Table
    from rich.text import Text

    from lexicept.sanitize import safe

    title = f"differences from {report.comparisons[0].baseline}"
    table = Table(title=Text(safe(title)), title_justify="left", box=None, padding=(0, 1))
    table.add_column("", no_wrap=True)
    table.add_column("system", overflow="fold")
    for name in ("difference", "p", "p (Holm)"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in report.comparisons:
        half = _half(one.interval.high - one.interval.low)
        ps = ("–" if math.isnan(p) else f"{p:.2g}" for p in (one.p, one.p_holm))
        table.add_row(one.measure, Text(safe(one.system)), f"{one.difference:+.4f}{half}", *ps)
    return table
