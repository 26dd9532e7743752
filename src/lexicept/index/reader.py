"""An opened index: search and explain.

On disk an index is a ``manifest.json`` and one folder, a *generation*, with everything else. A
change writes the next generation beside it and then replaces the manifest (see ``indexing``), so
that readers and crashes see the old index or the new one. A reader holds its generation: while it
is open, changes leave the folder where it is.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from lexicept.corpora import Document
from lexicept.engines import Engine, ExactEngine, store
from lexicept.engines.interface import checked_queries
from lexicept.engines.mask import Mask
from lexicept.errors import IndexFormatError, InputError, check_count
from lexicept.explanation.contributions import Contribution, QueryTerm, Sources
from lexicept.explanation.explanation import Explanation
from lexicept.fields.filters import Filter
from lexicept.index.atlas import Atlas
from lexicept.index.impacts import Derived, RRASettings, VocabularySettings
from lexicept.index.loaded import LoadedVectorizers
from lexicept.index.manifest import ENGINES, CurrentManifest, postings_fingerprint, resolved
from lexicept.index.masks import Masks
from lexicept.index.queries import (
    Steering,
    Term,
    WeightedQuery,
    check_query_encoder,
    checked_texts,
    steer,
)
from lexicept.index.sources import document_sources, query_sources
from lexicept.index.stored import Hit, StoredDocuments
from lexicept.storage.arrays import load_csr
from lexicept.storage.files import disk_errors
from lexicept.storage.locks import hold
from lexicept.storage.manifest import check_files
from lexicept.storage.texts import TextStore
from lexicept.vectorizers.interface import Vectorizer
from lexicept.vectors import (
    SparseVectors,
    Vocabulary,
    canonical_csr,
    place_columns,
)


class IndexReader:
    """An opened index. Arrays are memory-mapped, models are loaded when a query needs them."""

    def __init__(self, path: Path, current: CurrentManifest) -> None:
        self.path = path
        self.manifest = manifest = current.content
        self.stale = current.stale
        """Returns whether the index on disk is no longer what this reader sees."""
        folder = path / manifest["generation"]
        self.folder = folder
        """The generation that this reader sees."""
        self.release = weakref.finalize(self, os.close, hold(folder))
        """Lets changes remove the generation; called at the latest when this is no longer used."""
        self._stored = StoredDocuments(folder)
        self.ids, self.titles = self._stored.ids, self._stored.titles
        self.texts, self.fields = self._stored.texts, self._stored.fields
        self.masks = Masks(self.fields)
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
        """The engine that searches: the exact one, unless ``open`` got another's name."""
        counts = {len(self.ids), len(self.titles), len(self.texts), manifest["documents"]}
        if counts != {self.engine.num_documents}:
            raise IndexFormatError(f"{path}: its parts hold different numbers of documents")
        if sum(v.size for v in self.vocabularies) != self.engine.num_dimensions:
            raise IndexFormatError(f"{path}: postings and vocabularies differ in dimensions")
        ends = accumulate(v.size for v in self.vocabularies)
        self._dimensions = {
            v.name: slice(end - v.size, end) for v, end in zip(self.vocabularies, ends, strict=True)
        }
        sizes = {vocabulary.name: vocabulary.size for vocabulary in self.vocabularies}
        self.vectorizers = LoadedVectorizers(folder, sizes, manifest["files"])
        self.query_encoder = "model"
        """Encoder of the concepts of queries: "model", or "lookup" for the token table."""
        self._origin: IndexReader | None = None  # it holds the generation
        self.atlas = self._open_atlas()
        """Descriptions of the concepts; None where there are none, or they were not described."""

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
        folder = resolved(path)
        while True:
            current = CurrentManifest(folder)
            try:
                with disk_errors(folder):
                    check_files(folder, current.content["files"], checksums=checksums)
                    return cls(folder, current)
            except (KeyError, TypeError, ValueError) as error:
                raise IndexFormatError(f"{folder}: its manifest is damaged ({error})") from None
            except (IndexFormatError, OSError):
                # An update may have removed this generation since the manifest was read.
                if not current.stale():
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
        df = self.engine.df[self.span("concepts")]
        # Not a method of this index: a cycle would keep it, and its generation, for longer.
        return Atlas(folder, concepts.terms or (), df, self._stored.content)

    @property
    def engine(self) -> ExactEngine:
        return self.derived.engine

    @property
    def postings(self) -> str:
        """A fingerprint of the postings, which other engines are built from."""
        return postings_fingerprint(self.manifest)

    def engine_folder(self, name: str) -> Path:
        """Return the folder of another engine."""
        return self.path / ENGINES / name

    def vectorizer(self, name: str) -> Vectorizer:
        """Return the vectorizer of a vocabulary, loaded at first use."""
        self.span(name)
        return self.vectorizers.get(name)

    def using(self, query_encoder: str) -> IndexReader:
        """Return this index with that ``query_encoder``. Raises InputError where it has none."""
        if query_encoder == self.query_encoder:
            return self
        check_query_encoder(query_encoder, self.path, self.vectorizers)
        other = copy(self)
        other.query_encoder, other._origin = query_encoder, self
        return other

    def adopt(self, other: IndexReader) -> None:
        """Take over the vectorizers that another generation has loaded and that are equal here."""
        self.vectorizers.adopt(other.vectorizers)

    def document_number(self, document_id: str) -> int:
        """The row of a document. Raises InputError for an unknown id."""
        if not isinstance(document_id, str) or document_id not in self._stored.numbers:
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
        """Return the documents' tf [N, V_i], one matrix per vocabulary."""
        return [load_csr(self.folder / v.name / "frequencies", v.size) for v in self.vocabularies]

    def query_vectors(
        self,
        queries: Sequence[str],
        vocabulary: str | None = None,
        steering: Steering | None = None,
    ) -> sp.csr_array:
        """Return query weights [n, V], in one vocabulary or, by default, in all.

        Args:
            steering: factors on weights, once the queries are pruned: 0 removes a dimension; none
                adds a dimension that a query does not have.

        Raises:
            InputError: a query that is no text or that UTF-8 can't hold, a vocabulary that the
                index does not have, or a steering that names no dimension of it or has a factor
                that is not from 0 to ``MAX_FACTOR``.
        """
        queries = checked_texts(queries)
        tf = {
            name: self.vectorizers.queries(name, self.query_encoder, queries)
            for name in self._chosen(vocabulary)
        }
        return self._weighted(tf, steering)

    def encode(
        self, query: str, vocabulary: str | None = None, steering: Steering | None = None
    ) -> WeightedQuery:
        """Encode one query for search and explanation; see ``query_vectors``."""
        checked_texts([query])
        encoded = {}
        for name in self._chosen(vocabulary):
            with self.vectorizers.encoding(name, self.query_encoder) as encoder:
                encoded[name] = encoder.encode_query(query)
        vector = self._weighted({name: one.tf for name, one in encoded.items()}, steering)
        return WeightedQuery(query, vector, {name: one.sources for name, one in encoded.items()})

    def _chosen(self, vocabulary: str | None) -> list[str]:
        """Return the vocabularies to search. Raises InputError for an unknown one."""
        if vocabulary is None:
            return [entry.name for entry in self.vocabularies]
        self.span(vocabulary)
        return [vocabulary]

    def _weighted(self, tf: Mapping[str, sp.csr_array], steering: Steering | None) -> sp.csr_array:
        """Return the weights [n, V] of queries' term frequencies in each vocabulary."""
        parts = []
        for name, frequencies in tf.items():
            span, setting = self.span(name), self.settings[name]
            weights = setting.weighting.queries(canonical_csr(frequencies))
            weights = setting.prune_queries(
                weights, self.derived.bounds[span], self.engine.df[span], len(self)
            )
            parts.append((span.start, weights))
        weights = place_columns(parts, self.engine.num_dimensions)
        return steer(weights, steering, self.span) if steering else weights

    def span(self, vocabulary: str) -> slice:
        """The dimensions of one vocabulary. Raises InputError for an unknown one."""
        if not isinstance(vocabulary, str) or vocabulary not in self._dimensions:
            names = [v.name for v in self.vocabularies]
            raise InputError(f"{self.path} has no vocabulary {vocabulary!r}, only: {names}")
        return self._dimensions[vocabulary]

    def query_terms(
        self, query: str, vocabulary: str | None = None, steering: Steering | None = None
    ) -> list[QueryTerm]:
        """Return the dimensions of a query, largest weights first; see ``query_vectors``."""
        encoded = self.encode(query, vocabulary, steering)
        vector = encoded.vector
        order = np.argsort(-vector.data, kind="stable")
        terms = [self._term(int(dimension)) for dimension in vector.indices[order]]
        parts = zip(
            terms,
            vector.data[order].tolist(),
            query_sources(self.vectorizers, self.query_encoder, encoded, terms),
            strict=True,
        )
        return [QueryTerm(*term, weight, *sources) for term, weight, sources in parts]

    def search(
        self,
        query: str,
        top_k: int = 10,
        vocabulary: str | None = None,
        steering: Steering | None = None,
        *,
        explain: bool = False,
        filter: Filter | None = None,  # noqa: A002
    ) -> list[Hit]:
        """Return the best documents for one query, best first; see ``search_many``.

        Args:
            steering: see ``query_vectors``.
            explain: whether each hit gets its explanation.
        """
        mask = self.masks.of(filter)  # bad ones are refused before a model runs
        if not explain:
            vector = self.query_vectors([query], vocabulary, steering)
            return self.search_vectors(vector, top_k, mask=mask)[0]
        encoded = self.encode(query, vocabulary, steering)
        (hits,) = self.search_vectors(encoded.vector, top_k, mask=mask)
        explanations = self._explained(encoded, [hit.number for hit in hits], spans=True)
        return [
            replace(hit, explanation=explanation)
            for hit, explanation in zip(hits, explanations, strict=True)
        ]

    def search_many(
        self,
        queries: Sequence[str],
        top_k: int = 10,
        vocabulary: str | None = None,
        *,
        threads: int | None = None,
        filter: Filter | None = None,  # noqa: A002
    ) -> list[list[Hit]]:
        """Return the best documents for each query, best first, ties in document order.

        Args:
            queries: texts; one without a known word or concept has no results.
            top_k: results per query, at least 1.
            vocabulary: search in one vocabulary only; None searches all of them at once.
            threads: threads that search, at least 1; one per processor by default.
            filter: the documents that may be results, by their fields.

        Raises:
            InputError: the index has no such vocabulary, a number below 1, or a bad filter.
        """
        mask = self.masks.of(filter)
        return self.search_vectors(self.query_vectors(queries, vocabulary), top_k, threads, mask)

    def search_vectors(
        self,
        queries: sp.csr_array,
        top_k: int = 10,
        threads: int | None = None,
        mask: Mask | None = None,
    ) -> list[list[Hit]]:
        """Return the best documents for query weights [n, V]; see ``search_many``."""
        check_count("threads", 1 if threads is None else threads)
        check_count("top_k", top_k)
        top_k = min(top_k, max(len(self), 1))  # the compiled search takes 64 bits
        if self.rra is not None:
            queries = checked_queries(queries, self.engine.num_dimensions)
        factors = None if self.rra is None else queries @ self.derived.background
        results = self.searcher.search(queries, top_k, factors, threads, mask)
        return [
            [
                Hit(rank, score, self.ids[number], self._stored, number)
                for rank, (number, score) in enumerate(
                    zip(documents.tolist(), scores.tolist(), strict=True), 1
                )
            ]
            for documents, scores in results
        ]

    def found(self, query: str, vocabulary: str | None, steering: Steering | None = None) -> Mask:
        """Return all documents that are results of a query; see ``search``."""
        vectors = self.query_vectors([query], vocabulary, steering)
        return self.engine.found(vectors, vectors @ self.derived.background)

    def explain(
        self,
        query: str,
        document_id: str,
        vocabulary: str | None = None,
        *,
        steering: Steering | None = None,
        spans: bool = True,
    ) -> Explanation:
        """Explain a document's score for a query by the dimensions that contribute to it.

        Args:
            vocabulary, steering: as in ``search``.
            spans: whether to find the characters that fired each dimension. For concepts the
                document goes through the encoder again.

        Raises:
            InputError: no such document or vocabulary, or bad steering.
        """
        number = self.document_number(document_id)
        encoded = self.encode(query, vocabulary, steering)
        return self._explained(encoded, [number], spans=spans)[0]

    def _explained(
        self, query: WeightedQuery, numbers: Sequence[int], *, spans: bool
    ) -> list[Explanation]:
        """Return the explanations of some documents' scores."""
        vector = query.vector
        query_weights = vector.data.astype(np.float64)
        weights = [self.engine.document_weights(number, vector.indices) for number in numbers]
        orders = []
        for document_weights in weights:
            scores = query_weights * document_weights
            orders.append(np.argsort(-scores, kind="stable")[: np.count_nonzero(scores)])
        terms = [[self._term(int(d)) for d in vector.indices[order]] for order in orders]
        contents = [self.stored(number).content for number in numbers]
        encoders = self.vectorizers, self.query_encoder
        of_documents = document_sources(*encoders, contents, terms) if spans else None
        # A search finds nothing for a query that matches no posting, whatever the priors.
        matches = self.engine.matches(vector.indices)
        factor = float((vector @ self.derived.background)[0]) if matches else 0.0
        explanations = []
        for place, (number, order) in enumerate(zip(numbers, orders, strict=True)):
            nothing = [Sources()] * len(terms[place])
            parts = zip(
                terms[place],
                (query_weights * weights[place])[order].tolist(),
                query_weights[order].tolist(),
                weights[place][order].tolist(),
                query_sources(*encoders, query, terms[place]) if spans else nothing,
                nothing if of_documents is None else of_documents[place],
                strict=True,
            )
            explanations.append(
                Explanation(
                    query.text,
                    self.ids[number],
                    contents[place],
                    tuple(Contribution(*term, *w, *q, *d) for term, *w, q, d in parts),
                    float(self.engine.offsets[number]) * factor,
                )
            )
        return explanations

    def _term(self, dimension: int) -> Term:
        """Return a dimension's vocabulary, and the term that people see for it."""
        for vocabulary in self.vocabularies:
            if dimension < vocabulary.size:
                terms = vocabulary.terms
                term = terms[dimension] if terms is not None else str(dimension)
                return Term(vocabulary.name, dimension, term)
            dimension -= vocabulary.size
        raise IndexError(dimension)
