"""Postings of a large index after a change, without weighing all documents again.

Weights depend on statistics: the number of documents, the mean length, document frequencies. A
change alters the statistics, but a large index without RRA keeps the statistics and the postings of
the last time when all documents were weighed. All documents since then are weighed by the same
statistics, and their postings written beside the kept postings (see ``engines.joined``). The
document frequency of a dimension that no document had at the time is counted in the added
documents. Once the changes are more than 1/``STALE`` of the documents, all are weighed again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lexicept.engines import ExactEngine, PostingsEngine
from lexicept.engines.inverted import PostingsWriter
from lexicept.engines.joined import ADDED, SIZES, JoinedEngine, columns_of
from lexicept.index.impacts import Derived, Weigher, load_statistics, statistics_of, write_segments
from lexicept.index.parts import Parts
from lexicept.index.reader import IndexReader
from lexicept.parallel.shards import Shard, over, shards_of
from lexicept.storage.arrays import load_array, save_array
from lexicept.vectors import Integers

LARGE = 2**17
"""Documents from which on a change keeps postings; fewer are weighed again in a second or two."""

STALE = 16
"""All documents are weighed again once the changes are more than 1/STALE of all."""


class PostingsChange(NamedTuple):
    """The documents of a change by their postings, kept ones or added ones."""

    kept: Integers
    """New index of each document of the kept postings; -1 for a deleted document."""
    added: Integers
    """New indexes of the documents of the added postings, ascending; may be empty."""
    deleted: Integers
    """Old indexes of the documents that the kept postings lose."""

    @classmethod
    def plan(cls, engine: PostingsEngine, order: Integers) -> PostingsChange | None:
        """Plan the postings of a change of documents; None if all documents are to be weighed
        again, in a small index or after too many changes.

        Args:
            order: present index of each new document, counted on through fresh documents [N].
        """
        before: Integers = np.arange(engine.num_documents)
        if isinstance(engine, JoinedEngine):
            before = engine.kept_documents
        (stays,) = np.nonzero(order < engine.num_documents)
        moved = np.full(engine.num_documents, -1, np.int32)
        moved[order[stays]] = stays
        kept = np.where(before < 0, -1, moved[before]).astype(np.int32)
        is_added = np.ones(order.size, bool)
        is_added[kept[kept >= 0]] = False
        changes = np.count_nonzero(is_added) + np.count_nonzero(kept < 0)
        if order.size < LARGE or changes * STALE > kept.size:
            return None
        return cls(kept, np.flatnonzero(is_added), before[(before >= 0) & (kept < 0)])


def write_added(
    index: IndexReader,
    change: PostingsChange,
    sizes: Mapping[str, int],
    folder: Path,
    documents: Parts,
) -> None:
    """Write the added postings of a change into ``folder``, beside the linked files of the kept
    postings. Raises InputError for weights that are not finite.

    Args:
        index: before the change.
        sizes: dimensions of each vocabulary, at least as many as before.
        documents: after the change.
    """
    engine, latest = index.engine, index.folder / "postings"
    dimensions = np.array([*sizes.values()])
    kept_df = np.zeros(dimensions.sum(), np.int64)
    bounds, df = np.zeros(kept_df.size, np.float32), engine.df
    added, deleted = (
        [selected.tf(name, size) for name, size in sizes.items()]
        for selected in (documents[change.added], index.parts[change.deleted])
    )
    weigher = _weigher(index, change.kept.size, sizes, shards_of(added))
    if isinstance(engine, JoinedEngine):
        latest, df = latest / ADDED, engine.kept_df
    columns = columns_of(load_array(latest / SIZES, np.int64), dimensions)
    kept_df[columns], bounds[columns] = df, load_array(latest / "bounds.npy", np.float32)
    for weighed in over(weigher.weigh, shards_of(deleted)):
        # Some entries may be zeros.
        weighted = weighed.weights.indices[weighed.weights.data > 0]
        kept_df -= np.bincount(weighted, minlength=kept_df.size)
    largest = reduce(np.maximum, over(weigher.bounds, shards_of(added)))
    target = folder / ADDED
    target.mkdir(parents=True)
    with PostingsWriter(largest, engine.weight_bits, target) as postings:
        for _ in write_segments(postings, weigher, added):
            pass
        ExactEngine.of(postings, np.zeros(change.added.size))
    save_array(target / "kept.npy", change.kept)
    save_array(target / "kept.df.npy", kept_df)
    save_array(target / "bounds.npy", np.maximum(bounds, largest))
    save_array(target / SIZES, dimensions)
    Derived.load(folder)  # postings that can't be opened are never published


def _weigher(
    index: IndexReader, num_kept: int, sizes: Mapping[str, int], shards: Sequence[Shard]
) -> Weigher:
    """Return a weigher by the statistics of the kept postings; dimensions without documents there
    are counted in shards."""
    collection = []
    for vocabulary, (before, size) in enumerate(
        zip(load_statistics(index.folder / "postings", num_kept), sizes.values(), strict=True)
    ):
        df = np.zeros(size, np.int64)
        df[: before.df.size] = before.df
        added = reduce(add, over(statistics_of, shards, vocabulary)).df
        added = np.minimum(added, before.num_documents)  # as idf expects
        collection.append(replace(before, df=np.where(df == 0, added, df)))
    return Weigher(tuple(index.settings[name] for name in sizes), tuple(collection))
