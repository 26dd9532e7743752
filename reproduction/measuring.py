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
from lexicept.vectors import Floats, Integers, Pruning, largest_weights
from lexicept.weighting import Unchanged, Weighting
from reproduction.alpha import ALPHAS, KnownItems, choose_alpha
from reproduction.estimates import COSTS, CostCurve, curve_limits
from reproduction.jobs import RRAChoice

MEASURES = ("nDCG@10", "RR@10", "R@10", "R@100", "Success@5")
DEPTH = 100
"""Documents per query in a run."""

CURVE_DEPTH = 10
"""Documents per query along a curve: the depth of nDCG@10."""

KNOWN_ITEMS = 500
"""Documents to choose RRA's α on, with one query each (RRA, section 3.1)."""

MakeKnownItems = Callable[[int], KnownItems]
"""Function from a number of known-item queries to the queries."""


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
    """``seed``, ``values`` and ``per_query`` of separate trainings, averaged to ``values``."""

    @classmethod
    def mean_of(cls, trainings: Mapping[int, Measurements]) -> Measurements:
        """Return the means over trainings by seed, of the values that all of them have."""
        measured = list(trainings.values())
        names = [name for name in measured[0].values if all(name in m.values for m in measured)]
        values = {name: float(np.mean([m.values[name] for m in measured])) for name in names}
        contents = [
            {"seed": seed, "values": each.values, "per_query": each.per_query}
            for seed, each in trainings.items()
        ]
        return cls(values, {}, list(dict.fromkeys(n for m in measured for n in m.notes)), contents)


@dataclass(frozen=True)
class Collection:
    """A dataset encoded by one system."""

    name: str
    document_ids: Sequence[str]
    documents: Rows
    """Document weights, unpruned [N, V], or term frequencies for ``weighting``; in memory or, for
    large collections, on disk."""
    query_ids: Sequence[str]
    queries: sp.csr_array
    """Query weights, unpruned, CSR [n, V]."""
    qrels: Sequence[Qrel]
    known_items: MakeKnownItems | None = None
    """Known-item queries, on which RRA's α is chosen."""
    ignore_identical_ids: bool = False
    """True to leave out a hit with the query's id."""
    split: Callable[[str], JudgedVectors] | None = None
    """Function from the name of another split to judged queries, on which RRA's α is chosen."""
    tau: float = E2_TAU
    """E²'s τ."""
    weighting: Weighting = field(default_factory=Unchanged)
    """The weighting of the documents."""
    folder: Path | None = None
    """Folder of the postings during a search; None for memory."""


@dataclass(frozen=True)
class _Limited:
    """A collection searched with limits of dimensions."""

    collection: Collection
    """With pruned queries; documents are pruned as postings are derived."""
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
        limited = cls(collection, limits, lengths, bounds)
        queries = limited.prune(collection.queries)
        return replace(limited, collection=replace(collection, queries=queries))

    @property
    def cost(self) -> float:
        """QD-FLOPs of the collection's queries."""
        return posting_list_flops(
            self.collection.queries, self.lengths, len(self.collection.document_ids)
        )

    def prune(self, queries: sp.csr_array) -> sp.csr_array:
        """Prune query weights [n, V]."""
        count = len(self.collection.document_ids)
        return self.limits.prune_queries(queries, self.bounds, self.lengths, count)

    @contextmanager
    def derived(self, settings: RRASettings | None) -> Iterator[Derived]:
        """Yield the postings, in memory or in a temporary folder."""
        documents, limits = [self.collection.documents], [self.limits]
        if self.collection.folder is None:
            yield Derived.compute(documents, limits, settings)
            return
        self.collection.folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=self.collection.folder) as place:
            yield Derived.compute(documents, limits, settings, Path(place) / "postings")

    def search(
        self,
        ids: Sequence[str],
        queries: sp.csr_array,
        settings: RRASettings | None,
        depth: int = DEPTH,
    ) -> Run:
        """Search pruned queries exactly for ``depth`` documents each, without hits of the query's
        own id if the collection ignores them."""
        ignored = self.collection.ignore_identical_ids
        with self.derived(settings) as derived:
            hits = derived.engine.search(queries, depth + ignored, queries @ derived.background)
            run = run_of_rows(ids, hits, self.collection.document_ids)
        return without_identical_ids(run, depth) if ignored else run

    def gains(self, rra: RRAChoice, judged: JudgedVectors) -> dict[float, dict[str, float]]:
        """Return nDCG@10 by α and query."""
        runs = {
            alpha: self.search(judged.ids, judged.queries, rra_settings(alpha, rra))
            for alpha in ALPHAS
        }
        return {
            alpha: evaluate_queries(judged.qrels, run, ["nDCG@10"])["nDCG@10"]
            for alpha, run in runs.items()
        }


def _lengths_and_bounds(weigher: Weigher, shard: Shard) -> tuple[Integers, Floats]:
    weights = weigher.plain(shard)
    return np.bincount(weights.indices, minlength=weights.shape[1]), largest_weights(weights)


def rra_settings(alpha: float, rra: RRAChoice) -> RRASettings:
    return RRASettings(alpha, transform=rra.transform)


def pruned(
    collection: Collection,
    query_dims: int | None,
    document_dims: int | None,
    pruning: Pruning = "weight",
) -> Collection:
    """Weigh and prune documents and queries in memory, as an index with these limits would; None
    keeps all."""
    limits = VocabularySettings(Unchanged(), query_dims, document_dims, pruning=pruning)
    (documents,) = Shard((collection.documents,)).load()
    queries, documents = limits.prune(collection.queries, collection.weighting.documents(documents))
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
    queries, name, lengths = limited.collection.queries, collection.name, limited.lengths
    if rra is not None and rra.folds is not None:
        run = _cross_validated(limited, rra, measurements)
    else:
        settings = None if rra is None else rra_settings(_alpha(limited, rra, measurements), rra)
        run = limited.search(collection.query_ids, queries, settings)
    measure_run(name, run, collection.qrels, measurements, collection.ignore_identical_ids)
    measurements.values |= {
        f"{name} QD-FLOPs": limited.cost,
        f"{name} query length": mean_length(queries),
        f"{name} document length": float(lengths.sum() / max(len(collection.document_ids), 1)),
        f"{name} E²": e2(measurements.values[f"{name} RR@10"], limited.cost, collection.tau),
        f"{name} posting mean": float(lengths.mean()),
        f"{name} posting variance": float(lengths.var()),
        f"{name} posting std": float(lengths.std()),
    }


def measure_run(
    name: str,
    run: Run,
    qrels: Sequence[Qrel],
    measurements: Measurements,
    ignore_identical_ids: bool,
) -> None:
    """Add the effectiveness of a run on a collection to the measurements, and a note if hits of the
    query's own id are left out of the run."""
    if ignore_identical_ids:
        measurements.notes.append(f"{name}: hits of the query's own id are left out")
    for measured, values in evaluate_queries(qrels, run, MEASURES).items():
        measurements.values[f"{name} {measured}"] = float(np.mean(list(values.values())))
        measurements.per_query[f"{name} {measured}"] = {q: round(v, 5) for q, v in values.items()}


def _alpha(limited: _Limited, rra: RRAChoice, measurements: Measurements) -> float:
    """Return the given α, the best α on another split, or α chosen on known items."""
    if rra.alpha is not None:
        return rra.alpha
    collection = limited.collection
    if rra.split is not None:
        if collection.split is None:
            raise InputError(f"{collection.name}: rra.split needs texts of queries")
        judged = collection.split(rra.split)
        gains = limited.gains(rra, judged._replace(queries=limited.prune(judged.queries)))
        best = _best_alpha(gains, list(gains[ALPHAS[0]]))
    else:
        assert collection.known_items is not None
        with ExitStack() as stack:

            def derive(settings: RRASettings | None) -> Derived:
                stack.close()  # one value's postings are on disk at a time
                return stack.enter_context(limited.derived(settings))

            items = collection.known_items(KNOWN_ITEMS)
            best = choose_alpha(derive, items, transform=rra.transform).alpha
    measurements.values[f"{collection.name} α"] = best
    return best


def _best_alpha(gains: Mapping[float, Mapping[str, float]], queries: Sequence[str]) -> float:
    """Return the α of the largest mean over queries; the first of equals."""
    return max(ALPHAS, key=lambda alpha: float(np.mean([gains[alpha][q] for q in queries])))


def _cross_validated(limited: _Limited, rra: RRAChoice, measurements: Measurements) -> Run:
    """Return the runs of random folds of the queries, each with the best α of the other folds."""
    assert rra.folds is not None
    collection = limited.collection
    ids = list(collection.query_ids)
    gains = limited.gains(rra, JudgedVectors(ids, collection.queries, collection.qrels))
    judged = sorted(gains[ALPHAS[0]])
    order = np.random.default_rng(0).permutation(len(judged))
    folds = dict(zip(judged, order % rra.folds, strict=True))
    run: dict[str, Mapping[str, float]] = {}
    alphas = []
    for fold in range(rra.folds):
        alpha = _best_alpha(gains, [name for name in judged if folds[name] != fold])
        numbers = [number for number, name in enumerate(ids) if folds.get(name, 0) == fold]
        queries = sp.csr_array(collection.queries[numbers])
        run |= limited.search([ids[n] for n in numbers], queries, rra_settings(alpha, rra))
        alphas.append(alpha)
    measurements.values[f"{collection.name} α"] = float(np.median(alphas))
    counts = ", ".join(f"{alpha:g} ({alphas.count(alpha)})" for alpha in sorted(set(alphas)))
    measurements.notes.append(f"{collection.name}: α (parts of the queries) {counts}")
    return run


def measure_curve(
    collection: Collection, measurements: Measurements, pruning: Pruning = "weight"
) -> None:
    """Search with many limits of dimensions, and add nDCG@10 at the costs that models share."""
    name, costs, values = collection.name, [], []
    order: list[str] = []
    for query_dims, document_dims in curve_limits():
        limited = _Limited.of(collection, query_dims, document_dims, pruning)
        run = limited.search(collection.query_ids, limited.collection.queries, None, CURVE_DEPTH)
        gains = evaluate_queries(collection.qrels, run, ["nDCG@10"])["nDCG@10"]
        order = sorted(gains)
        costs.append(limited.cost)
        values.append([gains[query] for query in order])
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
