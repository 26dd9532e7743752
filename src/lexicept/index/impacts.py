"""Impacts derived from a whole collection's tf: weights, pruning, RRA and postings.

An index stores tf; weights and postings are derived from tf, shard by shard, in seconds per 100,000
documents, and derived again after every change of a small collection. In a large collection without
RRA, a change keeps the statistics that weights depend on, and so the postings of unchanged
documents; see ``index.added_postings``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from lexicept import rra
from lexicept.checks import Count, Positive, settings
from lexicept.engines import ExactEngine, PostingsEngine
from lexicept.engines.interface import single_precision
from lexicept.engines.inverted import Inverted, PostingsWriter, inverted_in_groups
from lexicept.engines.joined import ADDED, SIZES, JoinedEngine
from lexicept.errors import IndexFormatError, InputError
from lexicept.kernels.posting_lists import SEGMENT
from lexicept.kernels.query_vectors import prune_within
from lexicept.parallel.shards import Over, Rows, Shard, shards_of
from lexicept.parallel.shards import over as over_here
from lexicept.storage.arrays import load_array, save_array
from lexicept.vectors import (
    Floats,
    Integers,
    Pruning,
    canonical_csr,
    largest_weights,
    prune_rows,
    stack_columns,
)
from lexicept.weighting import Statistics, Unchanged, Weighting, from_settings


@settings
class VocabularySettings:
    """Weighting and pruning of one vocabulary. Raises InputError for an unknown ``pruning``, or
    a limit out of range."""

    weighting: Weighting
    query_max_active_dims: Count | None = None
    """Most dimensions of a query, the first by ``pruning``; None sets no limit."""
    document_max_active_dims: Count | None = None
    """Most dimensions of a document, by weight; None sets no limit."""
    query_max_qd_flops: Positive | None = None
    """Largest QD-FLOPs of a query: the sum over dimensions of the share of documents that have
    each. In the order of ``pruning``, a dimension is kept if there is room; None sets no limit."""
    adapted: Mapping[str, int] | None = None
    """Tokens and steps by which the model was adapted to the collection, for the record; None
    without adaptation."""
    pruning: Pruning = "weight"
    """Order in which limits keep a query's dimensions; a document's are always kept by weight."""

    def to_json(self) -> dict[str, Any]:
        """Return all settings as JSON values, by the names of the fields."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**values, "weighting": self.weighting.settings()}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> VocabularySettings:
        """Return the settings that ``to_json`` described; other members are ignored."""
        values = {field.name: content[field.name] for field in fields(cls)}
        return cls(**{**values, "weighting": from_settings(values["weighting"])})

    def prune_documents(self, weights: sp.csr_array) -> sp.csr_array:
        """Prune document weights [N, V] to their limit."""
        limit = self.document_max_active_dims
        return weights if limit is None else prune_rows(weights, limit)

    def prune_queries(
        self, weights: sp.csr_array, bounds: Floats, df: Integers, num_documents: int
    ) -> sp.csr_array:
        """Prune query weights [n, V] to the limits.

        Args:
            bounds: the largest document weight of every dimension, before RRA [V].
            df: documents that have each dimension [V].
        """
        importance = bounds if self.pruning == "impact" else None
        most = self.query_max_active_dims
        if self.query_max_qd_flops is not None:
            postings = self.query_max_qd_flops * max(num_documents, 1)
            return prune_within(weights, postings, df, importance, min(most or df.size, df.size))
        return weights if most is None else prune_rows(weights, most, importance)

    def prune(
        self, queries: sp.csr_array, documents: sp.csr_array
    ) -> tuple[sp.csr_array, sp.csr_array]:
        """Prune the weights of queries [n, V] and of all documents [N, V]."""
        documents = self.prune_documents(documents)
        if self.query_max_active_dims is None and self.query_max_qd_flops is None:
            return queries, documents
        df = np.bincount(documents.indices, minlength=documents.shape[1])
        bounds = largest_weights(documents)
        return self.prune_queries(queries, bounds, df, documents.shape[0]), documents


@settings
class RRASettings:
    """Arguments of ``rra.reweight`` for a whole index. Raises InputError for ``iterations``
    below 1, or an unknown transform."""

    alpha: Positive = 1.0
    iterations: Count = 1
    transform: str = "1+x"

    def __post_init__(self) -> None:
        if self.transform not in rra.TRANSFORMS:
            transforms = ", ".join(rra.TRANSFORMS)
            raise InputError(f"no transform {self.transform!r:.80}, only: {transforms}")


class Weighed(NamedTuple):
    """Documents of a shard."""

    weights: sp.csr_array
    """CSR f32 [n, V]."""
    scales: Floats
    """RRA's number of each document, before the collection's smallest is subtracted [n]; infinite
    for an empty one, and everywhere without RRA."""
    lost: int = 0
    """Non-zeros that RRA made too small for single precision."""


class InvertedShards(NamedTuple):
    """Documents of a segment, inverted; see ``inverted_in_groups``, and ``Weighed``."""

    groups: list[tuple[slice, Inverted]]
    scales: Floats
    lost: int


@dataclass(frozen=True)
class Weigher:
    """Collection-wide settings and statistics that turn each shard's tf into weights."""

    settings: tuple[VocabularySettings, ...]
    collection: tuple[Statistics, ...]
    """Statistics of each vocabulary."""
    dialogue: rra.Dialogue | None = None
    """RRA's state after its iterations; None for weights without RRA."""

    @property
    def num_documents(self) -> int:
        return self.collection[0].num_documents

    def plain(self, shard: Shard) -> sp.csr_array:
        """Frequencies → weights → pruning, all vocabularies side by side [n, V]."""
        vocabularies = zip(shard.load(), self.settings, self.collection, strict=True)
        weights = [
            setting.prune_documents(setting.weighting.documents(tf, statistics))
            for tf, setting, statistics in vocabularies
        ]
        return canonical_csr(stack_columns(weights))

    def weigh(self, shard: Shard) -> Weighed:
        """Return the shard's weights, re-weighted by RRA if there is a dialogue."""
        weights = self.plain(shard)
        if self.dialogue is None:
            return Weighed(single_precision(weights), np.full(weights.shape[0], np.inf))
        reread, scales = rra.read(weights, self._prior(weights), self.dialogue)
        # A speaker with nothing to say tells a document well: RRA would rank empty ones high.
        scales[np.diff(weights.indptr) == 0] = np.inf
        single = single_precision(reread)
        return Weighed(single, scales, weights.nnz - np.count_nonzero(single.data))

    def invert(
        self, shards: Sequence[Shard], scales: Floats, kind: np.dtype[Any]
    ) -> InvertedShards:
        """Weigh and invert the documents of a segment; see ``inverted_in_groups``."""
        weighed = [*over_here(self.weigh, shards)]
        groups = inverted_in_groups((block.weights for block in weighed), scales, kind)
        lost = sum(block.lost for block in weighed)
        return InvertedShards(
            list(groups), np.concatenate([block.scales for block in weighed]), lost
        )

    def hear(self, shard: Shard, dialogue: rra.Dialogue) -> rra.Sums:
        """Return the shard's sums for RRA's next listener."""
        weights = self.plain(shard)
        return rra.hear(weights, self._prior(weights), dialogue)

    def _prior(self, weights: sp.csr_array) -> Floats:
        return np.full(weights.shape[0], 1 / max(self.num_documents, 1))

    def bounds(self, shard: Shard) -> Floats:
        """Return the largest weight of every dimension in the shard [V]."""
        return largest_weights(self.weigh(shard).weights)


@dataclass(frozen=True)
class Derived:
    """The engine and the numbers for queries, derived from the tf of a whole collection."""

    engine: PostingsEngine
    bounds: Floats
    """Largest document weight of every dimension, before RRA, of deleted documents too [V]; times a
    query's weight, the dimension's impact."""
    background: Floats
    """RRA's query factors on the document offsets [V]; zeros without RRA."""
    lost: int = 0
    """Postings that RRA made too small for single precision; counted by ``compute``."""

    @classmethod
    def compute(
        cls,
        tf: Sequence[Rows],
        settings: Sequence[VocabularySettings],
        rra_settings: RRASettings | None,
        folder: Path | None = None,
        weight_bits: int = 32,
        over: Over | None = None,
    ) -> Derived:
        """Derive postings: tf [N, V_i] of each vocabulary → weights → pruning → RRA → postings.

        Every pass goes over shards of the documents and computes weights again: memory depends on V
        and the number of documents, not on the non-zeros. Raises InputError for weights that are
        not finite, or arguments that ``rra.reweight`` or ``ExactEngine.build`` refuses.

        Args:
            folder: a new folder for ``load``, from which the result is memory-mapped; None keeps
                the result in memory.
            weight_bits: of the postings, see ``ExactEngine.build``.
            over: maps over the shards on a cluster; this process writes the result. None computes
                on this machine.
        """
        if folder is not None:
            folder.mkdir()
        shards, mapped = shards_of(tf), over or over_here
        weigher = weigher_of(shards, settings, mapped)
        num_dimensions = sum(statistics.df.size for statistics in weigher.collection)
        bounds = largest = background = np.zeros(num_dimensions, np.float32)
        if rra_settings is not None or weight_bits < 32:  # else these are the postings' largest
            bounds = largest = reduce(np.maximum, mapped(weigher.bounds, shards))
        # RRA's rounds are passes of their own: each needs the sums of the one before.
        if rra_settings is not None:
            dialogue = reason(shards, weigher, num_dimensions, rra_settings, mapped)
            with np.errstate(over="ignore"):
                background = dialogue.background.astype(np.float32)
            rra.check_finite(rra_settings.alpha, background)
            weigher = replace(weigher, dialogue=dialogue)
            if weight_bits < 32:  # it matters where weights are rounded
                largest = reduce(np.maximum, mapped(weigher.bounds, shards))
        scales, lost = np.full(weigher.num_documents, np.inf), 0
        with PostingsWriter(largest, weight_bits, folder) as postings:
            for numbers, segment in write_segments(postings, weigher, tf, over):
                lost += segment.lost
                scales[numbers] = segment.scales
            finite = np.isfinite(scales)
            offsets = np.zeros(scales.size)
            offsets[finite] = scales[finite] - scales[finite].min(initial=np.inf)
            engine = ExactEngine.of(postings, offsets)
        if rra_settings is None and weight_bits == 32:
            bounds = postings.largest
        if folder is not None:
            save_array(folder / "bounds.npy", bounds)
            save_array(folder / "background.npy", background)
            save_statistics(folder, weigher.collection)
        return cls(engine, bounds, background, lost)

    @classmethod
    def reweighted(cls, weights: sp.csr_array, rra_settings: RRASettings | None) -> Derived:
        """Derive postings from document weights [N, V]."""
        return cls.compute([weights], [VocabularySettings(Unchanged())], rra_settings)

    @classmethod
    def load(cls, folder: Path) -> Derived:
        """Memory-map the files of ``compute``; the postings are not read. Raises
        IndexFormatError for damaged files, or numbers that are not finite."""
        joined = (folder / ADDED).is_dir()
        engine: PostingsEngine = JoinedEngine.open(folder) if joined else ExactEngine.open(folder)
        bounds = load_array((folder / ADDED if joined else folder) / "bounds.npy", np.float32)
        background = np.zeros(engine.num_dimensions, np.float32)
        if not joined:
            background = load_array(folder / "background.npy", np.float32)
        if not bounds.size == background.size == engine.num_dimensions:
            raise IndexFormatError(f"{folder}: arrays of different numbers of dimensions")
        numbers = {"offsets": engine.offsets, "bounds": bounds, "background": background}
        for name, values in numbers.items():
            if not np.isfinite(values).all():
                raise IndexFormatError(f"{folder}: {name} that are not finite")
        return cls(engine, bounds, background)

    def weigh_queries(
        self, settings: VocabularySettings, dimensions: slice, tf: sp.csr_array
    ) -> sp.csr_array:
        """Return the pruned weights of queries with tf [n, size] in one vocabulary [n, size]."""
        weights = settings.weighting.queries(canonical_csr(tf))
        bounds, df = self.bounds[dimensions], self.engine.df[dimensions]
        return settings.prune_queries(weights, bounds, df, self.engine.num_documents)


def write_segments(
    postings: PostingsWriter, weigher: Weigher, tf: Sequence[Rows], over: Over | None = None
) -> Iterator[tuple[slice, InvertedShards]]:
    """Weigh, invert and write the documents of tf [N, V_i], a segment at a time, on this machine or
    ``over`` a cluster. Yields the numbers of each segment's documents, and the segment."""
    starts = range(0, tf[0].indptr.size - 1, SEGMENT)
    groups = (shards_of([t[start : start + SEGMENT] for t in tf]) for start in starts)
    segments: Iterator[InvertedShards]
    if over is None:  # one after another: a segment in memory takes some 100 MB
        segments = (weigher.invert(group, postings.scales, postings.kind) for group in groups)
    else:
        segments = over(weigher.invert, [*groups], postings.scales, postings.kind)
    for segment in segments:
        yield postings.add(segment.groups, segment.scales.size), segment


def save_statistics(folder: Path, collection: Sequence[Statistics]) -> None:
    """Write the statistics of every vocabulary, without the number of documents."""
    nothing = np.empty(0, np.int64)
    save_array(folder / SIZES, np.array([s.df.size for s in collection], np.int64))
    save_array(folder / "statistics.df.npy", np.concatenate([nothing, *(s.df for s in collection)]))
    save_array(folder / "statistics.lengths.npy", np.array([s.length for s in collection]))


def load_statistics(folder: Path, num_documents: int) -> list[Statistics]:
    """Read the files of ``save_statistics``. Raises IndexFormatError for damaged files."""
    sizes = load_array(folder / SIZES, np.int64)
    df = load_array(folder / "statistics.df.npy", np.int64)
    lengths = load_array(folder / "statistics.lengths.npy", np.float64)
    fitting = sizes.shape == lengths.shape and sizes.sum() == df.size
    positive = (sizes >= 0).all() and (df >= 0).all() and (lengths >= 0).all()
    if not (fitting and positive and np.isfinite(lengths).all()):
        raise IndexFormatError(f"{folder}: statistics that do not fit together")
    per_vocabulary = zip(lengths.tolist(), np.split(df, np.cumsum(sizes)[:-1]), strict=True)
    return [Statistics(num_documents, length, df) for length, df in per_vocabulary]


def statistics_of(shard: Shard, vocabulary: int) -> Statistics:
    return Statistics.of(shard.load()[vocabulary])


def weigher_of(
    shards: Sequence[Shard], settings: Sequence[VocabularySettings], over: Over = over_here
) -> Weigher:
    """Return the weigher for the documents of all shards, without RRA."""
    collection = [reduce(add, over(statistics_of, shards, i)) for i in range(len(settings))]
    return Weigher(tuple(settings), tuple(collection))


def reason(
    shards: Sequence[Shard],
    weigher: Weigher,
    num_dimensions: int,
    settings: RRASettings,
    over: Over = over_here,
) -> rra.Dialogue:
    """Return RRA's state after its iterations over all shards."""
    begin = rra.Dialogue.begin(
        weigher.num_documents, num_dimensions, settings.alpha, settings.transform
    )
    return rra.converse(
        lambda dialogue: reduce(add, over(weigher.hear, shards, dialogue)),
        begin,
        settings.iterations,
    )
