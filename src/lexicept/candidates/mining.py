"""Mining: search results of training queries as candidate lists."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np
import scipy.sparse as sp

from lexicept.candidates.lists import CandidateList, Lists, append_lists
from lexicept.corpora.pseudo_queries import random_for
from lexicept.errors import InputError
from lexicept.index.reader import IndexReader
from lexicept.progress import Progress, silent
from lexicept.storage.files import fingerprint, fingerprint_json
from lexicept.storage.workspace import Workspace

BATCH = 256
"""Queries of a unit of work; interrupted mining resumes between units."""


@dataclass(frozen=True)
class MiningSettings:
    """Choice of candidates. Raises InputError for a value out of range, or no candidates at all."""

    depth: int = 100
    """Largest number of candidates of a query; documents with score 0 are left out."""
    vocabulary: str | None = None
    """Vocabulary to search; all by default."""
    max_positive_share: float | None = None
    """Leave out candidates above this share of the best relevant document's score, as probably
    relevant (NV-Retriever's TopK-PercPos)."""
    random_negatives: int = 0
    """Documents drawn from the whole collection by ``seed`` and the query's id, neither relevant
    nor found, to add to each list."""
    seed: int = 0
    """Seed of these documents."""

    def __post_init__(self) -> None:
        if self.depth < 0 or self.random_negatives < 0 or not self.depth + self.random_negatives:
            raise InputError(
                f"depth {self.depth} and {self.random_negatives} random negatives: nothing to mine"
            )
        share = self.max_positive_share
        if share is not None and not 0 < share < np.inf:
            raise InputError(f"max_positive_share must be above 0, not {share}")


def mine(
    index: IndexReader,
    queries: Mapping[str, str],
    relevant: Mapping[str, Collection[str]],
    out: str | os.PathLike[str],
    settings: MiningSettings = MiningSettings(),
    *,
    restart: bool = False,
    progress: Progress = silent,
) -> Lists:
    """Write a candidate list for each query, id → text: relevant documents, query id → ids, then
    the best other hits; none for a query with neither. Calling it again resumes interrupted work
    (see ``storage.workspace``). Raises InputError for a relevant document missing from the index,
    an existing ``out``, unfinished work with other settings, a second writer, or no lists."""
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
        **asdict(settings),
    }
    names = list(queries)

    def lists_of(span: range) -> Iterator[CandidateList]:
        batch = names[span.start : span.stop]
        vectors = index.query_vectors([queries[name] for name in batch], settings.vocabulary)
        # Relevant documents among the hits are not candidates: search for as many more.
        most = settings.depth + max(len(positives[name]) for name in batch)
        for position, hits in enumerate(index.rank(vectors, most)):
            query, relevant_ids = batch[position], positives[batch[position]]
            # Above the limit, a candidate is probably a relevant document without judgement.
            limit = np.inf
            if settings.max_positive_share is not None and relevant_ids:
                scores = (_score(index, vectors, position, document) for document in relevant_ids)
                limit = settings.max_positive_share * max(scores)
            negatives = [hit for hit in hits if hit.id not in relevant_ids][: settings.depth]
            ids = [*relevant_ids, *(hit.id for hit in negatives if hit.score <= limit)]
            if settings.random_negatives:
                taken = {*relevant_ids, *(hit.id for hit in hits)}
                random = random_for(settings.seed, query)
                ids += _draw(settings.random_negatives, index, taken, random)
            if ids:
                yield CandidateList(query, tuple(ids), len(relevant_ids))

    with Workspace(out, "mine", identity, restart=restart) as work:
        file = work.growing("lists.jsonl")
        append_lists(file, len(names), BATCH, lists_of, partial(progress, "mining"))
        work.publish(file.path)
    return Lists.open(out)


def _score(index: IndexReader, queries: sp.csr_array, position: int, document: str) -> float:
    """Return a document's score in a search, found or not: the score of the best passage."""
    span = slice(queries.indptr[position], queries.indptr[position + 1])
    dimensions, weights = queries.indices[span], queries.data[span]
    prior = weights @ index.derived.background[dimensions]
    engine = index.engine
    return max(
        float(
            weights @ engine.document_weights(passage, dimensions) + engine.offsets[passage] * prior
        )
        for passage in index.entries_of(document)
    )


def _draw(
    count: int, index: IndexReader, taken: set[str], random: np.random.Generator
) -> Iterator[str]:
    """Yield up to ``count`` ids of distinct new documents, and add the ids to ``taken``."""
    firsts = index.passages.firsts
    for _ in range(min(count, len(firsts) - len(taken))):
        while (document := index.document_ids[int(firsts[random.integers(len(firsts))])]) in taken:
            pass
        taken.add(document)
        yield document
