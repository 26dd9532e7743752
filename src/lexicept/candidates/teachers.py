"""Teachers: scores of candidate lists to learn from. ``neural_teachers`` has a cross-encoder."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from lexicept.candidates.lists import CandidateList, Lists, append_lists
from lexicept.errors import InputError
from lexicept.progress import Progress, silent
from lexicept.storage.files import fingerprint
from lexicept.storage.workspace import Workspace
from lexicept.vectors import Floats

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


def score_lists(
    lists: Sequence[CandidateList],
    queries: ById,
    documents: ById,
    teacher: Teacher,
    out: str | os.PathLike[str],
    *,
    restart: bool = False,
    progress: Progress = silent,
) -> Lists:
    """Write lists with a teacher's scores, which replace earlier scores; queries and the whole
    collection are id → text. Calling it again resumes interrupted work (see ``storage.workspace``).
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
        score = teacher.prepare(used, documents, work.kept("cache"), progress)

        def scored(span: range) -> Iterator[CandidateList]:
            batch = lists[span.start : span.stop]
            scores = score([i.query_id for i in batch], [i.documents for i in batch])
            for item, values in zip(batch, scores, strict=True):
                array = np.asarray(values, np.float64)
                if array.shape != (len(item.documents),):
                    shape = f"scores of shape {array.shape} for {len(item.documents)} documents"
                    raise InputError(f"the teacher gave the query {item.query_id!r} {shape}")
                yield item._replace(scores=tuple(array.tolist()))

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
