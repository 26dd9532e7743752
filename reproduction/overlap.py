"""The dimensions shared by translations of documents (SAE-SPLADE, Table 7)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from transformers import AutoTokenizer

from lexicept.corpora import Document, read_documents
from lexicept.encoding.words import BIGRAM_LANGUAGES, STEMMERS, WordVectorizer
from lexicept.errors import InputError
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.heads.sae import SAEHead
from lexicept.neural.sae.cached_states import CachedStates
from lexicept.neural.vectorizers.concepts import BackboneSettings, ConceptVectorizer
from lexicept.training.ranking.validation import encode, pooled
from lexicept.vectors import Floats, Integers, SparseVectors, Vocabulary
from lexicept.weighting import BM25
from reproduction.data import Data, Judged, fetching, judged
from reproduction.jobs import OverlapJob, PublishedLatents
from reproduction.measuring import Collection, Measurements, measure, pruned
from reproduction.pairs import align
from reproduction.trained import models_of


class Texts(NamedTuple):
    """Documents of a language, with the same ids in all languages, and questions."""

    documents: Sequence[Document]
    judged: Judged

    @property
    def contents(self) -> list[str]:
        return [document.text for document in self.documents]

    def collection(
        self, language: str, documents: sp.csr_array, queries: sp.csr_array
    ) -> Collection:
        ids = [document.id for document in self.documents]
        return Collection(language, ids, documents, self.judged.ids, queries, self.judged.qrels)


Languages = Mapping[str, Texts]


def run_overlap(job: OverlapJob, data: Data) -> Measurements:
    """Count the dimensions shared by all translations of a document, and search each language."""
    with fetching(job.dataset, data):
        place = Path(data.find(job.dataset))
        languages = {
            language: Texts(
                list(read_documents(place / language)),
                judged(str(place / language), "test", job.queries),
            )
            for language in job.languages
        }
    systems: Iterator[list[Collection]]
    if job.training is not None:
        models = models_of(job.training, data)
        systems = (_encoded(Encoder.load(model.path), languages) for model in models)
        seeds: Sequence[int] = job.training.seeds
    elif job.latents is not None:
        systems, seeds = _latents(job.latents, languages, data), job.latents.untrained
    elif job.subwords is not None:
        systems, seeds = iter([_subwords(data.place(job.subwords), languages)]), ()
    else:
        systems, seeds = iter([_words(languages)]), ()
    limit = job.document_max_active_dims
    measured = [
        _measured(job.dataset, [pruned(collection, None, limit) for collection in system])
        for system in systems
    ]
    return Measurements.mean_of(dict(zip(seeds, measured, strict=True))) if seeds else measured[0]


def _words(languages: Languages) -> list[Collection]:
    """Count each language's own stems, over one vocabulary, to be weighed by BM25."""
    collections, terms = [], list[str]()
    for language, texts in languages.items():
        has_stemmer = language in STEMMERS or language in BIGRAM_LANGUAGES
        vectorizer = WordVectorizer(language if has_stemmer else "en", terms)
        counts = vectorizer.documents(texts.contents)
        queries = vectorizer.queries(texts.judged.texts)
        collections.append(texts.collection(language, counts, queries))
        terms = vectorizer.terms
    return [replace(collection, weighting=BM25()) for collection in collections]


def _subwords(model: str, languages: Languages) -> list[Collection]:
    """Count the tokens of a model's tokenizer, to be weighed by BM25."""
    tokenizer = AutoTokenizer.from_pretrained(model)

    def counts(texts: Sequence[str]) -> sp.csr_array:
        ids = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
        numbers = np.repeat(np.arange(len(ids)), [len(each) for each in ids])
        places = (numbers, np.concatenate(ids).astype(np.int64))
        ones = np.ones(len(numbers), np.float32)
        return sp.csr_array(sp.coo_array((ones, places), shape=(len(ids), len(tokenizer))))

    return [
        replace(
            texts.collection(language, counts(texts.contents), counts(texts.judged.texts)),
            weighting=BM25(),
        )
        for language, texts in languages.items()
    ]


def _latents(
    settings: PublishedLatents, languages: Languages, data: Data
) -> Iterator[list[Collection]]:
    """Yield a published SAE's activations of each language, or those of random rows."""
    backbone = BackboneSettings(data.place(settings.backbone))
    published = ConceptVectorizer.pretrained(data.place(settings.sae), backbone)
    encoder, head = published.encoder, published.head
    assert isinstance(head, SAEHead)
    head.configure(query_k=settings.k, document_k=settings.k, pooling="sqrt_sum")

    def states(texts: Sequence[str], task: str) -> CachedStates:
        texts = [encoder.prompt(task) + text for text in texts]
        return CachedStates.build(data.work / "states", encoder.backbone, texts, task=task)

    for seed in settings.untrained or (None,):
        if seed is not None:
            rows = torch.randn(head.rows.shape, generator=torch.Generator().manual_seed(seed))
            # The centre and the scale of the states stay as the SAE has them.
            head.sae.W_enc.data = torch.nn.functional.normalize(rows, dim=1)
            head.sae.b_enc.data.zero_()
        collections = []
        for language, texts in languages.items():
            documents = pooled(encoder, states(texts.contents, "document"), "document")
            queries = pooled(encoder, states(texts.judged.texts, "query"), "query")
            collection = texts.collection(language, documents, encoder.weighting.queries(queries))
            collections.append(replace(collection, weighting=encoder.weighting))
        yield collections


def _encoded(encoder: Encoder, languages: Languages) -> list[Collection]:
    return [
        texts.collection(
            language,
            encode(encoder, texts.contents, "document"),
            encode(encoder, texts.judged.texts, "query"),
        )
        for language, texts in languages.items()
    ]


def _measured(dataset: str, collections: Sequence[Collection]) -> Measurements:
    """Measure the dimensions shared by translations, and by as many unrelated documents; as the
    controls, the mean effectiveness of searching each language in itself and in the next one.

    Dimensions of punctuation, or of any text, are shared by all documents: a share beyond chance is
    what translations share more than as many documents, one of each language, that do not
    translate each other.
    """
    vectors = []
    for collection in collections:
        weights = collection.documents
        assert isinstance(weights, sp.csr_array)
        vocabulary = Vocabulary("", weights.shape[1])
        vectors.append(SparseVectors(weights, collection.document_ids, [vocabulary]))
    translations, strangers = overlap(vectors), overlap(shifted(vectors))
    share, beyond_chance = translations.shares, translations.shares - strangers.shares
    ids, gains = vectors[0].ids, _searched(collections)
    nexts = [*collections[1:], collections[0]]
    by_text = {
        "share": dict(zip(ids, share.tolist(), strict=True)),
        "share beyond chance": dict(zip(ids, beyond_chance.tolist(), strict=True)),
        "nDCG@10": gains,
        "across nDCG@10": _searched(list(map(_across, collections, nexts))),
    }
    values = {name: float(np.mean(list(each.values()))) for name, each in by_text.items()}
    values |= {
        "dimensions": float(vectors[-1].weights.shape[1]),
        "mean length": float(translations.lengths.mean()),
        "std length": float(translations.lengths.std()),
        "overlap": float(translations.shared.mean()),
        "std overlap": float(translations.shared.std()),
        "share by chance": float(strangers.shares.mean()),
    }
    return Measurements(
        {f"{dataset} {name}": value for name, value in values.items()},
        {f"{dataset} {name}": value for name, value in by_text.items()},
    )


def _searched(collections: Sequence[Collection]) -> dict[str, float]:
    """Return the nDCG@10 of ``<language>/<query>``, each searched in the query's language."""
    gains: dict[str, float] = {}
    for collection in collections:
        measurements = Measurements()
        measure(collection, measurements)
        by_query = measurements.per_query[f"{collection.name} nDCG@10"]
        gains |= {f"{collection.name}/{query}": value for query, value in by_query.items()}
    return gains


def _across(questions: Collection, documents: Collection) -> Collection:
    """Return a language's questions with another language's documents, of the same ids."""
    weights = documents.documents
    assert isinstance(weights, sp.csr_array)
    width = max(weights.shape[1], questions.queries.shape[1])
    return replace(
        questions,
        name=f"{questions.name}-{documents.name}",
        documents=_widened(weights, width),
        queries=_widened(questions.queries, width),
    )


def _widened(matrix: sp.csr_array, width: int) -> sp.csr_array:
    shape = (matrix.shape[0], width)
    return sp.csr_array((matrix.data, matrix.indices, matrix.indptr), shape=shape)


@dataclass(frozen=True)
class Overlap:
    """Active dimensions of N documents in several languages."""

    shared: Integers
    """Number of dimensions active in every language's version of a document [N]."""
    lengths: Integers
    """Number of active dimensions of each version [languages, N]."""

    @property
    def shares(self) -> Floats:
        """Shared dimensions over the mean length of a document's versions [N]; 0 if all are
        empty."""
        shares: Floats = self.shared / np.maximum(self.lengths.mean(axis=0), 1e-9)
        return shares


def overlap(collections: Sequence[SparseVectors]) -> Overlap:
    """Count the dimensions above 0 in all translations of a document.

    Args:
        collections: a collection for each language, with the same ids in any order, over the same
            vocabulary; earlier collections may be narrower than later ones.

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

    Collections of L languages are moved by 0, N // L, 2 (N // L), ... documents, as neighbours may
    be of the same article.

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
