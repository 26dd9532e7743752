"""Effectiveness against cost: an index with other pruning limits and RRA's α.

All settings are evaluated from the index's own tf, to which no limits apply; what several
settings share is computed once.
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
from lexicept.evaluation.runs import run_of_rows, without_identical_ids
from lexicept.index.impacts import Derived, RRASettings, VocabularySettings
from lexicept.index.reader import IndexReader
from lexicept.measures import NDCG, QD_FLOPS, RR, SearchCosts, document_frequency, search_costs
from lexicept.progress import Progress, silent
from lexicept.storage.files import fingerprint_json
from lexicept.storage.workspace import Workspace
from lexicept.vectors import canonical_csr, largest_weights, stack_columns
from lexicept.weighting import Unchanged

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
    query_max_qd_flops: float | None = None


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
    def mrr(self) -> float:
        return self.values[RR.name]

    @property
    def qd_flops(self) -> float:
        """Shared dimensions of a query and a document, without RRA's offsets."""
        return self.values[QD_FLOPS.name]

    def to_json(self) -> dict[str, Any]:
        """Return the setting and the values as one object."""
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
    query_max_qd_flops: Items[Positive | None] = (None,)
    """Largest QD-FLOPs of a query; None for no limit."""

    def __post_init__(self) -> None:
        for name, values in asdict(self).items():
            if not values:
                raise InputError(f"{name}: no values to sweep")
            if len(set(values)) < len(values):
                raise InputError(f"{name}: a value is there twice: {', '.join(map(str, values))}")

    def settings(self) -> list[Setting]:
        """Return all combinations, ordered so that neighbours share most."""
        return [
            Setting(query, document, alpha, scale, cost)
            for document in self.document_max_active_dims
            for alpha in self.alpha
            for cost in self.query_max_qd_flops
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
    collection = _Collection(index, judged, vocabulary)
    identity = {
        "index": fingerprint_json(index.manifest),
        "dataset": fingerprint_json([list(judged.queries), list(judged.qrels)]),
        "vocabulary": collection.searched,
        "ignore_identical_ids": judged.ignore_identical_ids,
    }
    settings = grid.settings()
    with Workspace(out, "sweep", identity, restart=restart, in_place=True) as work:
        file = work.growing("points.jsonl")
        points = {point.setting: point for point in read_points(file.path)} if file.done else {}
        missing = [setting for setting in settings if setting not in points]
        done = len(settings) - len(missing)
        for point in collection.points(missing):
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

    def place(point: Point) -> tuple[float, float]:
        return point.qd_flops, -point.ndcg

    front: list[Point] = []
    for point in sorted(points, key=place):
        if not front or point.ndcg > front[-1].ndcg or place(point) == place(front[-1]):
            front.append(point)
    return front


class _Collection:
    """An index's tf and weights; in the swept vocabulary without limits."""

    def __init__(
        self,
        index: IndexReader,
        judged: JudgedQueries,
        vocabulary: str | None,
    ) -> None:
        self.index, self.judged = index, judged
        self.sizes = {entry.name: entry.size for entry in index.vocabularies}
        names = list(self.sizes)
        if vocabulary is not None and vocabulary not in names:
            raise InputError(
                f"{index.path} has no vocabulary {vocabulary!r}, only: {', '.join(names)}"
            )
        self.searched = names if vocabulary is None else [vocabulary]
        self.swept = "concepts" if "concepts" in self.searched else self.searched[0]
        self.span = slice(index.span(self.searched[0]).start, index.span(self.searched[-1]).stop)
        self.tf = dict(zip(names, index.tf(), strict=True))
        self.texts = [query.text for query in judged.queries]

    def points(self, settings: Sequence[Setting]) -> Iterator[Point]:
        """Yield a point for each setting, in the order of ``SweepGrid.settings``."""
        if not settings:
            return
        fixed = {name: self._fixed(name) for name in self.sizes if name != self.swept}
        fixed_documents = {name: documents for name, (documents, _) in fixed.items()}
        fixed_queries = {name: queries for name, (_, queries) in fixed.items()}
        rra = self.index.rra or RRASettings()
        query_tf = self.index.vectorizer(self.swept).queries(self.texts)
        documents, queries = self._weights(self.swept, self.tf[self.swept], query_tf)
        # The costliest work is outermost: an α means another engine.
        for limit, same_limit in groupby(settings, lambda s: s.document_max_active_dims):
            limits = VocabularySettings(Unchanged(), document_max_active_dims=limit)
            pruned = limits.prune_documents(documents)
            stacked = self._stacked(pruned, fixed_documents)
            pruned_queries: dict[Setting, sp.csr_array] = {}
            for alpha, same_alpha in groupby(same_limit, lambda setting: setting.alpha):
                settings_of_rra = None if alpha is None else replace(rra, alpha=alpha)
                derived = Derived.reweighted(stacked, settings_of_rra)
                for setting in same_alpha:
                    key = setting._replace(alpha=None)
                    if key not in pruned_queries:
                        swept = self._prune_queries(queries, pruned, key)
                        pruned_queries[key] = self._stacked(swept, fixed_queries)
                    yield self._measure(setting, pruned_queries[key], derived)

    def _prune_queries(
        self, queries: sp.csr_array, documents: sp.csr_array, setting: Setting
    ) -> sp.csr_array:
        """Return scaled query weights within the limits of a setting [n, V]."""
        limits = VocabularySettings(
            Unchanged(),
            setting.query_max_active_dims,
            query_max_qd_flops=setting.query_max_qd_flops,
            pruning=self.index.settings[self.swept].pruning,
        )
        bounds, counts = largest_weights(documents), document_frequency(documents)
        pruned = limits.prune_queries(queries, bounds, counts, documents.shape[0])
        return sp.csr_array(pruned * np.float32(setting.query_scale))

    def _weights(
        self, name: str, documents: sp.csr_array, queries: sp.csr_array
    ) -> tuple[sp.csr_array, sp.csr_array]:
        """Return weights computed from tf, without limits."""
        weighting = self.index.settings[name].weighting
        indexed_queries = canonical_csr(queries[:, : self.sizes[name]])
        return weighting.documents(documents), weighting.queries(indexed_queries)

    def _fixed(self, name: str) -> tuple[sp.csr_array, sp.csr_array]:
        """Return weights of documents and queries in a vocabulary with the index's limits."""
        query_tf = sp.csr_array((len(self.texts), self.sizes[name]), dtype=np.float32)
        if name in self.searched:
            query_tf = self.index.vectorizer(name).queries(self.texts)
        documents, queries = self._weights(name, self.tf[name], query_tf)
        queries, documents = self.index.settings[name].prune(queries, documents)
        return documents, queries

    def _stacked(self, swept: sp.csr_array, fixed: dict[str, sp.csr_array]) -> sp.csr_array:
        """Return all vocabularies side by side, in the order of the index."""
        return stack_columns([swept if name == self.swept else fixed[name] for name in self.sizes])

    def _measure(self, setting: Setting, queries: sp.csr_array, derived: Derived) -> Point:
        """Measure query weights [n, V] on the document weights of an engine."""
        values = evaluate(self.judged.qrels, self._run(queries, derived), SWEPT)
        documents, posting_lengths = len(self.index.document_ids), derived.engine.df[self.span]
        costs = SearchCosts(queries[:, self.span], posting_lengths, documents, values[RR.name])
        return Point(setting, {**values, **search_costs(costs)})

    def _run(self, queries: sp.csr_array, derived: Derived) -> dict[str, dict[str, float]]:
        """Return the first ten results of each query."""
        index, judged = self.index, self.judged
        depth = CUTOFF + judged.ignore_identical_ids
        background = queries @ derived.background
        rankings = index.passages.ranked(derived.engine, queries, depth, background)
        run = run_of_rows(judged.query_ids, rankings, index.document_ids)
        return without_identical_ids(run) if judged.ignore_identical_ids else run
