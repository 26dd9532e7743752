"""Systems without training: BM25, published sparse vectors, encoders from the hub."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from lexicept.corpora import pseudo_queries, read_qrels
from lexicept.errors import InputError
from lexicept.pipelines.alpha import QUERY_SHARE, KnownItems
from lexicept.rra import Dialogue, converse, hear, read
from lexicept.storage.files import fingerprint
from lexicept.training.collection import Corpus
from lexicept.vectors import Floats
from lexicept.weighting import BM25
from reproduction.data import Data, MissingDataError, fetching, judged
from reproduction.jobs import DatasetSettings, EffectJob, RetrievalJob, RRAChoice
from reproduction.measuring import (
    Collection,
    JudgedVectors,
    Known,
    Measurements,
    measure,
    measure_curve,
)
from reproduction.stored import documents_of, encoded_rows, words_of
from reproduction.vectors import read_vectors, stored_vectors


def run_retrieval(job: RetrievalJob, data: Data) -> Measurements:
    """Measure every dataset in turn.

    Raises:
        MissingDataError: a dataset or model that is not here.
    """
    measurements = Measurements()
    encoder = None if job.model is None else load_hub_encoder(data.place(job.model))
    for number, dataset in enumerate(job.datasets):
        data.progress("datasets", number, len(job.datasets), dataset.name)
        with fetching(dataset.name, data):
            if job.system == "vectors":
                collection = vectors_collection(job, dataset, data)
            elif job.system == "bm25":
                collection = words_collection(job, dataset, data)
            else:
                collection = _encoded(encoder, job, dataset, data)
        collection = replace(collection, tau=dataset.tau)
        if job.curve:
            measure_curve(collection, measurements)
        measure(
            collection,
            measurements,
            job.rra,
            job.query_max_active_dims,
            job.document_max_active_dims,
        )
    if job.mteb:
        from reproduction.mteb_tasks import evaluate_tasks

        limits = (job.query_max_active_dims, job.document_max_active_dims)
        name = fingerprint([data.place(str(job.model)), *map(str, limits)])[:16]
        kept = data.work / "mteb" / f"{name}.json"
        measurements.values |= evaluate_tasks(encoder, job.mteb, *limits, kept, data.progress)
    return measurements


def words_collection(job: RetrievalJob, dataset: DatasetSettings, data: Data) -> Collection:
    """Return a dataset with BM25 weights."""
    source = data.find(dataset.name)
    corpus, tf, vectorizer = words_of(source, dataset.language, data.work, data.progress)
    queries, qrels = judged(source, dataset.split, dataset.queries)
    asked = vectorizer.queries([query.text for query in queries])
    return Collection(
        dataset.title,
        corpus.ids,
        tf,
        [query.id for query in queries],
        asked,
        qrels,
        known_items(job.rra, corpus, vectorizer.queries, data),
        data.ignores_identical_ids(dataset.name),
        partial(judged_vectors, source, vectorizer.queries),
        weighting=BM25(job.k1, job.b),
        folder=data.work / "postings",
    )


def judged_vectors(source: str, vectors: Any, split: str) -> JudgedVectors:
    """Return the queries that another split judges, with their vectors."""
    queries, qrels = judged(source, split, None)
    return JudgedVectors(
        [query.id for query in queries], vectors([query.text for query in queries]), qrels
    )


def known_items(rra: RRAChoice | None, corpus: Corpus, vectors: Any, data: Data) -> Known:
    """Return a function to known-item queries for RRA's α: half of a sentence each, or what a
    language model writes, kept in ``data.work``."""
    generator = None if rra is None else rra.generator

    def known(count: int) -> KnownItems:
        if generator is None:
            rows, queries = pseudo_queries.from_texts(corpus.contents, count, share=QUERY_SHARE)
            return KnownItems.mismatched(rows, vectors(queries))
        from lexicept.training.candidates.query_generation import generate_known_items

        folder = data.work / "generated"
        folder.mkdir(parents=True, exist_ok=True)
        rows, queries = generate_known_items(
            data.place(generator), len(corpus.ids), corpus.stored.document, folder, count
        )
        return KnownItems(rows, vectors(queries))

    return known


def vectors_collection(job: RetrievalJob, dataset: DatasetSettings, data: Data) -> Collection:
    """Return a dataset with published vectors; those of documents stay on disk."""
    source = data.find(dataset.name)
    vocabulary = None if job.vocabulary is None else Path(data.find(job.vocabulary)) / "vocab.txt"
    identity = fingerprint([source, str(vocabulary), str(job.weight)])[:16]
    place = data.work / "published" / identity
    vectors = stored_vectors(Path(source), vocabulary, job.weight, place)
    qrels = list(read_qrels(source, dataset.split))
    asked = {qrel.query_id for qrel in qrels}
    rows = [row for row, name in enumerate(vectors.query_ids) if name in asked]

    def known(count: int) -> KnownItems:
        drawn = pseudo_queries.from_vectors(vectors.documents.load(), count)
        return KnownItems.mismatched(*drawn)

    return Collection(
        dataset.title,
        vectors.document_ids,
        vectors.documents,
        [vectors.query_ids[row] for row in rows],
        sp.csr_array(vectors.queries[rows]),
        qrels,
        known,
        data.ignores_identical_ids(dataset.name),
        folder=data.work / "postings",
    )


def load_hub_encoder(name: str) -> Any:
    """Load a ``SparseEncoder``, saved by lexicept or by others, or the one in the package.

    Raises:
        MissingDataError: it can't be loaded.
    """
    from sentence_transformers import SparseEncoder

    from lexicept.models.encoder import Encoder
    from lexicept.models.loading import quiet_transformers
    from lexicept.models.sources import MINI
    from lexicept.vectorizers.concepts import ConceptVectorizer

    if name == MINI:
        return ConceptVectorizer.load(MINI).encoder
    path = Path(name)
    if (path / "modules.json").exists() and "lexicept" in (path / "modules.json").read_text():
        return Encoder.load(path)
    try:
        with quiet_transformers():
            return SparseEncoder(name)
    except Exception as error:  # the hub's libraries raise many kinds
        reason = (" ".join(str(error).split()) or type(error).__name__)[:200]
        how = "a hub's name needs a network; a folder under --data of that name will do too"
        raise MissingDataError(f"model {name} can't be loaded: {reason}. {how}") from None


def _encoded(encoder: Any, job: RetrievalJob, dataset: DatasetSettings, data: Data) -> Collection:
    """Return a dataset encoded by an encoder; documents are encoded once for all rows."""
    source = data.find(dataset.name)
    corpus = documents_of(source, data.work)
    queries, qrels = judged(source, dataset.split, dataset.queries)
    place = data.work / "vectors" / fingerprint(chain([str(job.model)], corpus.contents))[:16]
    size = int(encoder.get_embedding_dimension())
    encode = partial(_encode, encoder.encode_document)
    return Collection(
        dataset.title,
        corpus.ids,
        encoded_rows(place, corpus.contents, size, encode, data.progress),
        [query.id for query in queries],
        _encode(encoder.encode_query, [query.text for query in queries]),
        qrels,
        known_items(job.rra, corpus, partial(_encode, encoder.encode_query), data),
        data.ignores_identical_ids(dataset.name),
        partial(judged_vectors, source, partial(_encode, encoder.encode_query)),
        folder=data.work / "postings",
    )


def _encode(encode: Any, texts: Sequence[str]) -> sp.csr_array:
    """Encode texts in batches to CSR f32 [n, V]."""
    parts = []
    for start in range(0, len(texts), 1024):
        some = encode(texts[start : start + 1024], convert_to_tensor=True, save_to_cpu=True)
        one = some.coalesce()
        rows, columns = one.indices().numpy()
        values = one.values().float().numpy()
        parts.append(sp.csr_array((values, (rows, columns)), shape=tuple(one.shape)))
    return sp.csr_array(sp.vstack(parts, format="csr"))


def run_effect(job: EffectJob, data: Data) -> Measurements:
    """Return ranks of frequent dimensions before and after RRA, and the weights of some terms.

    Raises:
        InputError: no document has all the terms.
    """
    with fetching(job.dataset, data):
        source = data.find(job.dataset)
        place = None if job.vocabulary is None else Path(data.find(job.vocabulary)) / "vocab.txt"
        vectors = read_vectors(Path(source), place, job.weight)
    before = vectors.documents
    after = _listener(before, job.rra)
    measurements = Measurements()
    frequencies = np.bincount(before.indices, minlength=before.shape[1])
    frequent = np.argsort(-frequencies, kind="stable")[: job.frequent]
    for name, weights in (("before", before), ("after", after)):
        ranks = mean_ranks(weights)[frequent]
        measurements.values[f"mean rank of frequent {name}"] = float(ranks.mean())
    terms = ", ".join(vectors.terms[int(dimension)] for dimension in frequent)
    measurements.notes.append(f"most frequent: {terms}")
    if job.terms:
        _follow(job, vectors.terms, before, after, measurements)
    return measurements


def _listener(documents: sp.csr_array, choice: RRAChoice) -> sp.csr_array:
    """Return L1(d|t) on the non-zeros (equation 4), background included."""
    N, V = documents.shape
    prior: Floats = np.full(N, 1 / N)
    begin = Dialogue.begin(N, V, choice.alpha or 1.0, choice.transform)
    end = converse(lambda so_far: hear(documents, prior, so_far), begin, choice.iterations)
    weights, scales = read(documents, prior, end)
    rows = np.repeat(np.arange(N), np.diff(weights.indptr))
    values = (weights.data + end.background[weights.indices] * scales[rows]) / N
    return sp.csr_array((values, weights.indices, weights.indptr), shape=weights.shape)


def mean_ranks(weights: sp.csr_array) -> Floats:
    """Return each dimension's mean rank over the documents that have the dimension [V].

    A rank is the share of a document's dimensions that do not weigh more: 1 for the largest weight,
    next to 0 for the smallest, so that documents of any length count alike. Ties go to the lower
    dimension; unused dimensions have 0.
    """
    documents = np.repeat(np.arange(weights.shape[0]), np.diff(weights.indptr))
    order = np.lexsort((weights.indices, -weights.data, documents))
    ranks = np.empty(weights.nnz)
    ranks[order] = np.arange(weights.nnz) - weights.indptr[documents[order]]
    shares = 1 - ranks / np.diff(weights.indptr)[documents]
    sums = np.bincount(weights.indices, shares, minlength=weights.shape[1])
    means: Floats = sums / np.maximum(np.bincount(weights.indices, minlength=weights.shape[1]), 1)
    return means


def _follow(
    job: EffectJob,
    terms: list[str],
    before: sp.csr_array,
    after: sp.csr_array,
    measurements: Measurements,
) -> None:
    number = {term: n for n, term in enumerate(terms)}
    if missing := [term for term in job.terms if term not in number]:
        raise InputError(f"{job.dataset}: no document has {', '.join(missing)}")
    columns = [number[term] for term in job.terms]
    has = np.ones(before.shape[0], bool)
    csc = sp.csc_array(before)
    for column in columns:
        one = np.zeros(before.shape[0], bool)
        one[csc.indices[csc.indptr[column] : csc.indptr[column + 1]]] = True
        has &= one
    rows = np.flatnonzero(has)
    if not rows.size:
        raise InputError(f"{job.dataset}: no document has all of {', '.join(job.terms)}")
    for term, column in zip(job.terms, columns, strict=True):
        measurements.values[f"{term} before"] = float(before[int(rows[0]), column])
        measurements.values[f"{term} after"] = float(after[int(rows[0]), column])
