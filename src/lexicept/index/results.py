"""The results of a query: the hits, their number, and notes about the query's words."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np

from lexicept.explanation.contributions import QueryTerm
from lexicept.index.feedback import added_terms
from lexicept.index.hits import Hit
from lexicept.index.matches import matches_of
from lexicept.index.no_match import JUDGED, matches_badly
from lexicept.index.reader import IndexReader
from lexicept.index.spelling import corrected
from lexicept.queries.syntax import ParsedQuery

SHARES = "has a word or concept of the query"
"""What no document does where a query has no results."""


class Hits(list[Hit]):
    """The results of a query, best first.

    Args:
        top_k: the most results.
        vocabulary: the vocabulary that was searched; None for all.
        written: the query as a person wrote it.
    """

    def __init__(
        self,
        hits: Iterable[Hit],
        index: IndexReader,
        query: ParsedQuery,
        top_k: int,
        vocabulary: str | None = None,
        written: str = "",
    ) -> None:
        super().__init__(hits)
        self.query = query
        """The parsed query, as searched."""
        self._index, self._vocabulary, self._written = index, vocabulary, written
        self._complete = top_k >= JUDGED or len(self) < top_k

    @cached_property
    def total(self) -> int:
        """The number of all results, including results beyond ``top_k``."""
        mask = self._index.matching(self.query, self._vocabulary)
        return self._index.masks.num_documents(mask)

    @cached_property
    def added(self) -> list[QueryTerm]:
        """The dimensions added by feedback or the caller, the largest first."""
        return added_terms(self._index, self.query.added)

    @cached_property
    def did_you_mean(self) -> str:
        """The query with similar words of the index in place of unmatched words; "" without any."""
        return corrected(self._index, self._written or self.query.text, self.unmatched_words)

    @property
    def snippets(self) -> list[str]:
        """The part of each result's text around its matches, in one line."""
        weighted = self._index.weigh([self.query], self._vocabulary)
        return [snippet for _, snippet in matches_of(self._index, weighted, self)]

    @property
    def unmatched_words(self) -> tuple[str, ...]:
        """The words of the query without documents, as spelled in the query, stop words aside;
        empty if no words are searched.
        """
        return self._words[1]

    @property
    def note(self) -> str:
        """A sentence about a query without good matches, unmatched words, results from concepts
        only, and conditions that exclude all matches; may be empty."""
        matched, unmatched = self._words
        clauses = [f"no document contains: {', '.join(unmatched)}"] if unmatched else []
        if self and self._by_text and not matched and self._vocabulary is None:
            clauses = clauses or ["no word matched"]
            clauses.append("results are from concepts only")
        if not self and matched and any(self.query.conditions):
            clauses.append(f"no document that meets the conditions {SHARES}")
        return "; ".join(["nothing matches well"] * self.weak + clauses)

    @cached_property
    def weak(self) -> bool:
        """True if nothing matches well, whatever ``top_k``; see ``index.no_match``. False for a
        search of words, and for an index without vectors."""
        if not self._judged:
            return False
        (hits,) = self._index.search([self.query], JUDGED) if self.weak_searches else [self]
        return matches_badly(self._index, self.query, hits)

    @property
    def weak_searches(self) -> bool:
        """True if ``weak`` searches again: for results of fewer than ``JUDGED``, or that were
        found without similarities."""
        similarities = (hit.similarity for hit in self[:JUDGED])
        return self._judged and not (self._complete and None not in similarities)

    @property
    def _judged(self) -> bool:
        has_vectors = self._index.vectors is not None and self._vocabulary != "words"
        return bool(self) and self._by_text and has_vectors

    @property
    def _by_text(self) -> bool:
        # Added dimensions may be words, which the text does not show.
        return bool(self.query.text.strip()) and not self.query.added

    @cached_property
    def _words(self) -> tuple[bool, tuple[str, ...]]:
        """True if a document has a word of the query, and the query's unmatched words."""
        vectorizer = self._index.word_vectorizer()
        if self._vocabulary not in (None, "words") or vectorizer is None:
            return True, ()
        text = self.query.text
        with self._index.vectorizers.lock("words"):
            terms = vectorizer.query_tokenizer(text).spans(text)
            words = {text[start:end]: vectorizer.dimension(term) for term, (start, end) in terms}
        numbers = np.array([word for word in words.values() if word is not None], np.int64)
        df = self._index.engine.df[numbers + self._index.span("words").start]
        matched = set(numbers[df > 0].tolist())
        return bool(matched), tuple(word for word in words if words[word] not in matched)
