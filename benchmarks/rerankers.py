"""What lexicept is compared with: BM25, a dense model, late interaction over its token states, and
sums of these. Their weights are fixed, and nothing is trained."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from benchmarks.judged import Collection, System
from lexicept.corpora import Query
from lexicept.index.builder import Contents
from lexicept.index.reader import IndexReader
from lexicept.models.backbone import Backbone
from lexicept.models.cached_states import CachedStates
from lexicept.models.sources import DEFAULT_BACKBONE
from lexicept.progress import ProgressLine
from lexicept.training.candidates.late_interaction import LateInteraction
from lexicept.training.candidates.neural_teachers import embeddings
from lexicept.vectors import Floats, Integers

COSINE, MAX_SIM = 20.0, 100.0
"""Weights of the cosine and of MaxSim beside BM25."""

CANDIDATES = 100
"""Documents that BM25 finds, and that the cosine finds, for MaxSim to rank; others come last."""

MAX_TOKENS = 256
"""Tokens of a text that MaxSim compares, the dense model's own limit."""

BATCH = 64


def baselines(collection: Collection, work: Path) -> list[System]:
    """Measure BM25, the dense model, MaxSim of its token states, and sums of these."""
    index = collection.index
    late = late_interaction(collection, work)
    runs: dict[str, dict[str, dict[str, float]]] = {
        name: {}
        for name in (
            "BM25",
            "dense MiniLM",
            f"BM25 + {COSINE:g} cos",
            "MaxSim re-ranking",
            f"BM25 + {COSINE:g} cos + {MAX_SIM:g} MaxSim",
        )
    }
    everything = np.arange(len(index))
    for row, (query, words, cosines) in enumerate(scored(collection, work)):
        candidates = found(words, cosines)
        similarities = late.scores([row], candidates.tolist()).numpy()[0]
        both = words + COSINE * cosines
        ranked = (
            best(index, np.flatnonzero(words > 0), words[words > 0]),
            best(index, everything, cosines),
            best(index, everything, both),
            best(index, candidates, similarities),
            best(index, candidates, both[candidates] + MAX_SIM * similarities),
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


def late_interaction(collection: Collection, work: Path) -> LateInteraction:
    """Read the token states of queries and documents, which ``work`` keeps."""
    backbone = Backbone.from_pretrained(DEFAULT_BACKBONE)
    backbone.cut(MAX_TOKENS, MAX_TOKENS)
    with ProgressLine() as progress:
        asked, documents = (
            CachedStates.build(work / "states", backbone, texts, progress)
            for texts in (collection.texts, Contents(collection.index.folder))
        )
    return LateInteraction(asked, documents, (MAX_TOKENS, MAX_TOKENS))


def found(words: Floats, cosines: Floats) -> Integers:
    """Return the rows of the candidates, in order: the best by BM25, of those that it finds, and
    by the cosine."""
    by_words = np.argsort(-words, kind="stable")[:CANDIDATES]
    by_cosine = np.argsort(-cosines, kind="stable")[:CANDIDATES]
    return np.union1d(by_words[words[by_words] > 0], by_cosine)


def best(index: IndexReader, rows: Integers, scores: Floats) -> dict[str, float]:
    """Return the ten documents with the largest scores."""
    order = np.argsort(-scores, kind="stable")[:10]
    return {index.ids[int(rows[place])]: float(scores[place]) for place in order}
