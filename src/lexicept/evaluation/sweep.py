"""Effectiveness against cost: an index with other pruning limits, active dimensions and RRA's α.

All settings are evaluated from the index's own tf, to which no limits apply; what several
settings share is computed once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp

from lexicept.corpora import Qrel, Query
from lexicept.errors import InputError
from lexicept.evaluation.effectiveness import evaluate
from lexicept.evaluation.runs import RUN_DEPTH, without_identical_ids
from lexicept.index.builder import Contents
from lexicept.index.impacts import Derived, RRASettings, VocabularySettings
from lexicept.index.reader import IndexReader
from lexicept.index.term_frequencies import write_tf
from lexicept.measures import e2, mean_length, posting_list_flops
from lexicept.progress import Progress, silent
from lexicept.storage.files import fingerprint_json
from lexicept.storage.workspace import Workspace
from lexicept.vectors import Integers, canonical_csr, largest_weights, stack_columns
from lexicept.weighting import Unchanged

TokenK = int | Literal["all"] | None
"""Active dimensions per token: a number, no constraint, or None for the model's own."""

_CUTOFF = 10
"""Cutoff of nDCG@10 and RR@10."""


class Setting(NamedTuple):
    """The settings of a point of a sweep."""

    k: TokenK
    query_max_active_dims: int | None
    document_max_active_dims: int | None
    alpha: float | None
    query_scale: float = 1.0
    query_max_qd_flops: float | None = None


class Point(NamedTuple):
    """A setting, and effectiveness and cost of an index with it (see ``evaluate_index``)."""

    setting: Setting
    ndcg: float
    """nDCG@10."""
    mrr: float
    """RR@10."""
    qd_flops: float
    """Shared dimensions of a query and a document, without RRA's offsets."""
    query_length: float
    document_length: float
    e2: float

    def to_json(self) -> dict[str, Any]:
        """Return the setting and the values as one object."""
        values = self._asdict()
        return {**values.pop("setting")._asdict(), **values}


@dataclass(frozen=True)
class SweepGrid:
    """The values whose combinations are evaluated, each field with at least one of them.

    Raises:
        InputError: a field without values, with one twice, or with one out of range.
    """

    query_max_active_dims: tuple[int | None, ...] = (None,)
    """Dimensions left in a query; None keeps all."""
    document_max_active_dims: tuple[int | None, ...] = (None,)
    """Dimensions left in a document; None keeps all."""
    k: tuple[TokenK, ...] = (None,)
    alpha: tuple[float | None, ...] = (None,)
    """RRA's rationality; None is without RRA."""
    query_scale: tuple[float, ...] = (1.0,)
    """Factors on the query weights that the index gives."""
    query_max_qd_flops: tuple[float | None, ...] = (None,)
    """Largest QD-FLOPs of a query; None for no limit."""

    def __post_init__(self) -> None:
        for name, values in asdict(self).items():
            if not values:
                raise InputError(f"{name}: no values to sweep")
            if len(set(values)) < len(values):
                raise InputError(f"{name}: a value is there twice: {', '.join(map(str, values))}")
            for value in values:
                if value is None or (name == "k" and value == "all"):
                    continue
                if name in ("alpha", "query_scale", "query_max_qd_flops"):
                    if not (math.isfinite(value) and value > 0):
                        raise InputError(f"{name} must be a finite number above 0, not {value}")
                elif not (isinstance(value, int) and value >= 1):
                    raise InputError(f"{name} must be a whole number of at least 1, not {value!r}")

    def settings(self) -> list[Setting]:
        """Return all combinations, ordered so that neighbours share most."""
        return [
            Setting(k, query, document, alpha, scale, cost)
            for k in self.k
            for document in self.document_max_active_dims
            for alpha in self.alpha
            for cost in self.query_max_qd_flops
            for query in self.query_max_active_dims
            for scale in self.query_scale
        ]


def sweep(
    index: IndexReader,
    queries: Sequence[Query],
    qrels: Sequence[Qrel],
    grid: SweepGrid,
    out: Path,
    vocabulary: str | None = None,
    progress: Progress = silent,
    *,
    ignore_identical_ids: bool = False,
    restart: bool = False,
) -> list[Point]:
    """Evaluate an index with every setting of a grid.

    Limits, k and the scale are those of ``vocabulary`` or, where all are searched, of the concepts
    (without concepts, of the first vocabulary); the others stay as the index has them. So do
    weightings, and RRA's iterations and transform. The tf under another k than the model's are
    encoded again and kept in ``out``, as is every point in ``points.jsonl``: an interrupted sweep
    is resumed by calling it again, and a larger grid adds its new points.

    Args:
        queries: of a dev or train split; settings chosen on test queries prove nothing.
        qrels: of the same split.
        vocabulary: search in one vocabulary only; None searches all of them.
        ignore_identical_ids: drop a hit whose id is its query's (see ``without_identical_ids``).
        restart: discard the sweep in ``out``, such as one of another index.

    Returns:
        The points in the grid's order.

    Raises:
        InputError: no judgements, no such vocabulary, a k for a vocabulary other than concepts,
            ``out`` holds a sweep of another index, dataset or vocabulary or with another
            ``ignore_identical_ids``, or another process is sweeping there.
    """
    if not qrels:
        raise InputError("no judgements: there is nothing to evaluate")
    collection = _Collection(index, queries, vocabulary, ignore_identical_ids, progress)
    collection.check(grid.k)
    used = {
        "index": fingerprint_json(index.manifest),
        "dataset": fingerprint_json([list(queries), list(qrels)]),
        "vocabulary": collection.searched,
        "ignore_identical_ids": ignore_identical_ids,
    }
    settings = grid.settings()
    with Workspace(out, "sweep", used, restart=restart, in_place=True) as work:
        file = work.growing("points.jsonl")
        points = {point.setting: point for point in read_points(file.path)} if file.done else {}
        missing = [setting for setting in settings if setting not in points]
        done = len(settings) - len(missing)
        for point in collection.points(missing, qrels, work):
            points[point.setting] = point
            file.append_lines([json.dumps(point.to_json())], len(points))
            done += 1
            progress("sweep", done, len(settings))
    return [points[setting] for setting in settings]


def read_points(path: Path) -> list[Point]:
    """Read the points of a ``points.jsonl``. Raises InputError, with its number, for a bad line."""
    points = []
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        try:
            fields = json.loads(line)
            setting = Setting(**{name: fields.pop(name) for name in Setting._fields})
            points.append(Point(setting, **fields))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise InputError(f"{path}, line {number}: not a point of a sweep") from None
    return points


def pareto_front(points: Sequence[Point]) -> list[Point]:
    """Return the points that no other point dominates, cheapest first.

    A point dominates another if it is at least as good in nDCG@10 and in QD-FLOPs and better in one
    of them; of points that are equal in both, all are kept or none.
    """
    front: list[Point] = []
    for point in sorted(points, key=lambda point: (point.qd_flops, -point.ndcg)):
        last = front[-1] if front else None
        if last is None or point.ndcg > last.ndcg or _place(point) == _place(last):
            front.append(point)
    return front


def _place(point: Point) -> tuple[float, float]:
    return point.qd_flops, point.ndcg


class _Collection:
    """An index's tf and weights; those of the swept vocabulary without limits."""

    def __init__(
        self,
        index: IndexReader,
        queries: Sequence[Query],
        vocabulary: str | None,
        ignore_identical_ids: bool,
        progress: Progress,
    ) -> None:
        self.index, self.progress = index, progress
        self.sizes = {entry.name: entry.size for entry in index.vocabularies}
        names = list(self.sizes)
        if vocabulary is not None and vocabulary not in names:
            known = ", ".join(names)
            raise InputError(f"{index.path} has no vocabulary {vocabulary!r}, only: {known}")
        self.searched = names if vocabulary is None else [vocabulary]
        self.swept = "concepts" if "concepts" in self.searched else self.searched[0]
        start = sum(self.sizes[name] for name in names[: names.index(self.searched[0])])
        self.span = slice(start, start + sum(self.sizes[name] for name in self.searched))
        self.tf = dict(zip(names, index.tf(), strict=True))
        self.contents = Contents(index.folder)
        self.ids = index.document_ids
        self.query_ids = [query.id for query in queries]
        self.ignore_identical_ids = ignore_identical_ids
        self.texts = [query.text for query in queries]

    def check(self, ks: Sequence[TokenK]) -> None:
        """Raise InputError for a k of a vocabulary other than concepts."""
        if any(k is not None for k in ks) and self.swept != "concepts":
            raise InputError(f"k is a model's active dimensions per token: {self.swept} have none")

    def points(
        self, settings: Sequence[Setting], qrels: Sequence[Qrel], work: Workspace
    ) -> Iterator[Point]:
        """Yield a point for each of some settings, in ``SweepGrid.settings``' order."""
        if not settings:
            return
        fixed = {name: self._fixed(name) for name in self.sizes if name != self.swept}
        rra = self.index.rra or RRASettings()
        for k, of_k in groupby(settings, lambda setting: setting.k):
            documents, queries = self._weights(self.swept, *self._tf(k, work))
            for limit, of_limit in groupby(of_k, lambda s: s.document_max_active_dims):
                kept = VocabularySettings(
                    Unchanged(), document_max_active_dims=limit
                ).prune_documents(documents)
                stacked = self._stacked(kept, {name: pair[0] for name, pair in fixed.items()})
                bounds, counts = largest_weights(kept), _counts(kept)
                others = {name: pair[1] for name, pair in fixed.items()}
                asked: dict[Setting, sp.csr_array] = {}
                for alpha, of_alpha in groupby(of_limit, lambda setting: setting.alpha):
                    changed = None if alpha is None else replace(rra, alpha=alpha)
                    searcher = _Searcher(self, Derived.reweighted(stacked, changed))
                    for setting in of_alpha:
                        key = setting._replace(alpha=None)
                        if key not in asked:
                            limits = VocabularySettings(
                                Unchanged(),
                                key.query_max_active_dims,
                                query_max_qd_flops=key.query_max_qd_flops,
                                pruning=self.index.settings[self.swept].pruning,
                            )
                            left = limits.prune_queries(queries, bounds, counts, kept.shape[0])
                            asked[key] = self._stacked(left * np.float32(key.query_scale), others)
                        yield searcher.measure(setting, asked[key], qrels)

    def _tf(self, k: TokenK, work: Workspace) -> tuple[sp.csr_array, sp.csr_array]:
        """Return the tf of documents [N, V] and queries [n, V] in the swept vocabulary."""
        stored = self.tf[self.swept]
        vectorizer: Any = self.index.vectorizer(self.swept)
        if k is None:
            return stored, vectorizer.queries(self.texts)
        own, limit = vectorizer.head.settings, None if k == "all" else k
        vectorizer.head.configure(query_k=limit, document_k=limit)
        try:
            if limit != own.document_k:
                shards = work.units(f"tf-k-{k}")
                joined = shards.folder / "joined"
                stored = write_tf(joined, vectorizer, self.contents, shards, self.progress)
            return stored, vectorizer.queries(self.texts)
        finally:
            vectorizer.head.configure(query_k=own.query_k, document_k=own.document_k)

    def _weights(
        self, name: str, documents: sp.csr_array, queries: sp.csr_array
    ) -> tuple[sp.csr_array, sp.csr_array]:
        """Return weights computed from tf, without limits."""
        weighting = self.index.settings[name].weighting
        kept = canonical_csr(queries[:, : self.sizes[name]])
        return weighting.documents(documents), weighting.queries(kept)

    def _fixed(self, name: str) -> tuple[sp.csr_array, sp.csr_array]:
        """Return weights of documents and queries in a vocabulary that keeps the index's limits."""
        nothing = sp.csr_array((len(self.texts), self.sizes[name]), dtype=np.float32)
        searched = name in self.searched
        asked = self.index.vectorizer(name).queries(self.texts) if searched else nothing
        documents, queries = self._weights(name, self.tf[name], asked)
        queries, documents = self.index.settings[name].prune(queries, documents)
        return documents, queries

    def _stacked(self, swept: sp.csr_array, others: dict[str, sp.csr_array]) -> sp.csr_array:
        """Return all vocabularies side by side in the index's order."""
        return stack_columns([swept if name == self.swept else others[name] for name in self.sizes])


class _Searcher:
    """A collection with final document weights."""

    def __init__(self, collection: _Collection, derived: Derived) -> None:
        self.collection, self.derived = collection, derived
        documents = canonical_csr(derived.engine.matrix()[:, collection.span])
        self.lengths = _counts(documents)
        self.document_length = mean_length(documents)

    def measure(self, setting: Setting, queries: sp.csr_array, qrels: Sequence[Qrel]) -> Point:
        """Measure query weights [n, V] on these documents."""
        values = evaluate(qrels, self._run(queries), ["nDCG@10", "RR@10"])
        shown = queries[:, self.collection.span]
        flops = posting_list_flops(shown, self.lengths, len(self.collection.ids))
        return Point(
            setting,
            values["nDCG@10"],
            values["RR@10"],
            flops,
            mean_length(shown),
            self.document_length,
            e2(values["RR@10"], flops),
        )

    def _run(self, queries: sp.csr_array) -> dict[str, dict[str, float]]:
        """Return the first ten results of each query, and those that tie with the tenth.

        trec_eval orders ties by id, so that any of them may be among its first ten.
        """
        ids, derived = self.collection.ids, self.derived
        ignored = self.collection.ignore_identical_ids
        cutoff = _CUTOFF + ignored
        depth = min(RUN_DEPTH, len(ids))
        index, factors = self.collection.index, queries @ derived.background
        rankings = index.passages.ranked(derived.engine, queries, depth, factors)
        run = {}
        for query, (documents, scores) in zip(self.collection.query_ids, rankings, strict=True):
            least = scores[cutoff - 1] if len(scores) > cutoff else -np.inf
            hits = zip(documents, scores, strict=True)
            run[query] = {ids[int(d)]: float(s) for d, s in hits if s >= least}
        return without_identical_ids(run) if ignored else run


def _counts(documents: sp.csr_array) -> Integers:
    """Return the document frequency of each dimension [V]."""
    return np.bincount(documents.indices, minlength=documents.shape[1])
