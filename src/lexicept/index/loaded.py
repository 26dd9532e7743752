"""The vectorizers of one generation, loaded at first use and shared by threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar, cast

import numpy as np
import scipy.sparse as sp

from lexicept.errors import IndexFormatError
from lexicept.index.query_cache import QueryCache, stack
from lexicept.storage.files import disk_errors
from lexicept.vectorizers.interface import (
    TOKEN_TABLE,
    AnyVectorizer,
    EncodedQuery,
    JoinedVectorizer,
    JointVectorizer,
    ModelVectorizer,
    QueryModel,
    QueryTable,
    QueryVectorizer,
    Vectorizer,
    load_query_model,
    load_token_table,
    load_vectorizer,
)

Q = TypeVar("Q", bound=QueryVectorizer)

_OF_DOCUMENTS = "atlas/"
"""Beginning of the names of the files of a vocabulary that depend on the documents alone."""


class LoadedVectorizers:
    """The vectorizers of a generation, by vocabulary.

    Args:
        folder: the generation.
        sizes: the dimensions of each vocabulary.
        files: the files of the index's manifest.
    """

    def __init__(self, folder: Path, sizes: Mapping[str, int], files: Mapping[str, Any]) -> None:
        self._folder = folder
        self._place = _place(folder)
        self._sizes = sizes
        self._files = files
        self._loaded: dict[str, Vectorizer] = {}
        self._table: QueryTable | None = None
        self._query_model: QueryModel | None = None
        self._tried_query_model = False
        self.query_precision = "float32"
        """Number format of models' matrix products for queries, float32 or bfloat16; to be set
        before one is loaded."""
        self.cache: QueryCache | None = None
        """Queries that the concepts' model encoded lately; None keeps none."""
        # A model's matrix products use all processors: two at a time would slow each other down.
        # A search of words, or by a table, must not wait for a model.
        self._locks = {name: RLock() for name in sizes}
        self._by_model = [name for name in ("concepts", "texts") if name in sizes]
        self._locks |= dict.fromkeys(self._by_model, RLock())
        self._table_lock = RLock()
        self.has_table = f"{folder.name}/concepts/{TOKEN_TABLE}/table.json" in files
        """True if the concepts have a token table."""

    def lock(self, name: str) -> RLock:
        """Return the lock to hold while a vocabulary's vectorizer works."""
        return self._locks[name]

    def get(self, name: str) -> Vectorizer:
        """Return a vocabulary's vectorizer.

        Raises:
            IndexFormatError: it does not fit the index, or another index has replaced this one.
            InputError: a package that it needs is missing.
        """
        with self._locks[name]:
            if name not in self._loaded:
                others = [self.get("concepts")] if name == "texts" else []
                load = partial(load_vectorizer, name)
                self._loaded[name] = self._load(name, lambda folder: load(folder, *others))
                if name == "concepts":
                    self._tried_query_model = True  # one that is loaded stays: it is faster
                    if isinstance(concepts := self._loaded[name], ModelVectorizer):
                        concepts.query_precision = self.query_precision
            return self._loaded[name]

    def of(self, names: Sequence[str]) -> list[AnyVectorizer]:
        """Return the vectorizers of some vocabularies, one for those that a model reads together;
        raises errors as ``get``."""
        if not {"concepts", "texts"} <= {*names}:
            return [self.get(name) for name in names]
        return [*(self.get(n) for n in names if n not in self._by_model), self._joint()]

    def _joint(self) -> AnyVectorizer:
        """Return the vectorizer of all that the concepts' model reads."""
        if "texts" in self._sizes:
            return cast(JoinedVectorizer, self.get("texts")).joint
        return self.get("concepts")

    def queries(
        self, names: Sequence[str], query_encoder: str, texts: Sequence[str]
    ) -> dict[str, sp.csr_array]:
        """Return the term frequencies of queries [n, size] in some vocabularies.

        What the concepts' model reads is taken from ``cache``, where there is one. A few short
        queries do without the concepts' vectorizer, unless it was loaded first.

        Args:
            query_encoder: as in ``encoding``.

        Raises:
            IndexFormatError: as ``get``.
            InputError: as ``get``.
        """
        found = {}
        if query_encoder == "model" and any(name in self._by_model for name in names):
            tf = self._encoded(texts) if self.cache is None else self._remembered(self.cache, texts)
            ends = np.cumsum([self._sizes[name] for name in self._by_model]).tolist()
            found = {
                name: tf if len(ends) == 1 else tf[:, end - self._sizes[name] : end]
                for name, end in zip(self._by_model, ends, strict=True)
            }
        for name in names:
            if name not in found:
                with self.encoding(name, query_encoder) as encoder:
                    found[name] = encoder.queries(texts)
        return {name: found[name] for name in names}

    def encode(
        self, names: Sequence[str], query_encoder: str, text: str
    ) -> dict[str, EncodedQuery]:
        """Encode one query in some vocabularies, once by each model; see ``queries``."""
        encoded = {}
        if query_encoder == "model" and "texts" in names:
            with self._locks["texts"]:
                both = cast(JointVectorizer, self._joint()).encode_parts(text)
            encoded = dict(zip(self._by_model, both, strict=True))
        for name in names:
            if name not in encoded:
                with self.encoding(name, query_encoder) as encoder:
                    encoded[name] = encoder.encode_query(text)
        return {name: encoded[name] for name in names}

    def _remembered(self, cache: QueryCache, texts: Sequence[str]) -> sp.csr_array:
        """Return what the concepts' model reads of queries [n, size], of those that are new by
        running it."""
        asked = dict.fromkeys(texts)
        rows = {text: row for text in asked if (row := cache.get(text)) is not None}
        new = [text for text in asked if text not in rows]
        if new:
            rows.update(zip(new, cache.put(new, self._encoded(new)), strict=True))
        return stack([rows[text] for text in texts], self._model_size)

    @property
    def _model_size(self) -> int:
        return sum(self._sizes[name] for name in self._by_model)

    def _encoded(self, texts: Sequence[str]) -> sp.csr_array:
        """Return what the concepts' model reads of queries [n, size]."""
        with self._locks["concepts"]:
            model = self._fast_model()
            found = None if model is None else model.queries(texts)
            if found is None:
                return self._joint().queries(texts)
            tf, left = found
            if not left:
                return tf
            others = self._joint().queries([texts[place] for place in left])
            rows = np.arange(len(texts))
            rows[left] = len(texts) + np.arange(len(left))
            return sp.csr_array(sp.vstack([tf, others], format="csr")[rows])

    def prepare(self, name: str, *, one_query: bool) -> None:
        """Load what encodes a query of a vocabulary, before it is needed.

        Args:
            one_query: whether it is for one query without sources, for which the concepts' model
                for queries alone is enough.

        Raises:
            IndexFormatError: as ``get``.
            InputError: as ``get``.
        """
        with self._locks[name]:
            if not one_query or name != "concepts" or self._fast_model() is None:
                self.get(name)

    def _fast_model(self) -> QueryModel | None:
        """Return the model for queries alone, if there is one and the vectorizer is not loaded."""
        if not self._tried_query_model:
            self._tried_query_model = True
            texts = self._folder / "texts" if "texts" in self._sizes else None
            folder = self._folder / "concepts"
            model = (
                None if self._replaced() else load_query_model(folder, texts, self.query_precision)
            )
            if model is not None and model.size == self._model_size:
                self._query_model = model
        return self._query_model

    @contextmanager
    def encoding(self, name: str, query_encoder: str) -> Iterator[QueryVectorizer]:
        """Yield what encodes a vocabulary's queries, loaded at first use, for one thread at a time.

        Args:
            query_encoder: "lookup" for the concepts' token table, which must be there.

        Raises:
            IndexFormatError: as ``get``.
            InputError: as ``get``.
        """
        if name == "concepts" and query_encoder == "lookup":
            with self._table_lock:
                if self._table is None:
                    self._table = self._load(name, load_token_table)
                yield self._table
        else:
            with self.lock(name):
                yield self.get(name)

    def _load(self, name: str, load: Callable[[Path], Q]) -> Q:
        path = self._folder.parent
        if self._replaced():
            raise IndexFormatError(f"{path}: another index has taken its place: open it again")
        with disk_errors(self._folder / name):
            vectorizer = load(self._folder / name)
        if vectorizer.size != self._sizes[name]:
            raise IndexFormatError(f"{path}: its {name} and their model differ in size")
        return vectorizer

    def _replaced(self) -> bool:
        """Return whether another index has taken the folder's place."""
        return _place(self._folder) != self._place

    def adopt(self, other: LoadedVectorizers) -> None:
        """Take over the vectorizers that another generation has loaded and that are equal here."""
        equal = [n for n in self._sizes if n in other._sizes and self._model(n) == other._model(n)]
        if "concepts" not in equal:
            equal = [name for name in equal if name != "texts"]  # they hold the concepts
        for name in equal:
            if name in other._loaded:
                self._loaded[name] = other._loaded[name]
                self._locks[name] = other._locks[name]
        if self._by_model and set(self._by_model) <= set(equal):
            self._query_model = other._query_model
            self._tried_query_model = other._tried_query_model
            self._locks |= dict.fromkeys(self._by_model, other._locks["concepts"])
            self._table, self._table_lock = other._table, other._table_lock
            self.cache = other.cache

    def _model(self, name: str) -> dict[str, str]:
        """Return the checksums of a vectorizer's files."""
        prefix = f"{self._folder.name}/{name}/"
        inside = {
            file.removeprefix(prefix): file for file in self._files if file.startswith(prefix)
        }
        return {
            own: self._files[file]["sha256"]
            for own, file in inside.items()
            if not own.startswith(_OF_DOCUMENTS)
        }


def _place(folder: Path) -> tuple[int, int] | None:
    """Return what tells a folder from another one of its name; None where there is none."""
    try:
        status = folder.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
