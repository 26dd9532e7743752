"""Term frequencies (tf) of many texts: encoded shard by shard, written as one matrix on disk.

Identical texts are encoded once. Finished shards are kept, so that an interrupted build resumes
after the last of them; no more than a few are in memory at a time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, cast

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
    JointVectorizer,
    PartJoiner,
    TokenCounter,
    Vectorizer,
    parts_of,
)
from lexicept.vectors import Integers

SHARD = 512
"""Documents in a shard, the unit of work that an interrupted build keeps."""

COUNTED_SHARDS = 64
"""Most shards whose tokens are counted: 32,000 documents."""

Encode: TypeAlias = Callable[[Iterable[list[str]]], Iterator[EncodedDocuments]]
"""Encodes blocks of texts, in order; takes few blocks in advance."""


@dataclass(frozen=True)
class DocumentEncoder:
    """Encodes documents by a vectorizer, and counts their tokens if the vectorizer can."""

    vectorizer: AnyVectorizer
    counts: bool = True
    """False to count no tokens."""

    def documents(self, texts: Sequence[str]) -> EncodedDocuments:
        """Encode texts."""
        counter = self.vectorizer
        if self.counts and isinstance(counter, TokenCounter) and counter.counts_tokens:
            return counter.encode_documents(texts)
        return EncodedDocuments(self.vectorizer.documents(texts))

    @classmethod
    def load(cls, kind: type[Vectorizer], folder: Path, counts: bool) -> DocumentEncoder:
        """Load a saved vectorizer."""
        return cls(kind.load(folder), counts)


def encode_on(
    cluster: Cluster | None, vectorizer: AnyVectorizer, folder: Path, *, counts: bool
) -> Encode:
    """Return what encodes documents on a cluster, or on this machine without one.

    Args:
        folder: where a vectorizer that does not grow is saved; all nodes see it.
        counts: whether tokens are counted, if the vectorizer can.
    """
    if cluster is None:
        return partial(map, DocumentEncoder(vectorizer, counts).documents)
    if isinstance(vectorizer, PartJoiner):
        return partial(_counted, cluster, vectorizer)
    kind = cast("type[Vectorizer]", type(vectorizer))
    return partial(cluster.encode, partial(DocumentEncoder.load, kind, folder, counts))


def _counted(
    cluster: Cluster, vectorizer: PartJoiner, blocks: Iterable[list[str]]
) -> Iterator[EncodedDocuments]:
    parts = cluster.over(vectorizer.part_counter(), blocks)
    return (EncodedDocuments(vectorizer.join(part)) for part in parts)


@dataclass
class TokenTotal:
    """Adds up the sums of shards' tokens."""

    total: sp.csr_array | None = None
    """None before the first."""

    def add(self, sums: sp.csr_array) -> None:
        """Add those of one shard."""
        self.total = sums if self.total is None else sp.csr_array(self.total + sums)


def write_tf(
    prefix: Path,
    vectorizer: AnyVectorizer,
    texts: Sequence[str],
    shards: Units | None,
    progress: Progress,
    encode: Encode | None = None,
    count: Callable[[sp.csr_array], None] | None = None,
) -> sp.csr_array:
    """Write the tf of all texts and return them, memory-mapped [N, size].

    Args:
        prefix: see ``load_csr``.
        shards: keeps finished shards, which are not encoded again; None keeps none.
        encode: encodes blocks of texts; the vectorizer, one block after the other, by default.
        count: takes the sums of evenly spread shards' tokens, where ``encode`` returns them.
    """
    first = first_occurrences(texts)
    starts = range(0, len(texts), SHARD)
    step = SHARD * max(1, -(-len(starts) // COUNTED_SHARDS))
    done = {s for s in starts if shards is not None and _holds(shards, s, vectorizer.size)}
    news = (_new(texts, first, start) for start in starts if start not in done)
    encode = encode or partial(map, DocumentEncoder(vectorizer, counts=False).documents)
    encoded = encode(new for new in news if new)
    with CSRWriter(prefix) as written:
        for start in starts:
            if shards is not None and start in done:
                block = load_csr(_shard(shards, start), vectorizer.size)
                sums = _load_sums(shards, start, parts_of(vectorizer)[0].size)
            else:
                block, sums = _assemble(encoded, first, start, vectorizer, written)
                sums = sums if start % step == 0 else None
                if shards is not None:
                    _keep(shards, start, block, sums)
            written.append(block)
            if count is not None and sums is not None:
                count(sums)
            progress(vectorizer.name, min(start + SHARD, len(texts)), len(texts))
    return load_csr(prefix, vectorizer.size)


def write_vocabularies(
    prefixes: Sequence[Path], vectorizer: AnyVectorizer, *arguments: Any
) -> list[sp.csr_array]:
    """Write and return the tf of all texts in each vocabulary of a vectorizer.

    Args:
        prefixes: of each, see ``load_csr``.
        arguments: of ``write_tf``.
    """
    if not isinstance(vectorizer, JointVectorizer):
        return [write_tf(prefixes[0], vectorizer, *arguments)]
    joined = prefixes[0].with_name("joined")
    tf = write_tf(joined, vectorizer, *arguments)
    start = 0
    for prefix, part in zip(prefixes, vectorizer.parts, strict=True):
        own = slice(start, start + part.size)
        start = own.stop
        with CSRWriter(prefix) as written:
            for row in range(0, tf.shape[0], SHARD):
                written.append(sp.csr_array(tf[row : row + SHARD])[:, own])
    for file in joined.parent.glob(f"{joined.name}.*"):
        file.unlink()
    parts = zip(prefixes, vectorizer.parts, strict=True)
    return [load_csr(prefix, part.size) for prefix, part in parts]


def _shard(shards: Units, start: int) -> Path:
    """Return the prefix of the files of the shard whose first text is number ``start``."""
    return shards.folder / f"{start:012d}"


def _sums(shards: Units, start: int) -> Path:
    """Return the prefix of the files of a shard's sums."""
    return shards.folder / f"{_shard(shards, start).name}.tokens"


def _keep(shards: Units, start: int, block: sp.csr_array, sums: sp.csr_array | None) -> None:
    """Keep a finished shard."""
    save_csr(_shard(shards, start), block)
    if sums is not None:
        save_csr(_sums(shards, start), sums)
    name = _shard(shards, start).name
    shards.finish(name, sorted(shards.folder.glob(f"{name}.*")), tokens=sums is not None)


def _load_sums(shards: Units, start: int, size: int) -> sp.csr_array | None:
    """Return the sums of a finished shard over ``size`` concepts; None where it has none."""
    facts = shards.facts(_shard(shards, start).name) or {}
    return load_csr(_sums(shards, start), size + 1) if facts.get("tokens") else None


def _holds(shards: Units, start: int, columns: int) -> bool:
    """Return whether a finished shard is whole, so that it need not be encoded again."""
    prefix = _shard(shards, start)
    if shards.facts(prefix.name) is None:
        return False
    try:
        load_csr(prefix, columns)
    except IndexFormatError:
        return False
    return True


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


def _new(texts: Sequence[str], first: Integers, start: int) -> list[str]:
    """Return the texts of a shard that are not identical to an earlier one."""
    stop = min(start + SHARD, first.size)
    return [texts[number] for number in range(start, stop) if first[number] == number]


def _assemble(
    encoded: Iterator[EncodedDocuments],
    first: Integers,
    start: int,
    vectorizer: AnyVectorizer,
    written: CSRWriter,
) -> EncodedDocuments:
    """Return the tf of a shard, those of its new texts and of texts that are written already, and
    the sums of its new texts' tokens."""
    sources, rows = np.unique(first[start : start + SHARD], return_inverse=True)
    earlier = sources[sources < start].tolist()
    new = [next(encoded)] if sources.size > len(earlier) else []
    if not earlier and sources.size == rows.size:
        return new[0]
    parts = [written.rows(earlier, vectorizer.size), *(one.tf for one in new)]
    tf = sp.csr_array(sp.vstack(parts, format="csr"))[rows]
    return EncodedDocuments(tf, new[0].tokens if new else None)
