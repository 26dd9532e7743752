"""Searches of an index, as the public index offers them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from lexicept.errors import InputError
from lexicept.explanation.explanation import Explanation
from lexicept.fields.facets import ValueCount
from lexicept.fields.filters import Filter
from lexicept.index.feedback import Marked, like, with_feedback
from lexicept.index.hits import Hits
from lexicept.index.queries import Steering
from lexicept.index.reader import IndexReader
from lexicept.index.spelling import Suggestion, suggestions
from lexicept.queries.syntax import ParsedQuery


class Searchable(ABC):
    """An index whose snapshot is searched."""

    @abstractmethod
    def _searched(self) -> IndexReader:
        """Return the snapshot. Warn once where the index on disk has changed since."""

    def parse(self, query: str) -> ParsedQuery:
        """Return what the syntax of a query says: phrases, words to leave out, conditions.

        Raises:
            InputError: a query that is no text, or that UTF-8 can't hold.
        """
        return self._searched().parse(query)

    def search(
        self,
        query: str | ParsedQuery,
        top_k: int = 10,
        *,
        vocabulary: str | None = None,
        steering: Steering | None = None,
        boosts: Mapping[str, float] | None = None,
        feedback: Marked | None = None,
        explain: bool = False,
        query_encoder: Literal["model", "lookup"] = "model",
        filter: Filter | None = None,  # noqa: A002
    ) -> Hits:
        """Return the best documents for a query, best first, ties in document order.

        Args:
            query: a text in the syntax of queries (``"exact phrase"``, ``-word``,
                ``field:value``), or a parsed query; ``ParsedQuery(text)`` stands for these very
                words. One without a known word or concept has no results. ``note`` of the results
                says which words no document contains.
            top_k: the most results, at least 1.
            vocabulary: "words", "concepts" or "texts"; None searches all that the index has.
            steering: factors on the query's weights, by (vocabulary, dimension): 0 removes a
                dimension, 2 doubles its weight.
            boosts: factors on all weights of a vocabulary, such as
                ``{"words": 1, "concepts": 0.5}``.
            feedback: relevance feedback: the ids of relevant documents, or how many of the first
                results to take for relevant. Their largest words and concepts are added to the
                query; ``added`` of the results lists them, and steering removes one.
            explain: whether each hit gets the exact decomposition of its score.
            query_encoder: "model" runs the concept model; "lookup" looks the query's tokens up in
                a table of the index, in a tenth of the time and without torch, finds less, and does
                not search whole texts.
            filter: which documents may be results, by their fields: a text such as
                ``"year >= 2020 and tag in ['bio']"``, or a dict such as
                ``{"year": {">=": 2020}, "tag": ["bio"]}``.

        Raises:
            InputError: a query that is no text, an unknown vocabulary, whole texts by lookup,
                ``top_k`` below 1, an unknown id in ``feedback``, steering or boosts that name no
                dimension or have a factor out of range, no table, a filter that is none, a
                condition that does not fit the fields, or a phrase without a word that is searched.
        """
        reader = self._searched().using(query_encoder)
        parsed = _boosted(reader.parse(query), boosts)
        if feedback is not None:
            parsed = with_feedback(reader, parsed, feedback, vocabulary, steering, filter)
        hits = reader.search(parsed, top_k, vocabulary, steering, explain=explain, filter=filter)
        written = query if isinstance(query, str) else ""
        return Hits(hits, reader, parsed, vocabulary, steering, filter, written)

    def like(self, document_id: str, query: str | ParsedQuery = "") -> ParsedQuery:
        """Return a query for documents like one, which is itself left out of the results.

        It has the document's 30 largest words and concepts, and needs no model:
        ``index.search(index.like("a.md"))``.

        Args:
            query: what else to search for.

        Raises:
            InputError: an unknown id, or no text.
        """
        reader = self._searched()
        return like(reader, document_id, reader.parse(query))

    def suggestions(self, word: str, most: int = 3) -> list[Suggestion]:
        """Return words of the index that a word may have been meant for, the nearest first.

        None are suggested for a word that a document has. ``did_you_mean`` of results is the query
        with the first suggestions.
        """
        return suggestions(self._searched(), word, most)

    def search_many(
        self,
        queries: Sequence[str | ParsedQuery],
        top_k: int = 10,
        *,
        vocabulary: str | None = None,
        boosts: Mapping[str, float] | None = None,
        threads: int | None = None,
        query_encoder: Literal["model", "lookup"] = "model",
        filter: Filter | None = None,  # noqa: A002
    ) -> list[Hits]:
        """Return the best documents for each query; see ``search``.

        The queries are encoded together, then searched by threads, which the search lets run at
        the same time (it releases Python's lock).

        Args:
            boosts: as in ``search``, for all queries.
            threads: threads that search, at least 1; one per processor by default.
            query_encoder: as in ``search``.
            filter: as in ``search``, for all queries.

        Raises:
            InputError: ``queries`` are no list, ``threads`` below 1, or what ``search`` refuses.
        """
        reader = self._searched().using(query_encoder)
        if isinstance(queries, str) or not isinstance(queries, Iterable):
            raise InputError(f"queries are a list of texts, not {queries!r:.40}")
        parsed = [_boosted(reader.parse(query), boosts) for query in queries]
        results = reader.search_many(parsed, top_k, vocabulary, threads=threads, filter=filter)
        return [
            Hits(hits, reader, query, vocabulary, None, filter)
            for query, hits in zip(parsed, results, strict=True)
        ]

    def facets(
        self,
        fields: Sequence[str],
        *,
        query: str | ParsedQuery | None = None,
        filter: Filter | None = None,  # noqa: A002
        most: int = 10,
        vocabulary: str | None = None,
        query_encoder: Literal["model", "lookup"] = "model",
    ) -> dict[str, list[ValueCount]]:
        """Return the most frequent values of some fields, and how many documents have each.

        Args:
            query: count documents that share a word or concept with it only; None: all. They are
                counted exactly, also where a pruned engine finds fewer.
            filter: count documents that it lets pass only, as in ``search``.
            most: values of a field, at most.
            vocabulary: as in ``search``.
            query_encoder: as in ``search``.

        Raises:
            InputError: no such field, ``most`` below 1, or what ``search`` refuses.
        """
        reader = self._searched().using(query_encoder)
        parsed = None if query is None else reader.parse(query)
        mask = reader.masks.of(filter) if parsed is None else reader.mask(parsed, filter)
        found = mask if parsed is None else reader.found(parsed, vocabulary, mask=mask)
        return reader.masks.counts(fields, [found], most)

    def explain(
        self,
        query: str | ParsedQuery,
        document_id: str,
        *,
        vocabulary: str | None = None,
        steering: Steering | None = None,
        boosts: Mapping[str, float] | None = None,
        query_encoder: Literal["model", "lookup"] = "model",
    ) -> Explanation:
        """Return the exact decomposition of a document's score for a query.

        Args:
            vocabulary: as in ``search``.
            steering: as in ``search``.
            boosts: as in ``search``.
            query_encoder: as in ``search``; "lookup" looks the document's tokens up too, so that
                a concept that only their context fired has no words there.

        Raises:
            InputError: an unknown document, or what ``search`` refuses.
        """
        reader = self._searched().using(query_encoder)
        parsed = _boosted(reader.parse(query), boosts)
        return reader.explain(parsed, document_id, vocabulary, steering=steering)


def _boosted(query: ParsedQuery, boosts: Mapping[str, float] | None) -> ParsedQuery:
    return query if boosts is None else replace(query, boosts=boosts)
