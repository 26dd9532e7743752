"""The exact engine: term-at-a-time search over inverted lists in plain, memory-mappable arrays."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from functools import cached_property, partial
from itertools import pairwise, repeat
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from lexicept.engines.interface import PostingsEngine, checked, checked_offsets, single_precision
from lexicept.engines.inverted import SEGMENT, SHARES, SegmentWriter
from lexicept.engines.mask import EVERYTHING, Mask, Segments
from lexicept.errors import IndexFormatError, InputError
from lexicept.ops.lists import (
    MARGIN,
    STEP,
    WIDTHS,
    Lists,
    marks_of,
    num_bytes,
    unpack,
    weight_reference,
)
from lexicept.ops.postings import all_scores, first_or_later_search
from lexicept.ops.pruning import ROW
from lexicept.ops.threads import processors
from lexicept.storage.arrays import let_go, load_array, save_array
from lexicept.vectors import Floats, Integers, largest_weights

DAMAGED = "damaged postings: they name a document that is not there"

DAMAGED_MARKS = "damaged postings: their marks are not the documents'"


@dataclass(frozen=True)
class ExactEngine(PostingsEngine):
    """Postings of N documents over V dimensions, and an optional offset per document.

    The documents are cut into segments of ``SEGMENT``. With 8-bit weights, a quarter of single
    precision's, results are exact for the rounded weights.
    """

    name = "exact"
    exact = True
    pruned_from: ClassVar[int] = 2**19
    """Postings of a query from which on skipping some takes less time than reading all."""
    share: ClassVar[int] = 2**18
    """Postings of a query for each thread that searches a share of its segments."""

    lengths: Integers
    """Entries of each list, or documents of a row of the table, 65,535 at most; u16 [segments, V].
    Entries are postings, and fillers of weight 0 where documents are far apart; see ``ops.lists``.
    """
    widths: Integers
    """Bits of the gaps of each list; 0 where it is a row of the table; u8 [segments, V]."""
    gaps: Integers
    """Gaps between the documents of a list, packed, u8."""
    weights: Floats
    """Weights, f32, or u8 to be multiplied by the dimension's scale [entries]."""
    marks: Integers
    """The document before every ``STEP``-th entry, u16."""
    table: Floats
    """Rows of the dimensions with most documents: a weight, like those above, per document of the
    segment, and 0 where there is none."""
    df: Integers
    """Document frequency of each dimension, i64 [V]."""
    scales: Floats
    """Scale of each dimension's weights, f32 [V]; 1 for weights in single precision."""
    offsets: Floats
    """Offset of each document, f32 [N]."""
    maxima: Floats
    """The largest weight of each dimension in a segment, like the weights [segments, V]."""

    @classmethod
    def build(
        cls, documents: Any, offsets: npt.ArrayLike | None = None, weight_bits: int = 32
    ) -> ExactEngine:
        """Invert a SciPy sparse matrix [N, V].

        Args:
            offsets: a finite number per document [N]; 0 by default.
            weight_bits: 32, or 8 for weights rounded to 255 steps of the dimension's largest.

        Raises:
            InputError: NaN, infinite or negative weights, offsets of another length or that are not
                finite, or another number of bits.
        """
        matrix = single_precision(documents)
        prior = checked_offsets(offsets, matrix.shape[0])
        postings = PostingsWriter(largest_weights(matrix), weight_bits)
        postings.add(matrix)
        return postings.finish(prior)

    def save(self, folder: Path) -> None:
        """Write the arrays into an existing folder."""
        for field in fields(self):
            save_array(folder / f"{field.name}.npy", getattr(self, field.name))

    @classmethod
    def open(cls, folder: Path) -> ExactEngine:
        """Memory-map what ``save`` wrote. Raises IndexFormatError for anything else."""
        weights = load_array(folder / "weights.npy", list(SHARES))
        scales = load_array(folder / "scales.npy", np.float32)
        if not np.isfinite(scales).all():
            raise IndexFormatError(f"{folder}: scales that are not finite")
        try:
            return cls(
                load_array(folder / "lengths.npy", np.uint16, ndim=2),
                load_array(folder / "widths.npy", np.uint8, ndim=2),
                load_array(folder / "gaps.npy", np.uint8),
                weights,
                load_array(folder / "marks.npy", np.uint16),
                load_array(folder / "table.npy", weights.dtype),
                load_array(folder / "df.npy", np.int64),
                scales,
                load_array(folder / "offsets.npy", np.float32),
                load_array(folder / "maxima.npy", weights.dtype, ndim=2),
            )
        except InputError as error:
            raise IndexFormatError(f"{folder}: {error}") from None

    def let_go(self) -> None:
        for field in fields(self):
            let_go(getattr(self, field.name))

    def __post_init__(self) -> None:
        # Searching relies on this; 16 bits of a document's number are always within a segment.
        shape = -(-self.offsets.size // SEGMENT), self.scales.size
        sound = (
            self.lengths.shape == self.widths.shape == self.maxima.shape == shape
            and self.df.shape == self.scales.shape
            and self.maxima.dtype == self.weights.dtype
            and bool((self._tabled | (self.widths >= WIDTHS[0])).all())
            and bool((self.widths <= WIDTHS[1]).all())
            and self.weights.size == int(self._entries.sum())
            and self.gaps.size == int(num_bytes(self._entries, self.widths).sum()) + MARGIN
            and self.marks.size == -(-self.weights.size // STEP)
            and self.table.size == int(self._tabled.sum(axis=1) @ self._counts)
        )
        if not sound:
            raise InputError("postings whose parts do not fit together")

    @cached_property
    def _counts(self) -> Integers:
        """Return the number of documents of each segment [segments]."""
        firsts = np.arange(0, self.offsets.size, SEGMENT)
        return np.minimum(self.offsets.size - firsts, SEGMENT)

    @property
    def _tabled(self) -> npt.NDArray[np.bool_]:
        """Return which dimensions are in the table [segments, V]."""
        tabled: npt.NDArray[np.bool_] = self.widths == 0
        return tabled

    @property
    def _entries(self) -> Integers:
        """Return the entries of each list; rows of the table have none [segments, V]."""
        return np.where(self._tabled, 0, self.lengths)

    @cached_property
    def lists(self) -> Lists:
        """Its lists as kernels take them: in column order, because a query reads all segments of a
        few dimensions."""
        rows = np.where(self._tabled, self._counts[:, None], 0)
        parts = self._entries, rows, num_bytes(self._entries, self.widths)
        before = [np.cumsum(part, dtype=np.int64).reshape(part.shape) - part for part in parts]
        starts = np.where(self._tabled, before[1], before[0])
        of_lists = self.lengths, self.widths, starts, before[2]
        lengths, widths, starts, places = map(np.asfortranarray, of_lists)
        own = self.gaps, self.weights, self.marks, self.table
        return Lists(lengths, widths, starts, places, *own)

    @cached_property
    def _reading(self) -> Integers:
        """Return the time of reading each dimension, in postings; 0 for none [V]."""
        rows = -(-self._counts[:, None] // ROW)
        whole: Integers = np.where(self._tabled, rows, self.lengths).sum(axis=0, dtype=np.int64)
        return whole

    @cached_property
    def _largest(self) -> Floats:
        """Return ``maxima`` as kernels take them, in column order too."""
        return np.asfortranarray(self.maxima)

    @cached_property
    def _offset_ranges(self) -> Floats:
        """Return the smallest and the largest offset of each segment [segments, 2]."""
        firsts = range(0, self.offsets.size, SEGMENT)
        parts = [self.offsets[first : first + SEGMENT] for first in firsts]
        return np.array([(p.min(), p.max()) for p in parts], np.float32).reshape(-1, 2)

    @cached_property
    def _postings(self) -> tuple[Any, ...]:
        """Return what kernels read, as plain arrays: they take longer to look at mapped ones."""
        arrays = *self.lists, self.scales, self.offsets, self._largest, self._offset_ranges
        return SEGMENT, *map(np.asarray, arrays)

    @property
    def size(self) -> int:
        """Bytes of its arrays."""
        return sum(int(getattr(self, field.name).nbytes) for field in fields(self))

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

    def postings(self, dimensions: slice) -> tuple[Integers, Floats]:
        """Return documents and weights of neighbouring dimensions, from ``start`` to ``stop``, one
        dimension after the other.

        Raises:
            IndexFormatError: a posting of a document that is not there.
        """
        nothing = np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.float32)
        postings = [self._of_segment(number, dimensions) for number in range(len(self.lengths))]
        columns, documents, weights = map(np.concatenate, zip(nothing, *postings, strict=True))
        check_df(columns, dimensions, self.df)
        order = np.argsort(columns, kind="stable")
        return documents[order], weights[order]

    def _of_segment(self, number: int, dimensions: slice) -> tuple[Integers, Integers, Floats]:
        """Return dimension, document and weight of a segment's postings."""
        columns = np.arange(self.num_dimensions)[dimensions]
        tabled, count = self._tabled[number, dimensions], int(self._counts[number])
        listed, starts = columns[~tabled], self.lists.starts[number]
        lengths = self.lengths[number, listed].astype(np.int64)
        first = int(starts[listed[0]]) if listed.size else 0
        byte = int(self.lists.places[number, listed[0]]) if listed.size else 0
        entries = unpack(self.gaps[byte:], lengths, self.widths[number, listed])
        if entries.size and int(entries.max()) >= count:
            raise IndexFormatError(DAMAGED)
        marks = marks_of(entries, starts[listed] - first, first)
        if (marks != self.marks[-(-first // STEP) :][: marks.size]).any():
            raise IndexFormatError(DAMAGED_MARKS)
        weight = self.weights[first : first + entries.size]
        postings = weight != 0  # others are fillers
        places, documents = [np.repeat(listed, lengths)[postings]], [entries[postings]]
        weights = [weight[postings]]
        for column in columns[tabled].tolist():
            row = self.table[starts[column] : starts[column] + count]
            (own,) = np.nonzero(row)
            places.append(np.full(own.size, column))
            documents.append(own)
            weights.append(row[own])
        place, document = np.concatenate(places), np.concatenate(documents)
        number_of = (document + number * SEGMENT).astype(np.int32)
        return place, number_of, np.concatenate(weights) * self.scales[place]

    def segment(self, number: int) -> sp.csr_array:
        columns, documents, weights = self._of_segment(number, slice(None))
        shape = (int(self._counts[number]), self.num_dimensions)
        rows = documents - number * SEGMENT
        return sp.csr_array(sp.coo_array((weights, (rows, columns)), shape=shape))

    def _rank(
        self,
        queries: sp.csr_array,
        factors: Floats,
        top_k: int,
        threads: int | None,
        mask: Mask | None,
    ) -> list[tuple[Integers, Floats]]:
        count = queries.shape[0]
        allowed = EVERYTHING if mask is None else mask.segments(SEGMENT)
        workers = threads or processors()
        one = partial(self._search_rows, queries, factors, top_k, allowed)
        if count < 2 or workers < 2:
            return one(range(count), workers)
        # The kernel releases the GIL, so that threads share one set of postings.
        workers = min(workers, count)
        bounds = np.linspace(0, count, 4 * workers + 1).astype(int)
        parts = [range(a, b) for a, b in pairwise(bounds)]
        with ThreadPoolExecutor(workers) as pool:
            rankings = pool.map(one, parts, repeat(1))
        return [result for part in rankings for result in part]

    def _search_rows(
        self,
        matrix: sp.csr_array,
        factors: Floats,
        top_k: int,
        allowed: Segments,
        rows: Sequence[int],
        threads: int,
    ) -> list[tuple[Integers, Floats]]:
        return [
            self._search_one(
                matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]],
                matrix.data[matrix.indptr[row] : matrix.indptr[row + 1]],
                float(factors[row]),
                top_k,
                allowed,
                threads,
            )
            for row in rows
        ]

    def _search_one(
        self,
        dimensions: Integers,
        weights: Floats,
        factor: float,
        top_k: int,
        allowed: Segments,
        threads: int,
    ) -> tuple[Integers, Floats]:
        read = int(self._reading[dimensions].sum())
        if not read:
            return np.empty(0, np.int64), np.empty(0, np.float32)
        segments = len(self.lengths)
        shares = max(1, min(threads, segments, read // self.share))
        return first_or_later_search(
            self.num_documents + read,
            [segments * share // shares for share in range(shares + 1)],
            min(top_k, self.num_documents),
            *self._postings,
            read >= self.pruned_from,
            dimensions.astype(np.int64),
            weights,
            factor,
            *allowed,
        )

    def found(self, queries: Any, query_offsets: npt.ArrayLike | None = None) -> Mask:
        matrix, factors = checked(queries, self.num_dimensions, 1, query_offsets)
        if not self.matches(matrix.indices):
            return Mask(np.zeros(self.num_documents, bool))
        own = matrix.indices.astype(np.int64), matrix.data, float(factors[0])
        try:
            scores = all_scores(SEGMENT, self.lists, self.scales, self.offsets, *own)
        except IndexError:
            raise IndexFormatError(DAMAGED) from None
        return Mask(scores > 0)

    def present(self, dimensions: Integers) -> npt.NDArray[np.bool_]:
        present: npt.NDArray[np.bool_] = np.logical_or.reduce(self.lengths[:, dimensions], axis=0)
        return present

    def matches(self, dimensions: Integers) -> bool:
        return bool(self.lengths[:, dimensions].any())

    def document_weights(self, document: int, dimensions: Integers) -> Floats:
        """Return the weights of one document on some dimensions, f64 [dimensions].

        Raises:
            IndexFormatError: a weight that is not finite.
        """
        weights = np.zeros(len(dimensions))
        number, place = divmod(document, SEGMENT)
        for i, dimension in enumerate(dimensions):
            weight = weight_reference(self.lists, number, int(dimension), place)
            weights[i] = weight * self.scales[dimension]
        if not np.isfinite(weights).all():
            raise IndexFormatError("damaged postings: weights that are not finite")
        return weights


def check_df(columns: Integers, dimensions: slice, df: Integers) -> None:
    """Compare the dimensions of postings with document frequencies [V].

    Args:
        columns: the dimension of each posting.
        dimensions: neighbouring ones, whose postings these are.

    Raises:
        IndexFormatError: a dimension with more or fewer postings.
    """
    start, stop, _ = dimensions.indices(df.size)
    counts = np.bincount(columns - start, minlength=max(stop - start, 0))
    if not np.array_equal(counts, df[start:stop]):
        raise IndexFormatError("damaged postings: document frequencies that are not theirs")


class PostingsWriter(SegmentWriter):
    """Inverts documents that come block after block, segment by segment, into memory or files.

    Args:
        largest: the largest weight of every dimension [V].
        weight_bits: 32 or 8, see ``ExactEngine.build``.
        folder: where ``ExactEngine.open`` shall find them; None keeps them in memory.

    Raises:
        InputError: another number of bits.
    """

    def finish(self, offsets: npt.ArrayLike) -> ExactEngine:
        """Return the engine of all documents, with an offset per document [N].

        Raises:
            InputError: offsets of another length, or that are not finite.
        """
        prior = checked_offsets(offsets, self._added)
        if self._waiting:
            self._invert(self._added % SEGMENT)
        self._parts["gaps"].append(np.zeros(MARGIN, np.uint8))
        shape = len(self._rows["lengths"]), self.scales.size
        kinds: list[Any] = [np.uint16, np.uint8, self.kind]
        rest: dict[str, Any] = {
            name: np.array(rows, kind).reshape(shape)
            for (name, rows), kind in zip(self._rows.items(), kinds, strict=True)
        }
        rest |= {"df": self._df, "scales": self.scales, "offsets": prior}
        self._open.close()
        if self._folder is None:
            arrays = {
                name: np.concatenate([np.empty(0, kind), *self._parts[name]])
                for name, kind in self._kinds.items()
            }
            return ExactEngine(**arrays, **rest)
        for name, values in rest.items():
            save_array(self._folder / f"{name}.npy", values)
        return ExactEngine.open(self._folder)
