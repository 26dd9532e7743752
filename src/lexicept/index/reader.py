"""An opened index: search and explain.

On disk an index is a ``manifest.json`` and one folder, a *generation*, with everything else. A
change writes the next generation beside it and then replaces the manifest (see ``indexing``), so
that readers and crashes see the old index or the new one. A reader holds its generation: while it
is open, changes leave the folder where it is.
"""

from __future__ import annotations

import hashlib
import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from threading import RLock
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp

from lexicept.corpora import Document
from lexicept.engines import Engine, ExactEngine, store
from lexicept.errors import IndexFormatError, InputError
from lexicept.explanation.contributions import Contribution, Explanation, QueryTerm, Span
from lexicept.index.atlas import Atlas
from lexicept.index.impacts import Derived, RRASettings, VocabularySettings
from lexicept.index.manifest import read_manifest
from lexicept.index.stored import Hit, StoredDocuments
from lexicept.storage.arrays import load_csr
from lexicept.storage.locks import hold
from lexicept.storage.manifest import check_files
from lexicept.storage.texts import TextStore
from lexicept.vectorizers.interface import Vectorizer, load_vectorizer
from lexicept.vectors import (
    SparseVectors,
    Vocabulary,
    canonical_csr,
    place_columns,
)

Steering = Mapping[tuple[str, int], float]
"""A factor on a query's weight for a vocabulary's name and a dimension of it."""

MAX_FACTOR = 1e6
"""Keeps steered scores within single precision."""


class _Term(NamedTuple):
    """A dimension of one vocabulary, and what a person sees for it."""

    vocabulary: str
    dimension: int
    term: str


def _check_query(query: object) -> None:
    if not isinstance(query, str):
        raise InputError(f"a query is a text, not {query!r:.40}")
    try:
        query.encode()
    except UnicodeEncodeError:
        raise InputError("the query is not valid UTF-8") from None


class IndexReader:
    """An opened index. Arrays are memory-mapped, models are loaded when a query needs them."""

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        self.path = path
        self.manifest = manifest
        folder = path / manifest["generation"]
        self.folder = folder
        """The generation that this reader sees."""
        self.release = weakref.finalize(self, os.close, hold(folder))
        """Lets changes remove the generation; called at the latest when this is no longer used."""
        self._stored = StoredDocuments(folder)
        self.ids, self.titles = self._stored.ids, self._stored.titles
        self.texts = self._stored.texts
        self.settings = {
            entry["name"]: VocabularySettings.from_json(entry) for entry in manifest["vocabularies"]
        }
        self.vocabularies = tuple(
            Vocabulary(entry["name"], entry["size"], TextStore(folder / entry["name"] / "terms"))
            for entry in manifest["vocabularies"]
        )
        self.rra = None if manifest["rra"] is None else RRASettings(**manifest["rra"])
        self.derived = Derived.load(folder / "postings")
        self.searcher: Engine = self.engine
        """What searches: the exact engine, unless ``open`` is told otherwise."""
        counts = {len(self.ids), len(self.titles), len(self.texts), manifest["documents"]}
        if counts != {self.engine.num_documents}:
            raise IndexFormatError(f"{path}: its parts hold different numbers of documents")
        if sum(v.size for v in self.vocabularies) != self.engine.num_dimensions:
            raise IndexFormatError(f"{path}: postings and vocabularies differ in dimensions")
        ends = accumulate(v.size for v in self.vocabularies)
        self._dimensions = {
            v.name: slice(end - v.size, end) for v, end in zip(self.vocabularies, ends, strict=True)
        }
        self._vectorizers: dict[str, Vectorizer] = {}
        # Tokenizers can't be shared by threads; a search of words must not wait for a model.
        self._encoding = {vocabulary.name: RLock() for vocabulary in self.vocabularies}
        self.atlas = self._open_atlas()
        """What is known of the concepts; None where there are none, or they were not described."""

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], *, checksums: bool = False, engine: str = "exact"
    ) -> IndexReader:
        """Open an index. File sizes are always checked, contents where ``checksums`` says so.

        Args:
            engine: what searches it: exact, or one that ``indexing.add_engine`` built.

        Raises:
            IndexFormatError: not an index, half-written, damaged, or of a newer version.
            InputError: it has no such engine, or has changed since that was built.
        """
        index = cls._open(path, checksums)
        if engine != "exact":
            folder = index.engine_folder(engine)
            index.searcher = store.open_engine(folder, engine, index.postings)
        return index

    @classmethod
    def _open(cls, path: str | os.PathLike[str], checksums: bool) -> IndexReader:
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

    def __contains__(self, document_id: object) -> bool:
        return document_id in self._stored.numbers

    def __repr__(self) -> str:
        names = ", ".join(f"{v.name}: {v.size:,}" for v in self.vocabularies)
        return f"IndexReader({str(self.path)!r}, {len(self):,} documents, {{{names}}})"

    def _open_atlas(self) -> Atlas | None:
        folder = self.folder / "concepts" / "atlas"
        if not folder.is_dir():
            return None
        (concepts,) = (v for v in self.vocabularies if v.name == "concepts")
        span = self.span("concepts")
        df = self.engine.df[span]
        # Not a method of this index: a cycle would keep it, and its generation, for longer.
        return Atlas(folder, concepts.terms or (), df, self._stored.content)

    @property
    def engine(self) -> ExactEngine:
        return self.derived.engine

    @property
    def postings(self) -> str:
        """A fingerprint of the postings, which other engines are built from."""
        prefix = f"{self.folder.name}/postings/"
        files = self.manifest["files"]
        parts = [f"{n}:{files[n]['sha256']}" for n in sorted(files) if n.startswith(prefix)]
        return hashlib.sha256("\n".join(parts).replace(prefix, "").encode()).hexdigest()

    def engine_folder(self, name: str) -> Path:
        """Where another engine is kept."""
        return self.path / "engines" / name

    def vectorizer(self, name: str) -> Vectorizer:
        """Return the vectorizer of a vocabulary, which turns texts into tf; it is loaded once."""
        span = self.span(name)
        with self._encoding[name]:
            if name not in self._vectorizers:
                vectorizer = load_vectorizer(name, self.folder / name)
                if vectorizer.size != span.stop - span.start:
                    raise IndexFormatError(
                        f"{self.path}: its {name} and their model differ in size"
                    )
                self._vectorizers[name] = vectorizer
            return self._vectorizers[name]

    def document_number(self, document_id: str) -> int:
        """The row of a document. Raises InputError for an unknown id."""
        if document_id not in self._stored.numbers:
            raise InputError(f"no document {document_id!r} in {self.path}")
        return self._stored.numbers[document_id]

    def document(self, document_id: str) -> Document:
        """A stored document. Raises InputError for an unknown id."""
        return self.stored(self.document_number(document_id))

    def stored(self, number: int) -> Document:
        """The document of a row."""
        return self._stored.document(number)

    def documents(self) -> Iterator[Document]:
        """All stored documents, in order."""
        return (self.stored(number) for number in range(len(self)))

    def document_vectors(self) -> SparseVectors:
        """The document weights that are searched [N, V], without RRA's offsets."""
        return SparseVectors(self.engine.matrix(), list(self.ids), self.vocabularies)

    def tf(self) -> list[sp.csr_array]:
        """What the vectorizers found in the documents [N, V_i], one matrix per vocabulary."""
        return [load_csr(self.folder / v.name / "frequencies", v.size) for v in self.vocabularies]

    def query_vectors(
        self,
        queries: Sequence[str],
        vocabulary: str | None = None,
        steering: Steering | None = None,
    ) -> sp.csr_array:
        """Query weights [n, V], in one vocabulary or, by default, in all.

        Args:
            steering: factors on weights, once the queries are pruned: 0 takes a dimension out, and
                none brings in what a query does not have.

        Raises:
            InputError: a query that is no text or that UTF-8 can't hold, or the index has no such
                vocabulary, or steering names no dimension of it, or a factor is not from 0 to
                ``MAX_FACTOR``.
        """
        for query in queries:
            _check_query(query)
        if vocabulary is not None:
            self.span(vocabulary)  # which refuses an unknown one
        parts = []
        for entry in self.vocabularies:
            if vocabulary not in (None, entry.name):
                continue
            span = self.span(entry.name)
            setting = self.settings[entry.name]
            with self._encoding[entry.name]:
                tf = self.vectorizer(entry.name).queries(queries)
            weights = setting.weighting.queries(canonical_csr(tf))
            weights = setting.prune_queries(
                weights, self.derived.bounds[span], self.engine.df[span], len(self)
            )
            parts.append((span.start, weights))
        weights = place_columns(parts, self.engine.num_dimensions)
        return self._steered(weights, steering) if steering else weights

    def span(self, vocabulary: str) -> slice:
        """The dimensions of one vocabulary. Raises InputError for an unknown one."""
        if vocabulary not in self._dimensions:
            names = [v.name for v in self.vocabularies]
            raise InputError(f"{self.path} has no vocabulary {vocabulary!r}, only: {names}")
        return self._dimensions[vocabulary]

    def _steered(self, weights: sp.csr_array, steering: Steering) -> sp.csr_array:
        factors = np.ones(self.engine.num_dimensions, np.float32)
        for (name, dimension), factor in steering.items():
            span = self.span(name)
            if not 0 <= dimension < span.stop - span.start:
                raise InputError(f"steering: {name} has no dimension {dimension}")
            if not 0 <= factor <= MAX_FACTOR:
                limits = f"must be from 0 to {MAX_FACTOR:,.0f}, not {factor}"
                raise InputError(f"steering: the factor on {name} {dimension} {limits}")
            factors[span.start + dimension] = factor
        data = weights.data * factors[weights.indices]
        return canonical_csr(sp.csr_array((data, weights.indices, weights.indptr), weights.shape))

    def query_terms(
        self, query: str, vocabulary: str | None = None, steering: Steering | None = None
    ) -> list[QueryTerm]:
        """What a query is made of, largest weights first; see ``query_vectors``."""
        vector = self.query_vectors([query], vocabulary, steering)
        order = np.argsort(-vector.data, kind="stable")
        terms = [self._term(int(dimension)) for dimension in vector.indices[order]]
        spans = self._spans(query, terms, "query")
        found = zip(terms, vector.data[order].tolist(), spans, strict=True)
        return [QueryTerm(*term, weight, of_query) for term, weight, of_query in found]

    def search(
        self,
        query: str,
        top_k: int = 10,
        vocabulary: str | None = None,
        steering: Steering | None = None,
        *,
        explain: bool = False,
    ) -> list[Hit]:
        """The best documents for one query, best first; see ``search_many``.

        Args:
            steering: see ``query_vectors``.
            explain: whether each hit gets its explanation.
        """
        hits = self.search_vectors(self.query_vectors([query], vocabulary, steering), top_k)[0]
        if not explain:
            return hits
        return [
            replace(hit, explanation=self.explain(query, hit.id, vocabulary, steering=steering))
            for hit in hits
        ]

    def search_many(
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
        factors = None if self.rra is None else queries @ self.derived.background
        found = self.searcher.search(queries, top_k, factors)
        return [
            [
                Hit(rank, score, self.ids[number], self._stored, number)
                for rank, (number, score) in enumerate(
                    zip(documents.tolist(), scores.tolist(), strict=True), 1
                )
            ]
            for documents, scores in found
        ]

    def explain(
        self,
        query: str,
        document_id: str,
        vocabulary: str | None = None,
        *,
        steering: Steering | None = None,
        spans: bool = True,
    ) -> Explanation:
        """What a document's score for a query is made of.

        Args:
            vocabulary, steering: as in ``search``.
            spans: whether to find the characters that fired each dimension. For concepts the
                document goes through the encoder again.

        Raises:
            InputError: no such document or vocabulary, or bad steering.
        """
        number = self.document_number(document_id)
        content = self.stored(number).content
        vector = self.query_vectors([query], vocabulary, steering)
        query_weights = vector.data.astype(np.float64)
        document_weights = self.engine.document_weights(number, vector.indices)
        scores = query_weights * document_weights
        order = np.argsort(-scores, kind="stable")[: np.count_nonzero(scores)]
        terms = [self._term(int(dimension)) for dimension in vector.indices[order]]
        found = zip(
            terms,
            scores[order].tolist(),
            query_weights[order].tolist(),
            document_weights[order].tolist(),
            self._spans(query, terms, "query") if spans else [()] * len(terms),
            self._spans(content, terms, "document") if spans else [()] * len(terms),
            strict=True,
        )
        # A search finds nothing for a query that matches no posting, whatever the priors.
        matches = self.engine.matches(vector.indices)
        factor = float((vector @ self.derived.background)[0]) if matches else 0.0
        return Explanation(
            query,
            document_id,
            content,
            tuple(Contribution(*term, *rest) for term, *rest in found),
            float(self.engine.offsets[number]) * factor,
        )

    def _spans(
        self, text: str, terms: Sequence[_Term], task: Literal["query", "document"]
    ) -> list[tuple[Span, ...]]:
        """What fired each of these dimensions in a text."""
        found = {}
        for name in {term.vocabulary for term in terms}:
            dimensions = [term.dimension for term in terms if term.vocabulary == name]
            with self._encoding[name]:
                found[name] = self.vectorizer(name).spans(text, dimensions, task)
        return [found[term.vocabulary][term.dimension] for term in terms]

    def _term(self, dimension: int) -> _Term:
        """Where one of all dimensions belongs, and what a person sees for it."""
        for vocabulary in self.vocabularies:
            if dimension < vocabulary.size:
                terms = vocabulary.terms
                term = terms[dimension] if terms is not None else str(dimension)
                return _Term(vocabulary.name, dimension, term)
            dimension -= vocabulary.size
        raise IndexError(dimension)
