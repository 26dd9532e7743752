"""An opened index: search and explain.

On disk an index is a ``manifest.json`` and one folder, a *generation*, with everything else. A
change writes the next generation beside it and then replaces the manifest (see ``generations``), so
that readers and crashes see the old index or the new one. A reader holds its generation: while it
is open, changes leave the folder where it is.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import scipy.sparse as sp

from lexicept.engines import Engine, PostingsEngine, store
from lexicept.engines.interface import checked_queries as valid_weights
from lexicept.engines.mask import Mask
from lexicept.errors import IndexFormatError, InputError, check_count
from lexicept.explanation.contributions import QueryTerm
from lexicept.explanation.explanation import Explanation
from lexicept.fields.filters import Filter
from lexicept.index.atlas import Atlas
from lexicept.index.conditions import Conditions, alike
from lexicept.index.encoding import QueryEncoding
from lexicept.index.explained import Explainer
from lexicept.index.impacts import Derived, RRASettings, VocabularySettings
from lexicept.index.loaded import LoadedVectorizers
from lexicept.index.manifest import ENGINES, CurrentManifest, postings_fingerprint, resolved
from lexicept.index.masks import Masks
from lexicept.index.queries import (
    Steering,
    WeightedQuery,
    check_query_encoder,
    checked_queries,
    checked_query,
)
from lexicept.index.rows import RowReader
from lexicept.index.stored import Hit, StoredDocuments
from lexicept.queries.syntax import ParsedQuery, parse
from lexicept.storage.files import disk_errors
from lexicept.storage.locks import hold
from lexicept.storage.manifest import check_files
from lexicept.storage.texts import TextStore
from lexicept.vectorizers.interface import Vectorizer
from lexicept.vectors import SparseVectors, Vocabulary


class IndexReader(RowReader):
    """An opened index. Arrays are memory-mapped, models are loaded when a query needs them.

    Raises:
        IndexFormatError: a damaged index.
    """

    def __init__(self, path: Path, current: CurrentManifest) -> None:
        self.path = path
        self.manifest = manifest = current.content
        self.stale = current.stale
        """Function that returns whether the index on disk is no longer what this reader sees."""
        folder = path / manifest["generation"]
        self.folder = folder
        """The generation that this reader sees."""
        self.release = weakref.finalize(self, os.close, hold(folder))
        """Function that lets changes remove the generation; called at the latest when the reader is
        garbage."""
        self._stored = StoredDocuments(folder)
        self.ids, self.titles = self._stored.ids, self._stored.titles
        self.texts, self.fields = self._stored.texts, self._stored.fields
        self.document_ids, self.passages = self._stored.document_ids, self._stored.passages
        self.masks = Masks(self.fields, self.passages)
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
        parts = (self._stored, self.masks, self.engine, self.vectorizers)
        self._conditions = Conditions(*parts, self._dimensions.get("words"))
        self.query_encoder = "model"
        """Encoder of the concepts of queries: "model", or "lookup" for the token table."""
        self._origin: IndexReader | None = None  # keeps the generation held
        self.atlas = self._open_atlas()
        """Descriptions of the concepts; None where there are none, or they were not described."""

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], *, checksums: bool = False, engine: str = "exact"
    ) -> IndexReader:
        """Open an index. File sizes are always checked, contents where ``checksums`` says so.

        Args:
            engine: what searches it: exact, or one that ``updates.add_engine`` built.

        Raises:
            IndexFormatError: not an index, half-written, damaged, or of another version.
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

    def __len__(self) -> int:  # the number of rows
        return len(self.ids)

    def __repr__(self) -> str:
        names = ", ".join(f"{v.name}: {v.size:,}" for v in self.vocabularies)
        return f"IndexReader({str(self.path)!r}, {self.num_documents:,} documents, {{{names}}})"

    def _open_atlas(self) -> Atlas | None:
        folder = self.folder / "concepts" / "atlas"
        if not folder.is_dir():
            return None
        (concepts,) = (v for v in self.vocabularies if v.name == "concepts")
        df = self.engine.df[self.span("concepts")]
        # Not a method of this index: a cycle would keep it, and its generation, for longer.
        return Atlas(folder, concepts.terms or (), df, self._stored.content)

    @property
    def engine(self) -> PostingsEngine:
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

    def document_vectors(self) -> SparseVectors:
        """Return the document weights that are searched [N, V], without RRA's offsets."""
        return SparseVectors(self.engine.matrix(), list(self.ids), self.vocabularies)

    def query_vectors(
        self,
        queries: Sequence[str | ParsedQuery],
        vocabulary: str | None = None,
        steering: Steering | None = None,
    ) -> sp.csr_array:
        """Return query weights [n, V], in one vocabulary or, by default, in all.

        Args:
            steering: factors on weights, once the queries are pruned: 0 removes a dimension; none
                adds a dimension that a query does not have.

        Raises:
            InputError: a query that is no text or that UTF-8 can't hold, a vocabulary that the
                index does not have, whole texts by lookup, or a steering, boost or added dimension
                that the index does not have or whose number is not from 0 to ``MAX_FACTOR``.
        """
        parsed = checked_queries(queries)
        return self._encoding.vectors(parsed, vocabulary, steering)

    def encode(
        self,
        query: str | ParsedQuery,
        vocabulary: str | None = None,
        steering: Steering | None = None,
    ) -> WeightedQuery:
        """Encode one query for search and explanation; see ``query_vectors``."""
        return self._encoding.encode(checked_query(query), vocabulary, steering)

    @property
    def _encoding(self) -> QueryEncoding:
        parts = (self.settings, self.derived, self.vectorizers, self.query_encoder)
        return QueryEncoding(*parts, self.span)

    def span(self, vocabulary: str) -> slice:
        """Return the dimensions of one vocabulary. Raises InputError for an unknown one."""
        if not isinstance(vocabulary, str) or vocabulary not in self._dimensions:
            names = ", ".join(v.name for v in self.vocabularies)
            raise InputError(f"{self.path} has no vocabulary {vocabulary!r}, only: {names}")
        return self._dimensions[vocabulary]

    def query_terms(
        self,
        query: str | ParsedQuery,
        vocabulary: str | None = None,
        steering: Steering | None = None,
    ) -> list[QueryTerm]:
        """Return the dimensions of a query, largest weights first; see ``query_vectors``."""
        return self._explainer.terms(self.encode(query, vocabulary, steering))

    def parse(self, query: str | ParsedQuery) -> ParsedQuery:
        """Return a query in its parts; see ``queries.syntax``. One that is parsed stays as it is.

        Raises:
            InputError: a query that is no text, or that UTF-8 can't hold.
        """
        checked = checked_query(query)
        return parse(checked.text, self.fields.kinds) if isinstance(query, str) else checked

    def mask(self, query: str | ParsedQuery, filter: Filter | None = None) -> Mask | None:  # noqa: A002
        """Return the documents that meet a query's conditions and a filter; None without any.

        Raises:
            InputError: see ``Conditions.of``.
        """
        return self._conditions.of(checked_query(query), filter)

    def search(
        self,
        query: str | ParsedQuery,
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
        if not explain:
            return self.search_many([query], top_k, vocabulary, steering, filter=filter)[0]
        parsed = checked_query(query)
        mask = self.mask(parsed, filter)  # bad ones are refused before a model runs
        encoded = self.encode(parsed, vocabulary, steering)
        (hits,) = self.search_parsed([parsed], encoded.vector, top_k, mask=mask)
        explanations = self._explainer.explained(encoded, [hit.number for hit in hits], spans=True)
        return [
            replace(hit, explanation=explanation)
            for hit, explanation in zip(hits, explanations, strict=True)
        ]

    def search_many(
        self,
        queries: Sequence[str | ParsedQuery],
        top_k: int = 10,
        vocabulary: str | None = None,
        steering: Steering | None = None,
        *,
        threads: int | None = None,
        filter: Filter | None = None,  # noqa: A002
    ) -> list[list[Hit]]:
        """Return the best documents for each query, best first, ties in document order.

        Args:
            queries: texts, taken as they are, or parsed queries; one without a known word or
                concept has no results.
            top_k: results per query, at least 1.
            vocabulary: search in one vocabulary only; None searches all of them at once.
            steering: see ``query_vectors``.
            threads: threads that search, at least 1; one per processor by default.
            filter: the documents that may be results, by their fields.

        Raises:
            InputError: a number below 1, a bad filter, or what ``query_vectors`` refuses.
        """
        parsed = checked_queries(queries)
        for places in alike(parsed):  # bad conditions are refused before a model runs
            self.mask(parsed[places[0]], filter)
        vectors = self.query_vectors(parsed, vocabulary, steering)
        return self.search_weighted(parsed, vectors, top_k, threads, filter)

    def search_weighted(
        self,
        parsed: Sequence[ParsedQuery],
        vectors: sp.csr_array,
        top_k: int = 10,
        threads: int | None = None,
        filter: Filter | None = None,  # noqa: A002
    ) -> list[list[Hit]]:
        """Return the best documents for queries of any conditions; see ``search_many``.

        Args:
            vectors: the queries' weights [n, V].
        """
        groups = alike(parsed)
        masks = [self.mask(parsed[places[0]], filter) for places in groups]
        answers: list[list[Hit]] = [[]] * len(parsed)
        for places, mask in zip(groups, masks, strict=True):
            some = [parsed[place] for place in places]
            own = vectors if len(groups) == 1 else vectors[places]
            found = self.search_parsed(some, own, top_k, threads, mask)
            for place, hits in zip(places, found, strict=True):
                answers[place] = hits
        return answers

    def search_parsed(
        self,
        queries: Sequence[ParsedQuery],
        vectors: sp.csr_array,
        top_k: int = 10,
        threads: int | None = None,
        mask: Mask | None = None,
    ) -> list[list[Hit]]:
        """Return the best documents for queries of the same conditions; see ``search_many``.

        Queries of conditions alone have all documents that meet them as results, in the order of
        the index, with a score of 0: by the first passage that meets them.

        Args:
            vectors: the queries' weights [n, V].
            mask: of their conditions.
        """
        results = self.search_vectors(vectors, top_k, threads, mask)
        if mask is not None and any(query.conditions_alone for query in queries):
            first = self.passages.first_of_each(mask.allowed)[:top_k].tolist()
            listed = [self._hit(rank, 0.0, number) for rank, number in enumerate(first, 1)]
            return [
                listed if q.conditions_alone else r for q, r in zip(queries, results, strict=True)
            ]
        return results

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
            queries = valid_weights(queries, self.engine.num_dimensions)
        factors = None if self.rra is None else queries @ self.derived.background
        results = self.passages.ranked(self.searcher, queries, top_k, factors, threads, mask)
        return [
            [
                self._hit(rank, score, number)
                for rank, (number, score) in enumerate(
                    zip(documents.tolist(), scores.tolist(), strict=True), 1
                )
            ]
            for documents, scores in results
        ]

    def _hit(self, rank: int, score: float, number: int) -> Hit:
        return Hit(rank, score, self.document_ids[number], self._stored, number)

    def found(
        self,
        query: str | ParsedQuery,
        vocabulary: str | None = None,
        steering: Steering | None = None,
        mask: Mask | None = None,
    ) -> Mask:
        """Return all rows that are results of a query; ``masks`` counts their documents.

        Args:
            mask: the documents that may be results; see ``mask``.
        """
        parsed = checked_query(query)
        if parsed.conditions_alone and mask is not None:
            return mask
        vectors = self.query_vectors([parsed], vocabulary, steering)
        found = self.engine.found(vectors, vectors @ self.derived.background)
        return found if mask is None else Mask(found.allowed & mask.allowed)

    def explain(
        self,
        query: str | ParsedQuery,
        document_id: str,
        vocabulary: str | None = None,
        *,
        steering: Steering | None = None,
        spans: bool = True,
    ) -> Explanation:
        """Explain a document's score for a query by the dimensions that contribute to it.

        A document in passages has the score of its best passage, among those that meet the query's
        conditions if any does.

        Args:
            document_id: of a document, or of one passage.
            vocabulary, steering: as in ``search``.
            spans: whether to find the characters that fired each dimension. For concepts the
                document goes through the encoder again.

        Raises:
            InputError: no such document, what ``query_vectors`` refuses, or, for a document in
                passages, a condition that ``mask`` refuses.
        """
        rows = self.document_rows(document_id)
        encoded = self.encode(query, vocabulary, steering)
        number = self._explainer.best(encoded, rows, self.mask(query) if len(rows) > 1 else None)
        return self._explainer.explained(encoded, [number], spans=spans)[0]

    @property
    def _explainer(self) -> Explainer:
        parts = (self.derived, self._stored, self.vocabularies, self.vectorizers)
        return Explainer(*parts, self.query_encoder)
