"""The dimensions that translations of documents share (SAE-SPLADE, Table 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from lexicept.analysis.overlap import mean_and_std, overlap, shifted
from lexicept.corpora import Document, read_documents
from lexicept.experiments.data import Data, fetching
from lexicept.experiments.jobs import OverlapJob
from lexicept.experiments.measuring import Measurements
from lexicept.experiments.trained import models_of
from lexicept.models.encoder import Encoder
from lexicept.progress import Progress
from lexicept.training.config import ValidationSettings
from lexicept.training.validation import RetrievalEvaluator
from lexicept.vectorizers.words import BIGRAM_LANGUAGES, STEMMERS, WordVectorizer
from lexicept.vectors import SparseVectors, Vocabulary

Collections = Mapping[str, Sequence[Document]]
"""Documents by language, the same ids in all."""


def run_overlap(job: OverlapJob, data: Data, work: Path, progress: Progress) -> Measurements:
    """Count the dimensions that all translations of a document share."""
    with fetching(job.dataset, data):
        place = Path(data.find(job.dataset))
        collections = {
            language: list(read_documents(place / language))[: job.documents]
            for language in job.languages
        }
    if job.training is None:
        return _measured(job.dataset, _words(collections))
    parts = [
        _measured(job.dataset, _encoded(Encoder.load(model), collections))
        for _, model in models_of(job.training, data, work, progress)
    ]
    if not job.training.seeds:
        return parts[0]
    return Measurements.mean_of(dict(zip(job.training.seeds, parts, strict=True)))


def _words(collections: Collections) -> list[SparseVectors]:
    """Weigh each language's own stems over one vocabulary."""
    vectors, terms = [], list[str]()
    for language, documents in collections.items():
        known = language in STEMMERS or language in BIGRAM_LANGUAGES
        vectorizer = WordVectorizer(language if known else "en", terms)
        vectors.append(_vectors(documents, vectorizer.documents([d.text for d in documents])))
        terms = vectorizer.terms
    return vectors


def _encoded(encoder: Encoder, collections: Collections) -> list[SparseVectors]:
    evaluator = RetrievalEvaluator([], [], [], [], [], ValidationSettings())
    return [
        _vectors(documents, evaluator.encode(encoder, [d.text for d in documents], "document"))
        for documents in collections.values()
    ]


def _vectors(documents: Sequence[Document], weights: object) -> SparseVectors:
    size = weights.shape[1]  # type: ignore[attr-defined]
    return SparseVectors(weights, [document.id for document in documents], [Vocabulary("", size)])


def _measured(dataset: str, collections: Sequence[SparseVectors]) -> Measurements:
    """Return what translations share, and how much more that is than other documents share.

    Dimensions of punctuation, or of any text, are shared by all documents: a share beyond chance is
    what translations share more than as many documents, one of each language, that do not
    translate each other.
    """
    translations, strangers = overlap(collections), overlap(shifted(collections))
    mean, std = mean_and_std(translations.shared)
    mean_length, std_length = mean_and_std(translations.lengths)
    share, chance = translations.shares, strangers.shares
    values = {
        "dimensions": float(collections[-1].weights.shape[1]),
        "mean length": mean_length,
        "std length": std_length,
        "overlap": mean,
        "std overlap": std,
        "share": float(share.mean()),
        "share by chance": float(chance.mean()),
        "share beyond chance": float(np.mean(share - chance)),
    }
    ids = collections[0].ids
    by_document = {
        f"{dataset} share": dict(zip(ids, share.tolist(), strict=True)),
        f"{dataset} share beyond chance": dict(zip(ids, (share - chance).tolist(), strict=True)),
    }
    named = {f"{dataset} {name}": value for name, value in values.items()}
    return Measurements(named, by_document)
