"""Postings of a large index after a change, without weighing the other documents again.

Weights depend on statistics: the number of documents, the mean length, document frequencies. A
change alters the statistics, but a large index without RRA keeps the statistics of the last time
when all documents were weighed. So the postings of unchanged documents are linked, and new
documents get added postings, searched beside the first postings (see ``engines.joined``). The
document frequency of a dimension that no document had at the time is counted in the added postings.

Added postings stay few: new postings are merged with the last unless the last have ``FEW`` times as
many documents, so that a document is written ``log_FEW(N / STALE)`` times at most. Once the changes
are more than 1/``STALE`` of the documents, all documents are weighed again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from lexicept.engines import ExactEngine, PostingsEngine
from lexicept.engines.inverted import PostingsWriter
from lexicept.engines.joined import ADDED, JOINED, SIZES, JoinedEngine, columns_of
from lexicept.index.impacts import Derived, VocabularySettings, Weigher, load_statistics
from lexicept.index.parts import Parts, part_name
from lexicept.kernels.posting_lists import SEGMENT
from lexicept.parallel.shards import Shard, over, shards_of
from lexicept.storage.arrays import load_array, save_array
from lexicept.vectors import Integers
from lexicept.weighting import Statistics

LARGE = 2**17
"""Documents from which on a change keeps postings; fewer documents are weighed again in a second or
two."""

STALE = 16
"""All documents are weighed again once the changes are more than 1/STALE of all."""

FEW = 4
"""Added postings are merged with later ones unless they have FEW times as many documents."""


@dataclass(frozen=True)
class PostingsChange:
    """Postings that a change of documents keeps, the first with number 0, and the documents that
    get new postings."""

    unchanged: Sequence[int]
    """Numbers of the kept postings, including 0."""
    new_numbers: Sequence[Integers]
    """New number of each document of the kept postings; -1 for a deleted document."""
    written: Integers
    """New numbers of the documents to write postings of, ascending; may be empty."""
    deleted: Integers
    """Old numbers of the documents that the first postings lose."""
    due: bool
    """True if all documents are to be weighed again afterwards."""

    @classmethod
    def plan(cls, engine: PostingsEngine, order: Integers) -> PostingsChange | None:
        """Choose the postings that a change of documents keeps; None if all documents are to be
        weighed at once, in a small index or after too many changes.

        Args:
            order: present number of each new document, counted on through fresh documents [N].
        """
        engines, numbers = _members(engine)
        present, first = engine.num_documents, engines[0].num_documents
        stays = order < present
        moved = np.full(present, -1, np.int32)
        moved[order[stays]] = np.flatnonzero(stays)
        changed = np.count_nonzero(moved < 0) + np.count_nonzero(~stays)
        if order.size < LARGE or changed * STALE > first:
            return None
        first_documents = numbers[0][numbers[0] >= 0]
        deleted = first_documents[moved[first_documents] < 0]
        new_numbers = [np.where(old < 0, -1, moved[old]).astype(np.int32) for old in numbers]
        counts = [int(np.count_nonzero(new >= 0)) for new in new_numbers]
        unchanged = [0, *(number for number in range(1, len(engines)) if counts[number])]
        num_written = int(np.count_nonzero(~stays))
        # New documents absorb the last added postings, as long as these are few.
        while num_written and len(unchanged) > 1 and counts[unchanged[-1]] < FEW * num_written:
            num_written += counts[unchanged.pop()]
        new_numbers = [new_numbers[number] for number in unchanged]
        # All documents outside of the kept postings are written: new ones and absorbed ones.
        has_postings = np.zeros(order.size, bool)
        for new in new_numbers:
            has_postings[new[new >= 0]] = True
        due = (order.size - counts[0] + first - counts[0]) * STALE > first
        return cls(unchanged, new_numbers, np.flatnonzero(~has_postings), deleted, bool(due))

    def outdated(self, postings: Path) -> list[str]:
        """Return the beginnings of the names of files in the present postings that are not
        linked."""
        folders = enumerate(added_folders(postings), 1)
        removed = [folder.name for number, folder in folders if number not in self.unchanged]
        return [f"postings/{JOINED}/", *(f"postings/{ADDED}/{name}/" for name in removed)]


def added_folders(postings: Path) -> list[Path]:
    """Return the folders of the added postings, in order."""
    return sorted((postings / ADDED).glob("*"), key=lambda folder: int(folder.name))


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
        """Write the postings of the changed documents into ``folder``, beside the linked files
        of the kept postings. Raises InputError for weights that are not finite."""
        all_sizes = np.array([*self.sizes.values()], np.int64)
        folders = [self.postings, *added_folders(self.postings)]
        columns = [columns_of(load_array(place / SIZES, np.int64), all_sizes) for place in folders]
        shards = self._shards(changed, change.written)
        weigher = self._weigher(change, columns, shards)
        # df counts what each search can find: less deleted documents, plus written ones.
        df, bounds = self._present_numbers(all_sizes)
        self._count_changes(df, change, columns)
        for weighed in over(weigher.weigh, self._shards(self.documents, change.deleted)):
            df -= _document_frequencies(weighed.weights)
        if shards:
            last = folders[change.unchanged[-1]].name if len(change.unchanged) > 1 else "0"
            target = folder / ADDED / part_name(int(last) + 1)
            target.mkdir(parents=True)
            largest = reduce(np.maximum, over(weigher.bounds, shards))
            np.maximum(bounds, largest, out=bounds)
            with PostingsWriter(largest, self.engine.weight_bits, target) as postings:
                for weighed in over(weigher.weigh, shards):
                    postings.add(weighed.weights)
                df += ExactEngine.of(postings, np.zeros(change.written.size)).df
            save_array(target / SIZES, all_sizes)
        (folder / JOINED).mkdir(parents=True)
        numbers = np.concatenate([*change.new_numbers, change.written]).astype(np.int32)
        arrays = {"numbers": numbers, "df": df, "bounds": bounds, "sizes": all_sizes}
        for name, values in arrays.items():
            save_array(folder / JOINED / f"{name}.npy", values)
        Derived.load(folder)  # postings that can't be opened are never published

    def _shards(self, documents: Parts, numbers: Integers) -> list[Shard]:
        """Return the shards of some documents; none for no documents."""
        if not numbers.size:
            return []
        selected = documents[numbers]
        return shards_of([selected.tf(name, size) for name, size in self.sizes.items()])

    def _weigher(
        self, change: PostingsChange, columns: Sequence[Integers], shards: Sequence[Shard]
    ) -> Weigher:
        """Return a weigher by the statistics of the first postings; dimensions without documents
        there are counted in the added postings and in the shards to write."""
        engines, _ = _members(self.engine)
        added_df = np.zeros(sum(self.sizes.values()), np.int64)
        for number in change.unchanged[1:]:
            added_df[columns[number]] += engines[number].df
        statistics = load_statistics(self.postings, engines[0].num_documents)
        collection, start = [], 0
        for vocabulary, (before, size) in enumerate(
            zip(statistics, self.sizes.values(), strict=True)
        ):
            df = np.zeros(size, np.int64)
            df[: before.df.size] = before.df
            in_shards = over(_vocabulary_df, shards, vocabulary)
            added = reduce(add, in_shards, added_df[start : start + size])
            added = np.minimum(added, before.num_documents)  # as idf expects
            collection.append(replace(before, df=np.where(df == 0, added, df)))
            start += size
        return Weigher(tuple(self.settings), tuple(collection))

    def _present_numbers(self, sizes: Integers) -> tuple[Integers, npt.NDArray[np.float32]]:
        """Return the present document frequencies and largest weights of all dimensions [V]."""
        joined = self.postings / JOINED
        latest = joined if joined.is_dir() else self.postings
        columns = columns_of(load_array(latest / SIZES, np.int64), sizes)
        df, bounds = np.zeros(sizes.sum(), np.int64), np.zeros(sizes.sum(), np.float32)
        df[columns], bounds[columns] = self.engine.df, load_array(latest / "bounds.npy", np.float32)
        return df, bounds

    def _count_changes(
        self, df: Integers, change: PostingsChange, columns: Sequence[Integers]
    ) -> None:
        """Subtract from document frequencies the documents that added postings lose, and all
        documents of removed postings."""
        engines, numbers = _members(self.engine)
        stay = {
            number: new >= 0
            for number, new in zip(change.unchanged, change.new_numbers, strict=True)
        }
        for number, engine in enumerate(engines[1:], 1):
            before, after = numbers[number] >= 0, stay.get(number)
            if after is None or not np.array_equal(before, after):
                df[columns[number]] -= _df_of(engine, before)
                if after is not None:
                    df[columns[number]] += _df_of(engine, after)


def _members(engine: PostingsEngine) -> tuple[Sequence[ExactEngine], Sequence[Integers]]:
    """Return the engine of each postings, and the numbers of its documents."""
    if isinstance(engine, JoinedEngine):
        return engine.engines, engine.numbers
    assert isinstance(engine, ExactEngine)
    return [engine], [np.arange(engine.num_documents)]


def _vocabulary_df(shard: Shard, vocabulary: int) -> Integers:
    return Statistics.of(shard.load()[vocabulary]).df


def _document_frequencies(weights: sp.csr_array) -> Integers:
    """Return the document frequencies of documents [n, V], some of whose entries may be zeros."""
    return np.bincount(weights.indices[weights.data > 0], minlength=weights.shape[1])


def _df_of(engine: ExactEngine, selected: npt.NDArray[np.bool_]) -> Integers:
    """Return the document frequencies of some documents of an engine [V]."""
    if selected.all():
        return engine.df
    df = np.zeros(engine.num_dimensions, np.int64)
    for number in range(engine.num_segments):
        weights = engine.segment(number)
        df += _document_frequencies(weights[selected[number * SEGMENT :][: weights.shape[0]]])
    return df
