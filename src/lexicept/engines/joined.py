"""Exact search over several sets of postings of one index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    QueryBatch,
    Ranking,
    checked_queries,
)
from lexicept.engines.mask import Mask
from lexicept.errors import IndexFormatError, InputError
from lexicept.kernels.posting_lists import SEGMENT
from lexicept.storage.arrays import load_array
from lexicept.vectors import Floats, Integers

JOINED, ADDED, SIZES = "joined", "added", "sizes.npy"
"""Folders beside the first postings: numbers that join all postings, and added postings; and the
file with the dimensions of each vocabulary, of each set of postings and of all."""


@dataclass(frozen=True)
class JoinedEngine(PostingsEngine):
    """N documents whose postings are in several engines, without offsets.

    An engine has some of the documents, in order, and deleted documents; its dimensions are some of
    the V dimensions, in order.
    """

    name = "exact"

    engines: Sequence[ExactEngine]
    dimension_numbers: Sequence[Integers]
    """Number of each dimension of an engine among the V dimensions, ascending."""
    document_numbers: Integers
    """Number of each document of the engines, engine after engine; -1 for deleted documents."""
    df: Integers
    """Document frequency of each dimension, without deleted documents, i64 [V]."""
    offsets: Floats
    """Zeros [N]."""
    _masks: WeakKeyDictionary[Mask, list[Mask]] = field(
        default_factory=WeakKeyDictionary, init=False, repr=False, compare=False
    )
    """The masks that were cut into the engines' documents."""

    @classmethod
    def open(cls, folder: Path) -> JoinedEngine:
        """Memory-map the postings that ``index.added_postings`` wrote. Raises IndexFormatError if
        the folder has other files."""
        joined = folder / JOINED
        added = sorted((folder / ADDED).glob("*"), key=lambda path: int(path.name))
        folders = [folder, *added]
        engines = [ExactEngine.open(path) for path in folders]
        sizes = load_array(joined / SIZES, np.int64)
        engine_sizes = [load_array(path / SIZES, np.int64) for path in folders]
        document_numbers = load_array(joined / "numbers.npy", np.int32)
        df = load_array(joined / "df.npy", np.int64)
        count = int(np.count_nonzero(document_numbers >= 0))
        try:
            dimension_numbers = [columns_of(counts, sizes) for counts in engine_sizes]
            offsets = np.zeros(count, np.float32)
            return cls(engines, dimension_numbers, document_numbers, df, offsets)
        except InputError as error:
            raise IndexFormatError(f"{joined}: {error}") from None

    def __post_init__(self) -> None:
        # Every document has exactly one place; places of an engine are in document order.
        present = self.document_numbers[self.document_numbers >= 0]
        numbered = np.zeros(self.num_documents, bool)
        numbered[present[present < self.num_documents]] = True
        sound = (
            self.document_numbers.size == self._firsts[-1]
            and present.size == self.num_documents
            and bool(numbered.all())
            and len({engine.weights.dtype for engine in self.engines}) == 1
            and not any(engine.offsets.any() for engine in self.engines)
            and all((np.diff(documents[documents >= 0]) > 0).all() for documents in self.numbers)
            and all(
                dimensions.size == engine.num_dimensions
                and (dimensions.size == 0 or dimensions[-1] < self.df.size)
                for dimensions, engine in zip(self.dimension_numbers, self.engines, strict=True)
            )
        )
        if not sound:
            raise InputError("parts of postings that do not fit together")

    @cached_property
    def _firsts(self) -> Integers:
        """Place of each engine's first document, and the end of the last [engines + 1]."""
        return np.cumsum([0, *(engine.num_documents for engine in self.engines)])

    @cached_property
    def numbers(self) -> list[Integers]:
        """``document_numbers`` of each engine."""
        return [self.document_numbers[start:end] for start, end in pairwise(self._firsts)]

    @cached_property
    def _present(self) -> list[Mask | None]:
        """The documents of each engine without deleted documents; None for all."""
        masks = (documents >= 0 for documents in self.numbers)
        return [None if present.all() else Mask(present) for present in masks]

    @cached_property
    def _places(self) -> Integers:
        """Place of each document in ``document_numbers`` [N]."""
        (present,) = np.nonzero(self.document_numbers >= 0)
        return present[_places(self.document_numbers[present], self.num_documents)]

    @cached_property
    def _engine_dimensions(self) -> list[Integers | None]:
        """Number of each of the V dimensions in an engine, -1 for none; None for equal numbers."""
        return [
            None if columns.size == self.num_dimensions else _places(columns, self.num_dimensions)
            for columns in self.dimension_numbers
        ]

    @property
    def num_segments(self) -> int:
        return -(-self.num_documents // SEGMENT)

    @property
    def num_parts(self) -> int:
        return len(self.engines)

    @property
    def size(self) -> int:
        """Bytes of the arrays."""
        postings = sum(engine.size for engine in self.engines)
        return postings + self.document_numbers.nbytes + self.df.nbytes

    @property
    def weight_bits(self) -> int:
        return self.engines[0].weight_bits

    @cached_property
    def largest(self) -> float:
        largest = 0.0
        for engine, present in zip(self.engines, self._present, strict=True):
            if present is None:
                largest = max(largest, engine.largest)
                continue
            for index in range(engine.num_segments):
                weights = engine.segment(index)
                documents = present.allowed[index * SEGMENT :][: weights.shape[0]]
                largest = max(largest, float(weights[documents].data.max(initial=0)))
            engine.let_go()
        return largest

    def let_go(self) -> None:
        for engine in self.engines:
            engine.let_go()

    def rank(self, batch: QueryBatch) -> list[Ranking]:
        masks = self._present if batch.mask is None else self._cut(batch.mask)
        rankings = [
            engine.rank(batch._replace(queries=self._of_engine(index, batch.queries), mask=mask))
            for index, (engine, mask) in enumerate(zip(self.engines, masks, strict=True))
        ]
        return [self._best(of_query, batch.top_k) for of_query in zip(*rankings, strict=True)]

    def _of_engine(self, place: int, queries: sp.csr_array) -> sp.csr_array:
        """Return queries [n, V] on the dimensions of an engine."""
        engine_dimensions = self._engine_dimensions[place]
        if engine_dimensions is None:
            return queries
        indices = engine_dimensions[queries.indices]
        present = indices >= 0
        starts = np.concatenate([[0], np.cumsum(present)])[queries.indptr]
        shape = queries.shape[0], self.engines[place].num_dimensions
        return sp.csr_array((queries.data[present], indices[present], starts), shape=shape)

    def _cut(self, mask: Mask) -> list[Mask]:
        """Return the documents of each engine that may be results."""
        # Many searches share a mask.
        masks = self._masks.get(mask)
        if masks is None:
            allowed = [(documents >= 0) & mask.allowed[documents] for documents in self.numbers]
            masks = self._masks[mask] = [Mask(documents) for documents in allowed]
        return masks

    def _best(self, rankings: Sequence[Ranking], top_k: int) -> Ranking:
        """Return the best results of all engines for one query."""
        pairs = zip(self.numbers, rankings, strict=True)
        documents = np.concatenate([numbering[ranked] for numbering, (ranked, _) in pairs])
        scores = np.concatenate([engine_scores for _, engine_scores in rankings])
        order = np.lexsort((documents, -scores))[:top_k]
        return documents[order].astype(np.int64), scores[order]

    def scores(self, queries: Any, query_offsets: npt.ArrayLike | None = None) -> Floats:
        query = checked_queries(queries, self.num_dimensions)
        scores = np.zeros(self.num_documents, np.float32)
        for place, engine in enumerate(self.engines):
            of_engine = engine.scores(self._of_engine(place, query), query_offsets)
            present = self.numbers[place] >= 0
            scores[self.numbers[place][present]] = of_engine[present]
        return scores

    def present(self, dimensions: Integers) -> npt.NDArray[np.bool_]:
        present: npt.NDArray[np.bool_] = self.df[dimensions] > 0
        return present

    def postings(self, dimensions: slice) -> Ranking:
        postings: list[tuple[Integers, Integers, Floats]] = []
        start, stop, _ = dimensions.indices(self.num_dimensions)
        for engine, columns, engine_documents in self._numbered():
            span = slice(*np.searchsorted(columns, (start, stop)).tolist())
            positions, weights = engine.postings(span)
            documents = engine_documents[positions]
            dimension = np.repeat(columns[span], engine.df[span])
            present = documents >= 0
            postings.append((dimension[present], documents[present], weights[present]))
        dimension, documents, weights = map(np.concatenate, zip(*postings, strict=True))
        check_df(dimension, slice(start, stop), self.df)
        order = np.lexsort((documents, dimension))
        return documents[order], weights[order]

    def segment(self, number: int) -> sp.csr_array:
        start = number * SEGMENT
        stop = min(start + SEGMENT, self.num_documents)
        width = self.num_dimensions
        matrices = [sp.csr_array((0, width), dtype=np.float32)]
        documents = [np.empty(0, np.int32)]
        for engine, columns, engine_documents in self._numbered():
            (inside,) = np.nonzero((engine_documents >= start) & (engine_documents < stop))
            # The engine's documents of this segment may be in several segments of the engine.
            segments = inside // SEGMENT
            for engine_segment in np.unique(segments).tolist():
                positions = inside[segments == engine_segment]
                weights = engine.segment(engine_segment)[positions - engine_segment * SEGMENT]
                csr = weights.data, columns[weights.indices], weights.indptr
                matrices.append(sp.csr_array(csr, shape=(positions.size, width)))
                documents.append(engine_documents[positions])
        joined = sp.csr_array(sp.vstack(matrices, format="csr"))
        return joined[np.argsort(np.concatenate(documents))]

    def _numbered(self) -> Iterator[tuple[ExactEngine, Integers, Integers]]:
        """Yield each engine with the numbers of its dimensions and documents."""
        yield from zip(self.engines, self.dimension_numbers, self.numbers, strict=True)

    def document_weights(self, document: int, dimensions: Integers) -> Floats:
        position = int(self._places[document])
        index = int(np.searchsorted(self._firsts, position, "right")) - 1
        engine_dimensions = self._engine_dimensions[index]
        columns = dimensions if engine_dimensions is None else engine_dimensions[dimensions]
        weights = np.zeros(len(dimensions))
        present = columns >= 0
        start = int(self._firsts[index])
        weights[present] = self.engines[index].document_weights(position - start, columns[present])
        return weights


def _places(numbers: Integers, count: int) -> Integers:
    """Return the place of each number below ``count`` among some numbers, -1 for none."""
    positions = np.full(count, -1, np.int32)
    positions[numbers] = np.arange(numbers.size)
    return positions


def columns_of(engine_sizes: Integers, sizes: Integers) -> Integers:
    """Return the number of each of an engine's dimensions among all, from the dimensions of each
    vocabulary in the engine and in all engines. Raises InputError for other vocabularies, or fewer
    dimensions than the engine has."""
    same_vocabularies = engine_sizes.shape == sizes.shape and (engine_sizes >= 0).all()
    if not same_vocabularies or (engine_sizes > sizes).any():
        raise InputError(f"a part of postings with vocabularies of {engine_sizes}, not {sizes}")
    firsts = np.cumsum(sizes) - sizes
    spans = zip(engine_sizes.tolist(), firsts.tolist(), strict=True)
    return np.concatenate(
        [np.empty(0, np.int64), *(np.arange(size) + start for size, start in spans)]
    )
