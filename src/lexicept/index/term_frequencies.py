"""Term frequencies (tf) of many texts: encoded shard by shard, written as matrices on disk.

Finished shards are kept, so that an interrupted build resumes after the last one; few shards are in
memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TypeAlias, cast

import scipy.sparse as sp

from lexicept.encoding.vectorizer import DocumentEncoder, Vectorizer
from lexicept.encoding.words import WordVectorizer
from lexicept.errors import IndexFormatError
from lexicept.index.text_vectors import VectorWriter
from lexicept.parallel.ray import Cluster
from lexicept.progress import Progress
from lexicept.storage.arrays import CSRWriter, load_csr, save_csr
from lexicept.storage.workspace import Units

SHARD = 512
"""Documents in a shard, the unit of work that an interrupted build keeps."""

Encode: TypeAlias = Callable[[Iterable[list[str]]], Iterator[sp.csr_array]]
"""Encodes blocks of texts, in order; takes few blocks in advance."""


def encode_on(cluster: Cluster | None, vectorizer: DocumentEncoder, folder: Path) -> Encode:
    """Return a function that encodes documents on a cluster, or on this machine without one.

    Args:
        folder: of a saved vectorizer that does not grow; all nodes see the folder.
    """
    if cluster is None:
        return partial(map, vectorizer.documents)
    if isinstance(vectorizer, WordVectorizer):
        count = vectorizer.part_counter()
        return lambda blocks: map(vectorizer.join, cluster.over(count, blocks))
    kind = cast("type[Vectorizer]", type(vectorizer))
    return partial(cluster.encode, partial(kind.load, folder))


def write_tf(
    prefix: Path,
    vectorizer: DocumentEncoder,
    texts: Sequence[str],
    units: Units | None,
    progress: Progress,
    encode: Encode | None = None,
    vector_size: int = 0,
) -> sp.csr_array:
    """Encode texts; write and return their tf, memory-mapped [N, size].

    Args:
        prefix: of the files of the tf; see ``load_csr``.
        units: keeps finished shards, which are not encoded again; None keeps none.
        encode: see ``encode_on``; by default on this machine.
        vector_size: components of a vector that follow the frequencies of each text, and are
            written beside them; 0 for none.
    """
    encode = encode or encode_on(None, vectorizer, prefix.parent)
    starts = range(0, len(texts), SHARD)
    done = {start for start in starts if _is_done(units, start, vectorizer.size)}
    encoded = encode(list(texts[start : start + SHARD]) for start in starts if start not in done)
    with ExitStack() as files:
        writer, vectors = files.enter_context(CSRWriter(prefix)), None
        if vector_size:
            vectors = files.enter_context(VectorWriter(prefix.parent, vector_size))
        for start in starts:
            if units is not None and start in done:
                tf = load_csr(_shard(units, start), vectorizer.size)
            else:
                tf = next(encoded)
                if units is not None:
                    _keep(_shard(units, start), units, tf)
            if vectors is not None:
                vectors.append(tf[:, -vector_size:])
                tf = tf[:, :-vector_size]
            writer.append(tf)
            progress(vectorizer.name, min(start + SHARD, len(texts)), len(texts))
    return load_csr(prefix, vectorizer.size - vector_size)


def _is_done(units: Units | None, start: int, size: int) -> bool:
    """Return True if a shard is kept and whole."""
    if units is None or units.facts(_shard(units, start).name) is None:
        return False
    try:
        load_csr(_shard(units, start), size)
    except IndexFormatError:
        return False
    return True


def _shard(units: Units, start: int) -> Path:
    """Return the prefix of the files of the shard whose first text is number ``start``."""
    return units.folder / f"{start:012d}"


def _keep(shard: Path, units: Units, tf: sp.csr_array) -> None:
    save_csr(shard, tf)
    units.finish(shard.name, sorted(units.folder.glob(f"{shard.name}.*")))
