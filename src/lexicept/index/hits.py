"""Results of a query, with the words of the query that no document contains."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np

from lexicept.index.reader import IndexReader
from lexicept.index.stored import Hit
from lexicept.vectorizers.words import WordVectorizer


class Hits(list[Hit]):
    """The results of one query, best first.

    Args:
        hits: the results.
        index: the index that was searched.
        query: the query.
        vocabulary: the vocabulary that was searched; None for all.
    """

    def __init__(
        self, hits: Iterable[Hit], index: IndexReader, query: str, vocabulary: str | None = None
    ) -> None:
        super().__init__(hits)
        self._index, self._query, self._vocabulary = index, query, vocabulary

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
        if self and not matched and self._vocabulary is None:
            clauses = clauses or ["no word matched"]
            clauses.append("results are from concepts only")
        return "; ".join(clauses)

    @cached_property
    def _words(self) -> tuple[bool, tuple[str, ...]]:
        """True if a document has a word of the query, and the words that none has.

        Computed when it is asked for: the query has to be tokenised again.
        """
        if self._vocabulary == "concepts" or "words" not in self._index.settings:
            return True, ()
        return _words(self._index, self._query)


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
