"""Measurement of retrieval with sparse vectors, the same for every row of a recipe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from lexicept.analysis.posting_lists import posting_lists
from lexicept.corpora import Qrel
from lexicept.evaluation.effectiveness import evaluate_queries
from lexicept.evaluation.runs import Run, run_of_rows, without_identical_ids
from lexicept.experiments.jobs import RRAChoice
from lexicept.index.impacts import Derived, RRASettings, VocabularySettings, best_alpha
from lexicept.measures import e2, mean_length, qd_flops
from lexicept.vectors import Integers, Pruning
from lexicept.weighting import Unchanged

MEASURES = ("nDCG@10", "RR@10", "R@10", "R@100", "Success@5")
DEPTH = 100
"""Documents per query in a run."""

Known = Callable[[int], tuple[Integers, sp.csr_array]]
"""Function from a number n of known-item queries to their documents' rows and vectors [n, V]."""


@dataclass
class Measurements:
    """The measurements of a row."""

    values: dict[str, float] = field(default_factory=dict)
    """Value by ``<dataset> <measure>``."""
    per_query: dict[str, dict[str, float]] = field(default_factory=dict)
    """Value by ``<dataset> <measure>`` and query, for measures of effectiveness."""
    notes: list[str] = field(default_factory=list)
    """Remarks on how the values were measured."""


@dataclass(frozen=True)
class Collection:
    """A dataset encoded by one system."""

    name: str
    document_ids: Sequence[str]
    documents: sp.csr_array
    """Document weights, unpruned, CSR [N, V]."""
    query_ids: Sequence[str]
    queries: sp.csr_array
    """Query weights, unpruned, CSR [n, V]."""
    qrels: Sequence[Qrel]
    known: Known | None = None
    """Known-item queries, on which RRA's α is chosen."""
    ignore_identical_ids: bool = False
    """Whether a hit whose id is its query's is left out."""


def pruned(
    collection: Collection,
    query_dims: int | None,
    document_dims: int | None,
    pruning: Pruning = "weight",
) -> Collection:
    """Prune documents and queries as an index with these limits would; None keeps all."""
    limits = VocabularySettings(Unchanged(), query_dims, document_dims, pruning=pruning)
    queries, documents = limits.prune(collection.queries, collection.documents)
    return replace(collection, documents=documents, queries=queries)


def measure(
    collection: Collection,
    measurements: Measurements,
    rra: RRAChoice | None = None,
    query_dims: int | None = None,
    document_dims: int | None = None,
    pruning: Pruning = "weight",
) -> None:
    """Search exactly, and add effectiveness, cost and posting lists to the measurements."""
    collection = pruned(collection, query_dims, document_dims, pruning)
    documents, queries, name = collection.documents, collection.queries, collection.name
    settings = None if rra is None else _settings(collection, documents, rra, measurements)
    derived = Derived.reweighted(documents, settings)
    depth = DEPTH + collection.ignore_identical_ids
    hits = derived.engine.search(queries, depth, queries @ derived.background)
    run = run_of_rows(collection.query_ids, hits, collection.document_ids)
    measure_run(name, run, collection.qrels, measurements, collection.ignore_identical_ids)
    cost = qd_flops(queries, documents)
    lists = posting_lists(documents)
    measurements.values |= {
        f"{name} QD-FLOPs": cost,
        f"{name} query length": mean_length(queries),
        f"{name} document length": mean_length(documents),
        f"{name} E²": e2(measurements.values[f"{name} RR@10"], cost),
        f"{name} posting mean": lists.mean,
        f"{name} posting variance": lists.variance,
        f"{name} posting std": lists.std,
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


def _settings(
    collection: Collection, documents: sp.csr_array, rra: RRAChoice, measurements: Measurements
) -> RRASettings:
    if rra.alpha is not None:
        return RRASettings(rra.alpha, rra.iterations, rra.transform)
    assert collection.known is not None
    sources, queries = collection.known(rra.documents)
    best, _ = best_alpha(
        lambda settings: Derived.reweighted(documents, settings),
        sources,
        queries,
        rra.iterations,
        rra.transform,
    )
    measurements.values[f"{collection.name} α"] = best
    return RRASettings(best, rra.iterations, rra.transform)


def rows_of(matrix: Any, rows: Sequence[int]) -> sp.csr_array:
    """Return some rows of a CSR matrix."""
    return sp.csr_array(matrix[list(rows)])
