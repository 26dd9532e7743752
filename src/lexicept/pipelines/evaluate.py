"""Measure systems on judged queries: effectiveness, cost, and whether they differ beyond chance."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from lexicept.checks import checked_arguments
from lexicept.corpora import Query
from lexicept.errors import InputError, LexiceptError, ParameterError, require
from lexicept.evaluation.effectiveness import (
    JudgedQueries,
    SystemResults,
    depth_of,
    evaluate_bm25,
    evaluate_index,
    evaluate_run,
    plain_bm25_e2,
)
from lexicept.evaluation.runs import Run, write_run
from lexicept.evaluation.significance import Comparison, Interval, compare, intervals
from lexicept.evaluation.sweep import Point, SweepGrid, pareto_front, sweep
from lexicept.index.reader import IndexReader
from lexicept.pipelines.opened import IndexLike, check_judged, read_judged, reader_of
from lexicept.pipelines.systems import ResolvedSystem, SearchedIndex, Systems, resolve_systems
from lexicept.progress import Progress, reporting
from lexicept.storage.files import make_folder, read_json, remove, replace_file
from lexicept.weighting import BM25

QUERY_LIMITS: tuple[int | None, ...] = (2, 4, 8, 16, 32, None)
DOCUMENT_LIMITS: tuple[int | None, ...] = (8, 16, 32, 64, 128, 256, None)
"""Limits of dimensions of the pruning curve; None sets no limit."""

REPORT, PER_QUERY, RUNS = "evaluation.json", "queries.csv", "runs"
CURVES, PLOT = "curves", "curves.png"
"""Files that an evaluation writes into its folder."""


@dataclass(frozen=True)
class Evaluation:
    """Effectiveness and cost of systems on judged queries."""

    systems: dict[str, SystemResults] = field(repr=False)
    """The results of each system by name, in the order of the arguments."""
    comparisons: list[Comparison]
    """Each system but the first against the first, on every measure."""
    curves: dict[str, list[Point]] = field(default_factory=dict, repr=False)
    """The pruning curve of each searched index, if ``curves`` was true: the Pareto front of
    nDCG@10 and QD-FLOPs."""

    @property
    def values(self) -> dict[str, float]:
        """Means and costs of the first system, by name; see ``SystemResults``."""
        return next(iter(self.systems.values())).values

    @property
    def run(self) -> Run:
        """The results of the first system: query id → document id → score."""
        return next(iter(self.systems.values())).run

    @property
    def num_queries(self) -> int:
        """The number of judged queries, over which means are taken."""
        per_query = next(iter(self.systems.values())).per_query
        return len(next(iter(per_query.values())))

    def intervals(self) -> dict[str, dict[str, Interval]]:
        """Return the 95 % confidence interval of every measure's mean, by system and measure."""
        return {name: intervals(results.per_query) for name, results in self.systems.items()}

    def to_json(self) -> dict[str, Any]:
        """Return values, intervals and tests as JSON values; null if not finite."""
        intervals = self.intervals()
        systems = {
            name: {
                "values": results.values,
                "intervals": {m: _finite(interval) for m, interval in intervals[name].items()},
                "queries_without_results": results.without_results,
            }
            for name, results in self.systems.items()
        }
        comparisons = [
            {key: _finite(value) for key, value in test._asdict().items()}
            for test in self.comparisons
        ]
        curves = {name: [p.to_json() for p in points] for name, points in self.curves.items()}
        content = {"queries": self.num_queries, "systems": systems, "comparisons": comparisons}
        return content | ({"curves": curves} if curves else {})


@checked_arguments
def evaluate(
    index: IndexLike,
    dataset: str | os.PathLike[str],
    split: str = "test",
    *,
    systems: Systems = (),
    measures: Sequence[str] = (),
    ignore_identical_ids: bool = False,
    syntax: bool = False,
    out: str | os.PathLike[str] | None = None,
    curves: bool = False,
    restart: bool = False,
    progress: bool | Progress = False,
) -> Evaluation:
    """Return the effectiveness and cost of systems on judged queries.

    Every mean has a 95 % confidence interval. Every system is compared with the first by a paired
    t-test for each measure, with p-values corrected (Holm) for the number of systems. Costs
    (QD-FLOPs and E²) are those of the postings alone, without the similarity of whole texts.

    Args:
        index: an opened index, or the path of one.
        dataset: a BEIR folder or an ir_datasets name, with queries and relevance judgements.
        split: the judgements to use: "test", "dev" or "train".
        systems: what to measure: "words", "concepts" or "all" of the index, or "sparse", which is
            "all" without the similarity of whole texts; "bm25" or "bm25:k1=0.9,b=0.4" over the
            words of the texts; another index, such as a re-weighted index; a TREC run, as a file
            (.gz too) or in memory. A mapping gives names, which runs in memory need. By default,
            all vocabularies of the index.
        measures: more measures, in ir_measures' notation, such as "AP" and "P@5".
        ignore_identical_ids: drop a hit with the id of the query, from runs too, as BEIR does for
            collections with documents as queries (ArguAna, Quora).
        syntax: read phrases in quotes, -words and field:value in the queries; False searches for
            the plain texts.
        out: a folder to write to: ``evaluation.json``; ``queries.csv``, the values of every query;
            ``runs``, the results of each system as a TREC run. Files of an earlier evaluation are
            replaced or removed.
        curves: also search each index with fewer dimensions in queries and documents, without the
            similarity of whole texts, and plot nDCG@10 against QD-FLOPs (``curves.png``). Needs
            ``out``, where an interrupted evaluation resumes the curves.
        restart: discard the curves in ``out``, such as curves of another index.
        progress: True shows a line on standard error.

    Raises:
        InputError: parameters that do not go together; no such dataset, split, measure,
            or system; no judgements of documents in an index or queries in a run; a malformed run;
            ``out`` can't be created; or curves without matplotlib.
        IndexFormatError: a path that holds no index, or a damaged one.

    Examples:
        >>> evaluation = lexicept.evaluate("pets.index", "judged")
        >>> evaluation.systems["all"].values["nDCG@10"]
        1.0
    """
    if curves and out is None:
        raise ParameterError("{0} requires {1}", "curves", "out")
    if syntax and curves:
        raise ParameterError("{0} and {1} can't be combined", "syntax", "curves")
    if restart and not curves:
        raise ParameterError("{0} requires {1}", "restart", "curves")
    if curves:
        require("plots", "matplotlib")
    for measure in measures:
        depth_of(measure)  # unknown ones are refused before any search
    reader = reader_of(index)
    resolved = resolve_systems(systems, reader)
    if curves and not any(isinstance(system, SearchedIndex) for system in resolved.values()):
        raise ParameterError(
            "{0} requires an index among {1}: runs have no curve", "curves", "systems"
        )
    queries, qrels = read_judged(reader, dataset, split)
    judgements = f"{os.fspath(dataset)} ({split})"
    for name, system in resolved.items():
        if isinstance(system, SearchedIndex) and system.reader is not reader:
            check_judged(system.reader, qrels, judgements)
        elif isinstance(system, Mapping) and system.keys().isdisjoint(q.query_id for q in qrels):
            raise InputError(f"run {name!r} has results for no query that {judgements} judges")
    folder = None if out is None else Path(out)
    if folder is not None:  # before anything is measured
        try:
            make_folder(folder)
        except (FileExistsError, NotADirectoryError, PermissionError) as error:
            raise InputError(f"{folder} can't be created: {error.strerror}") from error
    judged = JudgedQueries(queries, qrels, measures, ignore_identical_ids, syntax)
    fronts: dict[str, list[Point]] = {}
    with reporting(progress) as report:
        results = _evaluate_systems(resolved, reader, judged, report)
        if folder is not None and curves:
            fronts = _curves(resolved, judged, folder / CURVES, restart, report)
    comparisons = compare({name: system.per_query for name, system in results.items()})
    evaluation = Evaluation(results, comparisons, fronts)
    if folder is not None:
        _write(evaluation, queries, folder)
    return evaluation


def _evaluate_systems(
    systems: Mapping[str, ResolvedSystem],
    index: IndexReader,
    judged: JudgedQueries,
    progress: Progress,
) -> dict[str, SystemResults]:
    """Evaluate each system on the same queries, "bm25" over the texts of ``index``."""
    # Queries are encoded once for all vocabularies, and BM25's E² is computed once for each index.
    bm25_e2 = cache(lambda reader: plain_bm25_e2(reader, judged))
    indexes = [system for system in systems.values() if isinstance(system, SearchedIndex)]
    weighted = {
        reader: reader.weigh(judged.parsed(reader))
        for reader in {system.reader for system in indexes if system.vocabulary is None}
    }
    results = {}
    for done, (name, system) in enumerate(systems.items()):
        progress("evaluate", done, len(systems), name)
        if isinstance(system, SearchedIndex):
            reader = system.reader
            results[name] = evaluate_index(
                reader,
                judged,
                system.vocabulary,
                weighted=weighted.get(reader),
                rescore=system.rescore,
                bm25_e2=bm25_e2(reader),
            )
        elif isinstance(system, BM25):
            results[name] = evaluate_bm25(index, judged, system, bm25_e2=bm25_e2(index))
        else:
            results[name] = evaluate_run(system, judged)
    progress("evaluate", len(systems), len(systems))
    return results


def _curves(
    systems: Mapping[str, ResolvedSystem],
    judged: JudgedQueries,
    folder: Path,
    restart: bool,
    progress: Progress,
) -> dict[str, list[Point]]:
    """Return the pruning curve of each index."""
    curves = {}
    for name, file_name in _file_names(systems).items():
        system = systems[name]
        if isinstance(system, SearchedIndex):
            rra, place = system.reader.rra, folder / file_name
            alpha = None if rra is None else rra.alpha
            grid = SweepGrid(QUERY_LIMITS, DOCUMENT_LIMITS, alpha=(alpha,))
            vocabulary = system.vocabulary
            points = sweep(
                system.reader, judged, grid, place, vocabulary, progress, restart=restart
            )
            curves[name] = pareto_front(points)
    return curves


def _write(evaluation: Evaluation, queries: Sequence[Query], folder: Path) -> None:
    """Write the report, the values of every query, the runs and the plot."""
    _remove_earlier(evaluation, folder)
    content = json.dumps(evaluation.to_json(), ensure_ascii=False, indent=1) + "\n"
    replace_file(folder / REPORT, content.encode())
    texts = {query.id: query.text for query in queries}
    lines = io.StringIO()
    table = csv.writer(lines, lineterminator="\n")
    measures = list(next(iter(evaluation.systems.values())).per_query)
    table.writerow(["query", "text", "system", *measures])
    for name, results in evaluation.systems.items():
        for query in results.per_query[measures[0]]:
            values = [repr(results.per_query[measure][query]) for measure in measures]
            table.writerow([query, texts.get(query, ""), name, *values])
    replace_file(folder / PER_QUERY, lines.getvalue().encode())
    make_folder(folder / RUNS)
    for name, file in _file_names(evaluation.systems).items():
        write_run(folder / RUNS / f"{file}.run.gz", evaluation.systems[name].run, name)
    if evaluation.curves:
        from lexicept.evaluation.plots import write_curves

        write_curves(evaluation.systems, evaluation.curves, folder / PLOT)


def _remove_earlier(evaluation: Evaluation, folder: Path) -> None:
    """Remove files of the evaluation in the folder that this evaluation does not replace."""
    try:
        earlier = read_json(folder / REPORT)
        names = _file_names(earlier["systems"])
        plotted = [names[name] for name in earlier.get("curves", {})]
    except (LexiceptError, KeyError, TypeError, AttributeError):
        return  # none, or a file of somebody else's
    new_names = _file_names(evaluation.systems)
    for name in set(names.values()) - set(new_names.values()):
        remove(folder / RUNS / f"{name}.run.gz")
    for name in set(plotted) - {new_names[name] for name in evaluation.curves}:
        remove(folder / CURVES / name)
    if plotted and not evaluation.curves:
        remove(folder / PLOT)


def _file_names(systems: Mapping[str, object]) -> dict[str, str]:
    """Return a name of a file for each system, all different."""
    names: dict[str, str] = {}
    for name in systems:
        plain = re.sub(r"\.(run|gz|txt|trec)(?=\.|$)", "", name).strip("./")
        plain = re.sub(r"[^\w.=,+-]+", "_", plain).strip("_")[-100:] or "system"
        taken = {each.lower() for each in names.values()}
        ending, number = "", 1
        while f"{plain}{ending}".lower() in taken:
            number += 1
            ending = f"-{number}"
        names[name] = f"{plain}{ending}"
    return names


def _finite(value: Any) -> Any:
    """Return a JSON value: None for a number that is not finite."""
    if isinstance(value, tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
