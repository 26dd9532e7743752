"""Measure an index's effectiveness and cost on judged queries."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from lexicept.evaluation import effectiveness, runs
from lexicept.evaluation.significance import TTest, paired_t_test
from lexicept.pipelines.arguments import checked_arguments
from lexicept.pipelines.judged import read_judged
from lexicept.pipelines.opened import IndexLike, reader_of

COMPARED = "nDCG@10"
"""The measure that two runs are compared by."""


@dataclass(frozen=True)
class Evaluation:
    """Effectiveness and cost of an index on judged queries."""

    values: dict[str, float]
    """Means by measure; see ``evaluation.effectiveness.evaluate_index`` for their units."""
    run: runs.Run = field(repr=False)
    """The results: query id → document id → score."""
    t_test: TTest | None = None
    """The test against ``compare``, on nDCG@10 per query."""


@checked_arguments
def evaluate(
    index: IndexLike,
    dataset: str | os.PathLike[str],
    split: str = "test",
    *,
    vocabulary: str | None = None,
    engine: str = "exact",
    measures: Sequence[str] = (),
    run: str | os.PathLike[str] | None = None,
    compare: str | os.PathLike[str] | None = None,
    ignore_identical_ids: bool = False,
    query_encoder: Literal["model", "lookup"] = "model",
) -> Evaluation:
    """Return the effectiveness and cost of an index on a dataset's judged queries.

    Args:
        index: an opened index, or the path of one.
        dataset: a BEIR folder or an ir_datasets name, with queries and relevance judgements.
        split: the judgements to use: "test", "dev" or "train".
        vocabulary: "words" or "concepts"; None searches all that the index has.
        engine: the engine that searches a path; an opened index keeps its own.
        measures: more measures, in ir_measures' notation, such as "AP" and "P@5".
        run: write the results to this file, as a TREC run.
        compare: a TREC run to compare nDCG@10 with, by a paired t-test over the queries.
        ignore_identical_ids: drop a hit whose id is its query's, from ``compare`` too. For
            collections whose queries are documents, such as ArguAna and Quora, as BEIR does.
        query_encoder: what encodes the queries' concepts; see ``Index.search``.

    Raises:
        InputError: no such dataset, split, vocabulary, engine or measure; no judgements, or none
            of a document in the index; a malformed ``compare``, or one of fewer than two queries.
        IndexFormatError: the path holds no index, or a damaged one.
    """
    reader = reader_of(index, engine=engine).using(query_encoder)
    other = None if compare is None else runs.read_run(compare)
    queries, qrels = read_judged(reader, dataset, split)
    report = effectiveness.evaluate_index(
        reader, queries, qrels, vocabulary, measures, ignore_identical_ids=ignore_identical_ids
    )
    if run is not None:
        runs.write_run(run, report.run)
    if other is None:
        return Evaluation(report.values, report.run)
    if ignore_identical_ids:
        other = runs.without_identical_ids(other)
    ours, theirs = (
        effectiveness.evaluate_queries(qrels, each, [COMPARED])[COMPARED]
        for each in (report.run, other)
    )
    return Evaluation(report.values, report.run, paired_t_test(ours, theirs))
