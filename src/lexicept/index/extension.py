"""Postings of a large index after a change, without those of the documents that stay.

A change of documents changes the statistics that weights depend on: the number of documents, their
mean length, document frequencies. A large index without RRA keeps the statistics as of the last
time that all was weighed. So the postings of documents that stay are linked, and those of new ones
become a *part* of their own, searched beside the others (see ``engines.joined``). A word that is
new counts as often as in the documents that brought it.

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
from lexicept.engines.joined import ADDED, JOINED, SIZES, JoinedEngine, columns_of
from lexicept.index.impacts import (
    VocabularySettings,
    Weigher,
    load_statistics,
    save_statistics,
)
from lexicept.index.parts import Parts, part_name
from lexicept.parallel.shards import Shard, over, shards_of
from lexicept.storage.arrays import load_array, save_array
from lexicept.vectors import Integers
from lexicept.weighting import Statistics

LARGE = 2**17
"""Documents from which on a change leaves the postings of others as they are; fewer are weighed
again in less than a second."""

STALE = 16
"""All documents are weighed again once the changes are more than 1/STALE of them."""

FEW = 4
"""A part is merged with those after it unless it has FEW times as many documents."""


@dataclass(frozen=True)
class Extension:
    """What becomes of an index's parts of postings."""

    kept: Sequence[int]
    """Numbers of the parts that stay, the first one among them."""
    rows: Integers
    """New number of each of their documents; -1 for those that are no longer there."""
    written: Integers
    """New numbers of the documents of the part to write, ascending; there may be none."""
    fresh: npt.NDArray[np.bool_]
    """Which of these are new; the others were in parts that are merged."""
    gone: Integers
    """Old numbers of the documents that go."""
    due: bool
    """Whether all is to be weighed again afterwards."""

    def outdated(self, names: Sequence[str]) -> list[str]:
        """Return the beginnings of the names of a generation's files that are not linked.

        Args:
            names: those of the added parts.
        """
        removed = [name for number, name in enumerate(names, 1) if number not in self.kept]
        return [f"postings/{JOINED}/", *(f"postings/{ADDED}/{name}/" for name in removed)]


def added_parts(postings: Path) -> list[str]:
    """Return the names of the parts of postings beside the first one, in order."""
    return sorted(place.name for place in (postings / ADDED).glob("*"))


def plan(engine: PostingsEngine, order: Integers) -> Extension | None:
    """Decide which parts of postings stay in a change of documents.

    Args:
        engine: the present one.
        order: present number of each new document, counted on through the fresh ones [N].

    Returns:
        None where all is weighed again at once: the index is small, or too much changes.
    """
    parts, numbers = _parts(engine)
    before, first = engine.num_documents, parts[0].num_documents
    stays = order < before
    moved = np.full(before, -1, np.int32)
    moved[order[stays]] = np.flatnonzero(stays)
    gone = np.flatnonzero(moved < 0)
    changed = gone.size + np.count_nonzero(~stays)
    if order.size < LARGE or changed * STALE > first:
        return None
    numbers = [np.where(own < 0, -1, moved[own]).astype(np.int32) for own in numbers]
    alive = [int(np.count_nonzero(own >= 0)) for own in numbers]
    kept = [0, *(number for number in range(1, len(parts)) if alive[number])]
    count = int(np.count_nonzero(~stays))
    while count and len(kept) > 1 and alive[kept[-1]] < FEW * count:
        count += alive[kept.pop()]
    rows = np.concatenate([numbers[number] for number in kept])
    written = np.ones(order.size, bool)
    written[rows[rows >= 0]] = False
    (written,) = np.nonzero(written)
    due = (order.size - alive[0] + first - alive[0]) * STALE > first
    return Extension(kept, rows, written, ~stays[written], gone, bool(due))


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
    """

    def shards(own: Parts, rows: Integers) -> list[Shard]:
        chosen = own[rows]
        return shards_of([chosen.tf(name, size) for name, size in sizes.items()])

    present, changed = documents
    written = shards(changed, extension.written)
    latest = before / JOINED if (before / JOINED).is_dir() else before
    known = load_statistics(latest, _parts(engine)[0][0].num_documents)
    collection = _grown(known, written, [*sizes.values()])
    weigher = Weigher(tuple(settings), tuple(collection))
    columns = columns_of(*(np.array([o.df.size for o in c]) for c in (known, collection)))
    df = np.zeros(sum(sizes.values()), np.int64)
    bounds = np.zeros(df.size, np.float32)
    df[columns] = engine.df
    bounds[columns] = load_array(latest / "bounds.npy", np.float32)
    for gone in over(weigher.weigh, shards(present, extension.gone)):
        df -= _df(gone.weights)
    if extension.written.size:
        largest = reduce(np.maximum, over(weigher.bounds, written))
        np.maximum(bounds, largest, out=bounds)
        names = added_parts(before)
        place = folder / ADDED / part_name(int(names[-1]) + 1 if names else 1)
        place.mkdir(parents=True)
        with PostingsWriter(largest, engine.weight_bits, place) as postings:
            for own in over(weigher.weigh, written):
                first = postings.add(own.weights)
                df += _df(own.weights, extension.fresh[first : first + own.scales.size])
            postings.finish(np.zeros(extension.written.size))
        save_array(place / SIZES, np.array([*sizes.values()], np.int64))
    joined = folder / JOINED
    joined.mkdir(parents=True)
    save_statistics(joined, collection)
    rows = np.concatenate([extension.rows, extension.written])
    save_array(joined / "rows.npy", rows.astype(np.int32))
    save_array(joined / "df.npy", df)
    save_array(joined / "bounds.npy", bounds)


def _parts(engine: PostingsEngine) -> tuple[Sequence[ExactEngine], Sequence[Integers]]:
    """Return the parts of an engine, and the numbers of the documents of each."""
    if isinstance(engine, JoinedEngine):
        return engine.parts, engine.numbers
    assert isinstance(engine, ExactEngine)
    return [engine], [np.arange(engine.num_documents)]


def _grown(
    known: Sequence[Statistics], written: Sequence[Shard], sizes: Sequence[int]
) -> list[Statistics]:
    """Return statistics in which dimensions that were in no document are counted in those to
    write."""
    grown = []
    for number, (before, size) in enumerate(zip(known, sizes, strict=True)):
        df = np.zeros(size, np.int64)
        df[: before.df.size] = before.df
        own = reduce(add, over(_document_frequencies, written, number), np.zeros(size, np.int64))
        grown.append(replace(before, df=np.where(df == 0, own, df)))
    return grown


def _document_frequencies(shard: Shard, vocabulary: int) -> Integers:
    return Statistics.of(shard.load()[vocabulary]).df


def _df(weights: sp.csr_array, chosen: npt.NDArray[np.bool_] | None = None) -> Integers:
    """Return the document frequencies of documents [n, V], or of some of them."""
    counted = weights.data > 0
    if chosen is not None:
        counted &= np.repeat(chosen, np.diff(weights.indptr))
    return np.bincount(weights.indices[counted], minlength=weights.shape[1])
