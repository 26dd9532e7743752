"""Exact top-10 search under filters, one query at a time on one thread, against no filter."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import scipy.sparse as sp

from benchmarks.collections import zipf_collection
from benchmarks.common import Table, ratio, seconds
from lexicept.engines.exact import ExactEngine
from lexicept.engines.mask import Mask
from lexicept.fields.columns import FieldColumns
from lexicept.fields.filters import parse
from lexicept.fields.matching import matching
from lexicept.fields.writing import FieldWriter
from lexicept.vectors import Floats, Integers

SHARES = (1.0, 0.9, 0.5, 0.1, 0.05, 0.01, 0.001, 0.0001)
"""Documents that a filter lets pass, of all."""

RANGE = 1_000_000


def run(
    num_documents: int = 200_000, num_dimensions: int = 65_536, document_nonzeros: int = 116,
    query_nonzeros: int = 21, num_queries: int = 100, top_k: int = 10, rounds: int = 6,
) -> list[Table]:  # fmt: skip
    """Measure the latency of a query under filters, and the time that a filter takes once."""
    Q = zipf_collection(num_queries, num_dimensions, query_nonzeros, seed=1)
    engine = ExactEngine.build(zipf_collection(num_documents, num_dimensions, document_nonzeros, 0))
    queries = [Q[[n]] for n in range(num_queries)]
    values = np.random.default_rng(2).integers(0, RANGE, num_documents).tolist()
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        with FieldWriter(Path(folder) / "fields") as writer:
            for document, i in enumerate(values):
                known = {"number": i, "sorted": document, "tag": [f"t{i % 7}", "all"]}
                writer.append(str(document), known)
        columns = FieldColumns(Path(folder) / "fields", num_documents)
        plain = [engine.search(query, num_documents)[0] for query in queries]
        for share in SHARES:
            lines.append(
                _row(
                    engine, queries, plain, columns, f"number < {RANGE * share:.0f}", top_k, rounds
                )
            )
        few = f"sorted < {num_documents // 10}"
        lines.append(_row(engine, queries, plain, columns, few, top_k, rounds))
        lines.append(_row(engine, queries, plain, columns, "tag in ['t1', 't2']", top_k, rounds))
    heading = [
        f"filter, {num_documents:,} documents",
        "pass",
        "median",
        "time / no filter",
        "filter, once",
    ]
    return [Table("filters", heading, lines)]


def _row(
    engine: ExactEngine,
    queries: Sequence[sp.csr_array],
    plain: Sequence[tuple[Integers, Floats]],
    columns: FieldColumns,
    text: str,
    top_k: int,
    rounds: int,
) -> list[str]:
    """Return a row of the table, once results are checked against those of no filter."""
    once = median(
        seconds(lambda: Mask(matching(parse(text), columns)).by_segment) for _ in range(rounds)
    )
    mask = Mask(matching(parse(text), columns))
    for query, (documents, scores) in zip(queries, plain, strict=True):
        hits, own = engine.search(query, top_k, threads=1, mask=mask)[0]
        allowed = mask.allowed[documents]
        np.testing.assert_array_equal(hits, documents[allowed][:top_k])
        np.testing.assert_array_equal(own, scores[allowed][:top_k])
    times: dict[Mask | None, list[float]] = {None: [], mask: []}
    for i in range(rounds):
        for query in queries:
            # Both find its postings in the processor's cache.
            engine.search(query, top_k, threads=1)
            for one in sorted(times, key=id, reverse=i % 2 == 1):
                searched = partial(engine.search, query, top_k, threads=1, mask=one)
                times[one].append(seconds(searched))
    return [
        f"`{text}`",
        f"{mask.count / engine.num_documents:.2%}",
        f"{1e3 * median(times[mask]):.2f} ms",
        f"{ratio(times[mask], times[None]):.2f} ×",
        f"{1e3 * once:.2f} ms",
    ]
