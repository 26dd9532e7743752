"""Exact search over several parts of an index, each with postings of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from lexicept.engines.exact import ExactEngine, check_df
from lexicept.engines.interface import (
    PostingsEngine,
    checked_factors,
    checked_queries,
)
from lexicept.engines.mask import Mask
from lexicept.errors import IndexFormatError, InputError
from lexicept.ops.posting_lists import SEGMENT
from lexicept.storage.arrays import load_array
from lexicept.vectors import Floats, Integers

JOINED, ADDED, SIZES = "joined", "added", "sizes.npy"
"""Folders of a first part's postings: what joins the parts, and the other parts; and the file that
has the dimensions of each vocabulary, of every part and of all."""


@dataclass(frozen=True)
class JoinedEngine(PostingsEngine):
    """N documents whose postings are in several parts, without offsets.

    A part has some of the documents, in their order, and documents that are no longer there; its
    dimensions are some of all, in their order.
    """

    name = "exact"
    exact = True

    parts: Sequence[ExactEngine]
    columns: Sequence[Integers]
    """Number of each dimension of a part among all, ascending."""
    rows: Integers
    """Number of each document of the parts, one part after another; -1 for those that are no longer
    there."""
    df: Integers
    """Document frequency of each dimension, of the documents that are there, i64 [V]."""
    offsets: Floats
    """Zeros [N]."""
    _masks: WeakKeyDictionary[Mask, list[Mask]] = field(
        default_factory=WeakKeyDictionary, init=False, repr=False, compare=False
    )
    """The masks that were cut into parts."""

    @classmethod
    def open(cls, folder: Path) -> JoinedEngine:
        """Memory-map the parts that ``index.added_postings`` wrote.

        Raises:
            IndexFormatError: something else is there.
        """
        joined = folder / JOINED
        places = [folder, *sorted((folder / ADDED).glob("*"), key=lambda place: int(place.name))]
        parts = [ExactEngine.open(place) for place in places]
        sizes = load_array(joined / SIZES, np.int64)
        own = [load_array(place / SIZES, np.int64) for place in places]
        rows, df = (
            load_array(joined / "numbers.npy", np.int32),
            load_array(joined / "df.npy", np.int64),
        )
        count = int(np.count_nonzero(rows >= 0))
        try:
            columns = [columns_of(some, sizes) for some in own]
            return cls(parts, columns, rows, df, np.zeros(count, np.float32))
        except InputError as error:
            raise IndexFormatError(f"{joined}: {error}") from None

    def __post_init__(self) -> None:
        there = self.rows[self.rows >= 0]
        numbered = np.zeros(self.num_documents, bool)
        numbered[there[there < self.num_documents]] = True
        sound = (
            self.rows.size == self._firsts[-1]
            and there.size == self.num_documents
            and bool(numbered.all())
            and len({part.weights.dtype for part in self.parts}) == 1
            and not any(part.offsets.any() for part in self.parts)
            and all((np.diff(own[own >= 0]) > 0).all() for own in self.numbers)
            and all(
                own.size == part.num_dimensions and (own.size == 0 or own[-1] < self.df.size)
                for own, part in zip(self.columns, self.parts, strict=True)
            )
        )
        if not sound:
            raise InputError("parts of postings that do not fit together")

    @cached_property
    def _firsts(self) -> Integers:
        """Return the place of each part's first document, and the end of the last [parts + 1]."""
        return np.cumsum([0, *(part.num_documents for part in self.parts)])

    @cached_property
    def numbers(self) -> list[Integers]:
        """The numbers of each part's documents, as ``rows`` has them."""
        return [self.rows[first:end] for first, end in pairwise(self._firsts)]

    @cached_property
    def _there(self) -> list[Mask | None]:
        """Return the documents of each part that are there; None for all of them."""
        alive = [own >= 0 for own in self.numbers]
        return [None if own.all() else Mask(own) for own in alive]

    @cached_property
    def _places(self) -> Integers:
        """Return the place of each document in ``rows`` [N]."""
        (alive,) = np.nonzero(self.rows >= 0)
        places = np.empty(self.num_documents, np.int32)
        places[self.rows[alive]] = alive
        return places

    @cached_property
    def _own_columns(self) -> list[Integers | None]:
        """Return each dimension's number in a part, -1 for none; None where all are the same."""
        own: list[Integers | None] = []
        for columns in self.columns:
            if columns.size == self.num_dimensions:
                own.append(None)
            else:
                numbers = np.full(self.num_dimensions, -1, np.int32)
                numbers[columns] = np.arange(columns.size)
                own.append(numbers)
        return own

    @property
    def num_segments(self) -> int:
        return -(-self.num_documents // SEGMENT)

    @property
    def num_parts(self) -> int:
        return len(self.parts)

    @property
    def size(self) -> int:
        """Bytes of its arrays."""
        return sum(part.size for part in self.parts) + self.rows.nbytes + self.df.nbytes

    @property
    def weight_bits(self) -> int:
        return self.parts[0].weight_bits

    @cached_property
    def largest(self) -> float:
        largest = 0.0
        for part, there in zip(self.parts, self._there, strict=True):
            if there is None:
                largest = max(largest, part.largest)
                continue
            for number in range(part.num_segments):
                weights = part.segment(number)
                own = there.allowed[number * SEGMENT :][: weights.shape[0]]
                largest = max(largest, float(weights[own].data.max(initial=0)))
            part.let_go()
        return largest

    def let_go(self) -> None:
        for part in self.parts:
            part.let_go()

    def _own(self, number: int, queries: sp.csr_array) -> sp.csr_array:
        """Return queries [n, V] on the dimensions of a part."""
        columns = self._own_columns[number]
        if columns is None:
            return queries
        own = columns[queries.indices]
        kept = own >= 0
        starts = np.concatenate([[0], np.cumsum(kept)])[queries.indptr]
        shape = queries.shape[0], self.parts[number].num_dimensions
        return sp.csr_array((queries.data[kept], own[kept], starts), shape=shape)

    def _own_masks(self, mask: Mask | None) -> Sequence[Mask | None]:
        """Return the documents of each part that may be results."""
        if mask is None:
            return self._there
        own = self._masks.get(mask)
        if own is None:
            allowed = [(numbers >= 0) & mask.allowed[numbers] for numbers in self.numbers]
            own = self._masks[mask] = [Mask(part) for part in allowed]
        return own

    def rank(
        self,
        queries: sp.csr_array,
        factors: Floats,
        top_k: int,
        threads: int | None,
        mask: Mask | None,
    ) -> list[tuple[Integers, Floats]]:
        masks = self._own_masks(mask)
        rankings = [
            part.rank(self._own(number, queries), factors, top_k, threads, masks[number])
            for number, part in enumerate(self.parts)
        ]
        return [self._best(found, top_k) for found in zip(*rankings, strict=True)]

    def _best(
        self, found: Sequence[tuple[Integers, Floats]], top_k: int
    ) -> tuple[Integers, Floats]:
        """Return the best results of all parts."""
        numbers = zip(self.numbers, found, strict=True)
        documents = np.concatenate([own[places] for own, (places, _) in numbers]).astype(np.int64)
        scores = np.concatenate([own for _, own in found])
        order = np.lexsort((documents, -scores))[:top_k]
        return documents[order], scores[order]

    def found(self, queries: Any, query_offsets: npt.ArrayLike | None = None) -> Mask:
        query = checked_queries(queries, self.num_dimensions)
        factors = checked_factors(query_offsets, query.shape[0])
        allowed = np.zeros(self.num_documents, bool)
        for number, part in enumerate(self.parts):
            own = part.found(self._own(number, query), factors).allowed
            numbers = self.numbers[number][own]
            allowed[numbers[numbers >= 0]] = True
        return Mask(allowed)

    def present(self, dimensions: Integers) -> npt.NDArray[np.bool_]:
        present: npt.NDArray[np.bool_] = self.df[dimensions] > 0
        return present

    def matches(self, dimensions: Integers) -> bool:
        return bool(self.present(dimensions).any())

    def postings(self, dimensions: slice) -> tuple[Integers, Floats]:
        found: list[tuple[Integers, Integers, Floats]] = []
        start, stop, _ = dimensions.indices(self.num_dimensions)
        for part, columns, numbers in zip(self.parts, self.columns, self.numbers, strict=True):
            own = slice(*np.searchsorted(columns, (start, stop)).tolist())
            places, weights = part.postings(own)
            documents, dimension = numbers[places], np.repeat(columns[own], part.df[own])
            there = documents >= 0
            found.append((dimension[there], documents[there], weights[there]))
        dimension, documents, weights = map(np.concatenate, zip(*found, strict=True))
        check_df(dimension, slice(start, stop), self.df)
        order = np.lexsort((documents, dimension))
        return documents[order], weights[order]

    def segment(self, number: int) -> sp.csr_array:
        start = number * SEGMENT
        stop = min(start + SEGMENT, self.num_documents)
        shape = stop - start, self.num_dimensions
        matrices, rows = [sp.csr_array((0, shape[1]), dtype=np.float32)], [np.empty(0, np.int32)]
        for part, columns, numbers in zip(self.parts, self.columns, self.numbers, strict=True):
            (inside,) = np.nonzero((numbers >= start) & (numbers < stop))
            segments = inside // SEGMENT
            for own in np.unique(segments).tolist():
                places = inside[segments == own]
                weights = part.segment(own)[places - own * SEGMENT]
                entries = weights.data, columns[weights.indices], weights.indptr
                matrices.append(sp.csr_array(entries, shape=(places.size, shape[1])))
                rows.append(numbers[places])
        joined = sp.csr_array(sp.vstack(matrices, format="csr"))
        return joined[np.argsort(np.concatenate(rows))]

    def document_weights(self, document: int, dimensions: Integers) -> Floats:
        place = int(self._places[document])
        number = int(np.searchsorted(self._firsts, place, "right")) - 1
        columns = self._own_columns[number]
        own = dimensions if columns is None else columns[dimensions]
        weights = np.zeros(len(dimensions))
        known = own >= 0
        first = int(self._firsts[number])
        weights[known] = self.parts[number].document_weights(place - first, own[known])
        return weights


def columns_of(own: Integers, sizes: Integers) -> Integers:
    """Return the number of each of a part's dimensions among all.

    Args:
        own: the dimensions of each vocabulary in the part.
        sizes: those that it has in all parts, as many or more.

    Raises:
        InputError: other vocabularies, or fewer dimensions than the part has.
    """
    if own.shape != sizes.shape or (own < 0).any() or (own > sizes).any():
        raise InputError(f"a part of postings with vocabularies of {own}, not {sizes}")
    firsts = np.cumsum(sizes) - sizes
    nothing = np.empty(0, np.int64)
    spans = [np.arange(n) + first for n, first in zip(own.tolist(), firsts.tolist(), strict=True)]
    return np.concatenate([nothing, *spans])
