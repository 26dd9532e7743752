"""Term frequencies (tf) of many texts: encoded shard by shard, written as matrices on disk.

Identical texts are encoded once. Finished shards are kept, so that an interrupted build resumes
after the last one; few shards are in memory at a time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias, cast

import numpy as np
import scipy.sparse as sp

from lexicept.errors import IndexFormatError
from lexicept.parallel.ray import Cluster
from lexicept.progress import Progress
from lexicept.storage.arrays import CSRWriter, load_csr, save_csr
from lexicept.storage.workspace import Units
from lexicept.vectorizers.interface import (
    AnyVectorizer,
    EncodedDocuments,
    TokenCounter,
    Vectorizer,
    parts_of,
)
from lexicept.vectorizers.words import WordVectorizer
from lexicept.vectors import Integers, stack_columns

SHARD = 512
"""Documents in a shard, the unit of work that an interrupted build keeps."""

COUNTED_SHARDS = 64
"""Most shards whose tokens are counted: 32,000 documents."""

Encode: TypeAlias = Callable[[Iterable[list[str]]], Iterator[EncodedDocuments]]
"""Encodes blocks of texts, in order; takes few blocks in advance."""


def encode_on(
    cluster: Cluster | None, vectorizer: AnyVectorizer, folder: Path, *, counts: bool
) -> Encode:
    """Return a function that encodes documents on a cluster, or on this machine without one.

    Args:
        folder: of a saved vectorizer that does not grow; all nodes see the folder.
        counts: whether tokens are counted, if the vectorizer can.
    """
    if cluster is None:
        return partial(map, partial(_encode, vectorizer, counts))
    if isinstance(vectorizer, WordVectorizer):
        return partial(_counted, cluster, vectorizer)
    kind = cast("type[Vectorizer]", type(vectorizer))
    return partial(cluster.encode, partial(_LoadedEncoder, kind, folder, counts))


def _encode(vectorizer: AnyVectorizer, counts: bool, texts: Sequence[str]) -> EncodedDocuments:
    """Encode documents, and count their tokens if the vectorizer can."""
    if counts and isinstance(vectorizer, TokenCounter) and vectorizer.counts_tokens:
        return vectorizer.encode_documents(texts)
    return EncodedDocuments(vectorizer.documents(texts))


class _LoadedEncoder:
    """Encodes documents by a saved vectorizer, in a process of a cluster."""

    def __init__(self, kind: type[Vectorizer], folder: Path, counts: bool) -> None:
        self._vectorizer, self._counts = kind.load(folder), counts

    def documents(self, texts: Sequence[str]) -> EncodedDocuments:
        """Encode texts."""
        return _encode(self._vectorizer, self._counts, texts)


def _counted(
    cluster: Cluster, vectorizer: WordVectorizer, blocks: Iterable[list[str]]
) -> Iterator[EncodedDocuments]:
    counts = cluster.over(vectorizer.part_counter(), blocks)
    return (EncodedDocuments(vectorizer.join(counted)) for counted in counts)


@dataclass
class TokenTotal:
    """Adds up the token sums of shards."""

    total: sp.csr_array | None = None
    """None before the first shard."""

    def add(self, sums: sp.csr_array) -> None:
        """Add the sums of one shard."""
        self.total = sums if self.total is None else sp.csr_array(self.total + sums)


@dataclass(frozen=True)
class TermFrequencyWriter:
    """Encodes texts by a vectorizer and writes their term frequencies.

    Args:
        units: keeps finished shards, which are not encoded again; None keeps none.
        count: takes the token sums of evenly spread shards, if ``encode`` returns any.
    """

    vectorizer: AnyVectorizer
    texts: Sequence[str]
    encode: Encode
    units: Units | None = None
    count: Callable[[sp.csr_array], None] | None = None

    def write(self, prefixes: Sequence[Path], progress: Progress) -> list[sp.csr_array]:
        """Write and return the tf in each vocabulary, memory-mapped [N, size].

        Args:
            prefixes: of the files of each vocabulary, or of one matrix of all; see ``load_csr``.
        """
        texts, units = self.texts, self.units
        # Texts that occurred before, and shards that are kept, are not encoded again.
        first = first_occurrences(texts)
        starts = range(0, len(texts), SHARD)
        counted_every = SHARD * max(1, -(-len(starts) // COUNTED_SHARDS))
        done = {start for start in starts if self._is_done(start)}
        is_new = first == np.arange(first.size)
        new_texts = (
            [texts[n] for n in (start + np.flatnonzero(is_new[start : start + SHARD])).tolist()]
            for start in starts
            if start not in done
        )
        encoded = self.encode(block for block in new_texts if block)
        with ExitStack() as files:
            writers = [files.enter_context(CSRWriter(prefix)) for prefix in prefixes]
            for start in starts:
                if units is not None and start in done:
                    shard = _shard(units, start)
                    tf = load_csr(shard, self.vectorizer.size)
                    sums = _load_sums(shard, units, parts_of(self.vectorizer)[0].size)
                else:
                    tf, sums = self._assemble(encoded, first, start, writers)
                    sums = sums if start % counted_every == 0 else None
                    if units is not None:
                        _keep(_shard(units, start), units, tf, sums)
                for writer, columns in zip(
                    writers, split_columns(tf, self._sizes(writers)), strict=True
                ):
                    writer.append(columns)
                if self.count is not None and sums is not None:
                    self.count(sums)
                progress(self.vectorizer.name, min(start + SHARD, len(texts)), len(texts))
        return [
            load_csr(prefix, size)
            for prefix, size in zip(prefixes, self._sizes(prefixes), strict=True)
        ]

    def _sizes(self, matrices: Sequence[object]) -> list[int]:
        """Return the columns of each matrix that is written; of a growing vocabulary, up to now."""
        if len(matrices) == 1:
            return [self.vectorizer.size]
        return [vectorizer.size for vectorizer in parts_of(self.vectorizer)]

    def _is_done(self, start: int) -> bool:
        """Return True if a shard is kept and whole."""
        if self.units is None:
            return False
        prefix = _shard(self.units, start)
        if self.units.facts(prefix.name) is None:
            return False
        try:
            load_csr(prefix, self.vectorizer.size)
        except IndexFormatError:
            return False
        return True

    def _assemble(
        self,
        encoded: Iterator[EncodedDocuments],
        first: Integers,
        start: int,
        writers: Sequence[CSRWriter],
    ) -> EncodedDocuments:
        """Return the tf of a shard, from its new texts and from identical texts that are written
        already, and the token sums of its new texts."""
        distinct, places = np.unique(first[start : start + SHARD], return_inverse=True)
        earlier = distinct[distinct < start].tolist()
        new = next(encoded) if distinct.size > len(earlier) else None
        if new is not None and not earlier and distinct.size == places.size:
            return new
        written = [
            writer.rows(earlier, size)
            for writer, size in zip(writers, self._sizes(writers), strict=True)
        ]
        blocks = [stack_columns(written), *([] if new is None else [new.tf])]
        tf = sp.csr_array(sp.vstack(blocks, format="csr"))[places]
        return EncodedDocuments(tf, None if new is None else new.tokens)


def write_tf(
    prefix: Path,
    vectorizer: AnyVectorizer,
    texts: Sequence[str],
    units: Units | None,
    progress: Progress,
) -> sp.csr_array:
    """Write the tf of texts as one matrix, encoded on this machine; see ``TermFrequencyWriter``."""
    encode = encode_on(None, vectorizer, prefix.parent, counts=False)
    return TermFrequencyWriter(vectorizer, texts, encode, units).write([prefix], progress)[0]


def split_columns(matrix: sp.csr_array, sizes: Sequence[int]) -> list[sp.csr_array]:
    """Split a matrix [n, V] into neighbouring columns of these sizes."""
    if len(sizes) == 1:
        return [matrix]
    ends = np.cumsum([0, *sizes]).tolist()
    return [matrix[:, start:end] for start, end in pairwise(ends)]


def _shard(units: Units, start: int) -> Path:
    """Return the prefix of the files of the shard whose first text is number ``start``."""
    return units.folder / f"{start:012d}"


def _keep(shard: Path, units: Units, tf: sp.csr_array, sums: sp.csr_array | None) -> None:
    """Keep a finished shard, and its token sums in ``<shard>.tokens``."""
    save_csr(shard, tf)
    if sums is not None:
        save_csr(shard.with_name(f"{shard.name}.tokens"), sums)
    files = sorted(units.folder.glob(f"{shard.name}.*"))
    units.finish(shard.name, files, tokens=sums is not None)


def _load_sums(shard: Path, units: Units, size: int) -> sp.csr_array | None:
    """Return the token sums of a finished shard over ``size`` concepts, if it has any."""
    facts = units.facts(shard.name) or {}
    sums = shard.with_name(f"{shard.name}.tokens")
    return load_csr(sums, size + 1) if facts.get("tokens") else None


def first_occurrences(texts: Sequence[str]) -> Integers:
    """Return the number of the first text that is identical to each [N], by a hash of 128 bits."""
    digests = np.empty((len(texts), 2), np.uint64)
    for number, text in enumerate(texts):
        digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
        digests[number] = np.frombuffer(digest, np.uint64)
    order = np.lexsort(digests.T)  # stable: of identical texts the first comes first
    ordered = digests[order]
    new = np.ones(len(texts), bool)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    first = np.empty(len(texts), np.int64)
    first[order] = order[new][np.cumsum(new) - 1]
    return first
