"""Exact search over two sets of postings of one index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from lexicept.engines.exact import ExactEngine
from lexicept.engines.interface import PostingLists, PostingsEngine, Ranking, checked_queries
from lexicept.engines.mask import Mask
from lexicept.errors import IndexFormatError, InputError
from lexicept.kernels.posting_lists import SEGMENT
from lexicept.storage.arrays import load_array
from lexicept.vectors import Floats, Integers, stack_rows

ADDED, SIZES = "added", "sizes.npy"
"""Folder of the added postings beside the kept postings; file with the dimensions of each
vocabulary in a set of postings."""


@dataclass(frozen=True)
class JoinedEngine(PostingsEngine):
    """N documents whose postings are in two engines, without offsets.

    The kept engine has some of the documents, in order, and deleted documents; its dimensions are
    some of the V dimensions, in order. The added engine has the other documents, in order.
    """

    kept: ExactEngine
    added: ExactEngine
    kept_dimensions: Integers
    """Index of each dimension of the kept engine among the V dimensions, ascending."""
    kept_documents: Integers
    """Index of each document of the kept engine among the N documents; -1 for deleted ones."""
    kept_df: Integers
    """Document frequencies in the kept engine without deleted documents, i64 [V]."""
    _masks: WeakKeyDictionary[Mask, list[Mask]] = field(
        default_factory=WeakKeyDictionary, init=False, repr=False, compare=False
    )
    """The masks that were cut into the engines' documents."""

    @classmethod
    def open(cls, folder: Path) -> JoinedEngine:
        """Memory-map the postings that ``index.added_postings`` wrote. Raises IndexFormatError if
        the folder has other files."""
        added = folder / ADDED
        kept_sizes = load_array(folder / SIZES, np.int64)
        sizes = load_array(added / SIZES, np.int64)
        documents = load_array(added / "kept.npy", np.int32)
        df = load_array(added / "kept.df.npy", np.int64)
        kept_engine, added_engine = ExactEngine.open(folder), ExactEngine.open(added)
        try:
            return cls(kept_engine, added_engine, columns_of(kept_sizes, sizes), documents, df)
        except InputError as error:
            raise IndexFormatError(f"{added}: {error}") from None

    def __post_init__(self) -> None:
        present = self.kept_documents[self.kept_documents >= 0]
        dimensions = self.kept_dimensions
        sound = (
            self.kept_documents.size == self.kept.num_documents
            and bool((np.diff(present) > 0).all())
            and (present.size == 0 or int(present[-1]) < present.size + self.added.num_documents)
            and self.kept.weights.dtype == self.added.weights.dtype
            and not (self.kept.offsets.any() or self.added.offsets.any())
            and dimensions.size == self.kept.num_dimensions
            and (dimensions.size == 0 or int(dimensions[-1]) < self.added.num_dimensions)
            and self.kept_df.size == self.added.num_dimensions
        )
        if not sound:
            raise InputError("added postings that do not fit the others")

    @cached_property
    def df(self) -> Integers:  # type: ignore[override]
        return self.kept_df + self.added.df

    @cached_property
    def offsets(self) -> Floats:  # type: ignore[override]
        present = np.count_nonzero(self.kept_documents >= 0)
        return np.zeros(present + self.added.num_documents, np.float32)

    @property
    def engines(self) -> tuple[ExactEngine, ExactEngine]:
        return self.kept, self.added

    @cached_property
    def numbers(self) -> tuple[Integers, Integers]:
        """Index of each document of each engine among all; -1 for deleted documents."""
        in_added = np.ones(self.num_documents, bool)
        in_added[self.kept_documents[self.kept_documents >= 0]] = False
        return self.kept_documents, np.flatnonzero(in_added).astype(np.int32)

    @cached_property
    def _kept_columns(self) -> Integers:
        """Index of each of the V dimensions in the kept engine; -1 for none."""
        columns = np.full(self.num_dimensions, -1, np.int32)
        columns[self.kept_dimensions] = np.arange(self.kept_dimensions.size)
        return columns

    @cached_property
    def _present(self) -> list[Mask | None]:
        """The documents of each engine without deleted documents; None for all."""
        present = self.kept_documents >= 0
        return [None if present.all() else Mask(present), None]

    @property
    def num_segments(self) -> int:
        return -(-self.num_documents // SEGMENT)

    @property
    def weight_bits(self) -> int:
        return self.kept.weight_bits

    @property
    def largest(self) -> float:
        return max(self.kept.largest, self.added.largest)

    def let_go(self) -> None:
        for engine in self.engines:
            engine.let_go()

    def rank(
        self,
        queries: sp.csr_array,
        factors: Floats,
        top_k: int,
        threads: int | None,
        mask: Mask | None,
    ) -> list[Ranking]:
        in_kept, in_added = self._present if mask is None else self._cut(mask)
        rankings = (
            self.kept.rank(self._of_kept(queries), factors, top_k, threads, in_kept),
            self.added.rank(queries, factors, top_k, threads, in_added),
        )
        return [self._best(of_query, top_k) for of_query in zip(*rankings, strict=True)]

    def _of_kept(self, queries: sp.csr_array) -> sp.csr_array:
        """Return queries [n, V] on the dimensions of the kept engine."""
        indices = self._kept_columns[queries.indices]
        present = indices >= 0
        starts = np.concatenate([[0], np.cumsum(present)])[queries.indptr]
        shape = queries.shape[0], self.kept.num_dimensions
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
        """Return the best results of both engines for one query."""
        pairs = zip(self.numbers, rankings, strict=True)
        documents = np.concatenate([numbering[ranked] for numbering, (ranked, _) in pairs])
        scores = np.concatenate([engine_scores for _, engine_scores in rankings])
        order = np.lexsort((documents, -scores))[:top_k]
        return documents[order].astype(np.int64), scores[order]

    def scores(self, queries: Any, query_offsets: npt.ArrayLike | None = None) -> Floats:
        query = checked_queries(queries, self.num_dimensions)
        scores = np.zeros(self.num_documents, np.float32)
        of_kept = self.kept.scores(self._of_kept(query), query_offsets)
        kept_documents, added_documents = self.numbers
        present = kept_documents >= 0
        scores[kept_documents[present]] = of_kept[present]
        scores[added_documents] = self.added.scores(query, query_offsets)
        return scores

    def posting_lists(self, dimensions: Integers) -> PostingLists:
        positions, documents, weights = [], [], []
        of_kept = self._kept_columns[dimensions]
        for engine, numbers, columns in zip(
            self.engines, self.numbers, (of_kept, dimensions), strict=True
        ):
            lists = engine.posting_lists(columns[columns >= 0])
            indexes = numbers[lists.documents]
            present = indexes >= 0
            positions.append(np.repeat(np.flatnonzero(columns >= 0), lists.sizes)[present])
            documents.append(indexes[present])
            weights.append(lists.weights[present])
        position, document = np.concatenate(positions), np.concatenate(documents).astype(np.int64)
        order = np.lexsort((document, position))
        sizes = np.bincount(position, minlength=len(dimensions))
        return PostingLists(document[order], np.concatenate(weights)[order], sizes)

    def segment(self, segment: int) -> sp.csr_array:
        start = segment * SEGMENT
        stop = min(start + SEGMENT, self.num_documents)
        width = self.num_dimensions
        matrices: list[sp.csr_array] = []
        documents = [np.empty(0, np.int32)]
        every = np.arange(width)
        for engine, numbers, columns in zip(
            self.engines, self.numbers, (self.kept_dimensions, every), strict=True
        ):
            (inside,) = np.nonzero((numbers >= start) & (numbers < stop))
            # The engine's documents of this segment may be in several segments of the engine.
            segments = inside // SEGMENT
            for engine_segment in np.unique(segments).tolist():
                positions = inside[segments == engine_segment]
                weights = engine.segment(engine_segment)[positions - engine_segment * SEGMENT]
                csr = weights.data, columns[weights.indices], weights.indptr
                matrices.append(sp.csr_array(csr, shape=(positions.size, width)))
                documents.append(numbers[positions])
        return stack_rows(matrices, width)[np.argsort(np.concatenate(documents))]

    def document_weights(self, document: int, dimensions: Integers) -> Floats:
        of_kept, of_added = self.numbers
        (in_kept,) = np.nonzero(of_kept == document)
        if not in_kept.size:
            return self.added.document_weights(int(np.searchsorted(of_added, document)), dimensions)
        columns = self._kept_columns[dimensions]
        weights, present = np.zeros(len(dimensions)), columns >= 0
        weights[present] = self.kept.document_weights(int(in_kept[0]), columns[present])
        return weights


def columns_of(engine_sizes: Integers, sizes: Integers) -> Integers:
    """Return the index of each of an engine's dimensions among all, from the dimensions of each
    vocabulary in the engine and in all engines. Raises InputError for other vocabularies, or fewer
    dimensions than the engine has."""
    same_vocabularies = engine_sizes.shape == sizes.shape and (engine_sizes >= 0).all()
    if not same_vocabularies or (engine_sizes > sizes).any():
        raise InputError(f"postings with vocabularies of {engine_sizes}, not {sizes}")
    spans = zip(engine_sizes.tolist(), (np.cumsum(sizes) - sizes).tolist(), strict=True)
    return np.concatenate(
        [np.empty(0, np.int64), *(np.arange(size) + start for size, start in spans)]
    )
