"""Measure an index under many settings: effectiveness against cost."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lexicept.checks import Count, Positive, checked_arguments
from lexicept.evaluation import sweep as sweeping
from lexicept.evaluation.effectiveness import JudgedQueries
from lexicept.evaluation.sweep import Point, SweepGrid
from lexicept.pipelines.opened import IndexLike, read_judged, reader_of
from lexicept.progress import Progress, reporting


@dataclass(frozen=True)
class Sweep:
    """The results of a sweep."""

    points: list[Point]
    """A point for each combination of settings."""
    front: list[Point]
    """The Pareto front of nDCG@10 and QD-FLOPs."""
    folder: Path
    """The folder of ``points.jsonl``."""


@checked_arguments
def sweep(
    index: IndexLike,
    dataset: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    split: str = "dev",
    vocabulary: str | None = None,
    query_max_active_dims: Sequence[Count | None] = (8, 16, 32, None),
    document_max_active_dims: Sequence[Count | None] = (50, 100, 200, None),
    alpha: Sequence[Positive | None] = (None, 1.0, 1.25),
    query_scale: Sequence[Positive] = (1.0,),
    ignore_identical_ids: bool = False,
    restart: bool = False,
    progress: bool | Progress = False,
) -> Sweep:
    """Measure effectiveness and cost for all combinations of some settings.

    Settings are chosen on judgements: sweep on a dev or train split, never on the test split. In a
    search by words and concepts together, the limits apply to the concepts. A second call resumes
    an interrupted sweep, and adds the new points of a larger grid.

    Args:
        index: an opened index, or the path of one.
        dataset: a BEIR folder or an ir_datasets name, with queries and relevance judgements.
        out: the folder of ``points.jsonl``, a point on a line; new, or that of the same sweep.
        split: the judgements to use.
        vocabulary: "words" or "concepts"; None searches all vocabularies.
        query_max_active_dims: limits of the dimensions in a query; None sets no limit.
        document_max_active_dims: limits of the dimensions in a document; None sets no limit.
        alpha: RRA's α; None is without RRA.
        query_scale: factors on the queries' concept weights, relative to words.
        ignore_identical_ids: drop a hit with the id of the query; see ``lexicept.evaluate``.
        restart: discard the sweep in ``out``.
        progress: True shows a line on standard error.

    Raises:
        InputError: no such dataset, split or vocabulary, no judgements of indexed documents, a
            setting out of range, or ``out`` holds something else.
        IndexFormatError: the path holds no index, or a damaged one.

    Examples:
        >>> limits = {"query_max_active_dims": [8], "document_max_active_dims": [50]}
        >>> swept = lexicept.sweep("pets.index", "judged", "sweep", alpha=[None, 1.0], **limits)
        >>> len(swept.points)
        2
    """
    grid = SweepGrid(
        tuple(query_max_active_dims),
        tuple(document_max_active_dims),
        tuple(alpha),
        tuple(query_scale),
    )
    reader, folder = reader_of(index), Path(out)
    queries, qrels = read_judged(reader, dataset, split)
    judged = JudgedQueries(queries, qrels, ignore_identical_ids=ignore_identical_ids)
    with reporting(progress) as report:
        points = sweeping.sweep(reader, judged, grid, folder, vocabulary, report, restart=restart)
    return Sweep(points, sweeping.pareto_front(points), folder)
