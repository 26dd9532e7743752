"""Results of a query, with the words of the query that no document contains."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from lexicept.index.reader import IndexReader
from lexicept.index.stored import Hit
from lexicept.vectorizers.words import WordVectorizer


class Hits(list[Hit]):
    """The results of one query, best first.

    Args:
        hits: the results.
        unmatched_words: see the attribute.
        note: see the attribute.
    """

    def __init__(
        self, hits: Iterable[Hit] = (), unmatched_words: Iterable[str] = (), note: str = ""
    ) -> None:
        super().__init__(hits)
        self.unmatched_words = tuple(unmatched_words)
        """The words of the query that no document contains, as they are spelled; empty where no
        words are searched. Stop words are not searched."""
        self.note = note
        """A sentence about unmatched words and results from concepts only; may be empty."""

    @classmethod
    def of(
        cls, index: IndexReader, query: str, hits: Iterable[Hit], vocabulary: str | None = None
    ) -> Hits:
        """Return the results of a search with the words that no document contains.

        Args:
            index: the index that was searched.
            query: the query.
            hits: the results.
            vocabulary: the vocabulary that was searched; None for all.
        """
        hits = list(hits)
        if vocabulary == "concepts" or "words" not in index.settings:
            return cls(hits)
        matched, unmatched = _words(index, query)
        clauses = [f"no document contains: {', '.join(unmatched)}"] if unmatched else []
        if hits and not matched and vocabulary is None:
            clauses = clauses or ["no word matched"]
            clauses.append("results are from concepts only")
        return cls(hits, unmatched, "; ".join(clauses))


def _words(index: IndexReader, query: str) -> tuple[bool, list[str]]:
    """Return whether a document has a word of the query, and the words that none has."""
    words = index.vectorizers.get("words")
    assert isinstance(words, WordVectorizer)
    with index.vectorizers.lock("words"):
        dimensions = words.dimensions(query)
        known = [dimension for dimension in dimensions if dimension is not None]
        present = index.engine.present(np.array(known, np.int64) + index.span("words").start)
        if present.all() and len(known) == len(dimensions):  # the usual query, in little time
            return bool(known), []
        terms = {query[slice(*span)]: dimension for dimension, span in words.terms_in(query)}
    matched = {dimension for dimension, one in zip(known, present, strict=True) if one}
    return bool(matched), [word for word, dimension in terms.items() if dimension not in matched]
