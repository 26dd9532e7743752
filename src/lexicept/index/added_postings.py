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
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from pathlib import Path

import numpy as np

from lexicept.engines import ExactEngine, PostingsEngine
from lexicept.engines.inverted import PostingsWriter
from lexicept.engines.joined import ADDED, SIZES, JoinedEngine, columns_of
from lexicept.index.impacts import Derived, VocabularySettings, Weigher, load_statistics
from lexicept.index.parts import Parts
from lexicept.parallel.shards import Shard, over, shards_of
from lexicept.storage.arrays import load_array, save_array
from lexicept.vectors import Integers
from lexicept.weighting import Statistics

LARGE = 2**17
"""Documents from which on a change keeps postings; fewer documents are weighed again in a second or
two."""

STALE = 16
"""All documents are weighed again once the changes are more than 1/STALE of all."""


@dataclass(frozen=True)
class PostingsChange:
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


@dataclass(frozen=True)
class PostingsUpdate:
    """Present postings and documents, and the settings by which changed documents are weighed."""

    postings: Path
    """Folder of the present postings."""
    engine: PostingsEngine
    """Over the present postings."""
    documents: Parts
    """The present documents."""
    sizes: Mapping[str, int]
    """Dimensions of each vocabulary, at least as many as before."""
    settings: Sequence[VocabularySettings]
    """Settings of each vocabulary."""

    def write(self, change: PostingsChange, changed: Parts, folder: Path) -> None:
        """Write the added postings of the changed documents into ``folder``, beside the linked
        files of the kept postings. Raises InputError for weights that are not finite."""
        sizes = np.array([*self.sizes.values()], np.int64)
        shards = self._shards(changed, change.added)
        weigher = self._weigher(change.kept.size, shards)
        latest = self.postings
        kept_df, bounds = np.zeros(sizes.sum(), np.int64), np.zeros(sizes.sum(), np.float32)
        df = self.engine.df
        if isinstance(self.engine, JoinedEngine):
            latest, df = self.postings / ADDED, self.engine.kept_df
        columns = columns_of(load_array(latest / SIZES, np.int64), sizes)
        kept_df[columns], bounds[columns] = df, load_array(latest / "bounds.npy", np.float32)
        for weighed in over(weigher.weigh, self._shards(self.documents, change.deleted)):
            # Some entries may be zeros.
            weighted = weighed.weights.indices[weighed.weights.data > 0]
            kept_df -= np.bincount(weighted, minlength=kept_df.size)
        largest = reduce(np.maximum, over(weigher.bounds, shards), np.zeros_like(bounds))
        target = folder / ADDED
        target.mkdir(parents=True)
        with PostingsWriter(largest, self.engine.weight_bits, target) as postings:
            for weighed in over(weigher.weigh, shards):
                postings.add(weighed.weights)
            ExactEngine.of(postings, np.zeros(change.added.size))
        bounds = np.maximum(bounds, largest)
        arrays = {"kept": change.kept, "kept.df": kept_df, "bounds": bounds, "sizes": sizes}
        for name, values in arrays.items():
            save_array(target / f"{name}.npy", values)
        Derived.load(folder)  # postings that can't be opened are never published

    def _shards(self, documents: Parts, indexes: Integers) -> list[Shard]:
        """Return the shards of some documents; none for no documents."""
        if not indexes.size:
            return []
        selected = documents[indexes]
        return shards_of([selected.tf(name, size) for name, size in self.sizes.items()])

    def _weigher(self, num_kept: int, shards: Sequence[Shard]) -> Weigher:
        """Return a weigher by the statistics of the kept postings; dimensions without documents
        there are counted in shards."""
        collection = []
        for vocabulary, (before, size) in enumerate(
            zip(load_statistics(self.postings, num_kept), self.sizes.values(), strict=True)
        ):
            df = np.zeros(size, np.int64)
            df[: before.df.size] = before.df
            added = reduce(add, over(_df, shards, vocabulary), np.zeros_like(df))
            added = np.minimum(added, before.num_documents)  # as idf expects
            collection.append(replace(before, df=np.where(df == 0, added, df)))
        return Weigher(tuple(self.settings), tuple(collection))


def _df(shard: Shard, vocabulary: int) -> Integers:
    return Statistics.of(shard.load()[vocabulary]).df
