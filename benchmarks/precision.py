"""Effect of bfloat16: ``python -m benchmarks.precision INDEX DATASET``.

The documents of an index with words and concepts are encoded again in float32 and in bfloat16 by
the index's own model, and both are evaluated on judged queries, which are read in float32.
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
    arguments = parser.parse_args()
    index = IndexReader.open(arguments.index)
    rows = of_documents(index, arguments.dataset)
    columns = ["documents in", "searched", "encoding", "nDCG@10"]
    print(Table("precision", columns, rows).markdown())


if __name__ == "__main__":
    main()
