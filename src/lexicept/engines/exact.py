"""The exact engine: term-at-a-time search over inverted lists in plain, memory-mappable arrays."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import pairwise, repeat
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from lexicept.engines.interface import (
    PostingLists,
    PostingsEngine,
    Ranking,
    check_finite,
    checked_factors,
    checked_offsets,
    checked_queries,
    single_precision,
)
from lexicept.engines.inverted import SHARES, PostingsWriter, inverted_in_groups
from lexicept.engines.mask import EVERYTHING, Mask
from lexicept.errors import IndexFormatError, InputError
from lexicept.kernels.compiled import num_processors
from lexicept.kernels.posting_lists import MARGIN, SEGMENT, WIDTHS, Postings, num_bytes, unpack
from lexicept.kernels.term_at_a_time import ROW, WeightedQuery, score_all, search
from lexicept.storage.arrays import let_go, load_array
from lexicept.vectors import Floats, Integers, largest_weights, neighbouring_rows

DAMAGED = "damaged postings: they name a document that is not there"


@dataclass(frozen=True)
class ExactEngine(PostingsEngine):
    """Postings of N documents over V dimensions, and an offset per document.

    The documents are cut into segments of ``SEGMENT``; ``kernels.posting_lists`` draws the layout
    of the arrays, and ``Postings`` there describes each. With 8-bit weights, a quarter of single
    precision's, results are exact for the rounded weights.
    """

    lengths: Integers
    widths: Integers
    gaps: Integers
    weights: Floats
    table: Floats
    df: Integers
    scales: Floats
    offsets: Floats

    @classmethod
    def build(
        cls, documents: Any, offsets: npt.ArrayLike | None = None, weight_bits: int = 32
    ) -> ExactEngine:
        """Invert a SciPy sparse matrix [N, V]. Raises InputError for NaN, infinite or negative
        weights, offsets of another length or that are not finite, or another number of bits.

        Args:
            offsets: a finite number per document [N]; 0 by default.
            weight_bits: 32, or 8 for weights rounded to 255 steps of the dimension's largest.
        """
        matrix = single_precision(documents)
        prior = checked_offsets(offsets, matrix.shape[0])
        writer = PostingsWriter(largest_weights(matrix), weight_bits)
        for start in range(0, prior.size, SEGMENT):
            block = neighbouring_rows(matrix, start, min(start + SEGMENT, prior.size))
            writer.add(inverted_in_groups([block], writer.scales, writer.kind), block.shape[0])
        return cls.of(writer, prior)

    @classmethod
    def of(cls, writer: PostingsWriter, offsets: npt.ArrayLike) -> ExactEngine:
        """Return the engine of all added documents, with offsets [N]; see ``build``."""
        arrays = writer.finish(checked_offsets(offsets, writer.num_documents))
        return cls(**arrays) if writer.folder is None else cls.open(writer.folder)

    @classmethod
    def open(cls, folder: Path) -> ExactEngine:
        """Memory-map ``PostingsWriter``'s arrays. Raises IndexFormatError for damaged arrays."""
        weights = load_array(folder / "weights.npy", list(SHARES))
        scales = load_array(folder / "scales.npy", np.float32)
        if not np.isfinite(scales).all():
            raise IndexFormatError(f"{folder}: scales that are not finite")
        try:
            return cls(
                lengths=load_array(folder / "lengths.npy", np.uint16, ndim=2),
                widths=load_array(folder / "widths.npy", np.uint8, ndim=2),
                gaps=load_array(folder / "gaps.npy", np.uint8),
                weights=weights,
                table=load_array(folder / "table.npy", weights.dtype),
                df=load_array(folder / "df.npy", np.int64),
                scales=scales,
                offsets=load_array(folder / "offsets.npy", np.float32),
            )
        except InputError as error:
            raise IndexFormatError(f"{folder}: {error}") from None

    def let_go(self) -> None:
        for field in fields(self):
            let_go(getattr(self, field.name))

    def __post_init__(self) -> None:
        # Kernels rely on these sizes; a 16-bit document number is always within a segment.
        shape = -(-self.offsets.size // SEGMENT), self.scales.size
        sound = (
            self.lengths.shape == self.widths.shape == shape
            and self.df.shape == self.scales.shape
            and bool((self._tabled | (self.widths >= WIDTHS[0])).all())
            and bool((self.widths <= WIDTHS[1]).all())
            and self.weights.size == int(self._entries.sum())
            and self.gaps.size == int(num_bytes(self._entries, self.widths).sum()) + MARGIN
            and self.table.size == int(self._tabled.sum(axis=1) @ self._counts)
        )
        if not sound:
            raise InputError("postings whose parts do not fit together")

    @cached_property
    def _counts(self) -> Integers:
        """Number of documents of each segment [segments]."""
        return np.minimum(self.offsets.size - np.arange(0, self.offsets.size, SEGMENT), SEGMENT)

    @property
    def _tabled(self) -> npt.NDArray[np.bool_]:
        """True for dimensions in the table [segments, V]."""
        tabled: npt.NDArray[np.bool_] = self.widths == 0
        return tabled

    @property
    def _entries(self) -> Integers:
        """Entries of each list; 0 for rows of the table [segments, V]."""
        return np.where(self._tabled, 0, self.lengths)

    @cached_property
    def lists(self) -> Postings:
        """The arrays as kernels take them: plain, because numba recognises memory-mapped arrays
        slowly, and in column order, because a query reads all segments of a few dimensions."""
        # Lists and rows follow each other: the sizes of earlier ones are their starts.
        sizes = (
            self._entries,
            np.where(self._tabled, self._counts[:, None], 0),
            num_bytes(self._entries, self.widths),
        )
        weight_starts, table_starts, gap_starts = (
            np.cumsum(size, dtype=np.int64).reshape(size.shape) - size for size in sizes
        )
        return Postings(
            lengths=np.asarray(np.asfortranarray(self.lengths)),
            widths=np.asarray(np.asfortranarray(self.widths)),
            starts=np.asfortranarray(np.where(self._tabled, table_starts, weight_starts)),
            gap_starts=np.asfortranarray(gap_starts),
            gaps=np.asarray(self.gaps),
            weights=np.asarray(self.weights),
            table=np.asarray(self.table),
            scales=np.asarray(self.scales),
            offsets=np.asarray(self.offsets),
        )

    @cached_property
    def _costs(self) -> Integers:
        """Time of reading each dimension, in postings; 0 without documents [V]."""
        row_costs = -(-self._counts[:, None] // ROW)
        costs: Integers = np.where(self._tabled, row_costs, self.lengths).sum(
            axis=0, dtype=np.int64
        )
        return costs

    @property
    def weight_bits(self) -> int:
        return 8 * int(self.weights.dtype.itemsize)

    @property
    def num_segments(self) -> int:
        return len(self.lengths)

    @cached_property
    def largest(self) -> float:
        if self.weight_bits == 8:  # a dimension's largest weight is stored as 255
            return 255 * float(self.scales[self.df > 0].max(initial=0))
        return float(max(self.weights.max(initial=0), self.table.max(initial=0)))

    def rank(
        self,
        queries: sp.csr_array,
        factors: Floats,
        top_k: int,
        threads: int | None,
        mask: Mask | None,
    ) -> list[Ranking]:
        allowed = EVERYTHING if mask is None else mask.by_segment
        depth = min(top_k, self.offsets.size)

        def rank_span(numbers: Sequence[int], threads: int) -> list[Ranking]:
            """Rank neighbouring queries; ``threads`` share each query."""
            rankings = []
            for index in numbers:
                start, end = queries.indptr[index], queries.indptr[index + 1]
                dimensions = queries.indices[start:end].astype(np.int64)
                cost = int(np.add.reduce(self._costs[dimensions]))
                ranking: Ranking = np.empty(0, np.int64), np.empty(0, np.float32)
                if cost:
                    factor = float(factors[index])
                    query = WeightedQuery(dimensions, queries.data[start:end], factor)
                    ranking = search(SEGMENT, self.lists, query, allowed, depth, cost, threads)
                rankings.append(ranking)
            return check_finite(rankings)

        num_queries, threads = factors.size, threads or num_processors()
        if num_queries < 2 or threads < 2:
            return rank_span(range(num_queries), threads)
        # The kernel releases the GIL: threads share one set of postings.
        threads = min(threads, num_queries)
        # Spans for a thread that is done early.
        bounds = np.linspace(0, num_queries, 4 * threads + 1).astype(int)
        spans = [range(start, end) for start, end in pairwise(bounds)]
        with ThreadPoolExecutor(threads) as pool:
            rankings = pool.map(rank_span, spans, repeat(1))
        return [ranking for span in rankings for ranking in span]

    def scores(self, queries: Any, query_offsets: npt.ArrayLike | None = None) -> Floats:
        matrix = checked_queries(queries, self.num_dimensions)
        factor = float(checked_factors(query_offsets, matrix.shape[0])[0])
        weighted = matrix.data > 0
        dimensions = matrix.indices[weighted].astype(np.int64)
        cost = int(np.add.reduce(self._costs[dimensions]))
        if not cost:  # offsets alone are no match
            return np.zeros(self.num_documents, np.float32)
        query = WeightedQuery(dimensions, matrix.data[weighted], factor)
        scores = score_all(SEGMENT, self.lists, query, cost)
        check_finite([(dimensions, scores)])
        return np.maximum(scores, 0, out=scores)

    def segment(self, segment: int) -> sp.csr_array:
        tabled, count = self._tabled[segment], int(self._counts[segment])
        listed, starts = np.flatnonzero(~tabled), self.lists.starts[segment]
        lengths = self.lengths[segment, listed].astype(np.int64)
        offset = int(starts[listed[0]]) if listed.size else 0
        byte = int(self.lists.gap_starts[segment, listed[0]]) if listed.size else 0
        listed_documents = unpack(self.gaps[byte:], lengths, self.widths[segment, listed])
        if listed_documents.size and int(listed_documents.max()) >= count:
            raise IndexFormatError(DAMAGED)
        entry_weights = self.weights[offset : offset + listed_documents.size]
        postings = entry_weights != 0  # fillers have weight 0
        posting_dimensions = [np.repeat(listed, lengths)[postings]]
        documents, weights = [listed_documents[postings]], [entry_weights[postings]]
        # A row of the table has a weight per document, 0 for no posting.
        for column in np.flatnonzero(tabled).tolist():
            table_row = self.table[starts[column] : starts[column] + count]
            (having,) = np.nonzero(table_row)
            posting_dimensions.append(np.full(having.size, column))
            documents.append(having)
            weights.append(table_row[having])
        dimension, document = np.concatenate(posting_dimensions), np.concatenate(documents)
        scaled = np.concatenate(weights) * self.scales[dimension]
        shape = count, self.num_dimensions
        return sp.csr_array(sp.coo_array((scaled, (document, dimension)), shape=shape))

    def posting_lists(self, dimensions: Integers) -> PostingLists:
        documents: list[Integers] = [np.empty(0, np.int64)]
        weights: list[Floats] = [np.empty(0, np.float32)]
        for dimension in dimensions.tolist():
            for segment, count in enumerate(self._counts.tolist()):
                of_list, values = self._list(segment, dimension, count)
                having = values.nonzero()[0]  # fillers have weight 0
                documents.append(of_list[having] + segment * SEGMENT)
                weights.append(values[having] * self.scales[dimension])
                if having.size and documents[-1][-1] >= segment * SEGMENT + count:
                    raise IndexFormatError(DAMAGED)
        sizes = np.array([list_.size for list_ in weights[1:]], np.int64)
        by_dimension = sizes.reshape(len(dimensions), self.num_segments).sum(axis=1)
        return PostingLists(np.concatenate(documents), np.concatenate(weights), by_dimension)

    def _list(self, segment: int, dimension: int, count: int) -> tuple[Integers, Floats]:
        """Return the entries of a dimension in a segment of ``count`` documents."""
        cell, lists = (segment, dimension), self.lists
        start, length, width = (
            int(each[cell]) for each in (lists.starts, lists.lengths, lists.widths)
        )
        if width == 0:
            return np.arange(count), lists.table[start : start + count]
        gaps, widths = lists.gaps[lists.gap_starts[cell] :], np.array([width], np.uint8)
        return unpack(gaps, np.array([length]), widths), lists.weights[start : start + length]

    def document_weights(self, document: int, dimensions: Integers) -> Floats:
        weights = np.zeros(len(dimensions))
        segment, position = divmod(document, SEGMENT)
        count = int(self._counts[segment])
        for i, dimension in enumerate(dimensions.tolist()):
            documents, of_list = self._list(segment, dimension, count)
            # A filler of the document has weight 0.
            weight = float(of_list[documents == position].sum())
            weights[i] = weight * self.scales[dimension]
        if not np.isfinite(weights).all():
            raise IndexFormatError("damaged postings: weights that are not finite")
        return weights
