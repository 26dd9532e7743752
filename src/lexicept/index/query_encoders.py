"""Encoders of queries: loaded at first use, shared by threads, with a cache of encoded queries."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
from lexicept.vectors import Floats, Integers, canonical_entries

Q = TypeVar("Q", bound=QueryVectorizer | None)

_DOCUMENT_FILES = "atlas/"
"""Prefix of a vocabulary's files that depend on the documents alone."""

ENTRY_OVERHEAD = 512
"""Bytes of a cache entry beside its text and numbers: at most the size of its objects."""


class CachedQuery(NamedTuple):
    """The term frequencies of a query, and its vector; None without vectors."""

    dimensions: Integers
    frequencies: Floats
    vector: Floats | None = None

    def bytes_with(self, text: str) -> int:
        """Return the memory of the entry and the text."""
        arrays = [array for array in self if array is not None]
        return ENTRY_OVERHEAD + getsizeof(text) + sum(array.nbytes for array in arrays)


class QueryCache:
    """Text → term frequencies and vectors of recent queries.

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
            vector = self._entries.get(text)
            if vector is not None:
                self._entries.move_to_end(text)
            return vector

    def put(
        self, texts: Iterable[str], frequencies: sp.csr_array, vectors: Floats | None = None
    ) -> list[CachedQuery]:
        """Store and return the term frequencies [n, size] and vectors [n, d] of texts."""
        entries = []
        for number, text in enumerate(texts):
            span = slice(frequencies.indptr[number], frequencies.indptr[number + 1])
            # Copies: a view would keep the arrays of all texts.
            dimensions = frequencies.indices[span].astype(np.int32)
            vector = None if vectors is None else vectors[number].copy()
            entries.append(CachedQuery(dimensions, frequencies.data[span].copy(), vector))
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


def stack(entries: Sequence[CachedQuery], size: int) -> tuple[sp.csr_array, Floats | None]:
    """Return the term frequencies of cached queries, CSR [n, size], and their vectors [n, d]."""
    ends = np.cumsum([0, *(vector.frequencies.size for vector in entries)], dtype=np.int32)
    dimensions = np.concatenate([np.empty(0, np.int32), *(e.dimensions for e in entries)])
    frequencies = np.concatenate([np.empty(0, np.float32), *(e.frequencies for e in entries)])
    vectors = [vector.vector for vector in entries if vector.vector is not None]
    encoded_rows = canonical_entries(frequencies, dimensions, ends, size)
    return encoded_rows, np.stack(vectors) if vectors else None


class EncodedQueries(NamedTuple):
    """Queries, before any weighting."""

    frequencies: dict[str, sp.csr_array]
    """Term frequencies [n, size] by vocabulary."""
    vectors: Floats | None
    """Vectors of unit length [n, d], zeros for a query without tokens; None for an index without
    vectors, or a search without concepts."""


@dataclass
class Model:
    """The vectorizers of a vocabulary, once they are loaded, and the lock to hold while they work.

    A model's matrix products use all processors: two at a time would slow each other down. A search
    of words must not wait for a model.
    """

    lock: RLock = field(default_factory=RLock)
    vectorizer: Vectorizer | None = None
    for_queries: QueryVectorizer | None = None


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
        self.cache: QueryCache | None = None
        """Queries that the model encoded lately; None keeps none."""
        self.models = {name: Model() for name in self._vocabularies}

    def lock(self, name: str) -> RLock:
        """Return the lock to hold while a vocabulary's vectorizer works."""
        return self.models[name].lock

    def get(self, name: str) -> Vectorizer:
        """Return a vocabulary's vectorizer. Raises IndexFormatError if the vectorizer does not fit
        the index, or another index has replaced the folder. Raises InputError if a package is
        missing."""
        model = self.models[name]
        with model.lock:
            if model.vectorizer is None:
                model.vectorizer = self._load(name, partial(load_vectorizer, name))
            return model.vectorizer

    def for_queries(self, name: str) -> QueryVectorizer:
        """Return a vocabulary's vectorizer for queries and explanations, without torch where
        possible; see ``get``."""
        model = self.models[name]
        with model.lock:
            if model.for_queries is None:
                light = None
                if model.vectorizer is None:
                    light = self._load(name, partial(load_for_queries, name))
                model.for_queries = light or self.get(name)
            return model.for_queries

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
            frequencies[name], vectors = self._by_model(name, texts)
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
        return self.for_queries(name), self.models[name].lock

    def _by_model(self, name: str, texts: Sequence[str]) -> tuple[sp.csr_array, Floats | None]:
        """Return the model's term frequencies [n, size] and vectors [n, d] of queries; new texts
        run the model."""
        if self.cache is None:
            return self._encoded(name, texts)
        cached = {text: self.cache.get(text) for text in dict.fromkeys(texts)}
        entries = {text: vector for text, vector in cached.items() if vector is not None}
        if new := [text for text in cached if text not in entries]:
            entries |= zip(new, self.cache.put(new, *self._encoded(name, new)), strict=True)
        return stack([entries[text] for text in texts], self._vocabularies[name].size)

    def _encoded(self, name: str, texts: Sequence[str]) -> tuple[sp.csr_array, Floats | None]:
        """Do as ``_by_model``, without the cache."""
        encoder, lock = self.encoder(name)
        with lock:
            if self._vector_size:
                return ConceptsAndVectors(encoder).queries(texts)
            return encoder.queries(texts), None

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
        for name in self.models.keys() & older.models:
            if self.checksums(name) == older.checksums(name):
                self.models[name] = older.models[name]
                if self._vocabularies[name].kind.has_model:
                    self.cache = older.cache

    def checksums(self, name: str) -> dict[str, str]:
        """Return the checksums of a vectorizer's files."""
        prefix = f"{self._folder.name}/{name}/"
        return {
            file.removeprefix(prefix): str(vector["sha256"])
            for file, vector in self._files.items()
            if file.startswith(prefix) and not file.startswith(f"{prefix}{_DOCUMENT_FILES}")
        }


def _inode(folder: Path) -> tuple[int, int] | None:
    """Return the folder's device and inode numbers; None if there is no folder."""
    try:
        status = folder.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
