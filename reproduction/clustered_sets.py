"""Training, validation and test sets of judged queries, drawn evenly from clusters of meaning.

ESPLADE's procedure (sections 3.2 and 4.1), for any collection of clicks or judgements.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lexicept.corpora import Document, Qrel, Query, read_documents, read_qrels, read_queries
from lexicept.corpora.pseudo_queries import write_judged
from lexicept.errors import InputError
from lexicept.models.sources import DEFAULT_BACKBONE
from lexicept.progress import Progress, silent
from lexicept.storage.files import replacing_text
from lexicept.storage.workspace import Workspace
from lexicept.training.settings import Count, Flag, Seed, Share, Text, Whole, settings, to_mapping
from lexicept.vectors import Integers
from reproduction.match_ratios import Matched, Terms, matched_queries
from reproduction.query_clusters import query_clusters

SPLITS = {"train": "train", "dev": "dev", "test": "test", "evaluation": "test"}
"""Folder of each set → the split of its judgements."""


@settings
class ClusteringSettings:
    """Clusters of queries, and the sets that are drawn from them (ESPLADE's sizes)."""

    source: Text
    """Documents, queries and judgements: a BEIR folder or an ir_datasets name."""
    split: Text = "train"
    """Split of the judgements."""
    model: Text = DEFAULT_BACKBONE
    """Dense model of sentence-transformers that embeds the queries."""
    clusters: Count = 10_000
    """Number of clusters."""
    titles: Flag = False
    """True if documents are their titles alone; those without a title are left out."""
    documents_per_query: Count = 2
    """Least number of relevant documents of a query; others are left out."""
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
    positives: Count = 3
    """Most relevant documents of an evaluation query."""
    negatives: Count = 10
    """Most documents of an evaluation query that are judged not relevant."""
    least_ratio: Share = 0.5
    """Least share of an evaluation query's terms in a document that is judged not relevant; the
    paper does not print it."""
    language: Text = "en"
    """Language of the terms."""
    seed: Seed = 0
    """Seed of clusters and sets."""


class Picked(NamedTuple):
    """Query rows of a set."""

    queries: Integers
    """Queries that are asked."""
    distractors: Integers
    """Queries whose documents alone are in the set."""


class _Judged(NamedTuple):
    """Queries with their relevant documents, the most relevant first."""

    queries: list[Query]
    relevant: dict[int, dict[str, int]]
    """Document → relevance, by query row."""


def clustered_sets(
    settings: ClusteringSettings,
    out: str | os.PathLike[str],
    progress: Progress = silent,
    *,
    restart: bool = False,
) -> dict[str, int]:
    """Write four BEIR folders: ``train``, ``dev``, ``test`` and ``evaluation``.

    Queries are clustered by meaning. Of every cluster some are test queries; others are
    distractors, whose documents the test set contains beside the relevant ones. The validation set
    is made the same way. The remaining queries and their documents are the training set.
    ``evaluation`` has all documents, and test queries of three classes of matched-term ratio, with
    documents judged not relevant that have most of a query's terms; its ``ratios.tsv`` has each
    query's ratio and class.

    An interrupted call resumes with the embeddings that it has.

    Args:
        out: a folder that does not exist.
        restart: discard unfinished work instead of resuming it.

    Returns:
        The number of queries of each set.

    Raises:
        InputError: no judged queries, fewer than clusters, nothing left to train on, no query that
            suits the evaluation set, ``out`` exists, or unfinished work has other settings.
    """
    with Workspace(out, "cluster", to_mapping(settings), restart=restart) as work:
        known = _contents(settings)
        judged = _judged(settings, known)
        clusters = _clusters(settings, judged.queries, work.kept("embeddings"), progress)
        random = np.random.default_rng((settings.seed, 1))
        taken = np.zeros(len(clusters), bool)
        test = pick(clusters, settings.test_queries, settings.test_distractors, taken, random)
        dev = pick(clusters, settings.dev_queries, settings.dev_distractors, taken, random)
        if taken.all():
            raise InputError(f"{settings.source}: test and validation take every query")
        sets = {"train": Picked(np.flatnonzero(~taken), np.empty(0, np.int64))}
        sets |= {"dev": dev, "test": test}
        staged = work.staged()
        matched = _evaluation(settings, judged, clusters, test, staged, progress)
        wanted = {name: _documents(judged, picked) for name, picked in sets.items()}
        _write_documents(settings, staged, {**wanted, "evaluation": known})
        for name, picked in sets.items():
            asked = ((judged.queries[q], _qrels(judged, int(q))) for q in picked.queries)
            write_judged(staged / name, SPLITS[name], asked)
        work.publish(staged)
    counts = {name: len(picked.queries) for name, picked in sets.items()}
    return {**counts, "evaluation": len(matched)}


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
        queries, distractors: of a cluster; queries come first where it has fewer.
        taken: True for queries that a set has [n]; changed in place.
    """
    order = np.argsort(clusters, kind="stable")
    borders = np.flatnonzero(np.diff(clusters[order])) + 1
    asked, others = [], []
    for members in np.split(order, borders):
        free = random.permutation(members[~taken[members]])
        asked.append(free[:queries])
        others.append(free[queries : queries + distractors])
    picked = Picked(np.sort(np.concatenate(asked)), np.sort(np.concatenate(others)))
    taken[np.concatenate(picked)] = True
    return picked


def _contents(settings: ClusteringSettings) -> set[str]:
    """Return the ids of the documents."""
    documents = read_documents(settings.source)
    return {one.id for one in documents if not settings.titles or one.title.strip()}


def _judged(settings: ClusteringSettings, documents: set[str]) -> _Judged:
    """Read the queries with enough relevant documents among these."""
    texts = dict(read_queries(settings.source, settings.split))
    found: dict[str, dict[str, int]] = {}
    for qrel in read_qrels(settings.source, settings.split):
        if qrel.relevance > 0 and qrel.document_id in documents and qrel.query_id in texts:
            found.setdefault(qrel.query_id, {})[qrel.document_id] = qrel.relevance
    names = sorted(q for q, listed in found.items() if len(listed) >= settings.documents_per_query)
    if not names:
        least = settings.documents_per_query
        raise InputError(f"{settings.source}: no query has {least} relevant documents")
    relevant = {
        row: dict(sorted(found[name].items(), key=lambda item: -item[1]))
        for row, name in enumerate(names)
    }
    return _Judged([Query(name, texts[name]) for name in names], relevant)


def _clusters(
    settings: ClusteringSettings, queries: Sequence[Query], folder: Path, progress: Progress
) -> Integers:
    from lexicept.training.candidates.neural_teachers import embeddings

    texts = [query.text for query in queries]
    vectors, _ = embeddings(settings.model, texts, texts[:1], folder, progress)
    return query_clusters(vectors, settings.clusters, settings.seed, progress=progress)


def _documents(judged: _Judged, picked: Picked) -> set[str]:
    """Return the documents of a set: those of its queries and of its distractors."""
    rows = np.concatenate(picked)
    return {document for row in rows for document in judged.relevant[int(row)]}


def _qrels(judged: _Judged, query: int) -> Iterable[Qrel]:
    name = judged.queries[query].id
    return (Qrel(name, document, value) for document, value in judged.relevant[query].items())


def _evaluation(
    settings: ClusteringSettings,
    judged: _Judged,
    clusters: Integers,
    test: Picked,
    folder: Path,
    progress: Progress,
) -> list[Matched]:
    """Write the queries and judgements of the evaluation set."""
    needed = sorted({document for listed in judged.relevant.values() for document in listed})
    number = {document: row for row, document in enumerate(needed)}
    texts = [""] * len(needed)
    for document in read_documents(settings.source):
        if document.id in number:
            texts[number[document.id]] = _text(settings, document).content
    terms = Terms([query.text for query in judged.queries], texts, settings.language)
    matched = matched_queries(
        terms,
        {row: [number[document] for document in ids] for row, ids in judged.relevant.items()},
        clusters,
        [int(row) for row in test.queries],
        settings.evaluation_queries,
        positives=settings.positives,
        negatives=settings.negatives,
        least_ratio=settings.least_ratio,
        seed=settings.seed,
        progress=progress,
    )
    if not matched:
        raise InputError(f"{settings.source}: no test query has documents that only look relevant")
    place = folder / "evaluation"
    place.mkdir()
    asked = ((judged.queries[one.query], _matched_qrels(judged, one, needed)) for one in matched)
    write_judged(place, SPLITS["evaluation"], asked)
    with replacing_text(place / "ratios.tsv") as file:
        file.write("query-id\tratio\tclass\n")
        for one in matched:
            file.write(f"{judged.queries[one.query].id}\t{one.ratio:.6g}\t{one.difficulty}\n")
    return matched


def _matched_qrels(judged: _Judged, one: Matched, documents: Sequence[str]) -> Iterable[Qrel]:
    name, values = judged.queries[one.query].id, judged.relevant[one.query]
    kept = [documents[row] for row in one.positives]
    positives = [Qrel(name, document, values[document]) for document in kept]
    return [*positives, *(Qrel(name, documents[row], 0) for row in one.negatives)]


def _text(settings: ClusteringSettings, document: Document) -> Document:
    return Document(document.id, document.title) if settings.titles else document


def _write_documents(
    settings: ClusteringSettings, folder: Path, wanted: Mapping[str, set[str]]
) -> None:
    """Write each set's ``corpus.jsonl`` in one pass over the documents."""
    with ExitStack() as stack:
        files = {}
        for name in wanted:
            (folder / name).mkdir(exist_ok=True)
            files[name] = stack.enter_context(replacing_text(folder / name / "corpus.jsonl"))
        for document in read_documents(settings.source):
            kept = _text(settings, document)
            fields = {"_id": kept.id, "title": kept.title, "text": kept.text}
            line = json.dumps(fields, ensure_ascii=False) + "\n"
            for name, ids in wanted.items():
                if document.id in ids:
                    files[name].write(line)
