"""A run's documents, queries, candidate lists and teacher scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from lexicept.corpora import Qrel, Query, pseudo_queries, read_documents, read_qrels, read_queries
from lexicept.errors import InputError
from lexicept.index.builder import Contents, IndexBuilder
from lexicept.index.impacts import VocabularySettings
from lexicept.index.reader import IndexReader
from lexicept.progress import Progress
from lexicept.storage.cached import cached
from lexicept.training.candidates.lists import CandidateList, Lists, joined, write_lists
from lexicept.training.candidates.mining import mine
from lexicept.training.candidates.teacher_mining import teacher_lists
from lexicept.training.data import TeacherScores, TrainingData
from lexicept.training.run_folder import RunFolder
from lexicept.vectorizers.words import WordVectorizer
from lexicept.weighting import BM25

Relevant = dict[str, list[str]]
"""Query id → ids of its relevant documents."""


class HeldOut(NamedTuple):
    """Queries and judgements of validation."""

    queries: dict[str, str]
    qrels: list[Qrel]


class RunData(NamedTuple):
    """Everything of a run that no model has seen yet."""

    documents: IndexReader
    """Index of the documents' words."""
    training: TrainingData
    validation: HeldOut


def read_run_data(run: RunFolder) -> RunData:
    """Read the documents, queries, candidates and teacher scores of a run.

    Raises:
        InputError: data that do not fit together.
    """
    index = word_index(run.config.data.corpus, run.prepared / "words", run.progress)
    queries, qrels = _training_queries(run, index)
    held, queries, qrels = _split(run, queries, qrels)
    data = _training_data(run, index, queries, qrels)
    data.lists = _lists(run, index, queries, qrels, data)
    return RunData(index, data, held)


def word_index(corpus: str, path: Path, progress: Progress) -> IndexReader:
    """Return an index of the documents' words, built where it is absent or damaged."""

    def build() -> None:
        with IndexBuilder(path) as builder:
            builder.add_documents(read_documents(corpus), {})
            builder.add_vocabulary(WordVectorizer(), VocabularySettings(BM25()), progress)
            builder.commit()

    return cached(path, build, IndexReader.open)


def relevant(qrels: Iterable[Qrel]) -> Relevant:
    """Return the ids of each query's relevant documents."""
    documents: Relevant = {}
    for qrel in qrels:
        if qrel.relevance > 0:
            documents.setdefault(qrel.query_id, []).append(qrel.document_id)
    return documents


def _training_queries(run: RunFolder, index: IndexReader) -> tuple[dict[str, str], Relevant]:
    """Return the texts and relevant documents of the training queries."""
    data = run.config.data
    if data.queries is not None:
        qrels = relevant(read_qrels(data.queries, data.split))
        queries = {query.id: query.text for query in read_queries(data.queries, data.split)}
    else:
        queries, qrels = _pseudo_queries(run, index)
    if data.count is not None:
        random = np.random.default_rng(run.config.data_seed)
        names = list(queries)
        drawn = sorted(random.permutation(len(names))[: data.count])
        queries = {names[i]: queries[names[i]] for i in drawn}
    return queries, qrels


def _pseudo_queries(run: RunFolder, index: IndexReader) -> tuple[dict[str, str], Relevant]:
    data = run.config.data
    seed = run.config.data_seed
    pairs = pseudo_queries.generate(index.documents(), "mixed", data.pseudo_queries, seed)
    queries, sources = {}, {}
    for name, document, text in pseudo_queries.named(pairs):
        queries[name], sources[name] = text, [document]
    if not queries:
        raise InputError(f"{data.corpus}: no pseudo-queries can be made of these documents")
    return queries, sources


def _split(
    run: RunFolder, queries: dict[str, str], qrels: Relevant
) -> tuple[HeldOut, dict[str, str], Relevant]:
    """Return validation's queries, and the queries and judgements left for training."""
    settings = run.config.validation
    random = np.random.default_rng(run.config.data_seed)
    if settings.queries is not None:
        texts = {q.id: q.text for q in read_queries(settings.queries, settings.split)}
        chosen = sorted(texts)
        random.shuffle(chosen)
        kept = {name: texts[name] for name in sorted(chosen[: settings.count])}
        judged = [q for q in read_qrels(settings.queries, settings.split) if q.query_id in kept]
        return HeldOut(kept, judged), queries, qrels
    names = sorted(name for name in queries if name in qrels)
    random.shuffle(names)
    held = set(names[: min(settings.count, len(names) // 10)])
    kept = {name: queries[name] for name in sorted(held)}
    judged = [Qrel(name, document, 1) for name in kept for document in qrels[name]]
    if held and run.writes:
        of_query = (
            (Query(name, text), [Qrel(name, document, 1) for document in qrels[name]])
            for name, text in kept.items()
        )
        pseudo_queries.write_judged(run.path / "held-out", "dev", of_query)
    return (
        HeldOut(kept, judged),
        {name: text for name, text in queries.items() if name not in held},
        {name: documents for name, documents in qrels.items() if name not in held},
    )


def _lists(
    run: RunFolder,
    index: IndexReader,
    queries: dict[str, str],
    qrels: Relevant,
    training: TrainingData,
) -> Sequence[CandidateList]:
    data, path = run.config.data, run.prepared / "lists.jsonl"
    if data.lists is None and not data.negatives and data.positive_share == 1:
        return _judged_alone(training)
    if data.lists is not None and data.count is None and run.config.validation.queries is not None:
        return Lists.open(data.lists)

    def make() -> Lists:
        if data.lists is not None:  # some queries were left out, so that their lists are too
            given = Lists.open(data.lists)
            return write_lists(path, (one for one in given if one.query_id in queries))
        return _mined(run, index, queries, qrels, training)

    return cached(path, make, Lists.open)


def _judged_alone(training: TrainingData) -> list[CandidateList]:
    """Return a list of the relevant documents of each query that has some."""
    judged = [one for one in training.lists if one.relevant]
    for one in judged:  # an unknown document is found now, not when it is drawn
        training.document_rows(one.documents)
    if not judged:
        raise InputError("no training query has a relevant document")
    return judged


def _mined(
    run: RunFolder,
    index: IndexReader,
    queries: dict[str, str],
    qrels: Relevant,
    training: TrainingData,
) -> Lists:
    """Write the candidates that words, the teacher or both find."""
    depth, progress = run.config.data.mining_depth, run.progress
    path = run.prepared / "lists.jsonl"

    def by_words(out: Path) -> Lists:
        return mine(index, queries, qrels, out, depth=depth, progress=progress)

    def by_teacher(out: Path) -> Lists:
        return teacher_lists(training, qrels, out, depth, progress)

    if run.config.data.mining == "words":
        return by_words(path)
    if run.config.data.mining == "teacher":
        return by_teacher(path)
    parts = []
    for name, miner in (("words", by_words), ("teacher", by_teacher)):
        out = run.prepared / f"lists.{name}.jsonl"
        parts.append(cached(out, partial(miner, out), Lists.open))
    return write_lists(path, joined(*parts))


def _training_data(
    run: RunFolder, index: IndexReader, queries: dict[str, str], qrels: Relevant
) -> TrainingData:
    """Return texts and teacher; until candidates are mined, lists hold relevant documents alone."""
    documents = Contents(index.folder)
    texts = list(queries.values())
    words: tuple[sp.csr_array | None, sp.csr_array | None] = (None, None)
    if run.config.teacher.bm25_weight or run.config.loss.words:
        words = (index.query_vectors(texts), sp.csr_array(index.document_vectors().weights))
    known = [
        CandidateList(query, tuple(qrels.get(query, ())), len(qrels.get(query, ())))
        for query in queries
    ]
    teacher = _teacher(run, texts, documents)
    return TrainingData(list(queries), texts, index.ids, documents, known, *words, teacher)


def _teacher(
    run: RunFolder, queries: Sequence[str], documents: Sequence[str]
) -> TeacherScores | None:
    teacher = run.config.teacher
    if not (teacher.dense or teacher.bm25_weight or teacher.max_sim):
        return None
    vectors: tuple[Any, Any] = (None, None)
    if teacher.dense is not None:
        from lexicept.training.candidates.neural_teachers import embeddings

        folder, bf16 = run.prepared / "teacher", run.config.optimizer.bf16
        vectors = embeddings(teacher.dense, queries, documents, folder, run.progress, bf16=bf16)
    weights = (teacher.dense_weight, teacher.bm25_weight, teacher.max_sim)
    return TeacherScores(*vectors, *weights)
