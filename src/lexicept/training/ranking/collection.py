"""A run's documents, queries, candidate lists and teacher scores."""

from __future__ import annotations

import warnings
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from lexicept.candidates.lists import CandidateList, Lists, from_qrels, write_lists
from lexicept.candidates.mining import mine, mined_lists
from lexicept.candidates.teachers import Teacher
from lexicept.corpora import Qrel, Query, pseudo_queries, read_documents, read_qrels, read_queries
from lexicept.corpora.records import Document, Location, checked
from lexicept.encoding.words import WordVectorizer
from lexicept.errors import InputError, LexiceptWarning
from lexicept.index.builder import Contents, IndexBuilder, write_documents
from lexicept.index.impacts import VocabularySettings
from lexicept.index.reader import IndexReader
from lexicept.index.stored import StoredDocuments
from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.sae.cached_states import CachedStates
from lexicept.progress import Progress
from lexicept.storage.cached import cached
from lexicept.storage.files import fingerprint
from lexicept.storage.sequences import LazySequence
from lexicept.storage.workspace import new_folder
from lexicept.training.own_parts import OwnPart
from lexicept.training.ranking.config import TrainingConfig
from lexicept.training.ranking.data import TeacherScores, TrainingData, WordWeights
from lexicept.weighting import BM25

Relevant = Mapping[str, Sequence[str]]
"""Query id → ids of its relevant documents."""


class HeldOut(NamedTuple):
    """Queries and judgements of validation."""

    queries: dict[str, str]
    qrels: list[Qrel]


@dataclass(frozen=True)
class RunFolder:
    """A run's configuration and folders."""

    config: TrainingConfig
    path: Path
    """Folder of the run."""
    prepared: Path
    """Folder of data, teacher scores, cached states and SAE; runs may share the folder."""
    progress: Progress
    writes: bool
    """True in the writing process."""

    def states(
        self, backbone: Backbone, texts: Sequence[str], name: str, prompt: str = ""
    ) -> CachedStates:
        """Return the cached token states of texts after a prompt; missing states are computed
        first. The name of a cache of queries ends with "queries"."""
        folder = self.prepared / "states" / name
        bf16 = self.config.optimizer.bf16
        task = "query" if name.endswith("queries") else "document"
        read = _Prompted(prompt, texts) if prompt else texts
        return CachedStates.build(folder, backbone, read, self.progress, bf16=bf16, task=task)


class _Prompted(LazySequence[str]):
    """Texts, each after a prompt."""

    def __init__(self, prompt: str, texts: Sequence[str]) -> None:
        self._prompt, self._texts = prompt, texts

    def __len__(self) -> int:
        return len(self._texts)

    def _read(self, index: int) -> str:
        return self._prompt + self._texts[index]


@dataclass(frozen=True)
class Corpus:
    """Documents on disk, with an index of their words if a run needs the index."""

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
        """The index of words. Raises InputError for a corpus without the index."""
        if self.index is None:
            raise InputError(f"{self.folder}: these documents have no index of words")
        return self.index


class RunData(NamedTuple):
    """The data of a run, before encoding."""

    documents: Corpus
    training: TrainingData
    validation: HeldOut


def read_run_data(run: RunFolder, held_out: HeldOut | None = None) -> RunData:
    """Read the documents, queries, candidates and teacher scores of a run. Queries for validation
    are held out or, with queries ``held_out`` of another collection, the same texts left out.
    Raises InputError for data that do not fit together."""
    # Cheap checks come first: storing and indexing millions of documents takes minutes.
    settings, judged, given_lists = run.config.data, None, None
    if settings.queries is not None:
        texts = {q.id: q.text for q in read_queries(settings.queries, settings.split)}
        lists = from_qrels(read_qrels(settings.queries, settings.split))
        judged = texts, {item.query_id: item.documents for item in lists}
    if settings.lists is not None:
        given_lists = Lists.open(settings.lists)
    corpus = open_corpus(settings.corpus, run.prepared, run.progress, words=needs_words(run.config))
    queries, qrels = _pseudo_queries(run, corpus) if judged is None else judged
    known = set(queries)
    if settings.count is not None:
        random = np.random.default_rng(run.config.data_seed)
        names = list(queries)
        drawn = sorted(random.permutation(len(names))[: settings.count])
        queries = {names[i]: queries[names[i]] for i in drawn}
    if held_out is None:
        held_out, queries, qrels = _split(run, queries, qrels)
    elif run.config.validation.queries is None:
        texts_held_out = {*held_out.queries.values()}
        queries = {name: text for name, text in queries.items() if text not in texts_held_out}
    data = _training_data(run, corpus, queries, qrels)
    if given_lists is not None and known != queries.keys():
        given_lists = _of_queries(run, given_lists, queries, known)
    data.lists = given_lists or _lists(run, corpus, queries, qrels, data)
    loss = run.config.loss
    distils = bool(loss.kl or loss.margin_mse)
    data.check_lists(scored=distils and not run.config.teacher.scores_all)
    return RunData(corpus, data, held_out)


def check_corpora(config: TrainingConfig) -> None:
    """Read the first document, query and judgement of every source of a run. Raises InputError for
    a source that is missing, empty or of no known format."""
    data, validation = config.data, config.validation
    for corpus in (data.corpus, validation.corpus):
        if corpus is None:
            continue
        if next(iter(_documents(corpus)), None) is None:
            raise InputError(f"{_name(corpus)}: no documents")
    for queries, split in ((data.queries, data.split), (validation.queries, validation.split)):
        if queries is not None and next(iter(read_queries(queries, split)), None) is not None:
            next(iter(read_qrels(queries, split)), None)


def needs_words(config: TrainingConfig) -> bool:
    """Return True for a run with BM25: to mine candidates, as a teacher, or in the score."""
    data = config.data
    judged_alone = not data.negatives and data.positive_share == 1
    mines = data.lists is None and data.mining != "teacher" and not judged_alone
    return bool(mines or config.teacher.bm25_weight or config.loss.words)


def _documents(corpus: str | OwnPart) -> Iterable[Document]:
    """Open a corpus; documents of an own reader are checked like all others."""
    if isinstance(corpus, str):
        return read_documents(corpus)
    reader = corpus.make(Iterable)
    return checked(
        (location, partial(_document, location, document))
        for position, document in enumerate(reader, 1)
        for location in [Location(corpus.class_path, position, "document")]
    )


def _document(location: Location, document: Any) -> Document:
    if not isinstance(document, Document):
        raise location.error(f"{type(document).__name__} is no lexicept.corpora.Document")
    return document


def _name(corpus: str | OwnPart) -> str:
    return corpus if isinstance(corpus, str) else corpus.class_path


def open_corpus(
    corpus: str | OwnPart, folder: Path, progress: Progress, *, words: bool, prefix: str = ""
) -> Corpus:
    """Return a corpus on disk, in ``<prefix>words`` or ``<prefix>documents`` of a folder; an absent
    or damaged corpus is stored first. ``words`` also indexes the words, which takes most of the
    time. Raises InputError for no documents, or a bad document."""
    path = folder / f"{prefix}{'words' if words else 'documents'}"

    def store() -> None:
        with new_folder(path, "documents") as new:
            if not write_documents(new, _documents(corpus)):
                raise InputError(f"{_name(corpus)}: no documents")

    def build() -> None:
        with IndexBuilder(path) as builder:
            builder.add_documents(_documents(corpus), {})
            weighting = VocabularySettings(BM25())
            builder.add_vocabulary(WordVectorizer("en"), weighting, progress=progress)
            builder.commit()

    def read(path: Path) -> Corpus:
        index = IndexReader.open(path) if words else None
        opened = Corpus(path if index is None else index.folder, index)
        _ = opened.stored  # raises the error of damaged files
        return opened

    return cached(path, build if words else store, read)


def _pseudo_queries(run: RunFolder, corpus: Corpus) -> tuple[dict[str, str], Relevant]:
    data = run.config.data
    seed, stored = run.config.data_seed, corpus.stored
    documents = map(stored.document, range(len(stored.ids)))
    pairs = pseudo_queries.generate(documents, "mixed", data.pseudo_queries, seed)
    queries, sources = {}, {}
    for name, document, text in pseudo_queries.named(pairs):
        queries[name], sources[name] = text, (document,)
    if not queries:
        raise InputError(f"{_name(data.corpus)}: no pseudo-queries can be made of these documents")
    return queries, sources


def _split(
    run: RunFolder, queries: dict[str, str], qrels: Relevant
) -> tuple[HeldOut, dict[str, str], Relevant]:
    """Return validation's queries, and the queries and judgements left for training."""
    settings = run.config.validation
    random = np.random.default_rng(run.config.data_seed)
    if settings.queries is not None:
        texts = {q.id: q.text for q in read_queries(settings.queries, settings.split)}
        names = sorted(texts)
        random.shuffle(names)
        held_out = {name: texts[name] for name in sorted(names[: settings.count])}
        judged = [q for q in read_qrels(settings.queries, settings.split) if q.query_id in held_out]
        return HeldOut(held_out, judged), queries, qrels
    # Without judged queries for validation, a tenth of the training queries is held out.
    names = sorted(name for name in queries if name in qrels)
    random.shuffle(names)
    held_out_names = sorted(names[: min(settings.count, len(names) // 10)])
    held_out = {name: queries[name] for name in held_out_names}
    judgements = {name: [Qrel(name, document, 1) for document in qrels[name]] for name in held_out}
    if held_out and run.writes:
        by_query = ((Query(name, text), judgements[name]) for name, text in held_out.items())
        pseudo_queries.write_judged(run.path / "held-out", "dev", by_query)
    return (
        HeldOut(held_out, [qrel for judged in judgements.values() for qrel in judged]),
        {name: text for name, text in queries.items() if name not in held_out},
        {name: documents for name, documents in qrels.items() if name not in held_out},
    )


def _of_queries(
    run: RunFolder, lists: Lists, queries: Container[str], known: Container[str]
) -> Lists:
    """Return the lists of training queries, without held-out queries and queries not drawn. Warns
    of lists of queries that are not ``known``."""
    path = run.prepared / "lists.jsonl"
    unknown: list[str] = []

    def kept() -> Iterator[CandidateList]:
        for item in lists:
            if item.query_id in queries:
                yield item
            elif item.query_id not in known:
                unknown.append(item.query_id)
        if unknown:
            reason = f"lists of queries without a judgement in the split: {len(unknown):,}"
            message = f"{run.config.data.lists}: {reason}, such as {unknown[0]!r:.40}"
            warnings.warn(message, LexiceptWarning, stacklevel=2)

    return cached(path, lambda: write_lists(path, kept()), Lists.open)


def _lists(
    run: RunFolder, corpus: Corpus, queries: dict[str, str], qrels: Relevant, training: TrainingData
) -> Sequence[CandidateList]:
    """Return the judged documents alone, or mined candidates."""
    data, path, progress = run.config.data, run.prepared / "lists.jsonl", run.progress
    # In-batch training without candidates: nothing to mine.
    if not data.negatives and data.positive_share == 1:
        judged = [item for item in training.lists if item.relevant]
        for item in judged:  # an unknown document is an error now, not when drawn
            training.document_indices(item.documents)
        if not judged:
            raise InputError("no training query has a relevant document")
        return judged

    def make() -> Lists:
        if data.mining == "teacher":
            return mine_by_teacher(training, qrels, path, data.mining_depth, progress)
        return mine(corpus.words, queries, qrels, path, data.mining_depth, progress=progress)

    return cached(path, make, Lists.open)


def mine_by_teacher(
    data: TrainingData, relevant: Relevant, out: Path, depth: int, progress: Progress
) -> Lists:
    """Write each query's relevant documents, then the ``depth`` best others by the teacher's score.
    Raises InputError without a teacher, for an existing ``out``, or for no lists."""
    if data.teacher is None:
        raise InputError("data.mining: teacher needs a teacher: dense, bm25_weight or own")
    identity = {
        "documents": fingerprint(data.document_ids),
        "queries": fingerprint(data.queries),
        "teacher": asdict(data.teacher.settings),
    }

    def best(span: range, count: int) -> Iterator[list[str]]:
        for indices in data.best(span, count):
            yield [data.document_ids[index] for index in indices]

    positives = {query: relevant.get(query, ()) for query in data.query_ids}
    return mined_lists(out, "mine by teacher", identity, positives, depth, best, progress=progress)


def _training_data(
    run: RunFolder, corpus: Corpus, queries: dict[str, str], qrels: Relevant
) -> TrainingData:
    """Return texts and teacher; before mining, lists have relevant documents alone."""
    texts = list(queries.values())
    words = None
    if run.config.teacher.bm25_weight or run.config.loss.words:
        index = corpus.words
        document_words = sp.csr_array(index.document_vectors().weights)
        words = WordWeights(index.query_vectors(texts), document_words)
    relevant = [tuple(qrels.get(query, ())) for query in queries]
    return TrainingData(
        list(queries),
        texts,
        corpus.ids,
        corpus.contents,
        [CandidateList(*item, len(item[1])) for item in zip(queries, relevant, strict=True)],
        words,
        _teacher(run, queries, corpus),
    )


def _teacher(run: RunFolder, queries: dict[str, str], corpus: Corpus) -> TeacherScores | None:
    teacher, folder = run.config.teacher, run.prepared / "teacher"
    if not teacher.scores_all:
        return None
    query_vectors = document_vectors = scorer = None
    if teacher.dense is not None:
        from lexicept.training.ranking.neural_teachers import embeddings

        bf16 = run.config.optimizer.bf16
        texts = list(queries.values())
        query_vectors, document_vectors = embeddings(
            teacher.dense, texts, corpus.contents, folder, run.progress, bf16=bf16
        )
    if teacher.own is not None:
        documents = dict(zip(corpus.ids, corpus.contents, strict=True))
        scorer = teacher.own.make(Teacher).prepare(queries, documents, folder, run.progress)
        if not callable(scorer):
            raise InputError(f"teacher.own: prepare returned {scorer!r:.40}, no function")
    return TeacherScores(teacher, query_vectors, document_vectors, scorer)
