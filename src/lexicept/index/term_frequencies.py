"""Term frequencies (tf) of many texts: encoded shard by shard, written as one matrix on disk.

Identical texts are encoded once. Finished shards are kept, so that an interrupted build resumes
after the last of them; no more than a few are in memory at a time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
import scipy.sparse as sp

from lexicept.errors import IndexFormatError
from lexicept.progress import Progress
from lexicept.storage.arrays import CSRWriter, load_csr, save_csr
from lexicept.storage.workspace import Units
from lexicept.vectorizers.interface import Vectorizer
from lexicept.vectors import Integers

SHARD = 512
"""Documents in a shard, the unit of work that an interrupted build keeps."""

Encode: TypeAlias = Callable[[Iterable[list[str]]], Iterator[sp.csr_array]]
"""Turns blocks of texts into their tf [n, size], in order; takes few blocks in advance."""


def write_tf(
    prefix: Path,
    vectorizer: Vectorizer,
    texts: Sequence[str],
    shards: Units | None,
    progress: Progress,
    encode: Encode | None = None,
) -> sp.csr_array:
    """Write the tf of all texts and return them, memory-mapped [N, size].

    Args:
        prefix: see ``load_csr``.
        shards: keeps finished shards, which are not encoded again; None keeps none.
        encode: encodes blocks of texts; the vectorizer, one block after the other, by default.
    """
    first = first_occurrences(texts)
    starts = range(0, len(texts), SHARD)
    done = {s for s in starts if shards is not None and _holds(shards, s, vectorizer.size)}
    news = (_new(texts, first, start) for start in starts if start not in done)
    encoded = (encode or partial(map, vectorizer.documents))(new for new in news if new)
    with CSRWriter(prefix) as written:
        for start in starts:
            if shards is not None and start in done:
                block = load_csr(_shard(shards, start), vectorizer.size)
            else:
                block = _assemble(encoded, first, start, vectorizer, written)
                if shards is not None:
                    save_csr(_shard(shards, start), block)
                    name = _shard(shards, start).name
                    shards.finish(name, sorted(shards.folder.glob(f"{name}.*")))
            written.append(block)
            progress(vectorizer.name, min(start + SHARD, len(texts)), len(texts))
    return load_csr(prefix, vectorizer.size)


def _shard(shards: Units, start: int) -> Path:
    """Return the prefix of the files of the shard whose first text is number ``start``."""
    return shards.folder / f"{start:012d}"


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
    encoded: Iterator[sp.csr_array],
    first: Integers,
    start: int,
    vectorizer: Vectorizer,
    written: CSRWriter,
) -> sp.csr_array:
    """Return the tf of a shard, those of its new texts and of texts that are written already."""
    sources, rows = np.unique(first[start : start + SHARD], return_inverse=True)
    earlier = sources[sources < start].tolist()
    new = [next(encoded)] if sources.size > len(earlier) else []
    if not earlier and sources.size == rows.size:
        return new[0]
    parts = [written.rows(earlier, vectorizer.size), *new]
    return sp.csr_array(sp.vstack(parts, format="csr"))[rows]
