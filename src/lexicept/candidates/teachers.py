"""Teachers: scores of candidate lists to learn from. ``neural_teachers`` has networks."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, runtime_checkable

import numpy as np

from lexicept.candidates.lists import CandidateList, Lists, append_lists
from lexicept.encoding.words import WordVectorizer
from lexicept.errors import InputError
from lexicept.index.term_frequencies import write_tf
from lexicept.progress import Progress, silent
from lexicept.storage.files import fingerprint
from lexicept.storage.workspace import Workspace
from lexicept.vectors import Floats
from lexicept.weighting import BM25

BATCH = 64
"""Lists of a unit of work; interrupted scoring resumes between units."""

ById = Mapping[str, str]
"""Id → text."""

Scorer = Callable[[Sequence[str], Sequence[Sequence[str]]], list[Floats]]
"""Ids of n queries and of each query's documents → n arrays of scores of the documents."""


@runtime_checkable
class Teacher(Protocol):
    """A model that scores documents; ``prepare`` sees all texts, to encode every text once."""

    def settings(self) -> dict[str, Any]:
        """Return JSON values that differ between teachers with different scores."""

    def prepare(
        self, queries: ById, documents: ById, folder: Path, progress: Progress = silent
    ) -> Scorer:
        """Return a scorer for queries and a whole collection, id → text. ``folder`` keeps
        embeddings: interrupted calls resume, and later calls with the same texts reuse them."""


@dataclass(frozen=True)
class BM25Teacher:
    """BM25 with the idf and mean length of the whole collection, as in an index of words."""

    language: str = "en"
    """ISO 639-1 code of the tokenizer."""

    def settings(self) -> dict[str, Any]:
        return {"name": "bm25", "language": self.language, "weighting": BM25().settings()}

    def prepare(
        self, queries: ById, documents: ById, folder: Path, progress: Progress = silent
    ) -> Scorer:
        """Weight the documents in memory. Raises InputError for an unknown language."""
        vectorizer = WordVectorizer(self.language)
        with TemporaryDirectory() as temporary:
            prefix = Path(temporary) / "frequencies"
            tf = write_tf(prefix, vectorizer, list(documents.values()), None, progress)
        weights = BM25().documents(tf)
        rows_of = {name: row for row, name in enumerate(documents)}

        def score(query_ids: Sequence[str], document_ids: Sequence[Sequence[str]]) -> list[Floats]:
            texts = [queries[query] for query in query_ids]
            vectors = BM25().queries(vectorizer.queries(texts))
            scores = []
            for query, ids in enumerate(document_ids):
                listed = weights[[rows_of[document] for document in ids]]
                scores.append((listed @ vectors[[query]].T).toarray()[:, 0])
            return scores

        return score


class Blend:
    """A weighted sum of teachers with different scales: each teacher's scores of a list are
    standardised first. Raises InputError for no teachers, or a weight that is not finite."""

    def __init__(self, weights: Mapping[Teacher, float]) -> None:
        if not weights or not all(map(math.isfinite, weights.values())):
            raise InputError(f"a blend needs teachers with finite weights: {dict(weights)}")
        self.weights = dict(weights)

    def settings(self) -> dict[str, Any]:
        teachers = [[teacher.settings(), weight] for teacher, weight in self.weights.items()]
        return {"name": "blend", "teachers": teachers}

    def prepare(
        self, queries: ById, documents: ById, folder: Path, progress: Progress = silent
    ) -> Scorer:
        """Prepare every teacher."""
        scorers = [
            (teacher.prepare(queries, documents, folder, progress), weight)
            for teacher, weight in self.weights.items()
        ]

        def score(query_ids: Sequence[str], document_ids: Sequence[Sequence[str]]) -> list[Floats]:
            totals: list[Floats] = [np.zeros(len(ids)) for ids in document_ids]
            for scorer, weight in scorers:
                for total, scores in zip(totals, scorer(query_ids, document_ids), strict=True):
                    total += weight * standardised(scores)
            return totals

        return score


def standardised(scores: Floats) -> Floats:
    """Scale scores to mean 0 and standard deviation 1; equal scores become 0."""
    values = scores.astype(np.float64)
    # Compared, not measured: rounding gives equal numbers a deviation.
    if not values.size or (values == values[0]).all():
        return np.zeros(values.size)
    return np.asarray((values - values.mean()) / values.std())


def score_lists(
    lists: Sequence[CandidateList],
    queries: ById,
    documents: ById,
    teacher: Teacher,
    out: str | os.PathLike[str],
    cache: str | os.PathLike[str] | None = None,
    *,
    restart: bool = False,
    progress: Progress = silent,
) -> Lists:
    """Write lists with a teacher's scores, which replace earlier scores; queries and the whole
    collection are id → text. ``cache`` is a folder of embeddings for later calls; None removes the
    embeddings in the end. Calling it again resumes interrupted work (see ``storage.workspace``).
    Raises InputError for no lists, a query or document without a text, a score that is not finite,
    an existing ``out``, unfinished work with other settings, or a second writing process."""
    if not lists:
        raise InputError("there are no lists to score")
    used: dict[str, str] = {}
    settings = {
        "lists": fingerprint(_survey(lists, queries, documents, used)),
        "queries": fingerprint(chain.from_iterable(used.items())),
        "documents": fingerprint(chain.from_iterable(documents.items())),
        "teacher": teacher.settings(),
    }
    with Workspace(out, "score", settings, restart=restart) as work:
        file = work.growing("lists.jsonl")
        folder = work.kept("cache") if cache is None else Path(cache)
        folder.mkdir(parents=True, exist_ok=True)
        score = teacher.prepare(used, documents, folder, progress)

        def scored(span: range) -> Iterator[CandidateList]:
            batch = lists[span.start : span.stop]
            scores = score([i.query_id for i in batch], [i.documents for i in batch])
            for item, values in zip(batch, scores, strict=True):
                yield item._replace(scores=tuple(values.tolist()))

        append_lists(file, len(lists), BATCH, scored, partial(progress, "scoring"))
        work.publish(file.path)
    return Lists.open(out)


def _survey(
    lists: Sequence[CandidateList], queries: ById, documents: ById, used: dict[str, str]
) -> Iterator[str]:
    """Yield each list's ids as JSON, for a fingerprint; put the texts of queries into ``used``."""
    for position, item in enumerate(lists, 1):
        if item.query_id not in queries:
            raise InputError(f"list {position}: no text for the query {item.query_id!r}")
        used[item.query_id] = queries[item.query_id]
        for document in item.documents:
            if document not in documents:
                raise InputError(f"list {position}: no text for the document {document!r}")
        yield json.dumps([item.query_id, item.relevant, *item.documents])
