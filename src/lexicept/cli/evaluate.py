"""Commands that measure an index: evaluate, report, sweep."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexicept.cli.common import (
    SearchVocabulary,
    ignored_ids,
    open_to_search,
    print_json,
    print_report,
    show,
)
from lexicept.cli.declarations import takes

if TYPE_CHECKING:
    from rich.table import Table

    from lexicept.evaluation.sweep import Point
    from lexicept.pipelines.evaluate import Evaluation


@takes("lexicept.pipelines.evaluate:evaluate")
def evaluate(index: Path, dataset: str, as_json: bool = False, **options: Any) -> None:
    """Measure systems on judged queries: effectiveness with confidence intervals, and cost.

    Several systems are compared with the first by paired t-tests on every measure, corrected for
    the number of systems.
    """
    from lexicept.pipelines.evaluate import evaluate

    report = evaluate(index, dataset, **options, progress=True)
    ignored = options.get("ignore_identical_ids", False)
    if as_json:
        print_json(report.to_json() | {"ignore_identical_ids": ignored})
    else:
        title = f"{dataset}, {options.get('split', 'test')}: {report.num_queries} queries"
        _print(report, title + ignored_ids(ignored))


@takes("lexicept.pipelines.report:report")
def report(as_json: bool = False, **options: Any) -> None:
    """Write an HTML report about an index: topics and results, then cost and posting lists.

    The report is one file that works offline and without scripts.
    """
    from lexicept.pipelines.report import report

    path = report(**options, progress=True)
    print_report({"file": str(path), "bytes": path.stat().st_size}, as_json)


def _print(report: Evaluation, title: str) -> None:
    from lexicept.cli.display import plain
    from lexicept.measures import explanations

    names = dict.fromkeys(key for results in report.systems.values() for key in results.values)
    show(_values(report, title), *(plain(note, "dim") for note in explanations(names)))
    if report.comparisons:
        note = "p: paired t-test over the queries; p (Holm): corrected for the number of systems"
        show("", _differences(report), plain(note, "dim"))


def _values(report: Evaluation, title: str) -> Table:
    """Return the table of measures and costs, with a column for each system."""
    from rich.table import Column

    from lexicept.cli.display import folded, grid, plain
    from lexicept.measures import measure_named

    table = grid([Column(no_wrap=True), *[folded(plain(name)) for name in report.systems]], title)
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
    from rich.table import Column

    from lexicept.cli.display import folded, grid, plain, right

    numbers = [right(name, no_wrap=True) for name in ("difference", "p", "p (Holm)")]
    title = f"differences from {report.comparisons[0].baseline}"
    table = grid([Column(no_wrap=True), folded("system"), *numbers], title)
    for test in report.comparisons:
        difference = f"{test.difference:+.4f}{_half(test.interval.high - test.interval.low)}"
        ps = ("–" if math.isnan(p) else f"{p:.2g}" for p in (test.p, test.p_holm))
        table.add_row(test.measure, plain(test.system), difference, *ps)
    return table


@takes("lexicept.pipelines.sweep:sweep")
def sweep(
    index: Path,
    *,
    vocabulary: SearchVocabulary | None = None,
    as_json: bool = False,
    **options: Any,
) -> None:
    """Measure effectiveness and cost for all combinations of settings.

    Separate the values of an option with commas; none is no limit. If words and concepts are
    searched together, the limits apply to the concepts. Choose settings on a dev or train split,
    never on test. Re-running the command resumes an interrupted sweep.

    Args:
        vocabulary: vocabulary to search. By default all that the index has.
    """
    from lexicept.pipelines.sweep import sweep

    opened, searched = open_to_search(index, vocabulary)
    with opened:
        result = sweep(opened, **options, **searched, progress=True)
    ignored = options.get("ignore_identical_ids", False)
    if as_json:
        best = [point.to_json() for point in result.front]
        report = {"points": len(result.points), "folder": str(result.folder), "front": best}
        print_json(report | {"ignore_identical_ids": ignored})
    else:
        title = f"{len(result.front)} of {len(result.points)} points: {result.folder}"
        show(_front_table(result.front, title + ignored_ids(ignored)))


def _front_table(front: list[Point], title: str) -> Table:
    """Return the Pareto front as a table, with settings as the options take them."""
    from lexicept.cli.display import BORDERS, grid, right
    from lexicept.measures import E2, NDCG, QD_FLOPS, RR

    measures = (QD_FLOPS, NDCG, RR, E2)
    names = [measure.title for measure in measures]
    names += ["query dims", "document dims", "alpha", "query scale"]
    table = grid([right(name) for name in names], title, box=BORDERS)
    for point in front:
        setting = point.setting
        table.add_row(
            *(measure.format(point.values[measure.name]) for measure in measures),
            str(setting.query_max_active_dims or "none"),
            str(setting.document_max_active_dims or "none"),
            "none" if setting.alpha is None else f"{setting.alpha:g}",
            f"{setting.query_scale:g}",
        )
    return table
