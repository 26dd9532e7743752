"""Exact top-10 search, one query at a time on one thread: lexicept against SciPy."""

from __future__ import annotations

from functools import partial
from statistics import median

import numpy as np
import scipy.sparse as sp

from benchmarks.collections import zipf_collection
from benchmarks.common import Table, interleaved, seconds
from lexicept.engines.exact import ExactEngine
from lexicept.measures import qd_flops


def scipy_search(query: sp.csr_array, XT: sp.csr_array, top_k: int) -> np.ndarray:
    """Return the best scores in order, by a sparse product and a partition of its non-zeros."""
    scores = (query @ XT).data
    best = np.argpartition(-scores, min(top_k, scores.size) - 1)[:top_k]
    return np.sort(scores[best])[::-1]


def run(
    num_documents: int = 100_000, num_dimensions: int = 65_536, document_nonzeros: int = 116,
    query_nonzeros: int = 21, num_queries: int = 200, top_k: int = 10, builds: int = 5,
) -> list[Table]:  # fmt: skip
    """Measure latency per query and build time."""
    X = zipf_collection(num_documents, num_dimensions, document_nonzeros, seed=0)
    Q = zipf_collection(num_queries, num_dimensions, query_nonzeros, seed=1)
    queries = [Q[[i]] for i in range(num_queries)]
    build = interleaved(
        {"lexicept": lambda: ExactEngine.build(X), "SciPy": lambda: X.T.tocsr()}, builds
    )
    engine, XT = ExactEngine.build(X), X.T.tocsr()
    # The first calls compile.
    engine.search(queries[0], top_k, threads=1)
    scipy_search(queries[0], XT, top_k)
    times: dict[str, list[float]] = {"lexicept": [], "SciPy": []}
    for query in queries:
        times["lexicept"].append(seconds(partial(engine.search, query, top_k, threads=1)))
        times["SciPy"].append(seconds(partial(scipy_search, query, XT, top_k)))
    for query in queries:
        ours = engine.search(query, top_k, threads=1)[0][1]
        np.testing.assert_allclose(ours, scipy_search(query, XT, top_k), rtol=1e-5)
    lines = [
        [
            name,
            f"{1e3 * median(took):.2f} ms",
            f"{1e3 * np.percentile(took, 99):.2f} ms",
            f"{median(took) / median(times['SciPy']):.3f} ×",
            f"{median(build[name]):.2f} s",
        ]
        for name, took in times.items()
    ]
    flops = qd_flops(Q, X)
    columns = [f"Search, QD-FLOPs {flops:.1f}", "median", "p99", "median / SciPy's", "build"]
    return [Table("search", columns, lines)]
