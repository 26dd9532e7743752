"""Postings of a large index after a change, without those of the documents that stay.

A change of documents changes the statistics that weights depend on: the number of documents, their
mean length, document frequencies. A large index without RRA keeps the statistics as of the last
time that all was weighed. So the postings of documents that stay are linked, and those of new ones
become a *part* of their own, searched beside the others (see ``engines.joined``). A dimension that
no document had then counts as often as it is in the parts since.

Parts stay few: a new one is merged with those before it unless they have ``FEW`` times as many
documents, so that a document is written ``log_FEW(N / STALE)`` times at most. Once the changes are
more than 1/``STALE`` of the documents, all is weighed again.
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
from lexicept.engines.exact import PostingsWriter
from lexicept.engines.inverted import SEGMENT
from lexicept.engines.joined import ADDED, JOINED, SIZES, JoinedEngine, columns_of
from lexicept.index.impacts import Derived, VocabularySettings, Weigher, load_statistics
from lexicept.index.parts import Parts, part_name
from lexicept.parallel.shards import Shard, over, shards_of
from lexicept.storage.arrays import load_array, save_array
from lexicept.vectors import Integers
from lexicept.weighting import Statistics

LARGE = 2**17
"""Documents from which on a change leaves the postings of others as they are; fewer are weighed
again in a second or two."""

STALE = 16
"""All documents are weighed again once the changes are more than 1/STALE of them."""

FEW = 4
"""A part is merged with those after it unless it has FEW times as many documents."""


@dataclass(frozen=True)
class Extension:
    """Parts of postings that a change keeps, and the one that it writes."""

    kept: Sequence[int]
    """Numbers of the parts that stay, the first one among them."""
    numbers: Sequence[Integers]
    """New number of each of their documents; -1 for those that are no longer there."""
    written: Integers
    """New numbers of the documents of the part to write, ascending; there may be none."""
    gone: Integers
    """Old numbers of the documents of the first part that go."""
    due: bool
    """True if all is to be weighed again afterwards."""

    def outdated(self, names: Sequence[str]) -> list[str]:
        """Return the beginnings of the names of a generation's files that are not linked.

        Args:
            names: those of the added parts.
        """
        removed = [name for number, name in enumerate(names, 1) if number not in self.kept]
        return [f"postings/{JOINED}/", *(f"postings/{ADDED}/{name}/" for name in removed)]


def added_parts(postings: Path) -> list[str]:
    """Return the names of the parts of postings beside the first one, in order."""
    return sorted((place.name for place in (postings / ADDED).glob("*")), key=int)


def plan(engine: PostingsEngine, order: Integers) -> Extension | None:
    """Decide which parts of postings stay in a change of documents.

    Args:
        engine: the present one.
        order: present number of each new document, counted on through the fresh ones [N].

    Returns:
        None where all is weighed again at once: the index is small, or too much changes.
    """
    parts, numbers = _parts(engine)
    present, first = engine.num_documents, parts[0].num_documents
    stays = order < present
    moved = np.full(present, -1, np.int32)
    moved[order[stays]] = np.flatnonzero(stays)
    changed = np.count_nonzero(moved < 0) + np.count_nonzero(~stays)
    if order.size < LARGE or changed * STALE > first:
        return None
    there = numbers[0][numbers[0] >= 0]
    gone = there[moved[there] < 0]
    numbers = [np.where(own < 0, -1, moved[own]).astype(np.int32) for own in numbers]
    alive = [int(np.count_nonzero(own >= 0)) for own in numbers]
    kept = [0, *(number for number in range(1, len(parts)) if alive[number])]
    count = int(np.count_nonzero(~stays))
    while count and len(kept) > 1 and alive[kept[-1]] < FEW * count:
        count += alive[kept.pop()]
    numbers = [numbers[number] for number in kept]
    elsewhere = np.zeros(order.size, bool)
    for own in numbers:
        elsewhere[own[own >= 0]] = True
    (written,) = np.nonzero(~elsewhere)
    due = (order.size - alive[0] + first - alive[0]) * STALE > first
    return Extension(kept, numbers, written, gone, bool(due))


def extend(
    before: Path,
    engine: PostingsEngine,
    extension: Extension,
    folder: Path,
    documents: tuple[Parts, Parts],
    sizes: Mapping[str, int],
    settings: Sequence[VocabularySettings],
) -> None:
    """Write what ``extension`` says, beside the linked files of the parts that stay.

    Args:
        before: folder of the present postings.
        engine: they, opened.
        folder: of the new postings.
        documents: the present ones and the new ones.
        sizes: dimensions of each vocabulary, at least as many as before.
        settings: of each vocabulary.

    Raises:
        InputError: weights that are not finite.
        IndexFormatError: what was read, and so what would be written, is damaged.
    """

    present, changed = documents
    all_sizes = np.array([*sizes.values()], np.int64)
    places = [before, *(before / ADDED / name for name in added_parts(before))]
    columns = [columns_of(load_array(place / SIZES, np.int64), all_sizes) for place in places]
    written = _shards(changed, extension.written, sizes)
    parts, _ = _parts(engine)
    since = np.zeros(all_sizes.sum(), np.int64)  # document frequencies in the added parts
    for number in extension.kept[1:]:
        since[columns[number]] += parts[number].df
    weigher = Weigher(tuple(settings), _collection(before, parts[0], since, written, sizes))
    latest = before / JOINED if (before / JOINED).is_dir() else before
    known = columns_of(load_array(latest / SIZES, np.int64), all_sizes)
    df, bounds = np.zeros(since.size, np.int64), np.zeros(since.size, np.float32)
    df[known], bounds[known] = engine.df, load_array(latest / "bounds.npy", np.float32)
    _count_changes(df, engine, extension, columns)
    for gone in over(weigher.weigh, _shards(present, extension.gone, sizes)):
        df -= _df(gone.weights)
    if written:
        last = places[extension.kept[-1]].name if len(extension.kept) > 1 else "0"
        place = folder / ADDED / part_name(int(last) + 1)
        place.mkdir(parents=True)
        largest = reduce(np.maximum, over(weigher.bounds, written))
        np.maximum(bounds, largest, out=bounds)
        with PostingsWriter(largest, engine.weight_bits, place) as postings:
            for own in over(weigher.weigh, written):
                postings.add(own.weights)
            df += postings.finish(np.zeros(extension.written.size)).df
        save_array(place / SIZES, all_sizes)
    (folder / JOINED).mkdir(parents=True)
    rows = np.concatenate([*extension.numbers, extension.written]).astype(np.int32)
    arrays = {"rows": rows, "df": df, "bounds": bounds, "sizes": all_sizes}
    for name, values in arrays.items():
        save_array(folder / JOINED / f"{name}.npy", values)
    Derived.load(folder)  # what can't be opened is never published


def _count_changes(
    df: Integers, engine: PostingsEngine, extension: Extension, columns: Sequence[Integers]
) -> None:
    """Take the documents that added parts lose out of document frequencies, and all of the parts
    that do not stay."""
    parts, numbers = _parts(engine)
    stay = {number: own >= 0 for number, own in zip(extension.kept, extension.numbers, strict=True)}
    for number, part in enumerate(parts[1:], 1):
        before, after = numbers[number] >= 0, stay.get(number)
        if after is None or not np.array_equal(before, after):
            df[columns[number]] -= _df_of(part, before)
            if after is not None:
                df[columns[number]] += _df_of(part, after)


def _parts(engine: PostingsEngine) -> tuple[Sequence[ExactEngine], Sequence[Integers]]:
    """Return the parts of an engine, and the numbers of the documents of each."""
    if isinstance(engine, JoinedEngine):
        return engine.parts, engine.numbers
    assert isinstance(engine, ExactEngine)
    return [engine], [np.arange(engine.num_documents)]


def _shards(documents: Parts, rows: Integers, sizes: Mapping[str, int]) -> list[Shard]:
    """Return the shards of some documents; none for no documents."""
    if not rows.size:
        return []
    chosen = documents[rows]
    return shards_of([chosen.tf(name, size) for name, size in sizes.items()])


def _collection(
    before: Path,
    first: ExactEngine,
    since: Integers,
    written: Sequence[Shard],
    sizes: Mapping[str, int],
) -> tuple[Statistics, ...]:
    """Return the statistics of each vocabulary: those that the first part was weighed by, and of
    dimensions that none of its documents had, the document frequencies since."""
    collection, start = [], 0
    for number, (known, size) in enumerate(
        zip(load_statistics(before, first.num_documents), sizes.values(), strict=True)
    ):
        df = np.zeros(size, np.int64)
        df[: known.df.size] = known.df
        own = reduce(add, over(_document_frequencies, written, number), since[start : start + size])
        own = np.minimum(own, known.num_documents)  # as idf expects
        collection.append(replace(known, df=np.where(df == 0, own, df)))
        start += size
    return tuple(collection)


def _document_frequencies(shard: Shard, vocabulary: int) -> Integers:
    return Statistics.of(shard.load()[vocabulary]).df


def _df(weights: sp.csr_array) -> Integers:
    """Return the document frequencies of documents [n, V], some of whose entries may be zeros."""
    return np.bincount(weights.indices[weights.data > 0], minlength=weights.shape[1])


def _df_of(part: ExactEngine, chosen: npt.NDArray[np.bool_]) -> Integers:
    """Return the document frequencies of some of a part's documents [V]."""
    if chosen.all():
        return part.df
    df = np.zeros(part.num_dimensions, np.int64)
    for number in range(part.num_segments):
        weights = part.segment(number)
        df += _df(weights[chosen[number * SEGMENT :][: weights.shape[0]]])
    return df
