"""What lexicept is compared with: BM25, a dense model and their sum. Its weight is fixed, and
nothing is trained."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from benchmarks.judged import Collection, System
from lexicept.corpora import Query
from lexicept.encoding.sources import DEFAULT_BACKBONE
from lexicept.index.builder import Contents
from lexicept.index.reader import IndexReader
from lexicept.progress import ProgressLine
from lexicept.training.ranking.neural_teachers import embeddings
from lexicept.vectors import Floats, Integers

COSINE = 20.0
"""Weight of the cosine beside BM25."""

BATCH = 64


def baselines(collection: Collection, work: Path) -> list[System]:
    """Measure BM25, the dense model and their sum."""
    index = collection.index
    runs: dict[str, dict[str, dict[str, float]]] = {
        name: {} for name in ("BM25", "dense MiniLM", f"BM25 + {COSINE:g} cos")
    }
    everything = np.arange(len(index))
    for query, words, cosines in scored(collection, work):
        ranked = (
            best(index, np.flatnonzero(words > 0), words[words > 0]),
            best(index, everything, cosines),
            best(index, everything, words + COSINE * cosines),
        )
        for run, result in zip(runs.values(), ranked, strict=True):
            run[query.id] = result
    return [System.of_run(name, collection.qrels, run) for name, run in runs.items()]


def scored(
    collection: Collection, work: Path, model: str = DEFAULT_BACKBONE
) -> Iterator[tuple[Query, Floats, Floats]]:
    """Yield each query with the BM25 scores and a model's cosines of all documents [N]."""
    index, texts = collection.index, collection.texts
    with ProgressLine() as progress:
        asked, documents = embeddings(
            model, texts, Contents(index.folder), work / "embeddings", progress
        )
    # Half precision is slow to multiply.
    by_dimension = documents.astype(np.float32).T
    words = index.query_vectors(texts, "words")[:, index.span("words")]
    transposed = sp.csr_array(index.document_vectors().select("words").weights.T)
    for start in range(0, len(texts), BATCH):
        part = slice(start, start + BATCH)
        scores = (words[part] @ transposed).toarray()
        cosines = asked[part].astype(np.float32) @ by_dimension
        yield from zip(collection.queries[part], scores, cosines, strict=True)


def best(index: IndexReader, rows: Integers, scores: Floats) -> dict[str, float]:
    """Return the ten documents with the largest scores."""
    order = np.argsort(-scores, kind="stable")[:10]
    return {index.ids[int(rows[place])]: float(scores[place]) for place in order}
