"""Encoders of queries: loaded at first use, shared by threads, with a cache of encoded queries."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from sys import getsizeof
from threading import Lock, RLock
from typing import Any, NamedTuple, TypeVar

import numpy as np
import scipy.sparse as sp

from lexicept.encoding.loading import load_for_queries, load_vectorizer
from lexicept.encoding.text_vectors import ConceptsAndVectors
from lexicept.encoding.vectorizer import DocumentEncoder, EncodedQuery, QueryVectorizer, Vectorizer
from lexicept.errors import IndexFormatError
from lexicept.index.vocabulary import IndexVocabulary
from lexicept.storage.files import disk_errors
from lexicept.vectors import Floats, Integers, columns

Q = TypeVar("Q", bound=QueryVectorizer | None)

_DOCUMENT_FILES = "atlas/"
"""Prefix of a vocabulary's files that depend on the documents alone."""

ENTRY_OVERHEAD = 512
"""Bytes of a cache entry beside its text and numbers: at most the size of its objects."""


class CachedQuery(NamedTuple):
    """The term frequencies of a query, and the components of its vector after them."""

    dimensions: Integers
    frequencies: Floats

    def bytes_with(self, text: str) -> int:
        """Return the memory of the entry and the text."""
        return ENTRY_OVERHEAD + getsizeof(text) + self.dimensions.nbytes + self.frequencies.nbytes


class QueryCache:
    """Text → term frequencies of recent queries.

    Entries depend on the model and the text alone; weighting, boosts, steering and filters come
    later. Threads may share a cache.

    Args:
        most_bytes: the memory of all entries; a larger query is not kept.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._entries: OrderedDict[str, CachedQuery] = OrderedDict()
        self._lock = Lock()
        self.num_bytes = 0
        """Memory of all entries."""

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, text: str) -> CachedQuery | None:
        """Return the entry of a text, from now on the last to be dropped."""
        with self._lock:
            entry = self._entries.get(text)
            if entry is not None:
                self._entries.move_to_end(text)
            return entry

    def put(self, texts: Iterable[str], frequencies: sp.csr_array) -> list[CachedQuery]:
        """Store and return the term frequencies of texts [n, size]."""
        entries = []
        for number, text in enumerate(texts):
            span = slice(frequencies.indptr[number], frequencies.indptr[number + 1])
            # Copies: a view would keep the arrays of all texts.
            dimensions = frequencies.indices[span].astype(np.int32)
            entries.append(CachedQuery(dimensions, frequencies.data[span].copy()))
            self._store(text, entries[-1])
        return entries

    def _store(self, text: str, entry: CachedQuery) -> None:
        size = entry.bytes_with(text)
        with self._lock:
            if size > self._most_bytes or text in self._entries:
                return
            self._entries[text] = entry
            self.num_bytes += size
            while self.num_bytes > self._most_bytes:
                oldest_text, oldest = self._entries.popitem(last=False)
                self.num_bytes -= oldest.bytes_with(oldest_text)


def stack(entries: Sequence[CachedQuery], size: int) -> sp.csr_array:
    """Return the term frequencies of cached queries, CSR [n, size]."""
    ends = np.cumsum([0, *(entry.frequencies.size for entry in entries)])
    dimensions = np.concatenate([np.empty(0, np.int32), *(e.dimensions for e in entries)])
    frequencies = np.concatenate([np.empty(0, np.float32), *(e.frequencies for e in entries)])
    return sp.csr_array((frequencies, dimensions, ends), shape=(len(entries), size))


class EncodedQueries(NamedTuple):
    """Queries, before any weighting."""

    frequencies: dict[str, sp.csr_array]
    """Term frequencies [n, size] by vocabulary."""
    vectors: Floats | None
    """Vectors of unit length [n, d], zeros for a query without tokens; None for an index without
    vectors, or a search without concepts."""


class QueryEncoders:
    """The vectorizers of a generation, by vocabulary.

    Args:
        vocabularies: in the order of dimensions.
        vector_size: components of the vectors of texts, by the concepts' model; 0 for none.
    """

    def __init__(
        self,
        folder: Path,
        vocabularies: Sequence[IndexVocabulary],
        files: Mapping[str, Any],
        vector_size: int = 0,
    ) -> None:
        self._folder = folder
        self._inode = _inode(folder)
        self._vocabularies = {vocabulary.name: vocabulary for vocabulary in vocabularies}
        self._files, self._vector_size = files, vector_size
        self._loaded: dict[str, Vectorizer] = {}
        self._for_queries: dict[str, QueryVectorizer] = {}
        self.cache: QueryCache | None = None
        """Queries that the model encoded lately; None keeps none."""
        # A model's matrix products use all processors: two at a time would slow each other down.
        # A search of words must not wait for a model.
        self._locks = {name: RLock() for name in self._vocabularies}

    def lock(self, name: str) -> RLock:
        """Return the lock to hold while a vocabulary's vectorizer works."""
        return self._locks[name]

    def get(self, name: str) -> Vectorizer:
        """Return a vocabulary's vectorizer. Raises IndexFormatError if the vectorizer does not fit
        the index, or another index has replaced the folder. Raises InputError if a package is
        missing."""
        with self._locks[name]:
            if name not in self._loaded:
                self._loaded[name] = self._load(name, partial(load_vectorizer, name))
            return self._loaded[name]

    def for_queries(self, name: str) -> QueryVectorizer:
        """Return a vocabulary's vectorizer for queries and explanations, without torch where
        possible; see ``get``."""
        with self._locks[name]:
            if name not in self._for_queries:
                light = None
                if name not in self._loaded:
                    light = self._load(name, partial(load_for_queries, name))
                self._for_queries[name] = light or self.get(name)
            return self._for_queries[name]

    def of_documents(self, name: str) -> DocumentEncoder:
        """Return a vocabulary's vectorizer of documents, which adds the vectors to concepts."""
        vectorizer: Any = self.get(name)
        has_vectors = self._vector_size and self._vocabularies[name].kind.has_model
        return ConceptsAndVectors(vectorizer) if has_vectors else vectorizer

    def read(self, vocabularies: Sequence[IndexVocabulary], texts: Sequence[str]) -> EncodedQueries:
        """Encode queries. Frequencies and vectors by a model come from ``cache``, if there is a
        cache."""
        frequencies: dict[str, sp.csr_array] = {}
        vectors = None
        for vocabulary in vocabularies:
            name = vocabulary.name
            if not vocabulary.kind.has_model:
                encoder, lock = self.encoder(name)
                with lock:
                    frequencies[name] = encoder.queries(texts)
                continue
            rows = self._rows(name, texts)
            frequencies[name] = rows
            if self._vector_size:
                frequencies[name] = columns(rows, 0, vocabulary.size)
                vectors = columns(rows, vocabulary.size, rows.shape[1]).toarray()
        return EncodedQueries(frequencies, vectors)

    def encode(
        self, names: Sequence[str], text: str
    ) -> tuple[dict[str, EncodedQuery], Floats | None]:
        """Encode a query in vocabularies, with its sources; return its vector [1, d] too, None as
        in ``EncodedQueries``."""
        encoded: dict[str, EncodedQuery] = {}
        vectors = None
        for name in names:
            encoder, lock = self.encoder(name)
            with lock:
                if self._vector_size and self._vocabularies[name].kind.has_model:
                    encoded[name], vectors = ConceptsAndVectors(encoder).encode_query(text)
                else:
                    encoded[name] = encoder.encode_query(text)
        return encoded, vectors

    def no_vectors(self, count: int) -> Floats | None:
        """Return the vectors of so many queries without a text, zeros; None without vectors."""
        return np.zeros((count, self._vector_size), np.float32) if self._vector_size else None

    def encoder(self, name: str) -> tuple[QueryVectorizer, RLock]:
        """Return the encoder of a vocabulary's queries, and the lock to hold during encoding."""
        return self.for_queries(name), self._locks[name]

    def _rows(self, name: str, texts: Sequence[str]) -> sp.csr_array:
        """Return the model's term frequencies and vectors of queries [n, size + d]; new texts run
        the model."""
        if self.cache is None:
            return self._encoded(name, texts)
        cached = {text: self.cache.get(text) for text in dict.fromkeys(texts)}
        entries = {text: entry for text, entry in cached.items() if entry is not None}
        if new := [text for text in cached if text not in entries]:
            entries |= zip(new, self.cache.put(new, self._encoded(name, new)), strict=True)
        size = self._vocabularies[name].size + self._vector_size
        return stack([entries[text] for text in texts], size)

    def _encoded(self, name: str, texts: Sequence[str]) -> sp.csr_array:
        """Return the model's rows of queries, without the cache."""
        encoder, lock = self.encoder(name)
        with lock:
            if self._vector_size:
                return ConceptsAndVectors(encoder).queries(texts)
            return encoder.queries(texts)

    def _load(self, name: str, load: Callable[[Path], Q]) -> Q:
        path = self._folder.parent
        if self._replaced():
            raise IndexFormatError(f"{path}: another index has taken its place: open it again")
        with disk_errors(self._folder / name):
            vectorizer = load(self._folder / name)
        if vectorizer is not None and vectorizer.size != self._vocabularies[name].size:
            raise IndexFormatError(f"{path}: its {name} and their model differ in size")
        return vectorizer

    def _replaced(self) -> bool:
        """Return True if another index has taken the folder's place."""
        return _inode(self._folder) != self._inode

    def adopt(self, older: QueryEncoders) -> None:
        """Take over equal vectorizers of another generation."""
        shared = self._vocabularies.keys() & older._vocabularies
        equal = {name for name in shared if self._checksums(name) == older._checksums(name)}
        for name in equal:
            self._locks[name] = older._locks[name]
            self._loaded |= {n: v for n, v in older._loaded.items() if n == name}
            self._for_queries |= {n: v for n, v in older._for_queries.items() if n == name}
            if self._vocabularies[name].kind.has_model:
                self.cache = older.cache

    def _checksums(self, name: str) -> dict[str, str]:
        """Return the checksums of a vectorizer's files."""
        prefix = f"{self._folder.name}/{name}/"
        return {
            file.removeprefix(prefix): str(entry["sha256"])
            for file, entry in self._files.items()
            if file.startswith(prefix) and not file.startswith(f"{prefix}{_DOCUMENT_FILES}")
        }


def _inode(folder: Path) -> tuple[int, int] | None:
    """Return the folder's device and inode numbers; None if there is no folder."""
    try:
        status = folder.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
