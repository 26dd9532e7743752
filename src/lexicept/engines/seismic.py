"""Seismic: an approximate engine that prunes posting lists and skips blocks of documents.

Bruch et al. 2024, "Efficient Inverted Indexes for Approximate Retrieval over Learned Sparse
Representations". A list keeps its largest entries, grouped into blocks of similar documents; a
block whose summary scores too low is skipped; the documents of other blocks are scored in full.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import seismic

from lexicept.engines.exact import ExactEngine
from lexicept.engines.wrapped import USED, Extension, Found, Vector, WrappedEngine
from lexicept.errors import IndexFormatError, InputError
from lexicept.progress import Progress, silent
from lexicept.vectors import Floats

FILE = "documents.index.seismic"

LARGE = 2**16
"""Number of dimensions from which Seismic's classes for large vocabularies are needed."""

PRECISION = 2.0**-10
"""Relative error of a score: weights are kept in half precision."""

DEPTH = 10
"""Depth at which recall is measured."""

QUERY_CUTS = (3, 5, 8, 12, 20, 40)
HEAP_FACTORS = (1.2, 1.0, 0.9, 0.8, 0.7, 0.5, 0.0)


@dataclass(frozen=True)
class Pruning:
    """Settings of Seismic's pruning."""

    n_postings: int
    """Mean length of the pruned posting lists."""
    query_cut: int
    """Number of a query's largest dimensions whose lists are read."""
    heap_factor: float
    """A block is skipped if the product of its summary with the query is below this factor times
    the lowest score among the best documents so far; 0 skips none."""

    @classmethod
    def none(cls, num_documents: int, num_dimensions: int) -> Pruning:
        return cls(max(num_documents, 1), num_dimensions + 1, 0.0)


class SeismicEngine(WrappedEngine):
    """Documents in a Seismic index, held in memory."""

    name = "seismic"
    files = (FILE, USED)

    def __init__(
        self,
        folder: Path,
        extension: Extension,
        index: Any,
        pruning: Pruning,
        exact: bool,
        size: int,
    ) -> None:
        super().__init__(extension)
        self._folder = folder
        self._index = index
        self.pruning = pruning
        self.exact = exact
        self._size = size

    @classmethod
    def build(
        cls,
        folder: Path,
        documents: Any,
        offsets: Any = None,
        *,
        recall: float = 1.0,
        queries: Any = None,
        query_offsets: Any = None,
        progress: Progress = silent,
    ) -> dict[str, Any]:
        """Write an index into an existing folder.

        Args:
            documents, offsets: SciPy sparse matrix [N, V] and a number per document [N].
            recall: the share of the exact ``DEPTH`` best documents to find; 1 prunes nothing.
            queries, query_offsets: weights [n, V] and factors [n] of the sample that pruning is
                tuned on: every other query to choose, the rest to measure the recall that is
                reported. A recall below 1 requires queries.

        Returns:
            What ``open`` needs, and ``recall`` as measured, as JSON values.

        Raises:
            InputError: bad weights, a recall that is not above 0 and at most 1, or fewer than two
                queries that match a document.
        """
        if not 0 < recall <= 1:
            raise InputError(f"the recall must be above 0 and at most 1, not {recall}")
        if recall < 1 and queries is None:
            raise InputError(f"a recall of {recall} requires queries to tune the pruning on")
        extension, extended = Extension.of(documents, offsets)
        if recall == 1:
            pruning = Pruning.none(*documents.shape)
            index, measured = build_index(extended, pruning.n_postings), 1.0
        else:
            sample = Sample.of(extension, documents, offsets, queries, query_offsets)
            index, pruning, measured = tune(extended, sample, recall, progress)
        with _quiet():
            index.save(str(folder / FILE.removesuffix(".index.seismic")))
        numbers = extension.save(folder)
        return {**numbers, **asdict(pruning), "exact": recall == 1, "recall": measured}

    @classmethod
    def open(cls, folder: Path, numbers: Mapping[str, Any]) -> SeismicEngine:
        """Load what ``build`` wrote and returned, after its checksums were verified.

        Seismic trusts its files: one that was altered together with its checksums can crash the
        process.

        Raises:
            IndexFormatError: Seismic can't read it.
        """
        extension = Extension.load(folder, numbers)
        kind = seismic.SeismicIndexLV if extension.used.size + 1 >= LARGE else seismic.SeismicIndex
        try:
            pruning = Pruning(*(numbers[name] for name in Pruning.__dataclass_fields__))
            with _refusing_damage(folder):
                index = kind.load(str(folder / FILE))
        except (KeyError, OSError) as error:
            raise IndexFormatError(f"{folder}: {error}") from None
        size = sum(path.stat().st_size for path in folder.iterdir())
        return cls(folder, extension, index, pruning, bool(numbers["exact"]), size)

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return self._size

    @staticmethod
    def discard(folder: Path) -> None:
        """Do nothing: all files are in the folder."""

    def _search(self, queries: Sequence[Vector], top_k: int) -> list[Found]:
        with _refusing_damage(self._folder):
            return search(self._index, queries, top_k, self.pruning)


@dataclass(frozen=True)
class Sample:
    """Queries to tune on, and their exact results."""

    queries: Sequence[Vector]
    bars: Floats
    """Lowest score of each query's exact results, less the rounding error [n]."""
    wanted: Floats
    """Number of each query's exact results [n], at most ``DEPTH``."""

    @classmethod
    def of(
        cls, extension: Extension, documents: Any, offsets: Any, queries: Any, query_offsets: Any
    ) -> Sample:
        engine = ExactEngine.build(documents, offsets)
        factors = np.zeros(queries.shape[0]) if query_offsets is None else query_offsets
        results = engine.search(queries, DEPTH, factors)
        asked = zip(extension.queries(queries, np.asarray(factors)), results, strict=True)
        kept = [(vector, scores) for vector, (_, scores) in asked if vector is not None]
        if len(kept) < 2:
            raise InputError("pruning is tuned on at least 2 queries that match a document")
        bars = np.array([scores[-1] for _, scores in kept]) * (1 - PRECISION) * extension.scale
        wanted = np.array([scores.size for _, scores in kept], float)
        return cls([vector for vector, _ in kept], bars, wanted)

    def part(self, start: int) -> Sample:
        """Return every other query from number ``start`` on."""
        return Sample(self.queries[start::2], self.bars[start::2], self.wanted[start::2])

    def recall(self, index: Any, pruning: Pruning) -> tuple[float, float]:
        """Return the mean recall at ``DEPTH`` and the seconds of one thread per query."""
        start = time.perf_counter()
        rankings = search(index, self.queries, DEPTH, pruning, threads=1)
        seconds = (time.perf_counter() - start) / len(rankings)
        hits = [
            np.count_nonzero(np.array(scores) >= bar)
            for (_, scores), bar in zip(rankings, self.bars, strict=True)
        ]
        return float(np.mean(np.minimum(hits, self.wanted) / self.wanted)), seconds


def tune(
    documents: sp.csr_array, sample: Sample, recall: float, progress: Progress
) -> tuple[Any, Pruning, float]:
    """Find the shortest lists that can reach the recall, then the fastest search that does.

    Lists are doubled from a quarter of their mean length until a search that skips nothing misses
    at most half of what may be missed.

    Returns:
        The index, its pruning, and the recall on the other half of the sample.
    """
    chosen, held_out = sample.part(0), sample.part(1)
    lengths = np.bincount(documents.indices, minlength=documents.shape[1])
    longest = int(lengths.max(initial=1))
    n_postings = max(4, int(np.ceil(lengths[lengths > 0].mean() / 4)))
    whole = documents.shape[1]
    tried = 0
    while True:
        progress("seismic", tried, tried + 1, f"lists of {n_postings}")
        index = build_index(documents, n_postings)
        tried += 1
        ceiling, _ = chosen.recall(index, Pruning(n_postings, whole, 0.0))
        if ceiling >= (1 + recall) / 2 or n_postings >= longest:
            break
        n_postings = min(2 * n_postings, longest)
    best, fastest = Pruning(n_postings, whole, 0.0), np.inf
    for query_cut in (*QUERY_CUTS, whole):
        for heap_factor in HEAP_FACTORS:
            candidate = Pruning(n_postings, query_cut, heap_factor)
            reached, seconds = chosen.recall(index, candidate)
            if reached >= recall and seconds < fastest:
                best, fastest = candidate, seconds
    progress("seismic", tried, tried, f"lists of {n_postings}")
    return index, best, held_out.recall(index, best)[0]


def search(
    index: Any, queries: Sequence[Vector], top_k: int, pruning: Pruning, threads: int = 0
) -> list[Found]:
    """Return document numbers and scores of non-empty queries; 0 threads use all cores."""
    hits = index.batch_search(
        **arguments(queries),
        k=top_k,
        query_cut=pruning.query_cut,
        heap_factor=pruning.heap_factor,
        num_threads=threads,
    )
    return results(hits, len(queries))


def arguments(queries: Sequence[Vector]) -> dict[str, Any]:
    """Return queries as Seismic takes them."""
    kind = seismic.get_seismic_string()
    return {
        "queries_ids": np.arange(len(queries)).astype(str).astype(kind),
        "query_components": [query.dimensions.astype(str).astype(kind) for query in queries],
        "query_values": [query.weights for query in queries],
    }


def results(rankings: Sequence[Any], count: int) -> list[Found]:
    """Return Seismic's results of ``count`` queries, in their order."""
    ordered: list[Found] = [([], [])] * count
    for hits in rankings:  # in any order of the queries
        if hits:
            ordered[int(hits[0][0])] = [int(hit[2]) for hit in hits], [hit[1] for hit in hits]
    return ordered


def build_index(documents: sp.csr_array, n_postings: int) -> Any:
    """Build a Seismic index of documents [N, V + 1], identified by their numbers."""
    large = documents.shape[1] >= LARGE
    dataset_kind = seismic.SeismicDatasetLV if large else seismic.SeismicDataset
    index_kind = seismic.SeismicIndexLV if large else seismic.SeismicIndex
    dataset = dataset_kind(dim=documents.shape[1])
    dataset.add_documents_by_id(
        [str(number) for number in range(documents.shape[0])],
        documents.indices.astype(np.int64),
        documents.data,
        documents.indptr.astype(np.int64),
    )
    with _quiet():
        return index_kind.build_from_dataset(dataset, n_postings=n_postings)


@contextmanager
def _refusing_damage(folder: Path) -> Iterator[None]:
    """Raise IndexFormatError where Rust panics, or a document's name isn't a number."""
    try:
        yield
    except BaseException as error:  # pyo3's PanicException is no Exception, and can't be imported
        if type(error).__name__ != "PanicException" and not isinstance(error, ValueError):
            raise
        raise IndexFormatError(f"{folder}: Seismic can't read its file: {error}") from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence standard output, on which Seismic reports its work."""
    kept, nothing = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nothing)
