"""Latency of retrieval: with Seismic as in SPLARE (appendix E, table 12), and with Block-Max
Pruning (BMP), which SAE-SPLADE uses (section 4.3)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
import scipy.sparse as sp

from lexicept.engines.offset_dimension import OffsetDimension
from lexicept.engines.store import engine_class
from lexicept.evaluation.effectiveness import evaluate_queries
from lexicept.evaluation.runs import run_of_rows, without_identical_ids
from reproduction.measuring import Collection, Measurements

METRIC = "Seismic ms"
"""Name of the metric, in milliseconds per query; measured for recipes with this column."""

BMP_METRIC = "BMP ms"
"""The same with BMP, on one thread."""

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
"""A search of a small collection returns a hundredth of it, and at least 10 documents. The paper's
1,000 results, out of 8.8 million documents, would leave an engine nothing to skip."""

BLOCK = 32
"""Documents in a block of BMP, the library's default."""

LEVELS = 255
"""Largest impact that BMP reads."""

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

    offset_dimension, documents = OffsetDimension.of(collection.documents, None)
    vectors = offset_dimension.extend(collection.queries, np.zeros(len(collection.query_ids)))
    asked = {q: v for q, v in zip(collection.query_ids, vectors, strict=True) if v is not None}
    arguments = seismic.batch_arguments([*asked.values()])
    arguments |= {**SETTINGS, "k": min(TOP_K, max(10, documents.shape[0] // PART))}
    arguments["k"] += collection.ignore_identical_ids
    index = seismic.build_index(documents, N_POSTINGS)
    hits = seismic.hits_of(index.batch_search(**arguments), len(asked))
    name = collection.name
    found_rows = [(np.array(rows), np.array(scores)) for rows, scores in hits]
    run = run_of_rows([*asked], found_rows, collection.document_ids)
    if collection.ignore_identical_ids:
        run = without_identical_ids(run)
    for measured, values in evaluate_queries(collection.qrels, run, MEASURES).items():
        measurements.values[f"{name} Seismic {measured}"] = float(np.mean(list(values.values())))
    times = _milliseconds(lambda: index.batch_search(**arguments), len(asked))
    measurements.values[f"{name} {METRIC}"] = times


def measure_bmp(collection: Collection, measurements: Measurements) -> None:
    """Add BMP's latency per query, the median over rounds, and its effectiveness; a note where BMP
    is not installed, so that nothing else of a row is lost.

    Documents' weights are rounded to the 8 bits that BMP reads, as an export to CIFF does, and
    queries search exhaustively (α and β 1).

    Args:
        collection: pruned already.
    """
    try:
        import bmp
    except ImportError:
        measurements.notes.append(f"{BMP_METRIC} is not measured: pip install 'lexicept[bmp]'")
        return
    documents, ids = _impacts(collection.documents), collection.document_ids
    known = np.diff(sp.csc_array(documents).indptr) > 0  # BMP panics at a term it does not know
    asked = {}
    for row, query in enumerate(collection.query_ids):
        vector = _terms(collection.queries, row, known)
        if vector:
            asked[query] = vector
    with TemporaryDirectory() as folder:
        path = str(Path(folder) / "index.bmp")
        indexer = bmp.Indexer(path, bsize=BLOCK, compress_range=False)
        for row in range(documents.shape[0]):
            indexer.add_document(str(row), _terms(documents, row, known))
        indexer.finish()
        searcher = bmp.Searcher(path)
        options: dict[str, Any] = {
            "k": min(TOP_K, max(10, len(ids) // PART)) + collection.ignore_identical_ids,
            "alpha": 1.0,
            "beta": 1.0,
        }
        hits = [searcher.search(vector, **options) for vector in asked.values()]
        times = _milliseconds(
            lambda: [searcher.search(vector, **options) for vector in asked.values()], len(asked)
        )
    rows = [(np.array(found, np.int64), np.array(scores)) for found, scores in hits]
    run = run_of_rows([*asked], rows, ids)
    if collection.ignore_identical_ids:
        run = without_identical_ids(run)
    name = collection.name
    for measured, values in evaluate_queries(collection.qrels, run, MEASURES).items():
        measurements.values[f"{name} BMP {measured}"] = float(np.mean(list(values.values())))
    measurements.values[f"{name} {BMP_METRIC}"] = times


def _impacts(documents: sp.csr_array) -> sp.csr_array:
    """Return weights as whole numbers up to ``LEVELS``, without those that round to 0."""
    largest = float(documents.data.max(initial=0.0)) or 1.0
    impacts = documents.copy()
    impacts.data = np.rint(documents.data * (LEVELS / largest))
    impacts.eliminate_zeros()
    return impacts


def _terms(matrix: sp.csr_array, row: int, known: np.ndarray) -> dict[str, float]:
    """Return a row's known dimensions as BMP takes them, whole numbers as such."""
    start, end = matrix.indptr[row : row + 2]
    dimensions, weights = matrix.indices[start:end], matrix.data[start:end]
    kept = known[dimensions]
    numbers = weights[kept].tolist()
    terms = map(str, dimensions[kept].tolist())
    return {
        term: int(number) if number == int(number) else number
        for term, number in zip(terms, numbers, strict=True)
    }


def _milliseconds(search: Callable[[], object], count: int) -> float:
    """Return the median over rounds of the time per query."""
    times = []
    for _ in range(ROUNDS):
        start = perf_counter()
        search()
        times.append(1e3 * (perf_counter() - start) / max(1, count))
    return median(times)
