"""Mining: search results of training queries as candidate lists."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from functools import partial

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
    listed = [[query, *documents] for query, documents in positives.items()]
    identity = {
        "index": fingerprint_json(index.manifest),
        "queries": fingerprint(text for pair in queries.items() for text in pair),
        "relevant": fingerprint_json(listed),
        "depth": depth,
        "vocabulary": vocabulary,
    }
    names = list(queries)

    def lists_of(span: range) -> Iterator[CandidateList]:
        batch = names[span.start : span.stop]
        vectors = index.query_vectors([queries[name] for name in batch], vocabulary)
        # Relevant documents among the hits are not candidates: search for as many more.
        most = depth + max(len(positives[name]) for name in batch)
        for query, hits in zip(batch, index.rank(vectors, most), strict=True):
            negatives = [hit.id for hit in hits if hit.id not in positives[query]][:depth]
            if ids := (*positives[query], *negatives):
                yield CandidateList(query, ids, len(positives[query]))

    with Workspace(out, "mine", identity, restart=restart) as work:
        file = work.growing("lists.jsonl")
        append_lists(file, len(names), BATCH, lists_of, partial(progress, "mining"))
        work.publish(file.path)
    return Lists.open(out)
