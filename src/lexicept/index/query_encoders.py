"""The vocabularies of an opened index, and their encoders: loaded at first use, shared by threads,
with a cache of encoded queries."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from sys import getsizeof
from threading import Lock, RLock
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from lexicept.encoding.encoded import EncodedConcepts
from lexicept.encoding.loading import load_vectorizer
from lexicept.encoding.text_vectors import ConceptsAndVectors
from lexicept.encoding.vectorizer import (
    KINDS,
    DocumentEncoder,
    EncodedQuery,
    QueryVectorizer,
    Vectorizer,
    VocabularyKind,
)
from lexicept.errors import IndexFormatError
from lexicept.index.impacts import VocabularySettings
from lexicept.storage.files import disk_errors
from lexicept.storage.texts import TextStore
from lexicept.vectors import Floats, Integers, Vocabulary, canonical_entries

Q = TypeVar("Q", bound=QueryVectorizer | None)

_DOCUMENT_FILES = "atlas/"
"""Prefix of a vocabulary's files that depend on the documents alone."""

FUNCTIONAL = ("function words:", "function words and punctuation:", "punctuation:", "numbers:")
"""Beginnings of the labels of concepts without a meaning; see ``atlas.SOURCES``."""

ENTRY_OVERHEAD = 512
"""Bytes of a cache entry beside its text and numbers: at most the size of its objects."""


@dataclass(frozen=True, kw_only=True)
class IndexVocabulary(Vocabulary):
    """A vocabulary of an index: neighbouring dimensions, settings and kind."""

    dimensions: slice
    """The place of the vocabulary among the dimensions of all vocabularies."""
    settings: VocabularySettings
    kind: VocabularyKind

    def term(self, dimension: int) -> str:
        """Return the label of a dimension; the number in a vocabulary without labels."""
        return str(dimension) if self.terms is None else self.terms[dimension]

    @cached_property
    def functional(self) -> npt.NDArray[np.bool_]:
        """True for dimensions labelled as function words, punctuation or numbers [size]."""
        terms = () if self.terms is None else self.terms
        functional = np.zeros(self.size, bool)
        if self.kind.has_model:
            functional[: len(terms)] = [term.startswith(FUNCTIONAL) for term in terms]
        return functional

    @property
    def needs_model(self) -> bool:
        """True if queries have to go through a neural network."""
        return self.kind.has_model


def open_vocabularies(
    folder: Path, entries: Sequence[Mapping[str, Any]]
) -> tuple[IndexVocabulary, ...]:
    """Open the vocabularies of a generation by their entries in the manifest. Raises
    IndexFormatError for damaged terms."""
    vocabularies, start = [], 0
    for entry in entries:
        name, size = entry["name"], entry["size"]
        vocabularies.append(
            IndexVocabulary(
                name,
                size,
                TextStore(folder / name / "terms"),
                dimensions=slice(start, start + size),
                settings=VocabularySettings.from_json(entry),
                kind=KINDS[name],
            )
        )
        start += size
    return tuple(vocabularies)


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


class VocabularyEncoder:
    """The vectorizer of a vocabulary in a generation, for queries and for documents.

    A model's matrix products use all processors: two at a time would slow each other down, so that
    a thread holds ``lock`` while a model works. Words need no lock.

    Args:
        folder: the generation.
        files: of the manifest.
        vector_size: components of the vectors of texts, by the concepts' model; 0 for none.
    """

    def __init__(
        self,
        folder: Path,
        vocabulary: IndexVocabulary,
        files: Mapping[str, Any],
        vector_size: int = 0,
    ) -> None:
        self.vocabulary = vocabulary
        self.vector_size = vector_size if vocabulary.kind.has_model else 0
        self.lock = RLock()
        self.cache: QueryCache | None = None
        """Queries that the model encoded lately; None keeps none."""
        self._folder, self._inode = folder, _inode(folder)
        prefix = f"{folder.name}/{vocabulary.name}/"
        self._checksums = {
            file.removeprefix(prefix): entry["sha256"]
            for file, entry in files.items()
            if file.startswith(prefix) and not file.startswith(f"{prefix}{_DOCUMENT_FILES}")
        }
        self._vectorizer: Vectorizer | None = None
        self._for_queries: QueryVectorizer | None = None

    def get(self) -> Vectorizer:
        """Return the vectorizer. Raises IndexFormatError if it does not fit the index, or another
        index has replaced the folder. Raises InputError if a package is missing."""
        with self.lock:
            if self._vectorizer is None:
                self._vectorizer = self._load(load_vectorizer)
            return self._vectorizer

    def for_queries(self) -> QueryVectorizer:
        """Return the vectorizer of queries and explanations, without torch if possible: ``get``."""
        with self.lock:
            if self._for_queries is None:
                light: QueryVectorizer | None = None
                if self._vectorizer is None and self.vocabulary.kind.has_model:
                    light = self._load(lambda _, folder: EncodedConcepts.load_light(folder))
                self._for_queries = light or self.get()
            return self._for_queries

    def of_documents(self) -> DocumentEncoder:
        """Return the vectorizer of documents, which adds the vectors to concepts."""
        vectorizer: Any = self.get()
        return ConceptsAndVectors(vectorizer) if self.vector_size else vectorizer

    def queries(self, texts: Sequence[str]) -> tuple[sp.csr_array, Floats | None]:
        """Return the term frequencies [n, size] of queries, and their vectors of unit length
        [n, d], zeros for a query without tokens; None without vectors. Queries in ``cache`` do not
        run the model."""
        if not self.vocabulary.kind.has_model:
            return self.for_queries().queries(texts), None
        if self.cache is None:
            return self._encoded(texts)
        cached = {text: self.cache.get(text) for text in dict.fromkeys(texts)}
        entries = {text: entry for text, entry in cached.items() if entry is not None}
        if new := [text for text in cached if text not in entries]:
            entries |= zip(new, self.cache.put(new, *self._encoded(new)), strict=True)
        return stack([entries[text] for text in texts], self.vocabulary.size)

    def encode(self, text: str) -> tuple[EncodedQuery, Floats | None]:
        """Encode a query with its sources; return its vector [1, d] too, as ``queries`` does."""
        encoder = self.for_queries()
        with self.lock:
            if self.vector_size:
                return ConceptsAndVectors(encoder).encode_query(text)
            return encoder.encode_query(text), None

    def _encoded(self, texts: Sequence[str]) -> tuple[sp.csr_array, Floats | None]:
        """Do as ``queries``, by the model."""
        encoder = self.for_queries()
        with self.lock:
            if self.vector_size:
                return ConceptsAndVectors(encoder).queries(texts)
            return encoder.queries(texts), None

    def _load(self, load: Callable[[str, Path], Q]) -> Q:
        path, name = self._folder.parent, self.vocabulary.name
        if _inode(self._folder) != self._inode:
            raise IndexFormatError(f"{path}: another index has taken its place: open it again")
        with disk_errors(self._folder / name):
            vectorizer = load(name, self._folder / name)
        if vectorizer is not None and vectorizer.size != self.vocabulary.size:
            raise IndexFormatError(f"{path}: its {name} and their model differ in size")
        return vectorizer

    def adopt(self, older: VocabularyEncoder) -> None:
        """Take over what another generation has loaded, if the files are the same."""
        if self._checksums == older._checksums:
            self.lock, self.cache = older.lock, older.cache
            self._vectorizer, self._for_queries = older._vectorizer, older._for_queries


def _inode(folder: Path) -> tuple[int, int] | None:
    """Return the folder's device and inode numbers; None if there is no folder."""
    try:
        status = folder.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
