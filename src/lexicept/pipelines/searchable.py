"""An opened index without its changes: searches and explanations of a snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from lexicept.checks import Count, checked_arguments
from lexicept.corpora import Document
from lexicept.engines.joined import JoinedEngine
from lexicept.errors import InputError
from lexicept.explanation.activations import TextActivations
from lexicept.explanation.explanation import Explanation
from lexicept.fields.columns import ValueCount
from lexicept.fields.filters import Filter, all_of
from lexicept.fields.filters import parse as parse_filter
from lexicept.index.atlas import Atlas, Concept
from lexicept.index.dimensions import strongest
from lexicept.index.feedback import Marked, like, with_feedback
from lexicept.index.results import Hits
from lexicept.index.spelling import Suggestion, suggestions
from lexicept.pipelines.snapshot import Snapshot
from lexicept.queries.syntax import DimensionNumbers, ParsedQuery


class OpenedIndex(Snapshot):
    """A snapshot to search and explain. ``lexicept.Index`` adds changes."""

    def parse(self, query: str) -> ParsedQuery:
        """Return the parts of a query: words, phrases, excluded words, conditions.

        Args:
            query: a text in the syntax of queries.

        Raises:
            InputError: a query that is no text in UTF-8.

        Examples:
            >>> index.parse("naps -dogs").without
            ('dogs',)
        """
        return self._snapshot().parse(query)

    def search(
        self,
        query: str | ParsedQuery,
        top_k: int = 10,
        *,
        vocabulary: str | None = None,
        steering: DimensionNumbers | None = None,
        boosts: Mapping[str, float] | None = None,
        feedback: Marked | None = None,
        rescore: bool = True,
        explain: bool = False,
        filter: Filter | None = None,  # noqa: A002
    ) -> Hits:
        """Return the best documents for a query, best first, ties in document order.

        Args:
            query: a text in the syntax of queries (``"exact phrase"``, ``-word``, ``field:value``),
                or a parsed query; the words of ``ParsedQuery(text)`` are taken literally. Without a
                known word or concept there are no results.
            top_k: the most results, at least 1.
            vocabulary: "words" or "concepts"; None searches all.
            steering: factors on the query's weights, by (vocabulary, dimension): 0 removes a
                dimension, 2 doubles a weight.
            boosts: factors on all weights of a vocabulary, as in ``{"words": 1, "concepts": 0.5}``.
            feedback: relevance feedback: the ids of relevant documents, or the number of first
                results to take for relevant. The largest words and concepts of the documents are
                added to the query; ``added`` of the results lists them, and steering removes them.
            rescore: whether a search of all vocabularies counts whole documents and the similarity
                of texts; False for the sparse ranking by the best passage.
            explain: whether each hit gets the exact decomposition of the score.
            filter: conditions on fields: a text such as ``"year >= 2020 and tag in ['bio']"``, or a
                dict such as ``{"year": {">=": 2020}, "tag": ["bio"]}``.

        Raises:
            InputError: a query that is no text, an unknown vocabulary, ``top_k`` below 1, an
                unknown id in ``feedback``, an unknown dimension or a factor out of range in
                steering or boosts, a malformed filter, a condition that does not fit the fields, or
                a phrase without a searched word.

        Examples:
            >>> [hit.id for hit in index.search("sleepy cat", filter="year >= 2021")]
            ['kitten', 'dogs']
        """
        reader = self._snapshot()
        parsed = _with(reader.parse(query), steering, boosts, filter)
        if feedback is not None:
            parsed = with_feedback(reader, parsed, feedback, vocabulary, rescore=rescore)
        hits = reader.search([parsed], top_k, vocabulary, explain=explain, rescore=rescore)[0]
        return Hits(hits, reader, parsed, top_k, vocabulary, query, rescore)

    def query_body(
        self,
        query: str | ParsedQuery,
        engine: Literal["opensearch", "elasticsearch", "qdrant"],
        top_k: int = 10,
        *,
        filter: Filter | None = None,  # noqa: A002
    ) -> dict[str, Any]:
        """Return a query as the body of a request to an engine that holds an export of the index.

        ``explain`` explains the results that come back.

        Args:
            query: as in ``search``.
            engine: the engine of the export.
            top_k: the most results.
            filter: as in ``search``.

        Raises:
            InputError: as in ``search``, a query without a known word or concept, or a condition
                that the engine does not know.

        Examples:
            >>> index.query_body("cats", "opensearch", top_k=3)["size"]
            3
        """
        from lexicept.exports.requests import query_body

        reader = self._snapshot()
        return query_body(reader, _with(reader.parse(query), None, None, filter), engine, top_k)

    def search_many(
        self,
        queries: Sequence[str | ParsedQuery],
        top_k: int = 10,
        *,
        vocabulary: str | None = None,
        boosts: Mapping[str, float] | None = None,
        rescore: bool = True,
        threads: int | None = None,
        filter: Filter | None = None,  # noqa: A002
    ) -> list[Hits]:
        """Return the best documents for each query; arguments as in ``search``.

        The queries are encoded together, then searched by threads, which the search lets run at
        the same time (it releases Python's lock).

        Args:
            threads: threads that search, at least 1; one per processor by default.
            queries: a list of texts or parsed queries.
            top_k: the most results of a query, at least 1.
            vocabulary: "words" or "concepts"; None searches all.
            boosts: as in ``search``.
            rescore: as in ``search``.
            filter: as in ``search``.

        Raises:
            InputError: ``queries`` are no list, ``threads`` below 1, or an error of ``search``.

        Examples:
            >>> [len(hits) for hits in index.search_many(["cat", "bird"])]
            [2, 0]
        """
        reader = self._snapshot()
        if isinstance(queries, str) or not isinstance(queries, Iterable):
            raise InputError(f"queries are a list of texts, not {queries!r:.40}")
        queries = list(queries)
        parsed = [_with(reader.parse(query), None, boosts, filter) for query in queries]
        results = reader.search(parsed, top_k, vocabulary, rescore=rescore, threads=threads)
        return [
            Hits(hits, reader, query, top_k, vocabulary, written, rescore)
            for query, hits, written in zip(parsed, results, queries, strict=True)
        ]

    def like(self, document_id: str, query: str | ParsedQuery = "") -> ParsedQuery:
        """Return a query for similar documents, without the document itself.

        It has the document's 30 largest words and concepts, and needs no model.

        Args:
            query: further words to search for.
            document_id: the id of a document, or of a passage.

        Raises:
            InputError: an unknown id, or no text.

        Examples:
            >>> [hit.id for hit in index.search(index.like("cats"))]
            ['kitten', 'dogs']
        """
        reader = self._snapshot()
        return like(reader, document_id, reader.parse(query))

    @checked_arguments
    def suggestions(self, word: str, most: int = 3) -> list[Suggestion]:
        """Return similar words of the index, the nearest first; none for a word of a document.

        Args:
            word: a word as a person typed it.
            most: the most suggestions.

        Examples:
            >>> index.suggestions("kiten")
            [Suggestion(word='kitten', documents=1, edits=1)]
        """
        return suggestions(self._snapshot(), word, most)

    def facets(
        self,
        fields: Sequence[str],
        *,
        query: str | ParsedQuery | None = None,
        filter: Filter | None = None,  # noqa: A002
        most: int = 10,
        vocabulary: str | None = None,
        rescore: bool = True,
    ) -> dict[str, list[ValueCount]]:
        """Return the most frequent values of fields, with numbers of documents.

        Args:
            query: count documents with a word or concept of the query only; None: all.
            filter: count documents that pass a filter only, as in ``search``.
            most: values of a field, at most.
            fields: the names of fields.
            vocabulary: "words" or "concepts"; None matches all.
            rescore: as in ``search``.

        Raises:
            InputError: an unknown field, ``most`` below 1, or an error of ``search``.

        Examples:
            >>> index.facets(["year"])["year"][0]
            ValueCount(value=2021, documents=2)
        """
        reader = self._snapshot()
        if query is None:
            return reader.masks.counts(fields, reader.masks.of(filter), most)
        parsed = _with(reader.parse(query), None, None, filter)
        results = reader.matching(parsed, vocabulary, rescore=rescore)
        return reader.masks.counts(fields, results, most)

    def explain(
        self,
        query: str | ParsedQuery,
        document_id: str,
        *,
        vocabulary: str | None = None,
        steering: DimensionNumbers | None = None,
        boosts: Mapping[str, float] | None = None,
        rescore: bool = True,
    ) -> Explanation:
        """Return the exact decomposition of a document's score; arguments as in ``search``.

        Args:
            query: as in ``search``.
            document_id: the id of a document, or of a passage.
            vocabulary: "words" or "concepts"; None searches all.
            steering: as in ``search``.
            boosts: as in ``search``.
            rescore: as in ``search``.

        Raises:
            InputError: an unknown document, or an error of ``search``.

        Examples:
            >>> round(index.explain("cats", "cats").score, 1)
            11.6
        """
        reader = self._snapshot()
        parsed = _with(reader.parse(query), steering, boosts)
        return reader.explain(parsed, document_id, vocabulary, rescore=rescore)

    @checked_arguments
    def concepts(self, find: str = "", top_k: Count = 50) -> list[Concept]:
        """Return concepts with documents: the most useful first, or the best matches.

        Args:
            find: a text in the label or in a word of the concepts.
            top_k: the most concepts, at least 1.

        Raises:
            InputError: no concepts, concepts without descriptions, or ``top_k`` below 1.

        Examples:
            >>> index.concepts("sleep", top_k=1)[0].label
            'sleep'
        """
        atlas = self._atlas()
        return [atlas[number] for number in atlas.search(find)[:top_k]]

    @checked_arguments
    def concept(self, number: int, top_k: Count = 10) -> Concept:
        """Return a concept with words, examples, a histogram of activations, neighbours and the
        ``top_k`` documents with the largest weights.

        Args:
            number: the number of a concept.
            top_k: the most documents.

        Raises:
            InputError: an unknown number, or an error of ``concepts``.

        Examples:
            >>> index.concept(3130).label
            'sleep'
        """
        atlas, reader = self._atlas(), self.reader
        if not 0 <= number < len(atlas):
            raise InputError(f"{self.path} has no concept {number}, only 0 to {len(atlas) - 1}")
        documents = [
            (reader.ids[n], weight) for n, weight in strongest(reader, "concepts", number, top_k)
        ]
        concept: Concept = atlas[number]
        return replace(concept, top_documents=tuple(documents))

    @checked_arguments
    def activations(self, text: str) -> TextActivations:
        """Return the concepts of each token of a text, read as a document; a notebook shows them.

        Args:
            text: any text.

        Raises:
            InputError: no concepts.

        Examples:
            >>> index.activations("cats")
            cats  cathode 3.50; cats 3.17
        """
        return self._snapshot().activations(text)

    def _atlas(self) -> Atlas:
        reader = self._snapshot()
        reader.span("concepts")  # raises InputError without concepts
        if reader.atlas is None:
            hint = f"run: lexicept index describe {reader.path}"
            raise InputError(f"{reader.path}: its concepts are not described; {hint}")
        return reader.atlas

    @property
    def path(self) -> Path:
        """The folder of the index, as an absolute path without links."""
        return self.reader.path

    def __len__(self) -> int:
        return self.reader.num_documents

    def __contains__(self, document_id: object) -> bool:
        return document_id in self.reader

    def __repr__(self) -> str:
        if self._reader is None:
            return "Index(closed)"
        sizes = ", ".join(f"{size:,} {name}" for name, size in self.vocabularies.items())
        return f"Index({str(self.path)!r}: {len(self):,} documents, {sizes})"

    @property
    def vocabularies(self) -> dict[str, int]:
        """The number of dimensions of each vocabulary, by name."""
        return {vocabulary.name: vocabulary.size for vocabulary in self.reader.vocabularies}

    def document(self, document_id: str) -> Document:
        """Return a whole document, or a passage, by id. Raises InputError for an unknown id.

        Args:
            document_id: the id of a document, or of a passage.

        Examples:
            >>> index.document("cats").text
            'Cats sleep all day.'
        """
        return self.reader.document(document_id)

    def documents(self) -> Iterator[Document]:
        """Return all whole documents, in order.

        Examples:
            >>> [document.id for document in index.documents()]
            ['cats', 'dogs', 'kitten']
        """
        return self.reader.documents()

    def info(self) -> dict[str, Any]:
        """Return contents and sizes as JSON values: documents, vocabularies, RRA, bytes.

        Examples:
            >>> index.info()["documents"]
            3
        """
        reader = self.reader
        offered = reader.masks.offered
        return {
            "path": str(reader.path),
            "documents": reader.num_documents,
            "passages": len(reader) if len(reader.passages) else None,
            "vocabularies": reader.manifest["vocabularies"],
            "missing": reader.missing,
            "fields": {name: str(kind) for name, kind in reader.fields.types.items()},
            "unoffered_fields": [name for name in reader.fields if name not in offered],
            "rra": reader.manifest["rra"],
            "postings": reader.engine.num_postings,
            "parts": 2 if isinstance(reader.engine, JoinedEngine) else 1,
            "bytes": sum(entry["size"] for entry in reader.manifest["files"].values()),
            "written_by": f"lexicept {reader.manifest['lexicept']}",
        }


def _with(
    query: ParsedQuery,
    steering: DimensionNumbers | None,
    boosts: Mapping[str, float] | None,
    filter: Filter | None = None,  # noqa: A002
) -> ParsedQuery:
    """Return a query with the given arguments of a search."""
    if steering is not None:
        query = replace(query, steering=steering)
    if boosts is not None:
        query = replace(query, boosts=boosts)
    if filter is not None:
        expressions = [parse_filter(filter), *([query.filter] if query.filter else [])]
        query = replace(query, filter=all_of(expressions))
    return query
