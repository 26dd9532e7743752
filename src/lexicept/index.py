"""An opened index: search and explain.

On disk an index is a ``manifest.json`` and one folder, a *generation*, with everything else. A
change writes the next generation beside it and then replaces the manifest (see ``indexing``), so
that readers and crashes see the old index or the new one.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import scipy.sparse as sp

from lexicept.corpora import Document
from lexicept.derive import Derived, RRASettings, VocabularySettings
from lexicept.engines import ExactEngine
from lexicept.errors import IndexFormatError, InputError
from lexicept.storage import TextStore, check_files, load_csr, read_json
from lexicept.vectors import (
    SparseVectors,
    Vocabulary,
    canonical_csr,
    prune_rows,
    stack_columns,
)

FORMAT = "lexicept index"
VERSION = 1

# Named, not imported: searching words must not import torch.
VECTORIZERS = {
    "words": ("lexicept.words", "WordVectorizer"),
    "concepts": ("lexicept.concepts", "ConceptVectorizer"),
}


class Vectorizer(Protocol):
    """Texts to frequencies over one vocabulary."""

    name: str
    grows: bool
    """Whether documents can add dimensions."""

    @property
    def size(self) -> int:
        """Number of dimensions."""

    @property
    def terms(self) -> Sequence[str]:
        """What a person sees for each dimension."""

    def documents(self, texts: Sequence[str]) -> sp.csr_array:
        """CSR [n, size]; may add dimensions where the vocabulary grows."""

    def queries(self, texts: Sequence[str]) -> sp.csr_array:
        """CSR [n, size]; never adds dimensions."""

    def save(self, folder: Path) -> None:
        """Write what ``load`` needs into an existing folder."""

    @classmethod
    def load(cls, folder: Path) -> Vectorizer:
        """Read it back."""


def load_vectorizer(name: str, folder: Path) -> Vectorizer:
    """A saved vectorizer. Raises IndexFormatError for a vocabulary of an unknown kind."""
    if name not in VECTORIZERS:
        raise IndexFormatError(f"{folder}: no vocabulary of the kind {name!r} is known")
    module, kind = VECTORIZERS[name]
    return cast(Vectorizer, getattr(importlib.import_module(module), kind).load(folder))


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of an index.

    Raises:
        IndexFormatError: no index, a half-written one, or one of a newer version.
    """
    if not path.is_dir():
        raise IndexFormatError(f"{path}: there is no index here")
    if not (path / "manifest.json").exists():
        raise IndexFormatError(f"{path}: no index, or one that was never finished (no manifest)")
    manifest = read_json(path / "manifest.json")
    if manifest.get("format") != FORMAT:
        raise IndexFormatError(f"{path}: not a lexicept index")
    version = manifest.get("version")
    if not isinstance(version, int) or version > VERSION:
        raise IndexFormatError(
            f"{path}: index version {version}; this lexicept reads up to version {VERSION}"
        )
    generation, files = manifest.get("generation"), manifest.get("files")
    if not (isinstance(generation, str) and generation.isdigit() and isinstance(files, dict)):
        raise IndexFormatError(f"{path}: its manifest is damaged")
    return manifest


class Hit(NamedTuple):
    """One result."""

    document_id: str
    score: float


class Contribution(NamedTuple):
    """What one dimension adds to a score."""

    vocabulary: str
    term: str
    score: float


class Index:
    """An opened index. Arrays are memory-mapped, models are loaded when a query needs them."""

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        self.path = path
        self.manifest = manifest
        folder = path / manifest["generation"]
        self.folder = folder
        """The generation that this reader sees."""
        self.ids = TextStore(folder / "ids")
        self.titles = TextStore(folder / "titles")
        self.texts = TextStore(folder / "texts")
        self.settings = {
            entry["name"]: VocabularySettings.from_json(entry) for entry in manifest["vocabularies"]
        }
        self.vocabularies = tuple(
            Vocabulary(entry["name"], entry["size"], TextStore(folder / entry["name"] / "terms"))
            for entry in manifest["vocabularies"]
        )
        self.rra = None if manifest["rra"] is None else RRASettings(**manifest["rra"])
        self.derived = Derived.load(folder / "postings")
        counts = {len(self.ids), len(self.titles), len(self.texts), manifest["documents"]}
        if counts != {self.engine.num_documents}:
            raise IndexFormatError(f"{path}: its parts hold different numbers of documents")
        if sum(v.size for v in self.vocabularies) != self.engine.num_dimensions:
            raise IndexFormatError(f"{path}: postings and vocabularies differ in dimensions")
        self._vectorizers: dict[str, Vectorizer] = {}
        self._numbers: dict[str, int] | None = None

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, checksums: bool = False) -> Index:
        """Open an index. File sizes are always checked, contents where ``checksums`` says so.

        Raises:
            IndexFormatError: not an index, half-written, damaged, or of a newer version.
        """
        folder = Path(path)
        while True:
            manifest = read_manifest(folder)
            try:
                check_files(folder, manifest["files"], checksums=checksums)
                return cls(folder, manifest)
            except (KeyError, TypeError, ValueError) as error:
                raise IndexFormatError(f"{folder}: its manifest is damaged ({error})") from None
            except (IndexFormatError, OSError):
                # An update may have removed this generation since the manifest was read.
                if read_manifest(folder)["generation"] == manifest["generation"]:
                    raise

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        names = ", ".join(f"{v.name}: {v.size:,}" for v in self.vocabularies)
        return f"Index({str(self.path)!r}, {len(self):,} documents, {{{names}}})"

    @property
    def engine(self) -> ExactEngine:
        return self.derived.engine

    def vectorizer(self, name: str) -> Vectorizer:
        """What turns texts into this vocabulary's frequencies; loaded once."""
        if name not in self._vectorizers:
            self._vectorizers[name] = self._load_vectorizer(name)
        return self._vectorizers[name]

    def _load_vectorizer(self, name: str) -> Vectorizer:
        folder = self.folder
        while True:
            try:
                return load_vectorizer(name, folder / name)
            except (IndexFormatError, OSError):
                # An update may have removed this generation; in the next ones vocabularies only
                # grow, so that their first dimensions are ours.
                newest = self.path / read_manifest(self.path)["generation"]
                if newest == folder:
                    raise
                folder = newest

    def document_number(self, document_id: str) -> int:
        """The row of a document. Raises InputError for an unknown id."""
        if self._numbers is None:
            self._numbers = {name: number for number, name in enumerate(self.ids)}
        if document_id not in self._numbers:
            raise InputError(f"no document {document_id!r} in {self.path}")
        return self._numbers[document_id]

    def document(self, document_id: str) -> Document:
        """A stored document. Raises InputError for an unknown id."""
        return self.stored(self.document_number(document_id))

    def stored(self, number: int) -> Document:
        """The document of a row."""
        return Document(self.ids[number], self.texts[number], self.titles[number])

    def documents(self) -> Iterator[Document]:
        """All stored documents, in order."""
        return (self.stored(number) for number in range(len(self)))

    def document_vectors(self) -> SparseVectors:
        """The document weights that are searched [N, V], without RRA's offsets."""
        return SparseVectors(self.engine.matrix(), list(self.ids), self.vocabularies)

    def frequencies(self) -> list[sp.csr_array]:
        """What the vectorizers found in the documents [N, V_i], one matrix per vocabulary."""
        return [load_csr(self.folder / v.name / "frequencies", v.size) for v in self.vocabularies]

    def query_vectors(self, queries: Sequence[str], vocabulary: str | None = None) -> sp.csr_array:
        """Query weights [n, V], in one vocabulary or, by default, in all.

        Raises:
            InputError: the index has no such vocabulary.
        """
        names = [v.name for v in self.vocabularies]
        if vocabulary is not None and vocabulary not in names:
            raise InputError(f"{self.path} has no vocabulary {vocabulary!r}, only: {names}")
        parts = []
        start = 0
        for entry in self.vocabularies:
            bounds = self.derived.bounds[start : start + entry.size]
            start += entry.size
            if vocabulary is not None and vocabulary != entry.name:
                parts.append(sp.csr_array((len(queries), entry.size), dtype=np.float32))
                continue
            setting = self.settings[entry.name]
            frequencies = self.vectorizer(entry.name).queries(queries)[:, : entry.size]
            weights = setting.weighting.queries(canonical_csr(frequencies))
            if setting.query_max_active_dims is not None:
                weights = prune_rows(weights, setting.query_max_active_dims, bounds)
            parts.append(weights)
        return stack_columns(parts)

    def search(self, query: str, top_k: int = 10, vocabulary: str | None = None) -> list[Hit]:
        """The best documents for one query, best first; see ``search_batch``."""
        return self.search_batch([query], top_k, vocabulary)[0]

    def search_batch(
        self, queries: Sequence[str], top_k: int = 10, vocabulary: str | None = None
    ) -> list[list[Hit]]:
        """The best documents for each query, best first, ties in document order.

        Args:
            queries: texts; one without a known word or concept has no results.
            top_k: results per query, at least 1.
            vocabulary: search in one vocabulary only; None searches all of them at once.

        Raises:
            InputError: the index has no such vocabulary, or ``top_k`` is below 1.
        """
        return self.search_vectors(self.query_vectors(queries, vocabulary), top_k)

    def search_vectors(self, queries: sp.csr_array, top_k: int = 10) -> list[list[Hit]]:
        """The same for query weights [n, V]."""
        top_k = min(top_k, max(len(self), 1))  # the compiled search takes 64 bits
        found = self.engine.search(queries, top_k, queries @ self.derived.background)
        return [
            [Hit(self.ids[int(d)], float(s)) for d, s in zip(documents, scores, strict=True)]
            for documents, scores in found
        ]

    def explain(
        self, query: str, document_id: str, vocabulary: str | None = None
    ) -> list[Contribution]:
        """What every shared dimension adds to a score, largest first; they add up to the score.

        With RRA the last one, of the vocabulary ``prior``, is the document's offset.
        """
        number = self.document_number(document_id)
        vector = self.query_vectors([query], vocabulary)
        added = self.engine.contributions(number, vector.indices, vector.data)
        found = []
        for position in np.argsort(-added, kind="stable"):
            if added[position] > 0:
                name, term = self._label(int(vector.indices[position]))
                found.append(Contribution(name, term, float(added[position])))
        prior = float(self.engine.offsets[number]) * float((vector @ self.derived.background)[0])
        if prior > 0:
            found.append(Contribution("prior", "document", prior))
        return found

    def _label(self, dimension: int) -> tuple[str, str]:
        for vocabulary in self.vocabularies:
            if dimension < vocabulary.size:
                terms = vocabulary.terms
                return vocabulary.name, terms[dimension] if terms is not None else str(dimension)
            dimension -= vocabulary.size
        raise IndexError(dimension)
