"""Training, validation and test sets of judged queries, drawn evenly from clusters of meaning.

ESPLADE's procedure (sections 3.2 and 4.1), for any collection of clicks or judgements.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from lexicept.corpora import Document, Qrel, Query, read_documents, read_qrels, read_queries
from lexicept.corpora.pseudo_queries import write_judged
from lexicept.encoding.sources import DEFAULT_BACKBONE
from lexicept.encoding.words import WordVectorizer
from lexicept.errors import InputError
from lexicept.progress import Progress, silent
from lexicept.storage.files import replacing_text
from lexicept.storage.workspace import Workspace
from lexicept.training.settings import Count, Flag, Share, Text, Whole, settings, to_mapping
from lexicept.vectors import Floats, Integers

SPLITS = {"train": "train", "dev": "dev", "test": "test", "evaluation": "test"}
"""Folder of each set → the split of its judgements."""

CLASSES = ("low", "middle", "high")
"""Thirds of the queries by matched-term ratio."""

POSITIVES, NEGATIVES = 3, 10
"""Most relevant documents of an evaluation query, and most documents judged not relevant."""

SEED = 0

SAMPLE = 256
"""Embeddings per cluster that centres are learned on."""

BLOCK = 8192
"""Embeddings in memory at once."""

QUERIES = 32
"""Queries compared with all documents at once."""


@settings
class ClusteringSettings:
    """Clusters of queries, and the sets drawn from the clusters (ESPLADE's sizes)."""

    source: Text
    """Documents, queries and judgements of training: a BEIR folder or an ir_datasets name."""
    clusters: Count = 10_000
    titles: Flag = False
    """True for documents of titles alone; documents without a title are left out."""
    documents_per_query: Count = 2
    """Least number of relevant documents of a query; other queries are left out."""
    test_queries: Count = 30
    """Queries of a cluster in the test set."""
    test_distractors: Whole = 90
    """Further queries of a cluster whose documents are in the test set."""
    dev_queries: Count = 1
    """Queries of a cluster in the validation set."""
    dev_distractors: Whole = 3
    """Further queries of a cluster whose documents are in the validation set."""
    evaluation_queries: Count = 9_000
    """Test queries in the evaluation set, a third of each class of matched-term ratio, before those
    without negatives are left out (the paper keeps 8,936)."""
    least_ratio: Share = 0.5
    """Least share of an evaluation query's terms in a document that is judged not relevant; the
    paper does not print it."""


class Picked(NamedTuple):
    """Query numbers of a set."""

    queries: Integers
    """Queries to search for."""
    distractors: Integers
    """Queries whose documents alone are in the set."""


class Matched(NamedTuple):
    """A query of the evaluation set, and document numbers."""

    query: int
    ratio: float
    """The largest share of the query's terms in a relevant document."""
    difficulty: str
    """One of ``CLASSES``."""
    positives: list[int]
    negatives: list[int]
    """Documents of other clusters with most of the query's terms, most first."""


class _Judged(NamedTuple):
    """Queries with the relevant documents, the most relevant first."""

    queries: list[Query]
    relevant: dict[int, dict[str, int]]
    """Document → relevance, by query number."""

    def qrels(self, query: int) -> Iterable[Qrel]:
        name = self.queries[query].id
        return (Qrel(name, document, value) for document, value in self.relevant[query].items())

    def documents(self, picked: Picked) -> set[str]:
        """Return the documents of a set's queries and distractors."""
        return {d for query in np.concatenate(picked) for d in self.relevant[int(query)]}


def clustered_sets(
    settings: ClusteringSettings, out: str | os.PathLike[str], progress: Progress = silent
) -> dict[str, int]:
    """Write four BEIR folders: ``train``, ``dev``, ``test`` and ``evaluation``.

    Queries are clustered by meaning. Of every cluster some queries are test queries, and some are
    distractors, whose documents the test set contains beside the relevant documents. The validation
    set is made the same way. The remaining queries and the documents are the training set.
    ``evaluation`` has all documents, and test queries of three classes of matched-term ratio, with
    documents judged not relevant that have most of a query's terms; ``ratios.tsv`` has each query's
    ratio and class. An interrupted call resumes with the embeddings on disk.

    Returns:
        The number of queries of each set.

    Raises:
        InputError: no judged queries, fewer than clusters, nothing left to train on, no query that
            suits the evaluation set, ``out`` exists, or unfinished work has other settings.
    """
    from lexicept.training.ranking import neural_teachers  # imports torch

    with Workspace(out, "cluster", to_mapping(settings)) as work:
        document_ids = {
            document.id
            for document in read_documents(settings.source)
            if not settings.titles or document.title.strip()
        }
        judged = _judged(settings, document_ids)
        texts = [query.text for query in judged.queries]
        folder = work.kept("embeddings")
        vectors, _ = neural_teachers.embeddings(
            DEFAULT_BACKBONE, texts, texts[:1], folder, progress
        )
        clusters = query_clusters(vectors, settings.clusters, SEED, progress)
        random = np.random.default_rng((SEED, 1))
        taken = np.zeros(len(clusters), bool)
        test = pick(clusters, settings.test_queries, settings.test_distractors, taken, random)
        dev = pick(clusters, settings.dev_queries, settings.dev_distractors, taken, random)
        if taken.all():
            raise InputError(f"{settings.source}: test and validation take every query")
        train = Picked(np.flatnonzero(~taken), np.empty(0, np.int64))
        sets = {"train": train, "dev": dev, "test": test}
        staged = work.staged()
        matched = _evaluation(settings, judged, clusters, test, staged, progress)
        documents = {name: judged.documents(picked) for name, picked in sets.items()}
        _write_documents(settings, staged, {**documents, "evaluation": document_ids})
        for name, picked in sets.items():
            judgements = ((judged.queries[q], judged.qrels(int(q))) for q in picked.queries)
            write_judged(staged / name, SPLITS[name], judgements)
        work.publish(staged)
    counts = {name: len(picked.queries) for name, picked in sets.items()}
    return {**counts, "evaluation": len(matched)}


def query_clusters(
    embeddings: Floats, clusters: int, seed: int = 0, progress: Progress = silent
) -> Integers:
    """Return the cluster of each embedding [n], by k-means over unit vectors.

    Centres are learned on at most ``SAMPLE`` embeddings per cluster, so that memory is bounded.

    Args:
        embeddings: [n, d]; may be memory-mapped.

    Raises:
        InputError: fewer embeddings than clusters.
    """
    from sklearn.cluster import MiniBatchKMeans
    from sklearn.preprocessing import normalize

    count = len(embeddings)
    if count < clusters:
        raise InputError(f"{count} queries can't make {clusters} clusters")

    def unit(numbers: Any) -> Floats:
        vectors: Floats = normalize(np.asarray(embeddings[numbers], np.float32))
        return vectors

    random = np.random.default_rng(seed)
    sample = np.sort(random.choice(count, min(count, SAMPLE * clusters), replace=False))
    model = MiniBatchKMeans(clusters, random_state=seed, batch_size=BLOCK, n_init=3)
    model.fit(unit(sample))
    assigned = []
    for start in range(0, count, BLOCK):
        assigned.append(model.predict(unit(slice(start, start + BLOCK))))
        progress("clustering", min(start + BLOCK, count), count)
    return np.concatenate(assigned).astype(np.int64)


def pick(
    clusters: Integers,
    queries: int,
    distractors: int,
    taken: np.ndarray,
    random: np.random.Generator,
) -> Picked:
    """Draw queries and distractors of every cluster among those not taken yet, and mark them.

    Args:
        clusters: of each query [n].
        queries, distractors: of a cluster; queries come first in a small cluster.
        taken: True for queries of a set [n]; changed in place.
    """
    order = np.argsort(clusters, kind="stable")
    borders = np.flatnonzero(np.diff(clusters[order])) + 1
    drawn: tuple[list[Integers], list[Integers]] = ([], [])
    for members in np.split(order, borders):
        free = random.permutation(members[~taken[members]])
        drawn[0].append(free[:queries])
        drawn[1].append(free[queries : queries + distractors])
    picked = Picked(np.sort(np.concatenate(drawn[0])), np.sort(np.concatenate(drawn[1])))
    taken[np.concatenate(picked)] = True
    return picked


def _judged(settings: ClusteringSettings, document_ids: set[str]) -> _Judged:
    """Read the queries with enough relevant documents."""
    texts = dict(read_queries(settings.source, "train"))
    relevance: dict[str, dict[str, int]] = {}
    for qrel in read_qrels(settings.source, "train"):
        if qrel.relevance > 0 and qrel.document_id in document_ids and qrel.query_id in texts:
            relevance.setdefault(qrel.query_id, {})[qrel.document_id] = qrel.relevance
    least = settings.documents_per_query
    names = sorted(name for name, documents in relevance.items() if len(documents) >= least)
    if not names:
        raise InputError(f"{settings.source}: no query has {least} relevant documents")
    relevant = {
        number: dict(sorted(relevance[name].items(), key=lambda item: -item[1]))
        for number, name in enumerate(names)
    }
    return _Judged([Query(name, texts[name]) for name in names], relevant)


class Terms:
    """Stems of queries and documents, without stop words; each stem counts once."""

    def __init__(self, queries: Sequence[str], documents: Sequence[str]) -> None:
        vectorizer = WordVectorizer()
        # Queries are read as documents, so that every term has a dimension.
        counts = [vectorizer.documents(texts) for texts in (queries, documents)]
        self.queries, self.documents = (
            sp.csr_array(
                (np.ones(each.nnz, np.float32), each.indices, each.indptr),
                shape=(each.shape[0], len(vectorizer.terms)),
            )
            for each in counts
        )
        self._inverted = sp.csc_array(self.documents.T)
        self.lengths = np.diff(self.queries.indptr)

    def ratios(self, query: int, documents: Sequence[int]) -> np.ndarray:
        """Return the share of a query's terms in each document; NaN without terms."""
        shared = self.documents[list(documents)] @ self.queries[[query]].T
        with np.errstate(invalid="ignore"):
            return np.asarray(shared.toarray().ravel() / self.lengths[query], np.float64)

    def matches(self, queries: Sequence[int]) -> sp.csr_array:
        """Return the number of terms shared by each query and document, CSR."""
        return sp.csr_array(self.queries[list(queries)] @ self._inverted)


def matched_queries(
    terms: Terms,
    relevant: Mapping[int, Sequence[int]],
    clusters: Integers,
    candidates: Sequence[int],
    settings: ClusteringSettings,
    progress: Progress = silent,
) -> list[Matched]:
    """Draw queries equally from three classes of matched-term ratio, with negatives.

    Negatives are relevant documents of other clusters' queries with most of a query's terms.
    Queries without positives or negatives are left out.

    Args:
        relevant: relevant documents by query, the most relevant first.
        clusters: of each query [n].
        candidates: the queries to draw from.
    """
    ratios = {
        query: float(terms.ratios(query, relevant[query]).max())
        for query in candidates
        if relevant.get(query) and terms.lengths[query]
    }
    order = sorted(ratios, key=lambda query: (ratios[query], query))
    random = np.random.default_rng(SEED)
    drawn: list[tuple[int, str]] = []
    for name, third in zip(CLASSES, np.array_split(np.array(order, np.int64), 3), strict=True):
        numbers = np.sort(random.permutation(third)[: settings.evaluation_queries // 3])
        drawn += [(int(query), name) for query in numbers]
    cluster_documents: dict[int, set[int]] = {}
    for query, documents in relevant.items():
        cluster_documents.setdefault(int(clusters[query]), set()).update(documents)
    matched = []
    for start in range(0, len(drawn), QUERIES):
        block = drawn[start : start + QUERIES]
        shared = terms.matches([query for query, _ in block])
        for place, (query, name) in enumerate(block):
            span = slice(shared.indptr[place], shared.indptr[place + 1])
            numbers, shares = shared.indices[span], shared.data[span] / terms.lengths[query]
            excluded = cluster_documents.get(int(clusters[query]), set()) | set(relevant[query])
            eligible = (shares >= settings.least_ratio - 1e-6) & ~np.isin(numbers, list(excluded))
            numbers, shares = numbers[eligible], shares[eligible]
            negatives = numbers[np.lexsort((numbers, -shares))][:NEGATIVES].tolist()
            if negatives:
                positives = list(relevant[query])[:POSITIVES]
                matched.append(Matched(query, ratios[query], name, positives, negatives))
        progress("matching", start + len(block), len(drawn))
    return matched


def _evaluation(
    settings: ClusteringSettings,
    judged: _Judged,
    clusters: Integers,
    test: Picked,
    folder: Path,
    progress: Progress,
) -> list[Matched]:
    """Write the queries and judgements of the evaluation set."""
    documents = sorted({document for listed in judged.relevant.values() for document in listed})
    numbers = {document: number for number, document in enumerate(documents)}
    texts = [""] * len(documents)
    for document in read_documents(settings.source):
        if document.id in numbers:
            texts[numbers[document.id]] = _text(settings, document).content
    terms = Terms([query.text for query in judged.queries], texts)
    relevant = {q: [numbers[document] for document in ids] for q, ids in judged.relevant.items()}
    matched = matched_queries(terms, relevant, clusters, test.queries.tolist(), settings, progress)
    if not matched:
        raise InputError(f"{settings.source}: no test query has documents that only look relevant")

    def qrels(match: Matched) -> Iterable[Qrel]:
        name, relevance = judged.queries[match.query].id, judged.relevant[match.query]
        for number in match.positives:
            yield Qrel(name, documents[number], relevance[documents[number]])
        for number in match.negatives:
            yield Qrel(name, documents[number], 0)

    place = folder / "evaluation"
    place.mkdir()
    judgements = ((judged.queries[match.query], qrels(match)) for match in matched)
    write_judged(place, SPLITS["evaluation"], judgements)
    with replacing_text(place / "ratios.tsv") as file:
        file.write("query-id\tratio\tclass\n")
        for match in matched:
            name = judged.queries[match.query].id
            file.write(f"{name}\t{match.ratio:.6g}\t{match.difficulty}\n")
    return matched


def _text(settings: ClusteringSettings, document: Document) -> Document:
    return Document(document.id, document.title) if settings.titles else document


def _write_documents(
    settings: ClusteringSettings, folder: Path, set_ids: Mapping[str, set[str]]
) -> None:
    """Write each set's ``corpus.jsonl`` in one pass over the documents."""
    with ExitStack() as stack:
        files = {}
        for name in set_ids:
            (folder / name).mkdir(exist_ok=True)
            files[name] = stack.enter_context(replacing_text(folder / name / "corpus.jsonl"))
        for original in read_documents(settings.source):
            document = _text(settings, original)
            fields = {"_id": document.id, "title": document.title, "text": document.text}
            line = json.dumps(fields, ensure_ascii=False) + "\n"
            for name, ids in set_ids.items():
                if document.id in ids:
                    files[name].write(line)
