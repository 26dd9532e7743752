"""Effect of 8-bit weights: ``python -m benchmarks.rounding INDEX DATA``.

INDEX is one of SciFact with words and concepts; DATA holds ``scifact`` and SPLADE-v3's vectors
(``nfcorpus_splade_v3``, ``bert_vocab/vocab.txt``).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import NamedTuple

import scipy.sparse as sp

from benchmarks.common import Table, bytes_per_posting, read_vectors
from benchmarks.effectiveness import ndcg
from lexicept.corpora import Qrel, read_qrels, read_queries
from lexicept.engines import ExactEngine
from lexicept.index.reader import IndexReader


class Case(NamedTuple):
    """Documents and judged queries."""

    name: str
    ids: list[str]
    documents: sp.csr_array
    query_ids: list[str]
    queries: sp.csr_array
    qrels: list[Qrel]


def cases(index: IndexReader, data: Path) -> Iterator[Case]:
    """Yield SciFact by words, concepts and both, and NFCorpus by SPLADE-v3."""
    queries, qrels = list(read_queries(data / "scifact")), list(read_qrels(data / "scifact"))
    texts, names = [query.text for query in queries], [query.id for query in queries]
    weights = index.engine.matrix()
    for vocabulary in ("words", "concepts", None):
        Q = index.query_vectors(texts, vocabulary)
        yield Case(f"SciFact, {vocabulary or 'both'}", list(index.ids), weights, names, Q, qrels)
    folder = data / "nfcorpus_splade_v3"
    ids, X, names, Q, _ = read_vectors(folder, data / "bert_vocab" / "vocab.txt", 0.01)
    yield Case("NFCorpus, SPLADE-v3", ids, X, names, Q, list(read_qrels(folder)))


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rounding", description=__doc__)
    parser.add_argument("index")
    parser.add_argument("data", type=Path)
    arguments = parser.parse_args()
    lines = []
    for case in cases(IndexReader.open(arguments.index), arguments.data):
        engines = [ExactEngine.build(case.documents, weight_bits=bits) for bits in (32, 8)]
        plain, rounded = (
            mean(ndcg(case.query_ids, case.ids, engine.search(case.queries), case.qrels).values())
            for engine in engines
        )
        sizes = [f"{bytes_per_posting(engine):.2f}" for engine in engines]
        cells = [f"{plain:.4f}", f"{rounded:.4f}", f"{rounded - plain:+.4f}"]
        lines.append([case.name, *cells, *sizes])
    columns = ["nDCG@10", "32 bits", "8 bits", "difference", "bytes / posting, 32 bits", "8 bits"]
    print(Table("rounding", columns, lines).markdown())


if __name__ == "__main__":
    main()
