"""Seismic: an approximate engine that prunes posting lists and skips blocks of documents.

Bruch et al. 2024, "Efficient Inverted Indexes for Approximate Retrieval over Learned Sparse
Representations". A list keeps its largest entries, grouped into blocks of similar documents; a
block with a summary of a low score is skipped; documents of other blocks are scored in full.
Seismic takes non-empty vectors without offsets: ``OffsetDimension`` makes offsets a dimension.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import seismic

from lexicept.engines.exact import ExactEngine
from lexicept.engines.interface import Engine, QueryBatch, Ranking, check_finite
from lexicept.engines.mask import Mask
from lexicept.engines.offset_dimension import USED, OffsetDimension
from lexicept.errors import IndexFormatError, InputError
from lexicept.progress import Progress, silent
from lexicept.vectors import Floats, Integers, Vector

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
class SeismicPruning:
    """Settings of Seismic's pruning."""

    n_postings: int
    """Mean length of the pruned posting lists."""
    query_cut: int
    """Number of a query's largest dimensions whose lists are read."""
    heap_factor: float
    """A block is skipped if the product of its summary with the query is below this factor times
    the lowest score among the best documents so far; 0 skips none."""


Hits = tuple[list[int], list[float]]
"""Document numbers and scores of a query, in any order."""


class SeismicEngine(Engine):
    """Documents in a Seismic index, held in memory."""

    name = "seismic"
    files = (FILE, USED)
    """Names of the files in an engine's folder, whose checksums are stored."""

    def __init__(
        self,
        folder: Path,
        offset_dimension: OffsetDimension,
        index: Any,
        pruning: SeismicPruning,
        exact: bool,
    ) -> None:
        self.offset_dimension = offset_dimension
        self.pruning = pruning
        self.exact = exact
        self._folder = folder
        self._index = index
        self._size = sum(path.stat().st_size for path in folder.iterdir())

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
        """Write an index into an existing folder; return facts for ``open``, and the measured
        ``recall``, as JSON values. Raises InputError for bad weights, a recall that is not above 0
        and at most 1, or fewer than two queries that match a document.

        Args:
            recall: the share of the exact ``DEPTH`` best documents to find; 1 prunes nothing.
            queries, query_offsets: weights [n, V] and factors [n] of a sample to tune pruning on:
                every other query to choose, the others to measure the reported recall. A recall
                below 1 requires queries.
        """
        if not 0 < recall <= 1:
            raise InputError(f"the recall must be above 0 and at most 1, not {recall}")
        if recall < 1 and queries is None:
            raise InputError(f"a recall of {recall} requires queries to tune the pruning on")
        offset_dimension, extended = OffsetDimension.of(documents, offsets)
        if recall == 1:
            num_documents, num_dimensions = documents.shape
            pruning = SeismicPruning(max(num_documents, 1), num_dimensions + 1, 0.0)
            index, measured = build_index(extended, pruning.n_postings), 1.0
        else:
            sample = TuningSample.of(offset_dimension, documents, offsets, queries, query_offsets)
            index, pruning, measured = tune(extended, sample, recall, progress)
        with _quiet():
            index.save(str(folder / FILE.removesuffix(".index.seismic")))
        numbers = offset_dimension.save(folder)
        return {**numbers, **asdict(pruning), "exact": recall == 1, "recall": measured}

    @classmethod
    def open(cls, folder: Path, numbers: Mapping[str, Any]) -> SeismicEngine:
        """Load the files and the facts of ``build``, after the checksums were verified.

        Seismic trusts files: a file altered together with the checksum can crash the process.
        Raises IndexFormatError for a file that Seismic can't read.
        """
        offset_dimension = OffsetDimension.load(folder, numbers)
        large = offset_dimension.used.size + 1 >= LARGE
        kind = seismic.SeismicIndexLV if large else seismic.SeismicIndex
        try:
            settings = {field.name: numbers[field.name] for field in fields(SeismicPruning)}
            pruning = SeismicPruning(**settings)
            with _refusing_damage(folder):
                index = kind.load(str(folder / FILE))
        except (KeyError, OSError) as error:
            raise IndexFormatError(f"{folder}: {error}") from None
        return cls(folder, offset_dimension, index, pruning, bool(numbers["exact"]))

    @property
    def size(self) -> int:
        return self._size

    @property
    def num_documents(self) -> int:
        return self.offset_dimension.num_documents

    @property
    def num_dimensions(self) -> int:
        return int(self.offset_dimension.used.size)

    def rank(self, batch: QueryBatch) -> list[Ranking]:
        if (batch.factors < 0).any():
            raise InputError(f"query offsets must be at least 0, not {batch.factors.min()}")
        mask = batch.mask
        if mask is not None and not self.exact:
            problem = f"the engine {self.name} prunes, so that a filter would miss documents"
            raise InputError(f"{problem}; search with the exact engine")
        # Seismic takes no empty queries: those that match nothing have no results.
        vectors = self.offset_dimension.extend(batch.queries, batch.factors)
        matching = [number for number, vector in enumerate(vectors) if vector is not None]
        queries = [vector for vector in vectors if vector is not None]
        depth = min(batch.top_k, self.num_documents)
        if not matching or (mask is not None and not mask.count):
            hits: list[Hits] = [([], [])] * len(matching)
        elif mask is None:
            hits = self._search(queries, depth)
        else:
            hits = self._search_allowed(queries, depth, mask)
        nothing = np.empty(0, np.int64), np.empty(0, np.float32)
        rankings: list[Ranking] = [nothing] * len(vectors)
        for number, (numbers, scores) in zip(matching, hits, strict=True):
            rankings[number] = self._ranked(np.array(numbers, np.int64), np.array(scores))
        return check_finite(rankings)

    def _ranked(self, numbers: Integers, scores: Floats) -> Ranking:
        """Return documents with positive scores, best first, and the scores, not scaled."""
        if numbers.size and not 0 <= numbers.min() <= numbers.max() < self.num_documents:
            raise IndexFormatError(f"the engine {self.name} returns a document that is not there")
        order = np.lexsort((numbers, -scores))
        order = order[scores[order] > 0]
        return numbers[order], (scores[order] / self.offset_dimension.scale).astype(np.float32)

    def _search(self, queries: Sequence[Vector], top_k: int) -> list[Hits]:
        with _refusing_damage(self._folder):
            return search(self._index, queries, top_k, self.pruning)

    def _search_allowed(self, queries: Sequence[Vector], top_k: int, mask: Mask) -> list[Hits]:
        """Return the best allowed documents, at most ``top_k``, of an engine without pruning."""
        hits: list[Hits] = [([], [])] * len(queries)
        waiting = list(range(len(queries)))
        # Of random results the mask's share is allowed. The depth grows for the other queries.
        depth = 2 * top_k * self.num_documents // mask.count
        while waiting:
            depth = max(min(depth, self.num_documents), top_k)
            rankings = self._search([queries[query] for query in waiting], depth)
            unfinished = []
            for query, (numbers, scores) in zip(waiting, rankings, strict=True):
                allowed = [hit for hit in zip(numbers, scores, strict=True) if mask.allowed[hit[0]]]
                if len(allowed) < top_k and len(numbers) == depth < self.num_documents:
                    unfinished.append(query)
                    continue
                best = sorted(allowed, key=lambda hit: (-hit[1], hit[0]))[:top_k]
                hits[query] = [number for number, _ in best], [score for _, score in best]
            waiting = unfinished
            depth *= 4
        return hits


@dataclass(frozen=True)
class TuningSample:
    """Queries to tune on, and their exact results."""

    queries: Sequence[Vector]
    bars: Floats
    """Lowest score of each query's exact results, less the rounding error [n]."""
    counts: Floats
    """Number of each query's exact results [n], at most ``DEPTH``."""

    @classmethod
    def of(
        cls,
        offset_dimension: OffsetDimension,
        documents: Any,
        offsets: Any,
        queries: Any,
        query_offsets: Any,
    ) -> TuningSample:
        engine = ExactEngine.build(documents, offsets)
        factors = np.zeros(queries.shape[0]) if query_offsets is None else query_offsets
        rankings = engine.search(queries, DEPTH, factors)
        vectors = offset_dimension.extend(queries, np.asarray(factors))
        matching = [
            (vector, scores)
            for vector, (_, scores) in zip(vectors, rankings, strict=True)
            if vector is not None
        ]
        if len(matching) < 2:
            raise InputError("pruning is tuned on at least 2 queries that match a document")
        lowest = np.array([scores[-1] for _, scores in matching])
        bars = lowest * (1 - PRECISION) * offset_dimension.scale
        counts = np.array([scores.size for _, scores in matching], float)
        return cls([vector for vector, _ in matching], bars, counts)

    def every_other(self, start: int) -> TuningSample:
        """Return every other query from number ``start`` on."""
        return TuningSample(self.queries[start::2], self.bars[start::2], self.counts[start::2])

    def recall(self, index: Any, pruning: SeismicPruning) -> tuple[float, float]:
        """Return the mean recall at ``DEPTH`` and the seconds of one thread per query."""
        start = time.perf_counter()
        rankings = search(index, self.queries, DEPTH, pruning, threads=1)
        seconds = (time.perf_counter() - start) / len(rankings)
        hits = [
            np.count_nonzero(np.array(scores) >= bar)
            for (_, scores), bar in zip(rankings, self.bars, strict=True)
        ]
        return float(np.mean(np.minimum(hits, self.counts) / self.counts)), seconds


def tune(
    documents: sp.csr_array, sample: TuningSample, recall: float, progress: Progress
) -> tuple[Any, SeismicPruning, float]:
    """Find the shortest lists that can reach the recall, then the fastest search with the recall;
    return the index, its pruning, and the recall on the other half of the sample. Lists are doubled
    from a quarter of the mean length until a search without skipping loses at most half of the
    allowed loss."""
    tuned_on, held_out = sample.every_other(0), sample.every_other(1)
    lengths = np.bincount(documents.indices, minlength=documents.shape[1])
    longest = int(lengths.max(initial=1))
    n_postings = max(4, int(np.ceil(lengths[lengths > 0].mean() / 4)))
    whole = documents.shape[1]
    # First the length of the lists: the recall without skipping is a bound.
    tried = 0
    while True:
        progress("seismic", tried, tried + 1, f"lists of {n_postings}")
        index = build_index(documents, n_postings)
        tried += 1
        ceiling, _ = tuned_on.recall(index, SeismicPruning(n_postings, whole, 0.0))
        if ceiling >= (1 + recall) / 2 or n_postings >= longest:
            break
        n_postings = min(2 * n_postings, longest)
    # Then the fastest settings of a search.
    best, fastest = SeismicPruning(n_postings, whole, 0.0), np.inf
    for query_cut in (*QUERY_CUTS, whole):
        for heap_factor in HEAP_FACTORS:
            candidate = SeismicPruning(n_postings, query_cut, heap_factor)
            reached, seconds = tuned_on.recall(index, candidate)
            if reached >= recall and seconds < fastest:
                best, fastest = candidate, seconds
    progress("seismic", tried, tried, f"lists of {n_postings}")
    return index, best, held_out.recall(index, best)[0]


def search(
    index: Any, queries: Sequence[Vector], top_k: int, pruning: SeismicPruning, threads: int = 0
) -> list[Hits]:
    """Return document numbers and scores of non-empty queries; 0 threads use all cores."""
    hits = index.batch_search(
        **batch_arguments(queries),
        k=top_k,
        query_cut=pruning.query_cut,
        heap_factor=pruning.heap_factor,
        num_threads=threads,
    )
    return hits_of(hits, len(queries))


def batch_arguments(queries: Sequence[Vector]) -> dict[str, Any]:
    """Return queries as Seismic takes them."""
    kind = seismic.get_seismic_string()
    return {
        "queries_ids": np.arange(len(queries)).astype(str).astype(kind),
        "query_components": [query.dimensions.astype(str).astype(kind) for query in queries],
        "query_values": [query.weights for query in queries],
    }


def hits_of(rankings: Sequence[Any], count: int) -> list[Hits]:
    """Return Seismic's results of ``count`` queries, in their order."""
    ordered: list[Hits] = [([], [])] * count
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
    """Silence standard output: Seismic reports progress there."""
    standard_output, nothing = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 1)
        yield
    finally:
        os.dup2(standard_output, 1)
        os.close(standard_output)
        os.close(nothing)
