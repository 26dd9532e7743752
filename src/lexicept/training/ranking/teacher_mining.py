"""Hard negatives by the teacher's own scores of the whole collection."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from pathlib import Path

import torch

from lexicept.candidates.lists import CandidateList, Lists, append_lists
from lexicept.errors import InputError
from lexicept.progress import Progress, silent
from lexicept.storage.files import fingerprint
from lexicept.storage.workspace import Workspace
from lexicept.training.ranking.data import TrainingData

BATCH = 256
"""Queries of a unit of work; interrupted mining resumes between units."""

DOCUMENTS = 2**16
"""Documents scored at once."""


def teacher_lists(
    data: TrainingData,
    relevant: Mapping[str, Collection[str]],
    out: Path,
    depth: int,
    progress: Progress = silent,
) -> Lists:
    """Write each query's relevant documents, then the ``depth`` best others by the teacher's score.
    Raises InputError without a teacher, for an existing ``out``, or for no lists."""
    if data.teacher is None:
        raise InputError("data.mining: teacher needs a teacher: dense, bm25_weight or own")
    names = data.query_ids
    settings = {
        "documents": fingerprint(data.document_ids),
        "queries": fingerprint(data.queries),
        "dense_weight": data.teacher.dense_weight,
        "bm25_weight": data.teacher.bm25_weight,
        "depth": depth,
    }

    def lists_of(span: range) -> Iterator[CandidateList]:
        most = max(len(relevant.get(names[query], ())) for query in span) + depth
        for query, best in zip(span, _best(data, span, most), strict=True):
            positives = dict.fromkeys(relevant.get(names[query], ()))
            ids = (data.document_ids[index] for index in best)
            negatives = [document for document in ids if document not in positives][:depth]
            yield CandidateList(names[query], (*positives, *negatives), len(positives))

    with Workspace(out, "mine by teacher", settings) as work:
        file = work.growing("lists.jsonl")
        append_lists(file, len(names), BATCH, lists_of, partial(progress, "mining"))
        work.publish(file.path)
    return Lists.open(out)


def _best(data: TrainingData, queries: range, count: int) -> list[list[int]]:
    """Return the numbers of the ``count`` best documents of each query, best first."""
    scores = torch.empty(len(queries), 0)
    documents = torch.empty(len(queries), 0, dtype=torch.long)
    # The best so far compete with each block of documents, so that memory stays bounded.
    for start in range(0, len(data.document_ids), DOCUMENTS):
        block = range(start, min(start + DOCUMENTS, len(data.document_ids)))
        taught = data.teach(queries, block)
        assert taught is not None
        scores = torch.cat([scores, taught], dim=1)
        documents = torch.cat([documents, torch.tensor(block).expand(len(queries), -1)], dim=1)
        scores, best = scores.topk(min(count, scores.shape[1]), dim=1)
        documents = documents.gather(1, best)
    return documents.tolist()
