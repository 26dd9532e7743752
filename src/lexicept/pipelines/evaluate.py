"""Measure systems on judged queries: effectiveness, cost, and whether they differ beyond chance."""

from __future__ import annotations

import csv
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, count
from pathlib import Path
from typing import Any

from lexicept.checks import checked_arguments
from lexicept.corpora import Query
from lexicept.errors import InputError
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
from lexicept.index.reader import IndexReader
from lexicept.pipelines.opened import IndexLike, check_judged, read_judged, reader_of
from lexicept.pipelines.systems import ResolvedSystem, SearchedIndex, Systems, resolve_systems
from lexicept.progress import Progress, reporting
from lexicept.storage.files import write_json
from lexicept.storage.workspace import new_folder, refuse_existing
from lexicept.weighting import BM25

REPORT, PER_QUERY, RUNS = "evaluation.json", "queries.csv", "runs"
"""Files that an evaluation writes into its folder."""


@dataclass(frozen=True)
class Evaluation:
    """Effectiveness and cost of systems on judged queries."""

    systems: dict[str, SystemResults] = field(repr=False)
    """The results of each system by name, in the order of the arguments."""
    comparisons: list[Comparison]
    """Each system but the first against the first, on every measure."""

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
        return {"queries": self.num_queries, "systems": systems, "comparisons": comparisons}


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
        out: a new folder to write to: ``evaluation.json``; ``queries.csv``, the values of every
            query; ``runs``, the results of each system as a TREC run.
        progress: True shows a line on standard error.

    Raises:
        InputError: no such dataset, split, measure, or system; no judgements of documents in an
            index or queries in a run; a malformed run; or ``out`` exists.
        IndexFormatError: a path that holds no index, or a damaged one.

    Examples:
        >>> evaluation = lexicept.evaluate("pets.index", "judged")
        >>> evaluation.systems["all"].values["nDCG@10"]
        1.0
    """
    if out is not None:
        refuse_existing(Path(out))
    for measure in measures:
        depth_of(measure)  # unknown ones are refused before any search
    reader = reader_of(index)
    resolved = resolve_systems(systems, reader)
    queries, qrels = read_judged(reader, dataset, split)
    judgements = f"{os.fspath(dataset)} ({split})"
    for name, system in resolved.items():
        if isinstance(system, SearchedIndex) and system.reader is not reader:
            check_judged(system.reader, qrels, judgements)
        elif isinstance(system, Mapping) and system.keys().isdisjoint(q.query_id for q in qrels):
            raise InputError(f"run {name!r} has results for no query that {judgements} judges")
    judged = JudgedQueries(queries, qrels, measures, ignore_identical_ids, syntax)
    with reporting(progress) as report:
        results = _evaluate_systems(resolved, reader, judged, report)
    comparisons = compare({name: system.per_query for name, system in results.items()})
    evaluation = Evaluation(results, comparisons)
    if out is not None:
        with new_folder(out, "evaluation") as folder:
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


def _write(evaluation: Evaluation, queries: Sequence[Query], folder: Path) -> None:
    write_json(folder / REPORT, evaluation.to_json())
    texts = {query.id: query.text for query in queries}
    measures = list(next(iter(evaluation.systems.values())).per_query)
    with (folder / PER_QUERY).open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["query", "text", "system", *measures])
        for name, results in evaluation.systems.items():
            for query in results.per_query[measures[0]]:
                values = [repr(results.per_query[measure][query]) for measure in measures]
                table.writerow([query, texts.get(query, ""), name, *values])
    (folder / RUNS).mkdir()
    for name, file_name in _file_names(evaluation.systems).items():
        write_run(folder / RUNS / f"{file_name}.run.gz", evaluation.systems[name].run, name)


def _file_names(systems: Mapping[str, object]) -> dict[str, str]:
    """Return a name of a file for each system, all different."""
    names: dict[str, str] = {}
    for name in systems:
        plain = re.sub(r"\.(run|gz|txt|trec)(?=\.|$)", "", name).strip("./")
        plain = re.sub(r"[^\w.=,+-]+", "_", plain).strip("_")[-100:] or "system"
        taken = {each.lower() for each in names.values()}
        numbered = (f"{plain}-{number}" for number in count(2))
        names[name] = next(each for each in chain([plain], numbered) if each.lower() not in taken)
    return names


def _finite(value: Any) -> Any:
    """Return a JSON value: None for a number that is not finite."""
    if isinstance(value, tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
