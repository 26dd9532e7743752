"""A run's documents, queries, candidate lists and teacher scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from lexicept.corpora import Qrel, Query, pseudo_queries, read_documents, read_qrels, read_queries
from lexicept.errors import InputError
from lexicept.index.builder import Contents, IndexBuilder, write_documents
from lexicept.index.impacts import VocabularySettings
from lexicept.index.reader import IndexReader
from lexicept.index.stored import StoredDocuments
from lexicept.progress import Progress
from lexicept.storage.cached import cached
from lexicept.storage.workspace import new_folder
from lexicept.training.candidates.lists import CandidateList, Lists, joined, write_lists
from lexicept.training.candidates.mining import mine
from lexicept.training.candidates.teacher_mining import teacher_lists
from lexicept.training.config import TrainingConfig
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


@dataclass(frozen=True)
class Corpus:
    """Documents on disk, and the index of their words where something reads it."""

    folder: Path
    """Folder of the stored documents; see ``StoredDocuments``."""
    index: IndexReader | None = None

    @cached_property
    def stored(self) -> StoredDocuments:
        """The documents, by number."""
        return StoredDocuments(self.folder)

    @property
    def ids(self) -> Sequence[str]:
        return self.stored.ids

    @cached_property
    def contents(self) -> Contents:
        """Titles and texts, as a model reads them."""
        return Contents(self.folder)

    @property
    def words(self) -> IndexReader:
        """The index of words. Raises InputError where the corpus was opened without it."""
        if self.index is None:
            raise InputError(f"{self.folder}: these documents have no index of words")
        return self.index


class RunData(NamedTuple):
    """The data of a run, before any model encodes them."""

    documents: Corpus
    training: TrainingData
    validation: HeldOut


def read_run_data(run: RunFolder) -> RunData:
    """Read the documents, queries, candidates and teacher scores of a run.

    Raises:
        InputError: data that do not fit together.
    """
    # What is quick to refuse comes first: storing and indexing millions of documents takes minutes.
    settings, judged, given = run.config.data, None, None
    check_corpora(run.config)
    if settings.queries is not None:
        judged = _judged_queries(settings.queries, settings.split)
    if settings.lists is not None:
        given = Lists.open(settings.lists)
    corpus = open_corpus(settings.corpus, run.prepared, run.progress, words=needs_words(run.config))
    queries, qrels = _training_queries(run, corpus, judged)
    held, queries, qrels = _split(run, queries, qrels)
    data = _training_data(run, corpus, queries, qrels)
    data.lists = _lists(run, corpus, queries, qrels, data, given)
    data.check_lists()
    return RunData(corpus, data, held)


def check_corpora(config: TrainingConfig) -> None:
    """Read the first document, and the first query and judgement, of everything that a run names.

    Raises:
        InputError: one is missing, empty or of no known format.
    """
    data, validation = config.data, config.validation
    for corpus in {data.corpus, validation.corpus or data.corpus}:
        if next(iter(read_documents(corpus)), None) is None:
            raise InputError(f"{corpus}: no documents")
    for queries, split in ((data.queries, data.split), (validation.queries, validation.split)):
        if queries is not None and next(iter(read_queries(queries, split)), None) is not None:
            next(iter(read_qrels(queries, split)), None)


def needs_words(config: TrainingConfig) -> bool:
    """Return whether a run reads BM25 weights: to mine candidates, to teach, or in its score."""
    data = config.data
    judged_alone = not data.negatives and data.positive_share == 1
    mines = data.lists is None and data.mining != "teacher" and not judged_alone
    return bool(mines or config.teacher.bm25_weight or config.loss.words)


def open_corpus(
    corpus: str, folder: Path, progress: Progress, *, words: bool, prefix: str = ""
) -> Corpus:
    """Return a corpus on disk, stored where it is absent or damaged.

    Args:
        folder: where to keep it, as ``<prefix>words`` or ``<prefix>documents``.
        words: whether to index its words, which takes most of the time.

    Raises:
        InputError: no documents, or a bad one.
    """
    if words:
        index = word_index(corpus, folder / f"{prefix}words", progress)
        return Corpus(index.folder, index)
    return stored_documents(corpus, folder / f"{prefix}documents")


def stored_documents(corpus: str, path: Path) -> Corpus:
    """Return documents on disk, read and written one by one where they are absent or damaged.

    Raises:
        InputError: no documents, or a bad one.
    """

    def write() -> None:
        with new_folder(path, "documents") as folder:
            if not write_documents(folder, read_documents(corpus)):
                raise InputError(f"{corpus}: no documents")

    def read(folder: Path) -> Corpus:
        corpus = Corpus(folder)
        _ = corpus.stored  # raises the error of damaged files
        return corpus

    return cached(path, write, read)


def word_index(corpus: str, path: Path, progress: Progress, language: str = "en") -> IndexReader:
    """Return an index of the documents' words, built where it is absent or damaged."""

    def build() -> None:
        with IndexBuilder(path) as builder:
            builder.add_documents(read_documents(corpus), {})
            builder.add_vocabulary(
                WordVectorizer(language), VocabularySettings(BM25()), progress=progress
            )
            builder.commit()

    return cached(path, build, IndexReader.open)


def relevant(qrels: Iterable[Qrel]) -> Relevant:
    """Return the ids of each query's relevant documents."""
    documents: Relevant = {}
    for qrel in qrels:
        if qrel.relevance > 0:
            documents.setdefault(qrel.query_id, []).append(qrel.document_id)
    return documents


def _judged_queries(queries: str, split: str) -> tuple[dict[str, str], Relevant]:
    """Return the texts and relevant documents of judged queries."""
    qrels = relevant(read_qrels(queries, split))
    return {query.id: query.text for query in read_queries(queries, split)}, qrels


def _training_queries(
    run: RunFolder, corpus: Corpus, judged: tuple[dict[str, str], Relevant] | None
) -> tuple[dict[str, str], Relevant]:
    """Return the texts and relevant documents of the training queries, judged or made."""
    data = run.config.data
    queries, qrels = _pseudo_queries(run, corpus) if judged is None else judged
    if data.count is not None:
        random = np.random.default_rng(run.config.data_seed)
        names = list(queries)
        drawn = sorted(random.permutation(len(names))[: data.count])
        queries = {names[i]: queries[names[i]] for i in drawn}
    return queries, qrels


def _pseudo_queries(run: RunFolder, corpus: Corpus) -> tuple[dict[str, str], Relevant]:
    data = run.config.data
    seed, stored = run.config.data_seed, corpus.stored
    documents = map(stored.document, range(len(stored.ids)))
    pairs = pseudo_queries.generate(documents, "mixed", data.pseudo_queries, seed)
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
    corpus: Corpus,
    queries: dict[str, str],
    qrels: Relevant,
    training: TrainingData,
    given: Lists | None,
) -> Sequence[CandidateList]:
    data, path = run.config.data, run.prepared / "lists.jsonl"
    if data.lists is None and not data.negatives and data.positive_share == 1:
        return _judged_alone(training)
    if given is not None and data.count is None and run.config.validation.queries is not None:
        return given

    def make() -> Lists:
        if given is not None:  # some queries were left out, so that their lists are too
            return write_lists(path, (one for one in given if one.query_id in queries))
        return _mined(run, corpus, queries, qrels, training)

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
    corpus: Corpus,
    queries: dict[str, str],
    qrels: Relevant,
    training: TrainingData,
) -> Lists:
    """Write the candidates that words, the teacher or both find."""
    depth, progress = run.config.data.mining_depth, run.progress
    path = run.prepared / "lists.jsonl"

    def by_words(out: Path) -> Lists:
        return mine(corpus.words, queries, qrels, out, depth=depth, progress=progress)

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
    run: RunFolder, corpus: Corpus, queries: dict[str, str], qrels: Relevant
) -> TrainingData:
    """Return texts and teacher; until candidates are mined, lists hold relevant documents alone."""
    texts = list(queries.values())
    words: tuple[sp.csr_array | None, sp.csr_array | None] = (None, None)
    if run.config.teacher.bm25_weight or run.config.loss.words:
        index = corpus.words
        words = (index.query_vectors(texts), sp.csr_array(index.document_vectors().weights))
    known = [
        CandidateList(query, tuple(qrels.get(query, ())), len(qrels.get(query, ())))
        for query in queries
    ]
    teacher = _teacher(run, texts, corpus.contents)
    ids = (list(queries), corpus.ids)
    return TrainingData(ids[0], texts, ids[1], corpus.contents, known, *words, teacher)


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
