"""Measurement of retrieval with sparse vectors, the same for every row of a recipe."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from lexicept.corpora import Qrel
from lexicept.errors import InputError
from lexicept.evaluation.effectiveness import evaluate_queries
from lexicept.evaluation.runs import Run, run_of_rows, without_identical_ids
from lexicept.index.impacts import Derived, RRASettings, VocabularySettings, Weigher, weigher_of
from lexicept.measures import E2_TAU, e2, mean_length, posting_list_flops
from lexicept.parallel.shards import Rows, Shard, over, shards_of
from lexicept.pipelines.alpha import ALPHAS, KnownItems, choose_alpha
from lexicept.vectors import Floats, Integers, Pruning, largest_weights
from lexicept.weighting import Unchanged, Weighting
from reproduction.estimates import COSTS, CostCurve, curve_limits
from reproduction.jobs import RRAChoice

MEASURES = ("nDCG@10", "RR@10", "R@10", "R@100", "Success@5")
DEPTH = 100
"""Documents per query in a run."""

CURVE_DEPTH = 20
"""Documents per query along a curve: its measure reads ten, the others are for ties."""

Known = Callable[[int], KnownItems]
"""Function from a number of known-item queries to them."""


class JudgedVectors(NamedTuple):
    """Judged queries of a split."""

    ids: Sequence[str]
    queries: sp.csr_array
    """Query weights, unpruned, CSR [n, V]."""
    qrels: Sequence[Qrel]


@dataclass
class Measurements:
    """The measurements of a row."""

    values: dict[str, float] = field(default_factory=dict)
    """Value by ``<dataset> <measure>``."""
    per_query: dict[str, dict[str, float]] = field(default_factory=dict)
    """Value by ``<dataset> <measure>`` and query, for measures of effectiveness."""
    notes: list[str] = field(default_factory=list)
    """Remarks on how the values were measured."""
    trainings: list[dict[str, Any]] = field(default_factory=list)
    """``seed``, ``values`` and ``per_query`` of separate trainings, whose means the values are."""

    @classmethod
    def mean_of(cls, trainings: Mapping[int, Measurements]) -> Measurements:
        """Return the means over trainings by seed, of the values that all of them have."""
        parts = list(trainings.values())
        names = [name for name in parts[0].values if all(name in p.values for p in parts)]
        values = {name: float(np.mean([p.values[name] for p in parts])) for name in names}
        kept = [
            {"seed": seed, "values": one.values, "per_query": one.per_query}
            for seed, one in trainings.items()
        ]
        return cls(values, {}, list(dict.fromkeys(n for p in parts for n in p.notes)), kept)


@dataclass(frozen=True)
class Collection:
    """A dataset encoded by one system."""

    name: str
    document_ids: Sequence[str]
    documents: Rows
    """Document weights, unpruned [N, V], or what ``weighting`` makes weights of; in memory, or on
    disk where they may be too large for it."""
    query_ids: Sequence[str]
    queries: sp.csr_array
    """Query weights, unpruned, CSR [n, V]."""
    qrels: Sequence[Qrel]
    known: Known | None = None
    """Known-item queries, on which RRA's α is chosen."""
    ignore_identical_ids: bool = False
    """True if a hit whose id is its query's is left out."""
    split: Callable[[str], JudgedVectors] | None = None
    """Function from the name of another split to its queries, on which RRA's α is chosen."""
    tau: float = E2_TAU
    """E²'s τ."""
    weighting: Weighting = field(default_factory=Unchanged)
    """The weighting of the documents."""
    folder: Path | None = None
    """Folder of the postings while they are searched; None for memory."""


@dataclass(frozen=True)
class _Limited:
    """A collection searched with limits of dimensions."""

    collection: Collection
    """With pruned queries; its documents are pruned as they are searched."""
    limits: VocabularySettings
    lengths: Integers
    """Documents that have each dimension after weighting and pruning, before RRA [V]."""
    bounds: Floats
    """The largest weight of each dimension in the same documents [V]."""

    @classmethod
    def of(
        cls,
        collection: Collection,
        query_dims: int | None,
        document_dims: int | None,
        pruning: Pruning,
    ) -> _Limited:
        limits = VocabularySettings(
            collection.weighting, query_dims, document_dims, pruning=pruning
        )
        shards = shards_of([collection.documents])
        counted = over(partial(_lengths_and_bounds, weigher_of(shards, [limits])), shards)
        lengths, bounds = next(counted)
        for more, largest in counted:
            lengths, bounds = lengths + more, np.maximum(bounds, largest)
        one = cls(collection, limits, lengths, bounds)
        return replace(one, collection=replace(collection, queries=one.prune(collection.queries)))

    @property
    def count(self) -> int:
        """The number of documents."""
        return len(self.collection.document_ids)

    @property
    def cost(self) -> float:
        """QD-FLOPs of the collection's queries."""
        return posting_list_flops(self.collection.queries, self.lengths, self.count)

    def prune(self, queries: sp.csr_array) -> sp.csr_array:
        """Prune query weights [n, V]."""
        return self.limits.prune_queries(queries, self.bounds, self.lengths, self.count)

    @contextmanager
    def derived(self, settings: RRASettings | None) -> Iterator[Derived]:
        """Yield the postings, in memory or in a folder that is removed afterwards."""
        rows, limits = [self.collection.documents], [self.limits]
        if self.collection.folder is None:
            yield Derived.compute(rows, limits, settings)
            return
        self.collection.folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=self.collection.folder) as place:
            yield Derived.compute(rows, limits, settings, Path(place) / "postings")

    def search(
        self,
        ids: Sequence[str],
        queries: sp.csr_array,
        settings: RRASettings | None,
        depth: int = DEPTH,
    ) -> Run:
        """Search pruned queries exactly, ``depth`` documents each; one more where a query's own id
        is left out."""
        depth += self.collection.ignore_identical_ids
        with self.derived(settings) as derived:
            hits = derived.engine.search(queries, depth, queries @ derived.background)
            return run_of_rows(ids, hits, self.collection.document_ids)


def _lengths_and_bounds(weigher: Weigher, shard: Shard) -> tuple[Integers, Floats]:
    weights = weigher.plain(shard)
    return np.bincount(weights.indices, minlength=weights.shape[1]), largest_weights(weights)


def pruned(
    collection: Collection,
    query_dims: int | None,
    document_dims: int | None,
    pruning: Pruning = "weight",
) -> Collection:
    """Weigh and prune documents and queries in memory, as an index with these limits would; None
    keeps all."""
    limits = VocabularySettings(Unchanged(), query_dims, document_dims, pruning=pruning)
    (rows,) = Shard((collection.documents,)).load()
    queries, documents = limits.prune(collection.queries, collection.weighting.documents(rows))
    return replace(collection, documents=documents, queries=queries, weighting=Unchanged())


def measure(
    collection: Collection,
    measurements: Measurements,
    rra: RRAChoice | None = None,
    query_dims: int | None = None,
    document_dims: int | None = None,
    pruning: Pruning = "weight",
) -> None:
    """Search exactly, and add effectiveness, cost and posting lists to the measurements."""
    limited = _Limited.of(collection, query_dims, document_dims, pruning)
    queries, name = limited.collection.queries, collection.name
    if rra is None or rra.folds is None:
        settings = None
        if rra is not None:
            alpha = _alpha(limited, rra, measurements)
            settings = RRASettings(alpha, rra.iterations, rra.transform)
        run = limited.search(collection.query_ids, queries, settings)
    else:
        run = _cross_validated(limited, rra, measurements)
    measure_run(name, run, collection.qrels, measurements, collection.ignore_identical_ids)
    measurements.values |= {
        f"{name} QD-FLOPs": limited.cost,
        f"{name} query length": mean_length(queries),
        f"{name} document length": float(limited.lengths.sum() / max(limited.count, 1)),
        f"{name} E²": e2(measurements.values[f"{name} RR@10"], limited.cost, collection.tau),
        f"{name} posting mean": float(limited.lengths.mean()),
        f"{name} posting variance": float(limited.lengths.var()),
        f"{name} posting std": float(limited.lengths.std()),
    }


def measure_run(
    name: str,
    run: Run,
    qrels: Sequence[Qrel],
    measurements: Measurements,
    ignore_identical_ids: bool,
) -> None:
    """Add the effectiveness of a run to the measurements.

    Args:
        name: the collection.
        run: ``DEPTH`` documents per query, best first, and one more with ``ignore_identical_ids``.
        ignore_identical_ids: whether a hit whose id is its query's is left out.
    """
    if ignore_identical_ids:
        run = without_identical_ids(run, DEPTH)
        measurements.notes.append(f"{name}: hits of the query's own id are left out")
    for measured, values in evaluate_queries(qrels, run, MEASURES).items():
        measurements.values[f"{name} {measured}"] = float(np.mean(list(values.values())))
        measurements.per_query[f"{name} {measured}"] = {q: round(v, 5) for q, v in values.items()}


def _alpha(limited: _Limited, rra: RRAChoice, measurements: Measurements) -> float:
    """Return the given α, the best one on another split, or one chosen on known items."""
    if rra.alpha is not None:
        return rra.alpha
    collection = limited.collection
    if rra.split is not None:
        if collection.split is None:
            raise InputError(f"{collection.name}: rra.split needs texts of queries")
        judged = collection.split(rra.split)
        gains = _gains(limited, rra, judged._replace(queries=limited.prune(judged.queries)))
        chosen = max(ALPHAS, key=lambda alpha: float(np.mean(list(gains[alpha].values()))))
    else:
        assert collection.known is not None
        with ExitStack() as kept:

            def derive(settings: RRASettings | None) -> Derived:
                kept.close()  # one value's postings are on disk at a time
                return kept.enter_context(limited.derived(settings))

            items = collection.known(rra.documents)
            chosen = choose_alpha(derive, items, rra.iterations, rra.transform).alpha
    measurements.values[f"{collection.name} α"] = chosen
    return chosen


def _gains(
    limited: _Limited, rra: RRAChoice, judged: JudgedVectors
) -> dict[float, dict[str, float]]:
    """Return α → query → nDCG@10."""
    gains = {}
    for alpha in ALPHAS:
        settings = RRASettings(alpha, rra.iterations, rra.transform)
        run = limited.search(judged.ids, judged.queries, settings)
        if limited.collection.ignore_identical_ids:
            run = without_identical_ids(run, DEPTH)
        gains[alpha] = evaluate_queries(judged.qrels, run, ["nDCG@10"])["nDCG@10"]
    return gains


def _cross_validated(limited: _Limited, rra: RRAChoice, measurements: Measurements) -> Run:
    """Return the runs of random parts of the queries, each with the best α of the other parts."""
    assert rra.folds is not None
    collection = limited.collection
    ids = list(collection.query_ids)
    gains = _gains(limited, rra, JudgedVectors(ids, collection.queries, collection.qrels))
    judged = sorted(gains[ALPHAS[0]])
    fold = dict(
        zip(judged, np.random.default_rng(0).permutation(len(judged)) % rra.folds, strict=True)
    )
    run: dict[str, Mapping[str, float]] = {}
    used = []
    for part in range(rra.folds):
        others = [name for name in judged if fold[name] != part]
        alpha = max(ALPHAS, key=lambda a: float(np.mean([gains[a][name] for name in others])))
        rows = [row for row, name in enumerate(ids) if fold.get(name, 0) == part]
        settings = RRASettings(alpha, rra.iterations, rra.transform)
        asked = rows_of(collection.queries, rows)
        run |= limited.search([ids[row] for row in rows], asked, settings)
        used.append(alpha)
    measurements.values[f"{collection.name} α"] = float(np.median(used))
    shown = ", ".join(f"{alpha:g} ({used.count(alpha)})" for alpha in sorted(set(used)))
    measurements.notes.append(f"{collection.name}: α (parts of the queries) {shown}")
    return run


def measure_curve(
    collection: Collection, measurements: Measurements, pruning: Pruning = "weight"
) -> None:
    """Search with many limits of dimensions, and add nDCG@10 at the costs that models share."""
    name, costs, values = collection.name, [], []
    order: list[str] = []
    for query_dims, document_dims in curve_limits():
        limited = _Limited.of(collection, query_dims, document_dims, pruning)
        queries = limited.collection.queries
        run = limited.search(collection.query_ids, queries, None, CURVE_DEPTH)
        if collection.ignore_identical_ids:
            run = without_identical_ids(run, CURVE_DEPTH)
        found = evaluate_queries(collection.qrels, run, ["nDCG@10"])["nDCG@10"]
        order = sorted(found)
        costs.append(limited.cost)
        values.append([found[query] for query in order])
    curve = CostCurve.of(costs, values)
    readings = {f"{name} nDCG@10 at {cost:g}": curve.at(cost) for cost in COSTS}
    low, high = COSTS[0], COSTS[-1]
    readings[f"{name} nDCG@10 from {low:g} to {high:g}"] = curve.mean_over(low, high)
    for title, reading in readings.items():
        if reading is None:
            measurements.notes.append(f"{title}: its cheapest point costs {curve.costs[0]:.3g}")
            continue
        measurements.values[title] = float(reading.mean())
        measurements.per_query[title] = {
            query: round(float(v), 5) for query, v in zip(order, reading, strict=True)
        }


def rows_of(matrix: Any, rows: Sequence[int]) -> sp.csr_array:
    """Return some rows of a CSR matrix."""
    return sp.csr_array(matrix[list(rows)])
