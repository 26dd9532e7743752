"""Arguments of the public functions: an index, opened or by path, and judged queries for it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import TypeAlias

from lexicept.corpora import Qrel, Query, read_qrels, read_queries
from lexicept.errors import InputError, LexiceptWarning
from lexicept.index.reader import IndexReader
from lexicept.pipelines.snapshot import Snapshot

EXAMPLES = 5
"""Most ids of queries in a warning."""


IndexLike: TypeAlias = Snapshot | IndexReader | str | os.PathLike[str]
"""An opened index, or the path of one."""


def reader_of(index: IndexLike) -> IndexReader:
    """Return the snapshot that an opened index holds, or open the one at a path. Raises
    IndexFormatError for a path without an index, or with a damaged one."""
    if isinstance(index, str | os.PathLike):
        return warn_of_missing(IndexReader.open(index))
    if isinstance(index, IndexReader):
        return index
    return index.reader


def warn_of_missing(index: IndexReader) -> IndexReader:
    """Return an index; warn of vocabularies that its build has yet to add."""
    if index.missing:
        there = " and ".join(vocabulary.name for vocabulary in index.vocabularies)
        follow = f"{' and '.join(index.missing)} follow when its build ends"
        message = f"{index.path}: searched by {there} alone so far; {follow}"
        warnings.warn(message, LexiceptWarning, stacklevel=4)
    return index


def single_vocabulary(index: IndexReader, choice: str | None) -> str | None:
    """Return the vocabulary to search alone, or None for all: "all" are words and concepts. Raises
    InputError for a vocabulary that the index does not have."""
    present = [vocabulary.name for vocabulary in index.vocabularies]
    for name in ("words", "concepts") if choice == "all" else (choice,):
        if name is not None and name not in present:
            raise InputError(f"{index.path} has no {name}, only {', '.join(present)}")
    return None if choice == "all" else choice


def read_judged(
    index: IndexReader, dataset: str | os.PathLike[str], split: str
) -> tuple[list[Query], list[Qrel]]:
    """Return the judged queries of a dataset and its judgements. Warns of judged queries without
    a text, which count as queries without results. Raises InputError for an
    unknown dataset or split, and without judgements of indexed documents."""
    queries, qrels = list(read_queries(dataset, split)), list(read_qrels(dataset, split))
    source = f"{os.fspath(dataset)} ({split})"
    check_judged(index, qrels, source)
    with_text = {query.id for query in queries if query.text.strip()}
    judged = dict.fromkeys(qrel.query_id for qrel in qrels)
    if empty := [query_id for query_id in judged if query_id not in with_text]:
        names = ", ".join(empty[:EXAMPLES]) + (", …" if len(empty) > EXAMPLES else "")
        count = f"{len(empty):,} of the {len(judged):,} judged queries"
        message = f"{source}: {count} have no text, so that a search scores 0: {names}"
        warnings.warn(message, LexiceptWarning, stacklevel=3)
    return queries, qrels


def check_judged(index: IndexReader, qrels: Sequence[Qrel], source: str) -> None:
    """Warn of judged documents outside of the index, which no search can return.

    Args:
        source: the name of the judgements in messages.

    Raises:
        InputError: the index has no judged document.
    """
    documents = {qrel.document_id for qrel in qrels}
    missing = sum(document not in index for document in documents)
    if documents and missing == len(documents):
        raise InputError(
            f"{index.path}: none of the {missing:,} documents that {source} judges is in this "
            "index, which may hold another collection"
        )
    if missing:
        warnings.warn(
            f"{index.path}: {missing:,} of the {len(documents):,} documents that {source} judges "
            "are not in this index; no search can return them",
            LexiceptWarning,
            stacklevel=4,
        )
