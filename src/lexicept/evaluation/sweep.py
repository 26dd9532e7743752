"""Effectiveness against cost: an index with other pruning limits and RRA's α.

All settings are evaluated from the index's own tf, to which no limits apply, as an index with the
settings would be; queries are encoded once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from lexicept.checks import Count, Items, Positive, settings
from lexicept.errors import InputError
from lexicept.evaluation.effectiveness import JudgedQueries, evaluate
from lexicept.evaluation.runs import run_of_rows
from lexicept.index.impacts import Derived, RRASettings
from lexicept.index.query_encoders import IndexVocabulary
from lexicept.index.reader import IndexReader
from lexicept.measures import NDCG, QD_FLOPS, RR, SearchCosts, search_costs
from lexicept.progress import Progress, silent
from lexicept.storage.files import fingerprint_json
from lexicept.storage.workspace import Workspace
from lexicept.vectors import place_columns

SWEPT = (NDCG.name, RR.name)
"""Measures of effectiveness of every point."""

CUTOFF = 10
"""Cutoff of ``SWEPT``."""


class Setting(NamedTuple):
    """A combination of the values of a sweep."""

    query_max_active_dims: int | None
    document_max_active_dims: int | None
    alpha: float | None
    query_scale: float = 1.0


@dataclass(frozen=True)
class Point:
    """A setting, and effectiveness and cost of an index with the setting."""

    setting: Setting
    values: dict[str, float]
    """The measures of ``SWEPT`` and ``lexicept.measures.COSTS``, by name."""

    @property
    def ndcg(self) -> float:
        return self.values[NDCG.name]

    @property
    def qd_flops(self) -> float:
        """Shared dimensions of a query and a document, without RRA's offsets."""
        return self.values[QD_FLOPS.name]

    def to_json(self) -> dict[str, Any]:
        return {**self.setting._asdict(), **self.values}


@settings
class SweepGrid:
    """The values of a sweep, which evaluates all combinations. Raises InputError for a field
    without values, a repeated value, or a value out of range."""

    query_max_active_dims: Items[Count | None] = (None,)
    """Dimensions left in a query; None keeps all."""
    document_max_active_dims: Items[Count | None] = (None,)
    """Dimensions left in a document; None keeps all."""
    alpha: Items[Positive | None] = (None,)
    """RRA's rationality; None is without RRA."""
    query_scale: Items[Positive] = (1.0,)
    """Factors on the query weights that the index gives."""

    def __post_init__(self) -> None:
        for name, values in asdict(self).items():
            if not values:
                raise InputError(f"{name}: no values to sweep")
            if len(set(values)) < len(values):
                raise InputError(f"{name}: a value is there twice: {', '.join(map(str, values))}")

    def settings(self) -> list[Setting]:
        """Return all combinations, ordered so that neighbours share most."""
        return [
            Setting(query, document, alpha, scale)
            for document in self.document_max_active_dims
            for alpha in self.alpha
            for query in self.query_max_active_dims
            for scale in self.query_scale
        ]


def sweep(
    index: IndexReader,
    judged: JudgedQueries,
    grid: SweepGrid,
    out: Path,
    vocabulary: str | None = None,
    progress: Progress = silent,
    *,
    restart: bool = False,
) -> list[Point]:
    """Evaluate an index with every setting of a grid.

    Limits and the scale are settings of ``vocabulary`` or, where all vocabularies are searched, of
    the concepts (without concepts, of the first vocabulary); the other vocabularies keep the
    settings of the index. So do weightings, and RRA's iterations and transform. Points stay in
    ``points.jsonl``: a second call resumes an interrupted sweep, and a larger grid adds points.
    Raises InputError for no judgements, no such vocabulary, a sweep in ``out`` of another index,
    dataset, vocabulary or ``ignore_identical_ids``, or if another process is sweeping there.

    Args:
        judged: queries of a dev or train split; settings chosen on test queries prove nothing.
    """
    if not judged.qrels:
        raise InputError("no judgements: there is nothing to evaluate")
    searched = [*index.vocabularies]
    if vocabulary is not None:
        searched = [index.weigher.vocabulary(vocabulary)]
    identity = {
        "index": fingerprint_json(index.manifest),
        "dataset": fingerprint_json([list(judged.queries), list(judged.qrels)]),
        "vocabulary": [entry.name for entry in searched],
        "ignore_identical_ids": judged.ignore_identical_ids,
    }
    settings = grid.settings()
    with Workspace(out, "sweep", identity, restart=restart, in_place=True) as work:
        file = work.growing("points.jsonl")
        points = {point.setting: point for point in read_points(file.path)} if file.done else {}
        missing = [setting for setting in settings if setting not in points]
        done = len(settings) - len(missing)
        for point in _Search(index, judged, searched).points(missing) if missing else ():
            points[point.setting] = point
            file.append_lines([json.dumps(point.to_json())], len(points))
            done += 1
            progress("sweep", done, len(settings))
    return [points[setting] for setting in settings]


def read_points(path: Path) -> list[Point]:
    """Read ``points.jsonl``. Raises InputError, with the line number, for a bad line."""
    points = []
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        try:
            fields = json.loads(line)
            setting = Setting(**{name: fields.pop(name) for name in Setting._fields})
            values = {name: float(value) for name, value in fields.items()}
            if not values.keys() >= {*SWEPT, QD_FLOPS.name}:
                raise ValueError
            points.append(Point(setting, values))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise InputError(f"{path}, line {number}: not a point of a sweep") from None
    return points


def pareto_front(points: Sequence[Point]) -> list[Point]:
    """Return the points that no other point dominates, cheapest first.

    A point dominates another point if nDCG@10 and QD-FLOPs are at least as good and one of both is
    better; points that are equal in both stay or go together.
    """

    def order(point: Point) -> tuple[float, float]:
        return point.qd_flops, -point.ndcg

    front: list[Point] = []
    for point in sorted(points, key=order):
        if not front or point.ndcg > front[-1].ndcg or order(point) == order(front[-1]):
            front.append(point)
    return front


class _Search:
    """The searches of an index in some vocabularies, with other settings for one of them."""

    def __init__(
        self, index: IndexReader, judged: JudgedQueries, searched: Sequence[IndexVocabulary]
    ) -> None:
        self.index, self.judged, self.searched = index, judged, searched
        names = [vocabulary.name for vocabulary in searched]
        self.swept = "concepts" if "concepts" in names else names[0]
        self.span = slice(searched[0].dimensions.start, searched[-1].dimensions.stop)
        texts = [query.text for query in judged.queries]
        self.frequencies = {name: index.encoders[name].queries(texts)[0] for name in names}

    def points(self, settings: Sequence[Setting]) -> Iterator[Point]:
        """Yield a point for each setting, in the order of ``SweepGrid.settings``."""
        index, tf = self.index, self.index.tf()
        # The costliest work is outermost: each limit of documents and each α mean new postings.
        groups = groupby(settings, lambda s: (s.document_max_active_dims, s.alpha))
        for (limit, alpha), same_postings in groups:
            of_swept = replace(index.settings[self.swept], document_max_active_dims=limit)
            changed = {**index.settings, self.swept: of_swept}
            rra = None if alpha is None else replace(index.rra or RRASettings(), alpha=alpha)
            derived = Derived.compute(tf, list(changed.values()), rra)
            for setting in same_postings:
                yield self._measure(setting, self._queries(setting, derived), derived)

    def _queries(self, setting: Setting, derived: Derived) -> sp.csr_array:
        """Return the weights of the queries within the limits of a setting [n, V]."""
        blocks = []
        for vocabulary in self.searched:
            limits, scale, dimensions = vocabulary.settings, 1.0, vocabulary.dimensions
            if vocabulary.name == self.swept:
                scale = setting.query_scale
                most = setting.query_max_active_dims
                limits = replace(limits, query_max_active_dims=most, query_max_qd_flops=None)
            weights = derived.weigh_queries(limits, dimensions, self.frequencies[vocabulary.name])
            blocks.append((dimensions.start, sp.csr_array(weights * np.float32(scale))))
        return place_columns(blocks, derived.engine.num_dimensions)

    def _measure(self, setting: Setting, queries: sp.csr_array, derived: Derived) -> Point:
        """Measure query weights [n, V] on the postings of an engine, by the first ten results."""
        index, judged = self.index, self.judged
        depth = CUTOFF + judged.ignore_identical_ids
        background = queries @ derived.background
        rankings = index.passages.ranked(derived.engine, queries, depth, background)
        run = judged.cut(run_of_rows(judged.query_ids, rankings, index.document_ids))
        values = evaluate(judged.qrels, run, SWEPT)
        documents, posting_lengths = len(index.document_ids), derived.engine.df[self.span]
        costs = SearchCosts(queries[:, self.span], posting_lengths, documents, values[RR.name])
        return Point(setting, {**values, **search_costs(costs)})
