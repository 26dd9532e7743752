"""Encoders of queries: loaded at first use, shared by threads, with a cache of encoded queries."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from sys import getsizeof
from threading import Lock, RLock
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import scipy.sparse as sp

from lexicept.errors import IndexFormatError
from lexicept.index.vocabulary import IndexVocabulary
from lexicept.storage.files import disk_errors
from lexicept.vectorizers.interface import (
    AnyVectorizer,
    EncodedQuery,
    JointVectorizer,
    QueryVectorizer,
    Vectorizer,
    load_for_queries,
    load_vectorizer,
)
from lexicept.vectors import Floats, Integers, columns

Q = TypeVar("Q", bound=QueryVectorizer | None)

_DOCUMENT_FILES = "atlas/"
"""Prefix of a vocabulary's files that depend on the documents alone."""

ENTRY_OVERHEAD = 512
"""Bytes of a cache entry beside its text and numbers: at most the size of its objects."""


class CachedQuery(NamedTuple):
    """The term frequencies of a query."""

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


class QueryEncoders:
    """The vectorizers of a generation, by vocabulary.

    The concepts' model reads whole texts too: vocabularies of a model are encoded together, and
    share a lock.

    Args:
        vocabularies: in the order of dimensions.
    """

    def __init__(
        self, folder: Path, vocabularies: Sequence[IndexVocabulary], files: Mapping[str, Any]
    ) -> None:
        self._folder = folder
        self._inode = _inode(folder)
        self._vocabularies = {vocabulary.name: vocabulary for vocabulary in vocabularies}
        self._files = files
        self._loaded: dict[str, Vectorizer] = {}
        self._for_queries: dict[str, QueryVectorizer] = {}
        self.cache: QueryCache | None = None
        """Queries that the model encoded lately; None keeps none."""
        self.chance: float | None = None
        """Similarity to the collection that few random texts exceed; None before the first use."""
        # A model's matrix products use all processors: two at a time would slow each other down.
        # A search of words must not wait for a model.
        self._locks = {name: RLock() for name in self._vocabularies}
        self._by_model = [v for v in vocabularies if v.kind.model is not None]
        self._locks |= dict.fromkeys([v.name for v in self._by_model], RLock())

    def lock(self, name: str) -> RLock:
        """Return the lock to hold while a vocabulary's vectorizer works."""
        return self._locks[name]

    def get(self, name: str) -> Vectorizer:
        """Return a vocabulary's vectorizer. Raises IndexFormatError if the vectorizer does not fit
        the index, or another index has replaced the folder. Raises InputError if a package is
        missing."""
        with self._locks[name]:
            if name not in self._loaded:
                model = self._vocabularies[name].kind.model
                models = [self.get(model)] if model not in (None, name) else []
                load = partial(load_vectorizer, name, models=models)
                self._loaded[name] = self._load(name, load)
            return self._loaded[name]

    def for_queries(self, name: str) -> QueryVectorizer:
        """Return a vocabulary's vectorizer for queries and explanations, without torch where
        possible; see ``get``."""
        with self._locks[name]:
            if name not in self._for_queries:
                self._for_queries[name] = self._light(name) or self.get(name)
            return self._for_queries[name]

    def _light(self, name: str) -> QueryVectorizer | None:
        model = self._vocabularies[name].kind.model
        if model is None or name in self._loaded:
            return None
        models = [] if model == name else [self.for_queries(model)]
        if models and models[0] is self._loaded.get(model):
            return None
        return self._load(name, partial(load_for_queries, name, models=models))

    def of(self, names: Sequence[str], few: bool = False) -> list[AnyVectorizer]:
        """Return the vectorizers of vocabularies, a joint vectorizer for a model's vocabularies.

        Args:
            few: encode few documents: without torch where possible, in single precision.
        """
        shared = {vocabulary.name for vocabulary in self._by_model}
        if not shared <= {*names}:
            return [self.get(name) for name in names]
        joint = [self._joint(self.for_queries if few else self.get)] if shared else []
        return [*(self.get(name) for name in names if name not in shared), *joint]

    def _joint(self, load: Callable[[str], Any]) -> AnyVectorizer:
        """Return the vectorizer of all vocabularies of the model, by ``get`` or ``for_queries``."""
        vectorizer = load(self._by_model[-1].name)
        joint: AnyVectorizer = vectorizer if len(self._by_model) == 1 else vectorizer.joint
        return joint

    def frequencies(
        self, vocabularies: Sequence[IndexVocabulary], texts: Sequence[str]
    ) -> dict[str, sp.csr_array]:
        """Return the term frequencies of queries [n, size] by vocabulary. Frequencies by a model
        come from ``cache``, if there is a cache."""
        frequencies: dict[str, sp.csr_array] = {}
        for vocabulary in vocabularies:
            name = vocabulary.name
            if name in frequencies:
                continue
            # One reading serves all vocabularies of the model.
            if vocabulary.kind.model is not None:
                frequencies |= self._split(self._read(texts))
            else:
                encoder, lock = self.encoder(name)
                with lock:
                    frequencies[name] = encoder.queries(texts)
        return frequencies

    def encode(self, names: Sequence[str], text: str) -> dict[str, EncodedQuery]:
        """Encode a query in vocabularies, once by each model."""
        encoded: dict[str, EncodedQuery] = {}
        for name in names:
            if not self._vocabularies[name].kind.has_spans:
                with self._locks[name]:
                    joint = cast(JointVectorizer, self._joint(self.for_queries))
                    by_model = joint.encode_parts(text)
                encoded |= zip((v.name for v in self._by_model), by_model, strict=True)
        for name in names:
            if name not in encoded:
                encoder, lock = self.encoder(name)
                with lock:
                    encoded[name] = encoder.encode_query(text)
        return encoded

    def similarities(self, texts: Sequence[str]) -> Floats:
        """Return the largest cosine of each query with an exemplar of whole texts [n]."""
        with self._locks["texts"]:
            similarities: Floats = cast(Any, self.for_queries("texts")).similarities(texts)
        return similarities

    def encoder(self, name: str) -> tuple[QueryVectorizer, RLock]:
        """Return the encoder of a vocabulary's queries, and the lock to hold during encoding."""
        return self.for_queries(name), self._locks[name]

    def _split(self, frequencies: sp.csr_array) -> dict[str, sp.csr_array]:
        """Return the columns of each vocabulary of the model."""
        if len(self._by_model) == 1:
            return {self._by_model[0].name: frequencies}
        first = self._by_model[0].dimensions.start
        return {
            v.name: columns(frequencies, v.dimensions.start - first, v.dimensions.stop - first)
            for v in self._by_model
        }

    def _read(self, texts: Sequence[str]) -> sp.csr_array:
        """Return the model's term frequencies of queries [n, size]; new texts run the model."""
        if self.cache is None:
            return self._encoded(texts)
        cached = {text: self.cache.get(text) for text in dict.fromkeys(texts)}
        entries = {text: entry for text, entry in cached.items() if entry is not None}
        if new := [text for text in cached if text not in entries]:
            frequencies = self._encoded(new)
            entries |= zip(new, self.cache.put(new, frequencies), strict=True)
        return stack([entries[text] for text in texts], self._model_size)

    @property
    def _model_size(self) -> int:
        return sum(vocabulary.size for vocabulary in self._by_model)

    def _encoded(self, texts: Sequence[str]) -> sp.csr_array:
        """Return the model's term frequencies of queries [n, size], without the cache."""
        with self._locks[self._by_model[0].name]:
            return self._joint(self.for_queries).queries(texts)

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
        for name, vocabulary in self._vocabularies.items():
            # The vectorizer of whole texts holds the concepts' model.
            if {name, vocabulary.kind.model or name} <= equal:
                self._locks[name] = older._locks[name]
                self._loaded |= {n: v for n, v in older._loaded.items() if n == name}
                self._for_queries |= {n: v for n, v in older._for_queries.items() if n == name}
        names = [vocabulary.name for vocabulary in self._by_model]
        if names and {*names} <= equal:
            self._locks |= dict.fromkeys(names, older._locks[names[0]])
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
