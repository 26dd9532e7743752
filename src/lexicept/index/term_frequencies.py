"""Term frequencies (tf) of many texts: encoded shard by shard, written as matrices on disk.

Finished shards are kept, so that an interrupted build resumes after the last one; few shards are in
memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias, cast

import numpy as np
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
        return partial(_counted, cluster, vectorizer)
    kind = cast("type[Vectorizer]", type(vectorizer))
    return partial(cluster.encode, partial(kind.load, folder))


def _counted(
    cluster: Cluster, vectorizer: WordVectorizer, blocks: Iterable[list[str]]
) -> Iterator[sp.csr_array]:
    return map(vectorizer.join, cluster.over(vectorizer.part_counter(), blocks))


@dataclass(frozen=True)
class TermFrequencyWriter:
    """Encodes texts by a vectorizer and writes their term frequencies.

    Args:
        units: keeps finished shards, which are not encoded again; None keeps none.
        vector_size: components of a vector that follow the frequencies of each text; 0 for none.
    """

    vectorizer: DocumentEncoder
    texts: Sequence[str]
    encode: Encode
    units: Units | None = None
    vector_size: int = 0

    def write(self, prefix: Path, progress: Progress) -> sp.csr_array:
        """Write and return the tf, memory-mapped [N, size], and write the vectors beside them.

        Args:
            prefix: of the files of the tf; see ``load_csr``.
        """
        texts, units = self.texts, self.units
        starts = range(0, len(texts), SHARD)
        done = {start for start in starts if self._is_done(start)}
        missing = (list(texts[start : start + SHARD]) for start in starts if start not in done)
        encoded = self.encode(missing)
        with ExitStack() as files:
            writers: list[CSRWriter | VectorWriter] = [files.enter_context(CSRWriter(prefix))]
            if self.vector_size:
                vectors = VectorWriter(prefix.parent, self.vector_size)
                writers.append(files.enter_context(vectors))
            for start in starts:
                if units is not None and start in done:
                    tf = load_csr(_shard(units, start), self.vectorizer.size)
                else:
                    tf = next(encoded)
                    if units is not None:
                        _keep(_shard(units, start), units, tf)
                for writer, columns in zip(writers, split_columns(tf, self._sizes), strict=True):
                    writer.append(columns)
                progress(self.vectorizer.name, min(start + SHARD, len(texts)), len(texts))
        return load_csr(prefix, self._sizes[0])

    @property
    def _sizes(self) -> list[int]:
        """The columns of tf, of a growing vocabulary up to now, and of vectors."""
        size = self.vectorizer.size
        return [size - self.vector_size, self.vector_size] if self.vector_size else [size]

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


def write_tf(
    prefix: Path,
    vectorizer: DocumentEncoder,
    texts: Sequence[str],
    units: Units | None,
    progress: Progress,
) -> sp.csr_array:
    """Write the tf of texts as one matrix, encoded on this machine; see ``TermFrequencyWriter``."""
    encode = encode_on(None, vectorizer, prefix.parent)
    return TermFrequencyWriter(vectorizer, texts, encode, units).write(prefix, progress)


def split_columns(matrix: sp.csr_array, sizes: Sequence[int]) -> list[sp.csr_array]:
    """Split a matrix [n, V] into neighbouring columns of these sizes."""
    if len(sizes) == 1:
        return [matrix]
    ends = np.cumsum([0, *sizes]).tolist()
    return [matrix[:, start:end] for start, end in pairwise(ends)]


def _shard(units: Units, start: int) -> Path:
    """Return the prefix of the files of the shard whose first text is number ``start``."""
    return units.folder / f"{start:012d}"


def _keep(shard: Path, units: Units, tf: sp.csr_array) -> None:
    """Keep a finished shard."""
    save_csr(shard, tf)
    units.finish(shard.name, sorted(units.folder.glob(f"{shard.name}.*")))
