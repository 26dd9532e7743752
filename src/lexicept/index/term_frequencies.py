"""Frequencies of many texts: encoded shard by shard, and written as one matrix on disk.

Identical texts are encoded once. Finished shards are kept, so that what was killed goes on after
the last of them; at no time are more than a few of them in memory.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from lexicept.errors import IndexFormatError
from lexicept.progress import Progress
from lexicept.storage.arrays import CSRWriter, load_csr, save_csr
from lexicept.storage.files import sync_folder
from lexicept.storage.manifest import check_files, describe_files
from lexicept.vectorizers.interface import Vectorizer
from lexicept.vectors import Integers

SHARD = 512
"""Documents encoded between two points from which a killed build can go on."""

Encode: TypeAlias = Callable[[Iterable[list[str]]], Iterator[sp.csr_array]]
"""Blocks of texts to their frequencies [n, size], in order; few blocks are taken in advance."""


def write_frequencies(
    prefix: Path,
    vectorizer: Vectorizer,
    texts: Sequence[str],
    shards: Path | None,
    progress: Progress,
    encode: Encode | None = None,
) -> sp.csr_array:
    """Write the frequencies of all texts and return them, memory-mapped [N, size].

    Args:
        prefix: see ``load_csr``.
        shards: where finished shards stay, and are taken from; None keeps none.
        encode: what encodes; the vectorizer, one block after the other, by default.
    """
    finished = None if shards is None else FinishedShards(shards)
    first = first_occurrences(texts)
    starts = range(0, len(texts), SHARD)
    done = {s for s in starts if finished is not None and finished.holds(s, vectorizer.size)}
    news = (_new(texts, first, start) for start in starts if start not in done)
    encoded = (encode or partial(map, vectorizer.documents))(new for new in news if new)
    with CSRWriter(prefix) as written:
        for start in starts:
            if finished is not None and start in done:
                block = finished.load(start, vectorizer.size)
            else:
                block = _assemble(encoded, first, start, vectorizer, written)
                if finished is not None:
                    finished.save(start, block)
            written.append(block)
            progress(vectorizer.name, min(start + SHARD, len(texts)), len(texts))
    return load_csr(prefix, vectorizer.size)


def first_occurrences(texts: Sequence[str]) -> Integers:
    """The number of the first text that is identical to each [N], by a hash of 128 bits."""
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
    """The texts of a shard that are not identical to an earlier one."""
    stop = min(start + SHARD, first.size)
    return [texts[number] for number in range(start, stop) if first[number] == number]


def _assemble(
    encoded: Iterator[sp.csr_array],
    first: Integers,
    start: int,
    vectorizer: Vectorizer,
    written: CSRWriter,
) -> sp.csr_array:
    """Frequencies of a shard: of its new texts, and of those that are written already."""
    sources, rows = np.unique(first[start : start + SHARD], return_inverse=True)
    earlier = sources[sources < start].tolist()
    found = [next(encoded)] if sources.size > len(earlier) else []
    if not earlier and sources.size == rows.size:
        return found[0]
    parts = [written.rows(earlier, vectorizer.size), *found]
    return sp.csr_array(sp.vstack(parts, format="csr"))[rows]


class FinishedShards:
    """Shards on disk: a folder each, and a line for each that is whole in ``manifest.jsonl``."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._manifest = folder / "manifest.jsonl"
        self._files: dict[int, dict[str, Any]] = {}
        if self._manifest.exists():
            for line in self._manifest.read_bytes().splitlines():
                self._remember(line)

    def _remember(self, line: bytes) -> None:
        try:
            entry = json.loads(line)
            self._files[int(entry["start"])] = dict(entry["files"])
        except (ValueError, TypeError, KeyError, RecursionError):
            return  # cut off by what ended the process: its shard is encoded again

    def holds(self, start: int, columns: int) -> bool:
        """Whether all of the shard is there whose first text is number ``start``."""
        try:
            check_files(self._folder, self._files[start], checksums=True)
            self.load(start, columns)
        except (KeyError, TypeError, IndexFormatError):
            return False
        return True

    def load(self, start: int, columns: int) -> sp.csr_array:
        """The shard. Raises IndexFormatError where its parts do not fit."""
        return load_csr(self._folder / f"{start:012d}" / "frequencies", columns)

    def save(self, start: int, block: sp.csr_array) -> None:
        """Keep a shard: once its line is written, it is found."""
        part = self._folder / f"{start:012d}"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        save_csr(part / "frequencies", block)
        sync_folder(part)
        self._files[start] = describe_files(part, self._folder)
        line = json.dumps({"start": start, "files": self._files[start]})
        with self._manifest.open("ab") as file:
            file.write(f"\n{line}".encode())  # begins a line, whatever was cut off before
            file.flush()
            os.fsync(file.fileno())
