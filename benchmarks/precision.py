"""Effect of bfloat16: ``python -m benchmarks.precision INDEX DATASET [--queries]``.

The documents of an index with words and concepts are encoded again in float32 and in bfloat16 by
the index's own model, and both are evaluated on judged queries, which are read in float32. With
``--queries`` the judged queries are read in both, one at a time, and the documents are those of the
index.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence

import scipy.sparse as sp

from benchmarks.common import Table
from lexicept.corpora import Query, read_qrels, read_queries
from lexicept.evaluation import effectiveness, significance
from lexicept.index.impacts import Derived
from lexicept.index.reader import IndexReader
from lexicept.ops.compiled import call_kernels
from lexicept.vectors import Floats, Integers

PRECISIONS = ("float32", "bfloat16")

SHARD = 512
"""Number of documents encoded together, as in a build."""


def encoded(index: IndexReader, texts: Sequence[str], precision: str) -> tuple[sp.csr_array, float]:
    """Encode all documents; return the concepts' tf [N, V] and the seconds."""
    concepts = index.vectorizer("concepts")
    concepts.encoder.backbone.precision = precision
    start, shards = time.perf_counter(), []
    for first in range(0, len(texts), SHARD):
        shards.append(concepts.documents(texts[first : first + SHARD]))
        print(f"{precision} {first + SHARD:,} of {len(texts):,}", flush=True)
    return sp.csr_array(sp.vstack(shards, format="csr")), time.perf_counter() - start


def of_documents(index: IndexReader, dataset: str) -> list[Sequence[str]]:
    """Return a row for each precision of the documents and each choice of vocabularies."""
    texts = [document.content for document in index.documents()]
    queries = list(read_queries(dataset, "test"))
    rows: list[Sequence[str]] = []
    values = {}
    for precision in PRECISIONS:
        tf, took = encoded(index, texts, precision)
        for vocabulary in ("concepts", None):
            matrices = [
                tf if v.name == "concepts" else stored
                for v, stored in zip(index.vocabularies, index.tf(), strict=True)
            ]
            derived = Derived.compute(matrices, list(index.settings.values()), None)
            Q = index.query_vectors([query.text for query in queries], vocabulary)
            found = derived.engine.search(Q, 100)
            ndcg = values[precision, vocabulary] = judged(index, dataset, queries, found)
            rows.append([precision, vocabulary or "both", f"{took:.0f} s", mean(ndcg)])
    for vocabulary in ("concepts", None):
        compare(vocabulary, values["bfloat16", vocabulary], values["float32", vocabulary])
    return rows


def of_queries(index: IndexReader, dataset: str) -> list[Sequence[str]]:
    """Return a row for each precision of the queries and each choice of vocabularies."""
    call_kernels()
    queries = list(read_queries(dataset, "test"))
    rows: list[Sequence[str]] = []
    values, best = {}, {}
    for precision in PRECISIONS:
        index = IndexReader.open(index.path)
        index.vectorizers.query_precision = precision
        index.query_vectors([queries[0].text])
        for vocabulary in ("concepts", None):
            start = time.process_time()
            vectors = [index.query_vectors([query.text], vocabulary) for query in queries]
            took = (time.process_time() - start) / len(queries)
            found = index.engine.search(sp.csr_array(sp.vstack(vectors, format="csr")), 100)
            ndcg = values[precision, vocabulary] = judged(index, dataset, queries, found)
            best[precision, vocabulary] = [set(numbers[:10].tolist()) for numbers, _ in found]
            rows.append([precision, vocabulary or "all", f"{1000 * took:.1f} ms", mean(ndcg)])
    for vocabulary in ("concepts", None):
        pairs = zip(*(best[precision, vocabulary] for precision in PRECISIONS), strict=True)
        same = [len(a & b) / len(a) for a, b in pairs if a]
        print(vocabulary or "all", f"of the ten best the same: {sum(same) / len(same):.4f}")
        compare(vocabulary, values["bfloat16", vocabulary], values["float32", vocabulary])
    return rows


def judged(
    index: IndexReader,
    dataset: str,
    queries: Sequence[Query],
    found: Sequence[tuple[Integers, Floats]],
) -> dict[str, float]:
    """Return nDCG@10 of each query."""
    run = {
        query.id: {index.ids[n]: float(s) for n, s in zip(*ranking, strict=True)}
        for query, ranking in zip(queries, found, strict=True)
    }
    qrels = list(read_qrels(dataset, "test"))
    return effectiveness.evaluate_queries(qrels, run, ["nDCG@10"])["nDCG@10"]


def mean(values: Mapping[str, float]) -> str:
    """Return the mean over queries."""
    return f"{sum(values.values()) / len(values):.4f}"


def compare(vocabulary: str | None, low: Mapping[str, float], exact: Mapping[str, float]) -> None:
    """Print a paired test of two precisions."""
    print(vocabulary or "all", significance.paired_t_test(low, exact))


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.precision", description=__doc__)
    parser.add_argument("index")
    parser.add_argument("dataset")
    parser.add_argument("--queries", action="store_true", help="compare precisions of queries")
    arguments = parser.parse_args()
    index = IndexReader.open(arguments.index)
    rows = (of_queries if arguments.queries else of_documents)(index, arguments.dataset)
    what = "queries" if arguments.queries else "documents"
    print(Table("precision", [f"{what} in", "searched", "encoding", "nDCG@10"], rows).markdown())


if __name__ == "__main__":
    main()
