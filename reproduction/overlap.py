"""The dimensions that translations of documents share (SAE-SPLADE, Table 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from lexicept.corpora import Document, read_documents
from lexicept.errors import InputError
from lexicept.interpretation.pairs import align
from lexicept.models.encoder import Encoder
from lexicept.parallel.shards import Shard
from lexicept.training.config import ValidationSettings
from lexicept.training.validation import RetrievalEvaluator
from lexicept.vectorizers.words import BIGRAM_LANGUAGES, STEMMERS, WordVectorizer
from lexicept.vectors import Floats, Integers, SparseVectors, Vocabulary
from lexicept.weighting import BM25
from reproduction.data import Data, Judged, fetching, judged
from reproduction.jobs import OverlapJob
from reproduction.measuring import Collection, Measurements, measure
from reproduction.trained import models_of


class Texts(NamedTuple):
    """Documents of a language, the same ids in all, and questions to them."""

    documents: Sequence[Document]
    judged: Judged


Languages = Mapping[str, Texts]


def run_overlap(job: OverlapJob, data: Data) -> Measurements:
    """Count the dimensions that all translations of a document share, and search each language."""
    with fetching(job.dataset, data):
        place = Path(data.find(job.dataset))
        languages = {
            language: Texts(
                list(read_documents(place / language))[: job.documents],
                judged(str(place / language), "test", job.queries),
            )
            for language in job.languages
        }
    if job.training is None:
        return _measured(job.dataset, _words(languages))
    parts = [
        _measured(job.dataset, _encoded(Encoder.load(model), languages))
        for _, model in models_of(job.training, data)
    ]
    if not job.training.seeds:
        return parts[0]
    return Measurements.mean_of(dict(zip(job.training.seeds, parts, strict=True)))


def _words(languages: Languages) -> list[Collection]:
    """Count each language's own stems, over one vocabulary, to be weighed by BM25."""
    collections, terms = [], list[str]()
    for language, texts in languages.items():
        known = language in STEMMERS or language in BIGRAM_LANGUAGES
        vectorizer = WordVectorizer(language if known else "en", terms)
        counts = vectorizer.documents([document.text for document in texts.documents])
        queries = vectorizer.queries([query.text for query in texts.judged.queries])
        collections.append(_collection(language, texts, counts, queries))
        terms = vectorizer.terms
    return [replace(collection, weighting=BM25()) for collection in collections]


def _encoded(encoder: Encoder, languages: Languages) -> list[Collection]:
    evaluator, collections = RetrievalEvaluator([], [], [], [], [], ValidationSettings()), []
    for language, texts in languages.items():
        asked = [query.text for query in texts.judged.queries]
        written = [document.text for document in texts.documents]
        documents = evaluator.encode(encoder, written, "document")
        queries = evaluator.encode(encoder, asked, "query")
        collections.append(_collection(language, texts, documents, queries))
    return collections


def _collection(
    language: str, texts: Texts, documents: sp.csr_array, queries: sp.csr_array
) -> Collection:
    ids = [document.id for document in texts.documents]
    asked = [query.id for query in texts.judged.queries]
    return Collection(language, ids, documents, asked, queries, texts.judged.qrels)


def _measured(dataset: str, collections: Sequence[Collection]) -> Measurements:
    """Measure the dimensions shared by translations, and by as many unrelated documents; as the
    control, the mean effectiveness of searching each language in itself.

    Dimensions of punctuation, or of any text, are shared by all documents: a share beyond chance is
    what translations share more than as many documents, one of each language, that do not
    translate each other.
    """
    vectors = [_vectors(collection) for collection in collections]
    translations, strangers = overlap(vectors), overlap(shifted(vectors))
    mean, std = mean_and_std(translations.shared)
    mean_length, std_length = mean_and_std(translations.lengths)
    share, chance = translations.shares, strangers.shares
    values = {
        "dimensions": float(vectors[-1].weights.shape[1]),
        "mean length": mean_length,
        "std length": std_length,
        "overlap": mean,
        "std overlap": std,
        "share": float(share.mean()),
        "share by chance": float(chance.mean()),
        "share beyond chance": float(np.mean(share - chance)),
    }
    ids, found = vectors[0].ids, _searched(collections)
    values["nDCG@10"] = float(np.mean(list(found.values())))
    by_text = {
        "share": dict(zip(ids, share.tolist(), strict=True)),
        "share beyond chance": dict(zip(ids, (share - chance).tolist(), strict=True)),
        "nDCG@10": found,
    }
    return Measurements(
        {f"{dataset} {name}": value for name, value in values.items()},
        {f"{dataset} {name}": value for name, value in by_text.items()},
    )


def _vectors(collection: Collection) -> SparseVectors:
    (weights,) = Shard((collection.documents,)).load()
    return SparseVectors(weights, collection.document_ids, [Vocabulary("", weights.shape[1])])


def _searched(collections: Sequence[Collection]) -> dict[str, float]:
    """Return the nDCG@10 of ``<language>/<query>``, each searched in its own language."""
    found: dict[str, float] = {}
    for collection in collections:
        measurements = Measurements()
        measure(collection, measurements)
        by_query = measurements.per_query[f"{collection.name} nDCG@10"]
        found |= {f"{collection.name}/{query}": value for query, value in by_query.items()}
    return found


@dataclass(frozen=True)
class Overlap:
    """Active dimensions of N documents in several languages."""

    shared: Integers
    """Number of dimensions active in every language's version of a document [N]."""
    lengths: Integers
    """Number of active dimensions of each version [languages, N]."""

    @property
    def shares(self) -> Floats:
        """Shared dimensions over the mean length of a document's versions [N]; 0 where all are
        empty."""
        lengths = self.lengths.mean(axis=0)
        shares: Floats = np.divide(
            self.shared, lengths, out=np.zeros(len(lengths)), where=lengths > 0
        )
        return shares


def overlap(collections: Sequence[SparseVectors]) -> Overlap:
    """Count the dimensions that are above 0 in all translations of a document.

    Args:
        collections: one for each language, with the same ids in any order, over one vocabulary;
            where that grew from one to the next, the earlier ones are narrower.

    Raises:
        InputError: no collections, or ids that differ.
    """
    matrices = align(collections)
    width = max(matrix.shape[1] for matrix in matrices)
    shared = _ones(matrices[0], width)
    for matrix in matrices[1:]:
        shared = shared.multiply(_ones(matrix, width)).tocsr()
    lengths = np.stack([np.diff(matrix.indptr) for matrix in matrices])
    return Overlap(np.diff(shared.indptr), lengths)


def shifted(collections: Sequence[SparseVectors]) -> list[SparseVectors]:
    """Return collections under the same ids whose documents do not translate each other.

    Those of L languages are moved by 0, N // L, 2 (N // L), ... documents, as neighbours may be of
    one article.

    Raises:
        InputError: no collections, ids that differ, or fewer documents than languages.
    """
    matrices, ids = align(collections), collections[0].ids
    step = len(ids) // len(matrices)
    if not step:
        raise InputError(f"{len(matrices)} languages need as many documents, not {len(ids)}")
    orders = [np.roll(np.arange(len(ids)), number * step) for number in range(len(matrices))]
    return [
        SparseVectors(matrix[order], ids, collection.vocabularies)
        for matrix, order, collection in zip(matrices, orders, collections, strict=True)
    ]


def _ones(matrix: sp.csr_array, width: int) -> sp.csr_array:
    ones = np.ones(matrix.nnz, np.int8)
    return sp.csr_array((ones, matrix.indices, matrix.indptr), shape=(matrix.shape[0], width))


def mean_and_std(counts: Integers) -> tuple[float, float]:
    """Return the mean of counts and their standard deviation (divided by N); 0 without any."""
    return (float(counts.mean()), float(counts.std())) if counts.size else (0.0, 0.0)
