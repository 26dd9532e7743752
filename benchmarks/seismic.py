"""``python -m benchmarks.seismic``: Seismic against the exact engine, on documents with topics.

Seismic groups documents that are alike, so that each is drawn from one of many topics: seven tenths
of its dimensions from 400 of the topic's own, the others from all, Zipf-distributed both. Queries
have topics too. One query at a time, one thread.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

import numpy as np
import scipy.sparse as sp

from benchmarks.common import seconds
from benchmarks.scale import DIMENSIONS, NONZEROS, QUERIES, QUERY_NONZEROS, TOP_K, peak_memory
from lexicept.engines import ExactEngine, seismic
from lexicept.engines.offset_dimension import OffsetDimension

OF_A_TOPIC = 400
"""Number of dimensions of a topic."""

BLOCK = 20_000
"""Number of documents drawn at once."""

LISTS = (100, 200, 400)
CUTS = ((5, 0.9), (8, 0.9), (10, 0.8), (12, 0.7), (QUERY_NONZEROS, 0.5))
"""Values of ``query_cut`` and ``heap_factor``; see ``seismic.SeismicPruning``."""


def zipf(random: np.random.Generator, shape: tuple[int, int], size: int) -> np.ndarray:
    """Draw numbers below ``size``, i with probability ∝ 1 / (i + 1)."""
    cumulative = np.cumsum(1 / np.arange(1, size + 1))
    drawn = np.searchsorted(cumulative / cumulative[-1], random.random(shape))
    return np.minimum(drawn, size - 1)


def draw(topics: np.ndarray, count: int, nonzeros: int, seed: int) -> sp.csr_array:
    """Draw texts about one topic each of [topics, OF_A_TOPIC]: CSR f32 [count, DIMENSIONS]."""
    random = np.random.default_rng(seed)
    topic = random.integers(0, len(topics), count)[:, None]
    own = topics[topic, zipf(random, (count, nonzeros * 98 // 100), OF_A_TOPIC)]
    other = zipf(random, (count, nonzeros), DIMENSIONS)
    columns = np.sort(np.concatenate([own, other], axis=1).astype(np.int32), axis=1)
    order = random.random(columns.shape)
    order[:, 1:][columns[:, 1:] == columns[:, :-1]] = 2.0  # once each, and of those a sample
    kept = order <= np.partition(order, nonzeros - 1, axis=1)[:, nonzeros - 1 : nonzeros]
    weights = np.log1p(random.exponential(2.0, int(kept.sum()))).astype(np.float32)
    indptr = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
    return sp.csr_array((weights, columns[kept], indptr), shape=(count, DIMENSIONS))


def collection(topics: np.ndarray, count: int) -> sp.csr_array:
    """Draw the documents, block by block."""
    blocks = [
        draw(topics, min(BLOCK, count - start), NONZEROS, seed=2 + start)
        for start in range(0, count, BLOCK)
    ]
    return sp.csr_array(sp.vstack(blocks, format="csr"))


def latency(search: Callable[[int], object]) -> str:
    """Return the median and p99 latency of all queries."""
    median, p99 = 1e3 * np.percentile(
        [seconds(partial(search, i)) for i in range(QUERIES)], [50, 99]
    )
    return f"median {median:.2f} ms, p99 {p99:.2f} ms"


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.seismic", description=__doc__)
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--topics", type=int, default=2_000)
    arguments = parser.parse_args()
    random = np.random.default_rng(0)
    topics = random.integers(0, DIMENSIONS, (arguments.topics, OF_A_TOPIC))
    documents = collection(topics, arguments.documents)
    queries = draw(topics, QUERIES, QUERY_NONZEROS, seed=1)
    engine = ExactEngine.build(documents)
    exact = engine.search(queries, TOP_K)
    offset_dimension, extended = OffsetDimension.of(documents, None)
    del documents
    vectors = [v for v in offset_dimension.extend(queries, np.zeros(QUERIES)) if v is not None]
    assert len(vectors) == QUERIES
    for n_postings in LISTS:
        print(f"exact: {latency(lambda row: engine.search(queries[[row]], TOP_K, threads=1))}")
        index = seismic.build_index(extended, n_postings)
        print(f"lists of {n_postings}, {peak_memory():.1f} GB at most so far", flush=True)
        for cut, factor in CUTS:
            pruning = seismic.SeismicPruning(n_postings, cut, factor)
            search = partial(seismic.search, index, top_k=TOP_K, pruning=pruning, threads=1)
            rankings = search(vectors)
            recall = np.mean([
                np.isin(numbers, own).mean()
                for (numbers, _), (own, _) in zip(exact, rankings, strict=True)
            ])  # fmt: skip
            times = latency(lambda row, search=search: search([vectors[row]]))
            print(f"  {cut} dimensions, factor {factor}: recall {recall:.3f}, {times}", flush=True)


if __name__ == "__main__":
    main()
