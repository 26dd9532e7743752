"""Mining: search results of training queries as candidate lists."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from lexicept.candidates.lists import CandidateList, Lists, append_lists
from lexicept.errors import InputError
from lexicept.index.reader import IndexReader
from lexicept.progress import Progress, silent
from lexicept.storage.files import fingerprint, fingerprint_json
from lexicept.storage.workspace import Workspace

BATCH = 256
"""Queries of a unit of work; interrupted mining resumes between units."""


def mine(
    index: IndexReader,
    queries: Mapping[str, str],
    relevant: Mapping[str, Collection[str]],
    out: str | os.PathLike[str],
    depth: int = 100,
    vocabulary: str | None = None,
    *,
    restart: bool = False,
    progress: Progress = silent,
) -> Lists:
    """Write a candidate list for each query, id → text: relevant documents, query id → ids, then
    the ``depth`` best other hits, in one ``vocabulary`` or all; none for a query with neither.
    Calling it again resumes interrupted work (see ``storage.workspace``). Raises InputError for a
    relevant document missing from the index, an existing ``out``, unfinished work with other
    settings, a second writer, or no lists."""
    positives = {query: dict.fromkeys(relevant.get(query, ())) for query in queries}
    for query, documents in positives.items():
        for document in documents:
            try:
                index.document_number(document)
            except InputError as error:
                raise InputError(f"query {query!r}: {error}") from None
    identity = {
        "index": fingerprint_json(index.manifest),
        "queries": fingerprint(text for pair in queries.items() for text in pair),
        "vocabulary": vocabulary,
    }
    texts = list(queries.values())

    def best(span: range, count: int) -> Iterator[list[str]]:
        vectors = index.query_vectors(texts[span.start : span.stop], vocabulary)
        for hits in index.rank(vectors, count):
            yield [hit.id for hit in hits]

    return mined_lists(
        out, "mine", identity, positives, depth, best, restart=restart, progress=progress
    )


def mined_lists(
    out: str | os.PathLike[str],
    task: str,
    identity: dict[str, Any],
    positives: Mapping[str, Collection[str]],
    depth: int,
    best: Callable[[range, int], Iterable[Sequence[str]]],
    *,
    restart: bool = False,
    progress: Progress = silent,
) -> Lists:
    """Write a list for each query with relevant documents or others; see ``mine``.

    Args:
        task: the name of the work.
        identity: JSON values that differ between works with different results.
        positives: query id → ids of its relevant documents.
        best: a span of queries and a count → ids of the best documents of each query.
    """
    names = list(positives)
    listed = fingerprint_json([[query, *ids] for query, ids in positives.items()])

    def lists_of(span: range) -> Iterator[CandidateList]:
        batch = names[span.start : span.stop]
        # Relevant documents among the best are not candidates: search for as many more.
        most = depth + max(len(positives[name]) for name in batch)
        for query, ids in zip(batch, best(span, most), strict=True):
            relevant = dict.fromkeys(positives[query])
            negatives = [document for document in ids if document not in relevant][:depth]
            if documents := (*relevant, *negatives):
                yield CandidateList(query, documents, len(relevant))

    settings = {**identity, "relevant": listed, "depth": depth}
    with Workspace(out, task, settings, restart=restart) as work:
        file = work.growing("lists.jsonl")
        append_lists(file, len(names), BATCH, lists_of, partial(progress, "mining"))
        work.publish(file.path)
    return Lists.open(out)
