"""An immutable snapshot of an index: search and explain.

On disk an index is a ``manifest.json`` and a folder, a *generation*. A change writes the next
generation and then replaces the manifest (see ``generations``), so that readers and crashes see
the old index or the new index. An open reader holds its generation: changes leave the folder in
place.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import scipy.sparse as sp

from lexicept.checks import Count, check
from lexicept.corpora import Document
from lexicept.encoding.vectorizer import Vectorizer
from lexicept.encoding.words import WordVectorizer
from lexicept.engines import PostingsEngine
from lexicept.engines.interface import checked_queries
from lexicept.engines.mask import Mask
from lexicept.errors import IndexFormatError, InputError
from lexicept.explanation.activations import Activation, ActiveToken, TextActivations
from lexicept.explanation.contributions import QueryTerm
from lexicept.explanation.explanation import Explanation
from lexicept.index.atlas import Atlas
from lexicept.index.conditions import CACHED_MASKS, ConditionMasks, FieldMasks, positions_by_mask
from lexicept.index.explainer import Explainer
from lexicept.index.hits import Hit
from lexicept.index.impacts import Derived, RRASettings
from lexicept.index.manifest import MISSING, CurrentManifest, resolved
from lexicept.index.parts import Parts
from lexicept.index.queries import QueryWeigher, SearchQuery, WeightedQueries, parsed_queries
from lexicept.index.query_encoders import VocabularyEncoder, open_vocabularies
from lexicept.index.ranking import DocumentScorer, RankedPassages, Ranker
from lexicept.index.stored import StoredDocuments
from lexicept.index.text_vectors import TextVectors, VectorSettings
from lexicept.queries.syntax import ParsedQuery, parse
from lexicept.storage.arrays import StoredRows
from lexicept.storage.files import disk_errors
from lexicept.storage.locks import hold
from lexicept.storage.manifest import check_files
from lexicept.vectors import SparseVectors, Vocabulary

QueryLike = str | ParsedQuery
"""A query: a text whose words are taken as they are, or a parsed query."""


class IndexReader:
    """An immutable snapshot of an index.

    Documents have numbers from 0, in order; a document in passages has a number for each passage.
    Arrays are memory-mapped, models are loaded by the first query.

    Raises:
        IndexFormatError: a damaged index.
    """

    def __init__(self, path: Path, current: CurrentManifest) -> None:
        self.path = path
        self.manifest = manifest = current.content
        self.stale = current.stale
        """Function that returns True if the index on disk has changed since opening."""
        self.missing: list[str] = [*manifest.get(MISSING, [])]
        """Vocabularies that a build has yet to add."""
        folder = path / manifest["generation"]
        self.folder = folder
        """The generation."""
        self.release = weakref.finalize(self, os.close, hold(folder))
        """Function that lets changes remove the generation; garbage collection calls it, too."""
        self._stored = stored = StoredDocuments(folder)
        self.ids, self.titles, self.texts = stored.ids, stored.titles, stored.texts
        self.fields, self.passages = stored.fields, stored.passages
        self.document_ids = stored.document_ids
        self.masks = FieldMasks(self.fields, self.passages)
        self.vocabularies = open_vocabularies(folder, manifest["vocabularies"])
        self.settings = {vocabulary.name: vocabulary.settings for vocabulary in self.vocabularies}
        self.rra = None if manifest["rra"] is None else RRASettings(**manifest["rra"])
        self.derived = Derived.load(folder / "postings")
        self._num_stored = len(self.ids)
        counts = {self._num_stored, len(self.titles), len(self.texts), manifest["documents"]}
        if counts != {self.engine.num_documents}:
            raise IndexFormatError(f"{path}: its parts hold different numbers of documents")
        if sum(v.size for v in self.vocabularies) != self.engine.num_dimensions:
            raise IndexFormatError(f"{path}: postings and vocabularies differ in dimensions")
        settings = manifest["vectors"]
        self.vectors = settings and TextVectors(stored.parts, VectorSettings(**settings))
        """Vectors of the documents and passages; None for an index without vectors."""
        vector_size = (settings or {}).get("size", 0)
        self.encoders = {
            vocabulary.name: VocabularyEncoder(folder, vocabulary, manifest["files"], vector_size)
            for vocabulary in self.vocabularies
        }
        """The encoders of the vocabularies, by name."""
        condition_masks = ConditionMasks(stored, self.masks, self.engine, self.encoders)
        # Not a method of this index: see the atlas.
        self._mask_of = lru_cache(CACHED_MASKS)(condition_masks.of)
        self.weigher = QueryWeigher(path, self.derived, self.encoders)
        self.scorer = DocumentScorer.of(
            self.engine,
            self.passages,
            self.vectors,
            self.vocabularies,
            reweighted=self.rra is not None,
        )
        """Scores documents for queries with vectors; None for an index without vectors."""
        self._ranker = Ranker(self.engine, self.passages, self.scorer)
        self.explainer = Explainer(self.weigher, stored, self.scorer)
        self.atlas = self._open_atlas()
        """Descriptions of the concepts; None without concepts or descriptions."""

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, checksums: bool = False) -> IndexReader:
        """Open an index.

        Args:
            checksums: whether to check contents; sizes of files are always checked.

        Raises:
            IndexFormatError: not an index, half-written, damaged, or of another version.
        """
        folder = resolved(path)
        while True:
            current = CurrentManifest(folder)
            try:
                with disk_errors(folder):
                    check_files(folder, current.content["files"], checksums=checksums)
                    index = cls(folder, current)
                break
            except InputError as error:
                raise IndexFormatError(f"{folder} is damaged: {error}") from None
            except (IndexFormatError, OSError):
                # An update may have removed this generation since the manifest was read.
                if not current.stale():
                    raise
        return index

    def _open_atlas(self) -> Atlas | None:
        folder = self.folder / "concepts" / "atlas"
        if not folder.is_dir():
            return None
        concepts = self.weigher.vocabulary("concepts")
        df = self.engine.df[concepts.dimensions]
        # Not a method of this index: a cycle would keep it, and its generation, for longer.
        return Atlas(folder, concepts.terms or (), df, len(self), self._stored.content)

    def __len__(self) -> int:
        return self._num_stored

    def __repr__(self) -> str:
        names = ", ".join(f"{v.name}: {v.size:,}" for v in self.vocabularies)
        return f"IndexReader({str(self.path)!r}, {self.num_documents:,} documents, {{{names}}})"

    @property
    def engine(self) -> PostingsEngine:
        return self.derived.engine

    def span(self, vocabulary: str) -> slice:
        """Return the dimensions of a vocabulary. Raises InputError for an unknown name."""
        return self.weigher.vocabulary(vocabulary).dimensions

    def vectorizer(self, name: str) -> Vectorizer:
        """Return the vectorizer of a vocabulary, loaded at first use."""
        return self.encoders[self.weigher.vocabulary(name).name].get()

    def word_vectorizer(self) -> WordVectorizer | None:
        """Return the vectorizer of the words; None for an index without words."""
        words = self.encoders.get("words")
        return None if words is None else cast(WordVectorizer, words.get())

    def adopt(self, older: IndexReader) -> None:
        """Take over loaded and equal vectorizers of another generation."""
        for name in self.encoders.keys() & older.encoders.keys():
            self.encoders[name].adopt(older.encoders[name])

    # ---- concepts

    def activations(self, text: str) -> TextActivations:
        """Return the concepts that are active on each token of a text, read as a document."""
        labels = self.weigher.vocabulary("concepts").terms or ()
        encoder: Any = self.encoders["concepts"].for_queries()
        with self.encoders["concepts"].lock:
            tokens = encoder.activations(text)
        named = (
            ActiveToken(span, tuple(Activation(n, labels[n], act) for n, act in active))
            for span, active in tokens
        )
        return TextActivations(text, tuple(named))

    # ---- documents

    @property
    def num_documents(self) -> int:
        return self.passages.num_documents

    @property
    def unit(self) -> str:
        """The entries of postings, in the plural: "documents" or "passages"."""
        return "passages" if len(self.passages) else "documents"

    def __contains__(self, document_id: object) -> bool:
        return self._stored.entries_of(document_id) is not None

    def entries_of(self, document_id: str) -> range:
        """Return the numbers of a document's passages, or of a passage; InputError if unknown."""
        numbers = self._stored.entries_of(document_id) if isinstance(document_id, str) else None
        if numbers is None:
            raise InputError(f"no document {document_id!r} in {self.path}")
        return numbers

    def document_number(self, document_id: str) -> int:
        """Return the first number of a document. Raises InputError for an unknown id."""
        return self.entries_of(document_id)[0]

    def document(self, document_id: str) -> Document:
        """Return a whole document, or a passage, by id. Raises InputError for an unknown id."""
        return self._stored.whole(document_id, self.entries_of(document_id))

    def documents(self) -> Iterator[Document]:
        """Return all whole documents, in order."""
        return (self.document(name) for name, _ in self.passages.spans())

    def stored(self, number: int) -> Document:
        """Return a document, or a passage, by number."""
        return self._stored.document(number)

    @property
    def parts(self) -> Parts:
        """The stored parts of the documents."""
        return self._stored.parts

    def stored_tf(self, vocabulary: Vocabulary) -> StoredRows:
        """Return the documents' tf in a vocabulary [N, V_i], opened at first use."""
        return self.parts.tf(vocabulary.name, vocabulary.size)

    def tf(self) -> list[sp.csr_array]:
        """Return the documents' tf [N, V_i], a matrix per vocabulary: memory-mapped, or copied
        after changes.
        """
        return [self.stored_tf(vocabulary).load() for vocabulary in self.vocabularies]

    def document_vectors(self) -> SparseVectors:
        """Return the searched document weights [N, V], without RRA's offsets."""
        return SparseVectors(self.engine.matrix(), list(self.ids), self.vocabularies)

    # ---- queries

    def parse(self, query: QueryLike) -> ParsedQuery:
        """Return the parts of a query by ``queries.syntax``; a parsed query stays unchanged.
        Raises InputError for a query that is no text in UTF-8."""
        if isinstance(query, str):
            return parse(query, self.fields.types)
        return query if isinstance(query, ParsedQuery) else ParsedQuery(query)

    def search(
        self,
        queries: Sequence[QueryLike],
        top_k: int = 10,
        vocabulary: str | None = None,
        *,
        explain: bool = False,
        rescore: bool = True,
        threads: int | None = None,
    ) -> list[list[Hit]]:
        """Return the best documents for each query, best first, ties in document order.

        Args:
            queries: texts or parsed queries. A query that no document resembles in words,
                concepts or vector has no results, a query of conditions alone has the first
                matching documents.
            rescore: whether a search of all vocabularies counts whole documents and the similarity
                of texts; False for the sparse ranking by the best passage.
            threads: threads for the search, at least 1; one per processor by default.

        Raises:
            InputError: a number below 1, a query that is no text in UTF-8, an unknown vocabulary,
                a condition that does not fit the index, or a steering, boost or added dimension
                that is unknown or out of range.
        """
        parsed = parsed_queries(queries)
        masks = self.query_masks(parsed)  # bad conditions are refused before a model runs
        if not explain:
            weighted = self.weigher.weights(parsed, vocabulary, rescore)
            return self.rank(weighted, top_k, parsed, masks, threads)
        encoded = [self.weigher.encode(query, vocabulary, rescore) for query in parsed]
        weighted = WeightedQueries.of(encoded, self.engine.num_dimensions)
        ranked = self.rank(weighted, top_k, parsed, masks, threads)
        for query, hits, mask in zip(encoded, ranked, masks, strict=True):
            passages = [hit.number for hit in hits]
            compositions = self.explainer.compositions(query, passages, mask, top_k)
            explained = self.explainer.explain(query, compositions, spans=True)
            for hit, explanation in zip(hits, explained, strict=True):
                hit.explanation = explanation
        return ranked

    def query_vectors(
        self, queries: Sequence[QueryLike], vocabulary: str | None = None
    ) -> sp.csr_array:
        """Return query weights [n, V], in a vocabulary or all; see ``search``."""
        return self.weigh(queries, vocabulary).weights

    def weigh(
        self, queries: Sequence[QueryLike], vocabulary: str | None = None, *, rescore: bool = True
    ) -> WeightedQueries:
        """Return queries for ``rank``; see ``search``."""
        return self.weigher.weights(parsed_queries(queries), vocabulary, rescore)

    def encode(self, query: QueryLike, vocabulary: str | None = None) -> SearchQuery:
        """Encode a query for explanations; see ``search``."""
        (parsed,) = parsed_queries([query])
        return self.weigher.encode(parsed, vocabulary)

    def query_terms(self, query: QueryLike, vocabulary: str | None = None) -> list[QueryTerm]:
        """Return the dimensions of a query, largest weights first; see ``search``."""
        return self.explainer.terms(self.encode(query, vocabulary))

    def query_masks(self, queries: Sequence[ParsedQuery]) -> list[Mask | None]:
        """Return the documents that meet each query's conditions; None without conditions.
        Queries of the same conditions share a mask. A condition that does not fit the index
        raises InputError."""
        return [self._mask_of(c) if any(c := query.conditions) else None for query in queries]

    def rank(
        self,
        queries: WeightedQueries | sp.csr_array,
        top_k: int = 10,
        parsed: Sequence[ParsedQuery] | None = None,
        masks: Sequence[Mask | None] | None = None,
        threads: int | None = None,
    ) -> list[list[Hit]]:
        """Return the best documents for the result of ``weigh``, or for weights [n, V] alone.

        Args:
            parsed, masks: the queries, if they have conditions, and their ``query_masks`` [n].
        """
        if threads is not None:
            check("threads", threads, Count)
        check("top_k", top_k, Count)
        top_k = min(top_k, max(self._num_stored, 1))  # the compiled search takes 64 bits
        if not isinstance(queries, WeightedQueries):
            queries = WeightedQueries(checked_queries(queries, self.engine.num_dimensions))
        parsed = parsed or ()
        masks = self.query_masks(parsed) if masks is None else masks
        groups = positions_by_mask(masks or [None] * queries.weights.shape[0])
        hits: list[list[Hit]] = [[]] * queries.weights.shape[0]
        for mask, positions in groups:
            group, factors = queries if len(groups) == 1 else queries.select(positions), None
            if self.rra is not None:
                factors = group.weights @ self.derived.background
            rankings = self._ranker.ranked(group, top_k, factors, threads, mask)
            for position, ranking in zip(positions, rankings, strict=True):
                hits[position] = self._hits(ranking)
        # Conditions alone give no scores: the first documents that meet them.
        for position, query in enumerate(parsed):
            if (mask := masks[position]) is not None and query.conditions_alone:
                first = self.passages.first_of_each(mask.allowed)[:top_k]
                hits[position] = self._hits(RankedPassages(first, np.zeros(first.size)))
        return hits

    def _hits(self, ranking: RankedPassages) -> list[Hit]:
        numbers, scores = ranking.passages.tolist(), ranking.scores.tolist()
        ids, similarities = self._stored.ids_of_documents(numbers), ranking.similarities
        values = [None] * len(numbers) if similarities is None else similarities.tolist()
        return [
            Hit(rank, score, document_id, self._stored, number, similarity)
            for rank, (number, score, document_id, similarity) in enumerate(
                zip(numbers, scores, ids, values, strict=True), 1
            )
        ]

    def matching(
        self,
        query: QueryLike,
        vocabulary: str | None = None,
        mask: Mask | None = None,
        *,
        rescore: bool = True,
    ) -> Mask:
        """Return all results of a query, from the documents that meet the query's conditions, the
        ``mask`` if it is known; ``masks`` counts documents. See ``search``."""
        (parsed,) = parsed_queries([query])
        if mask is None:
            (mask,) = self.query_masks([parsed])
        if parsed.conditions_alone and mask is not None:
            return mask
        queries = self.weigher.weights([parsed], vocabulary, rescore)
        results = self._ranker.matching(queries, queries.weights @ self.derived.background)
        return Mask(results if mask is None else results & mask.allowed)

    def explain(
        self,
        query: QueryLike,
        document_id: str,
        vocabulary: str | None = None,
        *,
        rescore: bool = True,
        spans: bool = True,
    ) -> Explanation:
        """Explain a document's score for a query by the contributing dimensions.

        A document in passages has the score of the best passage; passages that meet the query's
        conditions come first.

        Args:
            document_id: of a document, or of a passage.
            rescore: see ``search``.
            spans: whether to find the characters behind each dimension; for concepts the document
                goes through the encoder again.

        Raises:
            InputError: an unknown document, or an error of ``search``.
        """
        passages = self.entries_of(document_id)
        (parsed,) = parsed_queries([query])
        encoded = self.weigher.encode(parsed, vocabulary, rescore)
        mask = self.query_masks([parsed])[0] if len(passages) > 1 else None
        whole = document_id in self.passages.numbers or len(self.passages) == 0
        whole = whole or self.passages.number_at(passages[0]) is None
        composition = self.explainer.composition_of(encoded, passages, mask, whole=whole)
        return self.explainer.explain(encoded, [composition], spans=spans)[0]
