"""Effect of encoding documents in bfloat16: ``python -m benchmarks.precision INDEX DATASET``.

The documents of an index with words and concepts are encoded again in float32 and in bfloat16 by
the index's own model, and both are evaluated on judged queries, which are always read in float32.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import scipy.sparse as sp

from benchmarks.common import Table
from lexicept.corpora import read_qrels, read_queries
from lexicept.evaluation import effectiveness, significance
from lexicept.index.impacts import Derived
from lexicept.index.reader import IndexReader

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


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.precision", description=__doc__)
    parser.add_argument("index")
    parser.add_argument("dataset")
    arguments = parser.parse_args()
    index = IndexReader.open(arguments.index)
    texts = [document.content for document in index.documents()]
    queries = list(read_queries(arguments.dataset, "test"))
    qrels = list(read_qrels(arguments.dataset, "test"))
    rows, values = [], {}
    for precision in ("float32", "bfloat16"):
        tf, took = encoded(index, texts, precision)
        for vocabulary in ("concepts", None):
            matrices = [
                tf if v.name == "concepts" else stored
                for v, stored in zip(index.vocabularies, index.tf(), strict=True)
            ]
            derived = Derived.compute(matrices, list(index.settings.values()), None)
            Q = index.query_vectors([query.text for query in queries], vocabulary)
            run = {
                query.id: {index.ids[n]: float(s) for n, s in zip(*ranking, strict=True)}
                for query, ranking in zip(queries, derived.engine.search(Q, 100), strict=True)
            }
            ndcg = effectiveness.evaluate_queries(qrels, run, ["nDCG@10"])["nDCG@10"]
            values[precision, vocabulary] = ndcg
            rows.append([precision, vocabulary or "both", f"{took:.0f} s",
                         f"{sum(ndcg.values()) / len(ndcg):.4f}"])  # fmt: skip
    print(Table("precision", ["documents in", "searched", "encoding", "nDCG@10"], rows).markdown())
    for vocabulary in ("concepts", None):
        pair = values["bfloat16", vocabulary], values["float32", vocabulary]
        print(vocabulary or "both", significance.paired_t_test(*pair))


if __name__ == "__main__":
    main()
