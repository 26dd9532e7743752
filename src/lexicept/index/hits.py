"""Results of a query."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from lexicept.corpora import Document
from lexicept.explanation.contributions import QueryTerm
from lexicept.explanation.explanation import Explanation
from lexicept.fields.values import Value
from lexicept.index.stored import StoredDocuments
from lexicept.queries.syntax import ParsedQuery

if TYPE_CHECKING:
    from lexicept.index.reader import IndexReader


@dataclass(slots=True)  # freezing would triple the time of a search for 1000 hits
class Hit:
    """A result of a search. Title, text and fields are read from disk at each access."""

    rank: int
    """The place in the list of results, from 1."""
    score: float
    id: str
    """The document's id."""
    stored: StoredDocuments = field(repr=False, compare=False)
    number: int = field(repr=False, compare=False)
    """The number of the document in the index, or of its best passage."""
    explanation: Explanation | None = field(default=None, repr=False)
    """The decomposition of the score, from a search with ``explain``."""

    @property
    def passage(self) -> str | None:
        """The id of the document's best passage; None for a document without passages."""
        return self.stored.passage_id(self.number)

    @property
    def title(self) -> str:
        """The document's title, followed by the best passage's; may be empty."""
        return self.stored.titles[self.number]

    @property
    def text(self) -> str:
        """The text of the document, or of the best passage."""
        return self.stored.texts[self.number]

    @property
    def fields(self) -> dict[str, Value]:
        """The document's fields by name; dates are texts in ISO 8601."""
        return self.stored.fields.of(self.number)

    @property
    def document(self) -> Document:
        """The document with the title and text above; ``Index.document`` returns all passages."""
        return Document(self.id, self.text, self.title, self.fields)

    def __repr__(self) -> str:
        content = textwrap.shorten(self.document.content, 60, placeholder="…")
        return f"Hit(rank={self.rank}, score={self.score:.4f}, id={self.id!r}, {content!r})"


class Hits(list[Hit]):
    """The results of a query, best first.

    Args:
        index: the index that was searched.
        query: the parsed query.
        vocabulary: the vocabulary that was searched; None for all.
        written: the query as a person wrote it.
    """

    def __init__(
        self,
        hits: Iterable[Hit],
        index: IndexReader,
        query: ParsedQuery,
        vocabulary: str | None = None,
        written: str = "",
    ) -> None:
        super().__init__(hits)
        self.query = query
        """The parsed query, as searched."""
        self._index, self._vocabulary, self._written = index, vocabulary, written

    @cached_property
    def total(self) -> int:
        """The number of all results, including results beyond ``top_k``.

        The exact engine counts: a pruned search, as Seismic's, may find fewer.
        """
        mask = self._index.matching(self.query, self._vocabulary)
        return self._index.masks.num_documents(mask)

    @cached_property
    def added(self) -> list[QueryTerm]:
        """The dimensions added by feedback or the caller, the largest first."""
        from lexicept.index.feedback import added_terms

        return added_terms(self._index, self.query.added)

    @cached_property
    def did_you_mean(self) -> str:
        """The query with similar words of the index in place of unmatched words; "" without any."""
        from lexicept.index.spelling import corrected

        return corrected(self._index, self._written or self.query.text, self.unmatched_words)

    @property
    def unmatched_words(self) -> tuple[str, ...]:
        """The words of the query without documents, as spelled in the query, stop words aside;
        empty if no words are searched.
        """
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
        """True if a document has a word of the query, and the query's unmatched words."""
        vectorizer = self._index.word_vectorizer()
        if self._vocabulary not in (None, "words") or vectorizer is None:
            return True, ()
        text = self.query.text
        with self._index.vectorizers.lock("words"):
            terms = vectorizer.terms_in(text)
            words = {text[span.start : span.end]: word for word, span in terms}
        numbers = np.array([word for word in words.values() if word is not None], np.int64)
        present = self._index.engine.present(numbers + self._index.span("words").start)
        matched = set(numbers[present].tolist())
        return bool(matched), tuple(word for word in words if words[word] not in matched)
