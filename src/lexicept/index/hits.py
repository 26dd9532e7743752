"""Results of a query, with the words of the query that no document contains."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np

from lexicept.explanation.contributions import QueryTerm
from lexicept.fields.filters import Filter
from lexicept.index.feedback import added_terms
from lexicept.index.queries import Steering
from lexicept.index.reader import IndexReader
from lexicept.index.spelling import corrected
from lexicept.index.stored import Hit
from lexicept.queries.syntax import ParsedQuery
from lexicept.vectorizers.words import WordVectorizer


class Hits(list[Hit]):
    """The results of one query, best first.

    Args:
        hits: the results.
        index: the index that was searched.
        query: the query in its parts.
        vocabulary: the vocabulary that was searched; None for all.
        steering: that of the search.
        filter: that of the search.
        written: the query as it was written.
    """

    def __init__(
        self,
        hits: Iterable[Hit],
        index: IndexReader,
        query: ParsedQuery,
        vocabulary: str | None = None,
        steering: Steering | None = None,
        filter: Filter | None = None,  # noqa: A002
        written: str = "",
    ) -> None:
        super().__init__(hits)
        self.query = query
        """The query in its parts, as it was searched."""
        self._index, self._vocabulary = index, vocabulary
        self._steering, self._filter, self._written = steering, filter, written

    @cached_property
    def total(self) -> int:
        """The number of all documents that are results, of which these are the best.

        They are counted by the exact engine: one that prunes, as Seismic does, may find fewer.
        """
        mask = self._index.mask(self.query, self._filter)
        found = self._index.found(self.query, self._vocabulary, self._steering, mask)
        return self._index.masks.num_documents(found)

    @cached_property
    def added(self) -> list[QueryTerm]:
        """The dimensions that feedback or the caller added to the query, the largest first."""
        return added_terms(self._index, self.query.added)

    @cached_property
    def did_you_mean(self) -> str:
        """The query with words of the index in place of those that no document contains; "" where
        none is near."""
        return corrected(self._index, self._written or self.query.text, self.unmatched_words)

    @property
    def unmatched_words(self) -> tuple[str, ...]:
        """The words of the query that no document contains, as they are spelled; empty where no
        words are searched. Stop words are not searched."""
        return self._words[1]

    @property
    def note(self) -> str:
        """A sentence about unmatched words and results from concepts only; may be empty."""
        matched, unmatched = self._words
        clauses = [f"no document contains: {', '.join(unmatched)}"] if unmatched else []
        # Added dimensions may be words, which the text does not show.
        by_text = bool(self.query.text.strip()) and not self.query.added
        if self and by_text and not matched and self._vocabulary is None:
            clauses = clauses or ["no word matched"]
            clauses.append("results are from concepts only")
        return "; ".join(clauses)

    @cached_property
    def _words(self) -> tuple[bool, tuple[str, ...]]:
        """True if a document has a word of the query, and the words that none has.

        Computed when it is asked for: the query has to be tokenised again.
        """
        if self._vocabulary not in (None, "words") or "words" not in self._index.settings:
            return True, ()
        return _words(self._index, self.query.text)


def _words(index: IndexReader, query: str) -> tuple[bool, tuple[str, ...]]:
    """Return whether a document has a word of the query, and the words that none has."""
    words = index.vectorizers.get("words")
    assert isinstance(words, WordVectorizer)
    with index.vectorizers.lock("words"):
        terms = {query[slice(*span)]: dimension for dimension, span in words.terms_in(query)}
    known = [dimension for dimension in terms.values() if dimension is not None]
    present = index.engine.present(np.array(known, np.int64) + index.span("words").start)
    matched = {dimension for dimension, one in zip(known, present, strict=True) if one}
    unmatched = tuple(word for word, dimension in terms.items() if dimension not in matched)
    return bool(matched), unmatched
