"""Systems without training: BM25, published sparse vectors, encoders from the hub."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from lexicept.corpora import Document, pseudo_queries, read_documents, read_qrels
from lexicept.errors import InputError
from lexicept.evaluation.alpha import QUERY_SHARE, KnownItems
from lexicept.experiments.data import Data, MissingDataError, fetching, judged, read_vectors
from lexicept.experiments.jobs import DatasetSettings, EffectJob, RetrievalJob, RRAChoice
from lexicept.experiments.measuring import (
    Collection,
    JudgedVectors,
    Known,
    Measurements,
    measure,
    measure_curve,
)
from lexicept.progress import Progress
from lexicept.rra import Dialogue, converse, hear, read
from lexicept.storage.arrays import load_csr, save_csr
from lexicept.storage.files import fingerprint, write_json
from lexicept.vectorizers.words import WordVectorizer
from lexicept.vectors import Floats
from lexicept.weighting import BM25


def run_retrieval(job: RetrievalJob, data: Data, work: Path, progress: Progress) -> Measurements:
    """Measure every dataset in turn.

    Raises:
        MissingDataError: a dataset or model that is not here.
    """
    measurements = Measurements()
    encoder = None if job.model is None else load_hub_encoder(data.place(job.model))
    for number, dataset in enumerate(job.datasets):
        progress("datasets", number, len(job.datasets), dataset.name)
        with fetching(dataset.name, data):
            if job.system == "vectors":
                collection = vectors_collection(job, dataset, data)
            elif job.system == "bm25":
                collection = words_collection(job, dataset, data, work)
            else:
                collection = _encoded(encoder, str(job.model), dataset, data, work, job.rra)
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
        from lexicept.experiments.mteb_tasks import evaluate_tasks

        limits = (job.query_max_active_dims, job.document_max_active_dims)
        name = fingerprint([data.place(str(job.model)), *map(str, limits)])[:16]
        kept = work / "mteb" / f"{name}.json"
        measurements.values |= evaluate_tasks(encoder, job.mteb, *limits, kept, progress)
    return measurements


def words_collection(
    job: RetrievalJob, dataset: DatasetSettings, data: Data, work: Path
) -> Collection:
    """Return a dataset with BM25 weights."""
    source = data.find(dataset.name)
    documents = list(read_documents(source))
    texts = [document.content for document in documents]
    vectorizer = WordVectorizer(dataset.language)
    weights = BM25(job.k1, job.b).documents(vectorizer.documents(texts))
    queries, qrels = judged(source, dataset.split, dataset.queries)
    asked = vectorizer.queries([query.text for query in queries])
    known = known_items(job.rra, documents, vectorizer.queries, data, work)
    return Collection(
        dataset.title,
        [document.id for document in documents],
        sp.csr_array(weights),
        [query.id for query in queries],
        asked,
        qrels,
        known,
        data.ignores_identical_ids(dataset.name),
        partial(judged_vectors, source, vectorizer.queries),
    )


def judged_vectors(source: str, vectors: Any, split: str) -> JudgedVectors:
    """Return the queries that another split judges, with their vectors."""
    queries, qrels = judged(source, split, None)
    return JudgedVectors(
        [query.id for query in queries], vectors([query.text for query in queries]), qrels
    )


def known_items(
    rra: RRAChoice | None, documents: Sequence[Document], vectors: Any, data: Data, work: Path
) -> Known:
    """Return a function to known-item queries for RRA's α: half of a sentence each, or what a
    language model writes, which is kept in ``work``."""
    generator = None if rra is None else rra.generator

    def known(count: int) -> KnownItems:
        if generator is None:
            texts = [document.content for document in documents]
            rows, queries = pseudo_queries.from_texts(texts, count, share=QUERY_SHARE)
            return KnownItems.mismatched(rows, vectors(queries))
        from lexicept.training.candidates.query_generation import generate_known_items

        folder = work / "generated"
        folder.mkdir(parents=True, exist_ok=True)
        rows, queries = generate_known_items(
            data.place(generator), len(documents), lambda row: documents[row], folder, count
        )
        return KnownItems(rows, vectors(queries))

    return known


def vectors_collection(
    job: RetrievalJob | EffectJob, dataset: DatasetSettings, data: Data
) -> Collection:
    """Return a dataset with published vectors."""
    source = data.find(dataset.name)
    vocabulary = None if job.vocabulary is None else Path(data.find(job.vocabulary)) / "vocab.txt"
    vectors = read_vectors(Path(source), vocabulary, job.weight)
    qrels = list(read_qrels(source, dataset.split))
    asked = {qrel.query_id for qrel in qrels}
    rows = [row for row, name in enumerate(vectors.query_ids) if name in asked]
    return Collection(
        dataset.title,
        vectors.document_ids,
        vectors.documents,
        [vectors.query_ids[row] for row in rows],
        sp.csr_array(vectors.queries[rows]),
        qrels,
        lambda count: KnownItems.mismatched(*pseudo_queries.from_vectors(vectors.documents, count)),
        data.ignores_identical_ids(dataset.name),
    )


def load_hub_encoder(name: str) -> Any:
    """Load a ``SparseEncoder``, saved by lexicept or by others.

    Raises:
        MissingDataError: it can't be loaded.
    """
    from sentence_transformers import SparseEncoder

    from lexicept.models.encoder import Encoder
    from lexicept.models.loading import quiet_transformers

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


def _encoded(
    encoder: Any, name: str, dataset: DatasetSettings, data: Data, work: Path, rra: RRAChoice | None
) -> Collection:
    """Return a dataset encoded by an encoder; documents are encoded once for all rows."""
    source = data.find(dataset.name)
    documents = list(read_documents(source))
    texts = [document.content for document in documents]
    queries, qrels = judged(source, dataset.split, dataset.queries)
    place = work / "vectors" / fingerprint([name, *texts])[:16]
    if not (whole := place.with_name(f"{place.name}.json")).exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        save_csr(place, _encode(encoder.encode_document, texts))
        write_json(whole, {"documents": len(texts)})
    weights = load_csr(place, int(encoder.get_embedding_dimension()))
    return Collection(
        dataset.title,
        [document.id for document in documents],
        weights,
        [query.id for query in queries],
        _encode(encoder.encode_query, [query.text for query in queries]),
        qrels,
        known_items(rra, documents, partial(_encode, encoder.encode_query), data, work),
        data.ignores_identical_ids(dataset.name),
        partial(judged_vectors, source, partial(_encode, encoder.encode_query)),
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
    from lexicept.analysis.rra_effect import rra_effect

    effect = rra_effect(before, after)
    most = effect.most_frequent[: job.frequent]
    measurements.values["mean rank of frequent before"] = float(effect.rank_before[most].mean())
    measurements.values["mean rank of frequent after"] = float(effect.rank_after[most].mean())
    measurements.notes.append("most frequent: " + ", ".join(vectors.terms[int(t)] for t in most))
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
