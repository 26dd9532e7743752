"""``python -m benchmarks.baselines``: BM25, a dense model, and their fusion tuned on one split."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from benchmarks.common import Table
from lexicept.corpora import Qrel, read_documents, read_qrels, read_queries
from lexicept.encoding.sources import DEFAULT_BACKBONE
from lexicept.evaluation import effectiveness
from lexicept.progress import ProgressLine
from lexicept.training.ranking.collection import open_corpus
from lexicept.training.ranking.neural_teachers import embeddings

WEIGHTS = (0.0, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 60.0, 80.0, 120.0)
"""Weights of the cosine in the fusion with BM25."""

BATCH = 256


class Scores:
    """BM25 and cosines of one split's queries and a collection's documents."""

    def __init__(self, corpus: str, queries: str, split: str, work: Path) -> None:
        judged = list(read_queries(queries, split))
        texts = [document.content for document in read_documents(corpus)]
        with ProgressLine() as progress:
            prefix = f"{Path(corpus).name}."
            index = open_corpus(corpus, work, progress, words=True, prefix=prefix).words
            self.dense = embeddings(
                DEFAULT_BACKBONE,
                [query.text for query in judged],
                texts,
                work / "embeddings",
                progress,
            )
        self.words = (
            index.query_vectors([query.text for query in judged]),
            sp.csr_array(index.document_vectors().weights),
        )
        self.ids = ([query.id for query in judged], index.ids)
        self.qrels: Sequence[Qrel] = list(read_qrels(queries, split))

    def ndcg(self, words: float, dense: float) -> float:
        """Return the nDCG@10 of a weighted sum."""
        run = {}
        transposed = self.words[1].T.tocsr()
        for start in range(0, len(self.ids[0]), BATCH):
            batch = slice(start, start + BATCH)
            scores = words * (self.words[0][batch] @ transposed).toarray()
            if dense:
                cosines = self.dense[0][batch].astype(np.float32) @ self.dense[1].T.astype(
                    np.float32
                )
                scores = scores + dense * cosines
            best = np.argsort(-scores, axis=1, kind="stable")[:, :10]
            for i, query in enumerate(self.ids[0][batch]):
                run[query] = {self.ids[1][d]: float(scores[i, d]) for d in best[i]}
        return effectiveness.evaluate(self.qrels, run, ["nDCG@10"])["nDCG@10"]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.baselines", description=__doc__)
    parser.add_argument("--choose", required=True, help="FOLDER:SPLIT to choose the weight on.")
    parser.add_argument("--documents", help="Of the choosing split; those of its FOLDER if not.")
    parser.add_argument("--report", required=True, help="FOLDER:SPLIT to report on.")
    parser.add_argument("--out", type=Path, required=True, help="Words and embeddings go here.")
    arguments = parser.parse_args()
    folder, _, split = arguments.choose.rpartition(":")
    choosing = Scores(arguments.documents or folder, folder, split, arguments.out)
    weight = max(WEIGHTS, key=lambda weight: choosing.ndcg(1.0, weight))
    folder, _, split = arguments.report.rpartition(":")
    report = Scores(folder, folder, split, arguments.out)
    lines = [
        [name, f"{choosing.ndcg(*weights):.4f}", f"{report.ndcg(*weights):.4f}"]
        for name, weights in (
            ("BM25", (1.0, 0.0)),
            ("dense MiniLM", (0.0, 1.0)),
            (f"BM25 + {weight:g} · cosine", (1.0, weight)),
        )
    ]
    print(Table("baselines", ["", arguments.choose, arguments.report], lines).markdown())


if __name__ == "__main__":
    main()
