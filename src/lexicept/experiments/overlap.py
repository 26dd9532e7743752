"""The dimensions that translations of documents share (SAE-SPLADE, Table 7)."""

from __future__ import annotations

from pathlib import Path

from lexicept.analysis.overlap import mean_and_std, overlap
from lexicept.corpora import read_documents
from lexicept.experiments.data import Data, fetching
from lexicept.experiments.jobs import OverlapJob
from lexicept.experiments.measuring import Measurements
from lexicept.experiments.trained import located, trained
from lexicept.models.encoder import Encoder
from lexicept.progress import Progress
from lexicept.training.config import ValidationSettings
from lexicept.training.validation import RetrievalEvaluator
from lexicept.vectorizers.words import BIGRAM_LANGUAGES, STEMMERS, WordVectorizer
from lexicept.vectors import SparseVectors, Vocabulary


def run_overlap(job: OverlapJob, data: Data, work: Path, progress: Progress) -> Measurements:
    """Dimensions that all translations of a document share."""
    with fetching(job.dataset, data):
        place = Path(data.find(job.dataset))
        collections = {
            language: list(read_documents(place / language))[: job.documents]
            for language in job.languages
        }
    encoder = None
    if job.model is not None:
        encoder = Encoder.load(trained(located(job.model, data), work, progress))
    vectors, terms = [], list[str]()
    for language, documents in collections.items():
        texts = [document.text for document in documents]
        if encoder is None:
            known = language in STEMMERS or language in BIGRAM_LANGUAGES
            vectorizer = WordVectorizer(language if known else "en", terms)
            weights = vectorizer.documents(texts)
            terms = vectorizer.terms
        else:
            none = RetrievalEvaluator([], [], [], [], [], ValidationSettings())
            weights = none.encode(encoder, texts, "document")
        names = [document.id for document in documents]
        vectors.append(SparseVectors(weights, names, [Vocabulary("", weights.shape[1])]))
    translations = overlap(vectors)
    mean, std = mean_and_std(translations.shared)
    mean_length, std_length = mean_and_std(translations.lengths)
    values = {
        "dimensions": float(vectors[-1].weights.shape[1]),
        "mean length": mean_length,
        "std length": std_length,
        "overlap": mean,
        "std overlap": std,
        "share": mean / mean_length if mean_length else 0.0,
    }
    return Measurements({f"{job.dataset} {name}": value for name, value in values.items()})
