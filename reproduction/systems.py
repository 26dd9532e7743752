"""Systems without training: BM25, published sparse vectors, encoders from the hub."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from lexicept.corpora import read_qrels
from lexicept.errors import InputError
from lexicept.parallel.shards import Shard
from lexicept.rra import Dialogue, converse, hear, read
from lexicept.storage.files import fingerprint
from lexicept.training.ranking.collection import Corpus
from lexicept.vectors import Floats, row_numbers
from lexicept.weighting import BM25
from reproduction.alpha import QUERY_SHARE, KnownItems
from reproduction.data import Data, MissingDataError, fetching, judged
from reproduction.jobs import DatasetSettings, EffectJob, RetrievalJob, RRAChoice
from reproduction.measuring import Collection, JudgedVectors, Measurements, measure
from reproduction.sentences import from_texts
from reproduction.stored import Vectors, documents_of, encoded_vectors, published_vectors, words_of
from reproduction.vector_queries import from_vectors

BATCH = 1024
"""Texts that a hub's encoder reads at once."""

FREQUENT = 20
"""Number of the most frequent dimensions, whose mean rank RRA's effect is measured by."""

Encode = Callable[[Sequence[str]], sp.csr_array]
"""Texts → vectors [n, V]."""


def run_retrieval(job: RetrievalJob, data: Data) -> Measurements:
    """Measure every dataset in turn.

    Raises:
        MissingDataError: a dataset or model that is missing.
    """
    measurements = Measurements()
    encoder = None if job.model is None else load_hub_encoder(data.place(job.model))
    limit = job.document_max_active_dims
    for number, dataset in enumerate(job.datasets):
        data.progress("datasets", number, len(job.datasets), dataset.name)
        with fetching(dataset.name, data):
            if job.system == "vectors":
                collection = vectors_collection(job, dataset, data)
            elif job.system == "bm25":
                collection = words_collection(job, dataset, data)
            else:
                collection = _encoded(encoder, job, dataset, data)
        if job.words:
            collection = beside_words(collection, words_collection(job, dataset, data), job.words)
        collection = replace(collection, tau=dataset.tau)
        measure(collection, measurements, job.rra, None, limit)
    if job.mteb:
        from reproduction.mteb_tasks import evaluate_tasks

        name = fingerprint([data.place(str(job.model)), "None", str(limit)])[:16]
        scores = data.work / "mteb" / f"{name}.json"
        measurements.values |= evaluate_tasks(encoder, job.mteb, None, limit, scores, data.progress)
    return measurements


def words_collection(job: RetrievalJob, dataset: DatasetSettings, data: Data) -> Collection:
    """Return a dataset with BM25 weights."""
    source = data.find(dataset.name)
    corpus, tf, vectorizer = words_of(source, dataset.language, data.work, data.progress)
    collection = text_collection(dataset, corpus, tf, vectorizer.queries, job.rra, data)
    return replace(collection, weighting=BM25(0.9, 0.4))


def beside_words(collection: Collection, words: Collection, weight: float) -> Collection:
    """Return a collection of the encoder's dimensions and, after them, of BM25's words."""
    (documents,) = Shard((collection.documents,)).load()
    (counts,) = Shard((words.documents,)).load()
    known_words = words.queries[:, : counts.shape[1]]
    return replace(
        collection,
        documents=sp.csr_array(sp.hstack([documents, words.weighting.documents(counts)], "csr")),
        queries=sp.csr_array(sp.hstack([collection.queries, weight * known_words], "csr")),
    )


def text_collection(
    dataset: DatasetSettings,
    corpus: Corpus,
    documents: Any,
    encode_queries: Encode,
    rra: RRAChoice | None,
    data: Data,
) -> Collection:
    """Return a dataset of texts, from encoded documents [N, V]."""
    source = data.find(dataset.name)
    queries = judged(source, dataset.split, dataset.queries)
    return Collection(
        dataset.title,
        corpus.ids,
        documents,
        queries.ids,
        encode_queries(queries.texts),
        queries.qrels,
        partial(known_items, rra, corpus, encode_queries, data),
        data.ignores_identical_ids(dataset.name),
        partial(judged_vectors, source, encode_queries),
        dataset.tau,
        folder=data.work / "postings",
    )


def judged_vectors(source: str, encode_queries: Encode, split: str) -> JudgedVectors:
    """Return the queries judged in another split, with vectors."""
    queries = judged(source, split)
    return JudgedVectors(queries.ids, encode_queries(queries.texts), queries.qrels)


def known_items(
    rra: RRAChoice | None, corpus: Corpus, encode_queries: Encode, data: Data, count: int
) -> KnownItems:
    """Return known-item queries for RRA's α: half of a sentence each, or the text of a language
    model, stored in ``data.work``."""
    if rra is None or rra.generator is None:
        numbers, texts = from_texts(corpus.contents, count, share=QUERY_SHARE)
        return KnownItems.mismatched(numbers, encode_queries(texts))
    from reproduction.query_generation import generate_known_items

    folder = data.work / "generated"
    folder.mkdir(parents=True, exist_ok=True)
    numbers, texts = generate_known_items(
        data.place(rra.generator), len(corpus.ids), corpus.stored.document, folder, count
    )
    return KnownItems(numbers, encode_queries(texts))


def vectors_of(job: RetrievalJob | EffectJob, name: str, data: Data) -> Vectors:
    """Return the published vectors of a dataset."""
    vocabulary = None if job.vocabulary is None else Path(data.find(job.vocabulary)) / "vocab.txt"
    return published_vectors(Path(data.find(name)), vocabulary, job.weight, data.work)


def vectors_collection(job: RetrievalJob, dataset: DatasetSettings, data: Data) -> Collection:
    """Return a dataset with published vectors; those of documents stay on disk."""
    vectors = vectors_of(job, dataset.name, data)
    qrels = list(read_qrels(data.find(dataset.name), dataset.split))
    judged_ids = {qrel.query_id for qrel in qrels}
    numbers = [number for number, name in enumerate(vectors.query_ids) if name in judged_ids]

    def items(count: int) -> KnownItems:
        documents, queries = from_vectors(vectors.documents.load(), count)
        return KnownItems.mismatched(documents, queries)

    return Collection(
        dataset.title,
        vectors.document_ids,
        vectors.documents,
        [vectors.query_ids[number] for number in numbers],
        sp.csr_array(vectors.queries[numbers]),
        qrels,
        items,
        data.ignores_identical_ids(dataset.name),
        folder=data.work / "postings",
    )


def load_hub_encoder(name: str) -> Any:
    """Load a ``SparseEncoder``, saved by lexicept or by other libraries, or lexicept-mini.

    Raises:
        MissingDataError: it can't be loaded.
    """
    from sentence_transformers import SparseEncoder

    from lexicept.encoding.sources import MINI
    from lexicept.neural.backbones.loading import quiet_transformers
    from lexicept.neural.encoders.encoder import Encoder
    from lexicept.neural.vectorizers.concepts import ConceptVectorizer

    if name == MINI:
        return ConceptVectorizer.load(MINI).encoder
    modules = Path(name) / "modules.json"
    if modules.exists() and "lexicept" in modules.read_text():
        return Encoder.load(name)
    try:
        with quiet_transformers():
            return SparseEncoder(name)
    except Exception as error:  # the hub's libraries raise many kinds
        reason = (" ".join(str(error).split()) or type(error).__name__)[:200]
        how = "a hub's name needs a network; a folder under --data of that name will do too"
        raise MissingDataError(f"model {name} can't be loaded: {reason}. {how}") from None


def _encoded(encoder: Any, job: RetrievalJob, dataset: DatasetSettings, data: Data) -> Collection:
    """Return a dataset encoded by an encoder; all rows share the encoded documents."""
    corpus = documents_of(data.find(dataset.name), data.work)
    place = data.work / "vectors" / fingerprint(chain([str(job.model)], corpus.contents))[:16]
    encode = partial(_encode, encoder.encode_document)
    encode_queries = partial(_encode, encoder.encode_query)
    # The library's get_embedding_dimension is a BERT's width, not its vocabulary.
    size = encode_queries(["size"]).shape[1]
    documents = encoded_vectors(place, corpus.contents, size, encode, data.progress)
    return text_collection(dataset, corpus, documents, encode_queries, job.rra, data)


def _encode(encode: Any, texts: Sequence[str]) -> sp.csr_array:
    """Encode texts in batches to CSR f32 [n, V]."""
    batches = []
    for start in range(0, len(texts), BATCH):
        batch = encode(texts[start : start + BATCH], convert_to_tensor=True, save_to_cpu=True)
        coo = batch.coalesce()
        values, places = coo.values().float().numpy(), coo.indices().int().numpy()
        batches.append(sp.csr_array((values, tuple(places)), shape=coo.shape))
    return sp.csr_array(sp.vstack(batches, format="csr"))


def run_effect(job: EffectJob, data: Data) -> Measurements:
    """Return ranks of frequent dimensions before and after RRA, and the weights of some terms.

    Raises:
        InputError: no document has all the terms.
    """
    with fetching(job.dataset, data):
        vectors = vectors_of(job, job.dataset, data)
    before = vectors.documents.load()
    weights = {"before": before, "after": _listener(before, job.rra)}
    frequencies = np.bincount(before.indices, minlength=before.shape[1])
    frequent = np.argsort(-frequencies, kind="stable")[:FREQUENT]
    values = {
        f"mean rank of frequent {name}": float(mean_ranks(matrix)[frequent].mean())
        for name, matrix in weights.items()
    }
    if job.terms:
        dimensions = {term: number for number, term in enumerate(vectors.terms)}
        if missing := [term for term in job.terms if term not in dimensions]:
            raise InputError(f"{job.dataset}: no document has {', '.join(missing)}")
        columns = [dimensions[term] for term in job.terms]
        document = _first_with(before, columns)
        if document is None:
            raise InputError(f"{job.dataset}: no document has all of {', '.join(job.terms)}")
        for term, column in zip(job.terms, columns, strict=True):
            for name, matrix in weights.items():
                values[f"{term} {name}"] = float(matrix[document, column])
    terms = ", ".join(vectors.terms[int(dimension)] for dimension in frequent)
    return Measurements(values, notes=[f"most frequent: {terms}"])


def _first_with(documents: sp.csr_array, dimensions: Sequence[int]) -> int | None:
    """Return the first document that has all dimensions."""
    present = np.isin(documents.indices, dimensions)
    counts = np.bincount(row_numbers(documents)[present], minlength=documents.shape[0])
    complete = np.flatnonzero(counts == len(set(dimensions)))
    return int(complete[0]) if complete.size else None


def _listener(documents: sp.csr_array, choice: RRAChoice) -> sp.csr_array:
    """Return L1(d|t) on the non-zeros (equation 4), background included."""
    N, V = documents.shape
    prior: Floats = np.full(N, 1 / N)
    begin = Dialogue.begin(N, V, choice.alpha or 1.0, choice.transform)
    end = converse(lambda so_far: hear(documents, prior, so_far), begin, 1)
    weights, scales = read(documents, prior, end)
    offsets = end.background[weights.indices] * scales[row_numbers(weights)]
    values = (weights.data + offsets) / N
    return sp.csr_array((values, weights.indices, weights.indptr), shape=weights.shape)


def mean_ranks(weights: sp.csr_array) -> Floats:
    """Return each dimension's mean rank over the documents that have the dimension [V].

    A rank is the share of a document's dimensions that do not weigh more: 1 for the largest weight,
    next to 0 for the smallest, so that documents of any length count alike. Ties go to the lower
    dimension; unused dimensions have 0.
    """
    documents = row_numbers(weights)
    order = np.lexsort((weights.indices, -weights.data, documents))
    ranks = np.empty(weights.nnz)
    ranks[order] = np.arange(weights.nnz) - weights.indptr[documents[order]]
    shares = 1 - ranks / np.diff(weights.indptr)[documents]
    sums = np.bincount(weights.indices, shares, minlength=weights.shape[1])
    means: Floats = sums / np.maximum(np.bincount(weights.indices, minlength=weights.shape[1]), 1)
    return means
