"""Latency of retrieval: Seismic (SPLARE, table 12) and Block-Max Pruning (SAE-SPLADE, 4.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
import scipy.sparse as sp

from lexicept.errors import InputError
from lexicept.evaluation.effectiveness import evaluate_queries
from lexicept.evaluation.runs import run_of_rows, without_identical_ids
from reproduction.measuring import Collection, Measurements

METRIC = "Seismic ms"
"""Milliseconds per query with Seismic; measured for recipes with this column."""

BMP_METRIC = "BMP ms"
"""Milliseconds per query with BMP, on one thread."""

TOP_K = 1000
SETTINGS = {"query_cut": 30, "heap_factor": 0.5, "n_knn": 0, "sorted": False, "num_threads": 1}
"""Search settings of table 12, under the library's names."""

N_POSTINGS = 3500
"""The library's default: table 12 does not say how the index is built."""

PART = 100
"""A search of a small collection returns a hundredth of it, and at least 10 documents. The paper's
1,000 results, out of 8.8 million documents, would leave an engine nothing to skip."""

BLOCK = 32
"""Documents in a block of BMP, the library's default."""

LEVELS = 255
"""Largest impact that BMP reads."""

ROUNDS = 5
MEASURES = ("nDCG@10", "RR@10")

Hits = Sequence[tuple[Any, Any]]
"""Document numbers and scores of each query."""


def measure_latency(collection: Collection, measurements: Measurements) -> None:
    """Add Seismic's latency per query and effectiveness, for a pruned collection.

    Raises:
        InputError: Seismic is not installed.
    """
    if find_spec("seismic") is None:
        raise InputError(f"{METRIC} needs a further package: pip install pyseismic-lsr")
    from reproduction import seismic

    vectors = seismic.matching_queries(collection.queries, collection.documents)
    queries = {q: v for q, v in zip(collection.query_ids, vectors, strict=True) if v is not None}
    arguments = seismic.batch_arguments([*queries.values()])
    arguments |= {**SETTINGS, "k": _depth(collection)}
    index = seismic.build_index(collection.documents, N_POSTINGS)

    def read(results: Any) -> Hits:
        return seismic.hits_of(results, len(queries))

    search = partial(index.batch_search, **arguments)
    _add(collection, measurements, METRIC, [*queries], search, read)


def measure_bmp(collection: Collection, measurements: Measurements) -> None:
    """Add BMP's latency per query and effectiveness, for a pruned collection.

    Documents' weights are rounded to the 8 bits that BMP reads, as an export to CIFF does, and
    queries search exhaustively (α and β 1). Without BMP, a note says so.
    """
    try:
        import bmp
    except ImportError:
        measurements.notes.append(f"{BMP_METRIC} is not measured: pip install 'lexicept[bmp]'")
        return
    documents = sp.csr_array(collection.documents, copy=True)
    documents.data = np.rint(documents.data * (LEVELS / (documents.data.max(initial=0) or 1.0)))
    documents.eliminate_zeros()
    # BMP panics at a term that no document has.
    used = np.diff(sp.csc_array(documents).indptr) > 0
    vectors = {
        name: _terms(collection.queries, number, used)
        for number, name in enumerate(collection.query_ids)
    }
    queries = {name: vector for name, vector in vectors.items() if vector}
    with TemporaryDirectory() as folder:
        path = str(Path(folder) / "index.bmp")
        indexer = bmp.Indexer(path, bsize=BLOCK, compress_range=False)
        for number in range(documents.shape[0]):
            indexer.add_document(str(number), _terms(documents, number, used))
        indexer.finish()
        search = partial(bmp.Searcher(path).search, k=_depth(collection), alpha=1.0, beta=1.0)
        _add(
            collection,
            measurements,
            BMP_METRIC,
            [*queries],
            lambda: [search(vector) for vector in queries.values()],
        )


def _depth(collection: Collection) -> int:
    depth = min(TOP_K, max(10, len(collection.document_ids) // PART))
    return depth + collection.ignore_identical_ids


def _add(
    collection: Collection,
    measurements: Measurements,
    metric: str,
    query_ids: Sequence[str],
    search: Callable[[], Any],
    read: Callable[[Any], Hits] = list,
) -> None:
    """Add a search's effectiveness, and the median over rounds of the time per query."""
    hits = [(np.array(numbers, np.int64), np.array(scores)) for numbers, scores in read(search())]
    run = run_of_rows(query_ids, hits, collection.document_ids)
    if collection.ignore_identical_ids:
        run = without_identical_ids(run)
    engine = metric.removesuffix(" ms")
    for measure, values in evaluate_queries(collection.qrels, run, MEASURES).items():
        mean = float(np.mean(list(values.values())))
        measurements.values[f"{collection.name} {engine} {measure}"] = mean
    times = []
    for _ in range(ROUNDS):
        start = perf_counter()
        search()
        times.append(1e3 * (perf_counter() - start) / max(1, len(query_ids)))
    measurements.values[f"{collection.name} {metric}"] = median(times)


def _terms(matrix: sp.csr_array, number: int, used: np.ndarray) -> dict[str, float]:
    """Return a vector's used dimensions in BMP's format, whole numbers as integers."""
    start, end = matrix.indptr[number : number + 2]
    pairs = zip(matrix.indices[start:end].tolist(), matrix.data[start:end].tolist(), strict=True)
    return {
        str(dimension): int(weight) if weight == int(weight) else weight
        for dimension, weight in pairs
        if used[dimension]
    }
