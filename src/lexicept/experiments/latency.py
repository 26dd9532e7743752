"""Latency of retrieval with Seismic, measured as in SPLARE (appendix E, table 12)."""

from __future__ import annotations

from statistics import median
from time import perf_counter

import numpy as np

from lexicept.engines.store import engine_class
from lexicept.engines.wrapped import Extension
from lexicept.evaluation.effectiveness import evaluate_queries
from lexicept.evaluation.runs import run_of_rows, without_identical_ids
from lexicept.experiments.measuring import Collection, Measurements

METRIC = "Seismic ms"
"""Name of the metric, in milliseconds per query; measured for recipes with this column."""

TOP_K = 1000
SETTINGS = {
    "query_cut": 30,
    "heap_factor": 0.5,
    "n_knn": 0,
    "sorted": False,
    "num_threads": 1,
}
"""Search settings of table 12, under the library's names."""

N_POSTINGS = 3500
"""The library's default: table 12 does not say how the index is built."""

PART = 100
"""In a small collection a hundredth of it is searched for, and at least 10 documents. The paper's
1,000 results, out of 8.8 million documents, would leave an engine nothing to skip."""

ROUNDS = 5
MEASURES = ("nDCG@10", "RR@10")


def measure_latency(collection: Collection, measurements: Measurements) -> None:
    """Add Seismic's latency per query, the median over rounds, and its effectiveness.

    Args:
        collection: pruned already.

    Raises:
        InputError: Seismic is not installed.
    """
    engine_class("seismic")
    from lexicept.engines import seismic

    extension, documents = Extension.of(collection.documents, None)
    vectors = extension.queries(collection.queries, np.zeros(len(collection.query_ids)))
    asked = {q: v for q, v in zip(collection.query_ids, vectors, strict=True) if v is not None}
    arguments = seismic.arguments([*asked.values()])
    arguments |= {**SETTINGS, "k": min(TOP_K, max(10, documents.shape[0] // PART))}
    arguments["k"] += collection.ignore_identical_ids
    index = seismic.build_index(documents, N_POSTINGS)
    hits = seismic.results(index.batch_search(**arguments), len(asked))
    name = collection.name
    found_rows = [(np.array(rows), np.array(scores)) for rows, scores in hits]
    run = run_of_rows([*asked], found_rows, collection.document_ids)
    if collection.ignore_identical_ids:
        run = without_identical_ids(run)
    for measured, values in evaluate_queries(collection.qrels, run, MEASURES).items():
        measurements.values[f"{name} Seismic {measured}"] = float(np.mean(list(values.values())))
    times = []
    for _ in range(ROUNDS):
        start = perf_counter()
        index.batch_search(**arguments)
        times.append(1e3 * (perf_counter() - start) / max(1, len(asked)))
    measurements.values[f"{name} {METRIC}"] = median(times)
