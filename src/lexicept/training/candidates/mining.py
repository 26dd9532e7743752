"""Mining: the documents that an index finds for training queries, as candidate lists."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from lexicept.corpora.pseudo_queries import random_for
from lexicept.errors import InputError
from lexicept.index.reader import IndexReader
from lexicept.progress import Progress, silent
from lexicept.storage.files import fingerprint, fingerprint_json
from lexicept.storage.workspace import Workspace
from lexicept.training.candidates.lists import CandidateList, Lists, append_lists

BATCH = 256
"""Queries of a unit of work that interrupted mining keeps."""


def mine(
    index: IndexReader,
    queries: Mapping[str, str],
    relevant: Mapping[str, Collection[str]],
    out: str | os.PathLike[str],
    *,
    depth: int = 100,
    vocabulary: str | None = None,
    max_positive_share: float | None = None,
    random_negatives: int = 0,
    seed: int = 0,
    restart: bool = False,
    progress: Progress = silent,
) -> Lists:
    """Write a candidate list for each query: its relevant documents, then the best of the others.

    An interrupted call is resumed by calling it again (see ``storage.workspace``).

    Args:
        queries: id → text. A query without relevant documents that finds nothing has no list.
        relevant: query id → ids of relevant documents, all of them in the index.
        out: the file of the lists to create.
        depth: most candidates of a query; documents that score 0 are left out.
        vocabulary: search in one vocabulary only; None searches all of them.
        max_positive_share: leave out candidates that score above this share of the best relevant
            document's score, as they may well be relevant (NV-Retriever's TopK-PercPos).
        random_negatives: documents of the whole collection added to each list, drawn by ``seed``
            and the query's id; neither relevant nor found.
        restart: discard unfinished work instead of resuming it.

    Raises:
        InputError: a relevant document that the index does not have, arguments out of range,
            ``out`` exists, unfinished work with other settings, another process is writing there,
            or no query has a list.
    """
    if depth < 0 or random_negatives < 0 or not depth + random_negatives:
        raise InputError(f"depth {depth} and {random_negatives} random negatives: nothing to mine")
    if max_positive_share is not None and not 0 < max_positive_share < np.inf:
        raise InputError(f"max_positive_share must be above 0, not {max_positive_share}")
    known = _known(index, queries, relevant)
    settings = {
        "index": fingerprint_json(index.manifest),
        "queries": fingerprint(text for pair in queries.items() for text in pair),
        "relevant": fingerprint_json([[query, *known[query]] for query in known]),
        "depth": depth,
        "vocabulary": vocabulary,
        "max_positive_share": max_positive_share,
        "random_negatives": random_negatives,
        "seed": seed,
    }
    names = list(queries)
    target = Path(out)
    with Workspace(target, "mine", settings, restart=restart) as work:
        part = work.growing("lists.jsonl")
        for start in range(part.done, len(names), BATCH):
            batch = names[start : start + BATCH]
            vectors = index.query_vectors([queries[name] for name in batch], vocabulary)
            most = depth + max(len(known[name]) for name in batch)
            lists = []
            for row, hits in enumerate(index.search_vectors(vectors, most)):
                query, positives = batch[row], known[batch[row]]
                limit = np.inf
                if max_positive_share is not None and positives:
                    scores = (_score(index, vectors, row, document) for document in positives)
                    limit = max_positive_share * max(scores)
                others = [hit for hit in hits if hit.id not in positives][:depth]
                listed = [*positives, *(hit.id for hit in others if hit.score <= limit)]
                if random_negatives:
                    taken = {*positives, *(hit.id for hit in hits)}
                    listed += _draw(random_negatives, index, taken, random_for(seed, query))
                if listed:
                    lists.append(CandidateList(query, tuple(listed), len(positives)))
            append_lists(part, lists, start + len(batch))
            progress("mining", part.done, len(names))
        work.publish(part.path)
    return Lists.open(target)


def _known(
    index: IndexReader, queries: Mapping[str, str], relevant: Mapping[str, Collection[str]]
) -> dict[str, dict[str, None]]:
    """The relevant documents of each query, in order, each of them in the index."""
    known = {query: dict.fromkeys(relevant.get(query, ())) for query in queries}
    for query, documents in known.items():
        for document in documents:
            try:
                index.document_number(document)
            except InputError as error:
                raise InputError(f"query {query!r}: {error}") from None
    return known


def _score(index: IndexReader, queries: sp.csr_array, row: int, document: str) -> float:
    """Return the score that a search would give a document, found or not: that of its best row."""
    span = slice(queries.indptr[row], queries.indptr[row + 1])
    dimensions, weights = queries.indices[span], queries.data[span]
    prior = weights @ index.derived.background[dimensions]
    engine = index.engine
    return max(
        float(
            weights @ engine.document_weights(number, dimensions) + engine.offsets[number] * prior
        )
        for number in index.document_rows(document)
    )


def _draw(
    count: int, index: IndexReader, taken: set[str], random: np.random.Generator
) -> Iterator[str]:
    """Yield up to ``count`` ids of different documents that are not taken; ``taken`` grows by
    them."""
    firsts = index.passages.firsts
    for _ in range(min(count, len(firsts) - len(taken))):
        while (document := index.document_ids[int(firsts[random.integers(len(firsts))])]) in taken:
            pass
        taken.add(document)
        yield document
