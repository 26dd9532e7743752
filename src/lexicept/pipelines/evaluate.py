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
from pathlib import Path
from typing import Any, Literal

from lexicept.corpora import Qrel, Query
from lexicept.errors import InputError, LexiceptError, ParameterError, require
from lexicept.evaluation import plots, sweep
from lexicept.evaluation.comparison import Comparison, Interval, compare, intervals
from lexicept.evaluation.curves import DOCUMENT_LIMITS, QUERY_LIMITS
from lexicept.evaluation.effectiveness import (
    SystemResults,
    asked,
    depth_of,
    evaluate_bm25,
    evaluate_index,
    evaluate_run,
)
from lexicept.evaluation.runs import Run, write_run
from lexicept.index.reader import IndexReader
from lexicept.pipelines.arguments import checked_arguments
from lexicept.pipelines.judged import check_judged, read_judged
from lexicept.pipelines.opened import IndexLike, reader_of
from lexicept.pipelines.systems import Resolved, Searched, Systems, resolved
from lexicept.progress import Progress, reporting
from lexicept.storage.files import make_folder, read_json, remove, replace_file
from lexicept.weighting import BM25

REPORT, PER_QUERY, RUNS = "evaluation.json", "queries.csv", "runs"
CURVES, PLOT = "curves", "curves.png"
"""Files that an evaluation writes into its folder."""


@dataclass(frozen=True)
class Evaluation:
    """Effectiveness and cost of systems on judged queries."""

    systems: dict[str, SystemResults] = field(repr=False)
    """The results of each system by its name, in the order asked for."""
    comparisons: list[Comparison]
    """Each system but the first against the first, on every measure."""
    curves: dict[str, list[sweep.Point]] = field(default_factory=dict, repr=False)
    """The pruning curve of each index that was searched, if asked for: the points that no other
    one beats in nDCG@10 and in QD-FLOPs."""

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
        """Return values, intervals and tests as JSON values; what is not known is null."""
        shown = self.intervals()
        systems = {
            name: {
                "values": results.values,
                "intervals": {key: _known(each) for key, each in shown[name].items()},
                "queries_without_results": results.without_results,
            }
            for name, results in self.systems.items()
        }
        comparisons = [
            {key: _known(value) for key, value in one._asdict().items()} for one in self.comparisons
        ]
        curves = {name: [p.to_json() for p in points] for name, points in self.curves.items()}
        found = {"queries": self.num_queries, "systems": systems, "comparisons": comparisons}
        return found | ({"curves": curves} if curves else {})


@checked_arguments
def evaluate(
    index: IndexLike,
    dataset: str | os.PathLike[str],
    split: str = "test",
    *,
    systems: Systems = (),
    engine: str = "exact",
    measures: Sequence[str] = (),
    ignore_identical_ids: bool = False,
    query_encoder: Literal["model", "lookup"] = "model",
    syntax: bool = False,
    out: str | os.PathLike[str] | None = None,
    curves: bool = False,
    restart: bool = False,
    progress: bool | Progress = False,
) -> Evaluation:
    """Return the effectiveness and cost of one system or several on judged queries.

    A mean comes with its 95 % confidence interval. Every system is compared with the first by
    paired t-tests, one for each measure, whose p-values are corrected (Holm) for the number of
    systems.

    Args:
        index: an opened index, or the path of one.
        dataset: a BEIR folder or an ir_datasets name, with queries and relevance judgements.
        split: the judgements to use: "test", "dev" or "train".
        systems: what to measure: "words", "concepts" or "both" of the index; "bm25" or
            "bm25:k1=0.9,b=0.4" over the words of its texts; another index, such as a re-weighted
            one; a TREC run, as a file (.gz too) or in memory. A mapping gives them names; a run
            in memory needs one. By default, all vocabularies of the index.
        engine: the engine that searches a path; an opened index keeps its own.
        measures: more measures, in ir_measures' notation, such as "AP" and "P@5".
        ignore_identical_ids: drop a hit whose id is its query's, from runs too. For
            collections whose queries are documents, such as ArguAna and Quora, as BEIR does.
        query_encoder: what encodes the queries' concepts; see ``Index.search``.
        syntax: read phrases in quotes, -words and field:value in the queries, so that each has its
            own conditions; by default they are text.
        out: a folder to write to: ``evaluation.json``; ``queries.csv``, the values of every query;
            ``runs``, each system's results as a TREC run. What an earlier evaluation wrote there
            is replaced, or removed.
        curves: also search each index with fewer dimensions in queries and documents, and plot
            nDCG@10 against QD-FLOPs (``curves.png``). It needs ``out``, where an interrupted
            evaluation resumes the curves.
        restart: discard the curves in ``out``, such as those of another index.
        progress: True shows bars on standard error.

    Raises:
        InputError: parameters that do not go together; no such dataset, split, engine, measure,
            system or token table; no judgements, or none of a document in an index, or none of a
            query in a run; a malformed run; ``out`` can't be created; or matplotlib, which curves
            need, is not installed.
        IndexFormatError: a path that holds no index, or a damaged one.
    """
    if curves and out is None:
        raise ParameterError("{0} requires {1}", "curves", "out")
    if syntax and curves:
        raise ParameterError("{0} and {1} can't be combined", "syntax", "curves")
    if restart and not curves:
        raise ParameterError("{0} requires {1}", "restart", "curves")
    if curves:
        require("report", "matplotlib")
    for measure in measures:
        depth_of(measure)  # unknown ones are refused before any search
    reader = reader_of(index, engine=engine).using(query_encoder)
    chosen = resolved(systems, reader)
    if curves and not any(isinstance(system, Searched) for system in chosen.values()):
        raise ParameterError(
            "{0} requires an index among {1}: runs have no curve", "curves", "systems"
        )
    queries, qrels = read_judged(reader, dataset, split)
    source = f"{os.fspath(dataset)} ({split})"
    for name, system in chosen.items():
        if isinstance(system, Searched) and system.reader is not reader:
            check_judged(system.reader, qrels, source)
        elif isinstance(system, Mapping) and system.keys().isdisjoint(q.query_id for q in qrels):
            raise InputError(f"run {name!r} has results for no query that {source} judges")
    folder = None if out is None else _folder(out)
    measuring = _Measuring(reader, queries, qrels, measures, ignore_identical_ids, syntax)
    fronts: dict[str, list[sweep.Point]] = {}
    with reporting(progress) as shown:
        results = measuring.all(chosen, shown)
        if folder is not None and curves:
            fronts = measuring.curves(chosen, folder / CURVES, restart, shown)
    compared = compare({name: each.per_query for name, each in results.items()})
    evaluation = Evaluation(results, compared, fronts)
    if folder is not None:
        _write(evaluation, queries, folder)
    return evaluation


class _Measuring:
    """Systems over the same queries; what several of them need is computed once."""

    def __init__(
        self,
        index: IndexReader,
        queries: Sequence[Query],
        qrels: Sequence[Qrel],
        measures: Sequence[str],
        ignore_identical_ids: bool,
        syntax: bool,
    ) -> None:
        self.index, self.queries, self.qrels, self.measures = index, queries, qrels, measures
        self.ignored, self.syntax = ignore_identical_ids, syntax
        self._bm25: dict[IndexReader, float] = {}

    def all(self, systems: Mapping[str, Resolved], progress: Progress) -> dict[str, SystemResults]:
        """Measure each system."""
        whole = {s.reader for s in systems.values() if isinstance(s, Searched) and not s.vocabulary}
        vectors = {
            reader: reader.query_vectors(asked(reader, self.queries, self.syntax))
            for reader in whole
        }
        shared: Any = {"ignore_identical_ids": self.ignored, "syntax": self.syntax}
        results = {}
        for done, (name, system) in enumerate(systems.items()):
            progress("evaluate", done, len(systems), name)
            if isinstance(system, Searched):
                reader = system.reader
                results[name] = evaluate_index(
                    reader,
                    self.queries,
                    self.qrels,
                    system.vocabulary,
                    self.measures,
                    vectors=vectors.get(reader),
                    bm25=self._plain(reader),
                    **shared,
                )
            elif isinstance(system, BM25):
                found = evaluate_bm25(
                    self.index, self.queries, self.qrels, system, self.measures, **shared
                )
                found.values["delta_e2"] = found.values["e2"] - self._plain(self.index)
                results[name] = found
            else:
                results[name] = evaluate_run(
                    system, self.qrels, self.measures, ignore_identical_ids=self.ignored
                )
        progress("evaluate", len(systems), len(systems))
        return results

    def _plain(self, reader: IndexReader) -> float:
        """Return the E² of plain BM25 over an index's texts."""
        if reader not in self._bm25:
            shared: Any = {"ignore_identical_ids": self.ignored, "syntax": self.syntax}
            plain = evaluate_bm25(reader, self.queries, self.qrels, **shared)
            self._bm25[reader] = plain.values["e2"]
        return self._bm25[reader]

    def curves(
        self, systems: Mapping[str, Resolved], folder: Path, restart: bool, progress: Progress
    ) -> dict[str, list[sweep.Point]]:
        """Return the pruning curve of each index."""
        found = {}
        names = _file_names(systems)
        for name, system in systems.items():
            if isinstance(system, Searched):
                rra = system.reader.rra
                grid = sweep.SweepGrid(
                    QUERY_LIMITS, DOCUMENT_LIMITS, alpha=(None if rra is None else rra.alpha,)
                )
                points = sweep.sweep(
                    system.reader,
                    self.queries,
                    self.qrels,
                    grid,
                    folder / names[name],
                    system.vocabulary,
                    progress,
                    ignore_identical_ids=self.ignored,
                    restart=restart,
                )
                found[name] = sweep.pareto_front(points)
        return found


def _folder(out: str | os.PathLike[str]) -> Path:
    """Create the folder of an evaluation, before anything is measured."""
    folder = Path(out)
    try:
        make_folder(folder)
    except (FileExistsError, NotADirectoryError, PermissionError) as error:
        raise InputError(f"{folder} can't be created: {error.strerror}") from error
    return folder


def _write(evaluation: Evaluation, queries: Sequence[Query], folder: Path) -> None:
    """Write the report, the values of every query, the runs and the plot."""
    _remove_earlier(evaluation, folder)
    content = json.dumps(evaluation.to_json(), ensure_ascii=False, indent=1) + "\n"
    replace_file(folder / REPORT, content.encode())
    texts = {query.id: query.text for query in queries}
    rows = io.StringIO()
    table = csv.writer(rows, lineterminator="\n")
    measures = list(next(iter(evaluation.systems.values())).per_query)
    table.writerow(["query", "text", "system", *measures])
    for name, results in evaluation.systems.items():
        for query in results.per_query[measures[0]]:
            values = [repr(results.per_query[measure][query]) for measure in measures]
            table.writerow([query, texts.get(query, ""), name, *values])
    replace_file(folder / PER_QUERY, rows.getvalue().encode())
    make_folder(folder / RUNS)
    for name, file in _file_names(evaluation.systems).items():
        write_run(folder / RUNS / f"{file}.run.gz", evaluation.systems[name].run, name)
    if evaluation.curves:
        plots.write_curves(evaluation.systems, evaluation.curves, folder / PLOT)


def _remove_earlier(evaluation: Evaluation, folder: Path) -> None:
    """Remove what the evaluation that ``evaluation.json`` describes wrote and this one won't."""
    try:
        earlier = read_json(folder / REPORT)
        names = _file_names(earlier["systems"])
        plotted = [names[name] for name in earlier.get("curves", {})]
    except (LexiceptError, KeyError, TypeError, AttributeError):
        return  # none, or a file of somebody else's
    own = _file_names(evaluation.systems)
    for name in set(names.values()) - set(own.values()):
        remove(folder / RUNS / f"{name}.run.gz")
    for name in set(plotted) - {own[name] for name in evaluation.curves}:
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


def _known(value: Any) -> Any:
    """Return a value as JSON has it: None for what is not finite."""
    if isinstance(value, tuple):
        return [_known(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
