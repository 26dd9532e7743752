"""The results of a query: the hits, their number, and notes about the query's words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np

from lexicept.explanation.contributions import QueryTerm
from lexicept.index.feedback import added_terms
from lexicept.index.hits import Hit
from lexicept.index.matches import matches_of
from lexicept.index.reader import IndexReader
from lexicept.index.spelling import corrected
from lexicept.index.text_vectors import SIMILARITY
from lexicept.queries.syntax import ParsedQuery
from lexicept.weighting import lucene_idf

JUDGED = 10
"""Results that are looked at, whatever number of results is wanted."""

COVERAGE = 0.2
"""Factor on the share of a query's words, by idf, beside the cosine."""

LEAST = 0.37
"""Least sum of the best cosine and ``COVERAGE`` times the best share of words, of a good match."""

SHARES = "has a word or concept of the query"
"""What no document does where a query has no results."""


class Hits(list[Hit]):
    """The results of a query, best first.

    Args:
        top_k: the most results.
        vocabulary: the vocabulary that was searched; None for all.
        written: the query before it was parsed.
        rescore: see ``search``.
    """

    def __init__(
        self,
        hits: Iterable[Hit],
        index: IndexReader,
        query: ParsedQuery,
        top_k: int,
        vocabulary: str | None = None,
        written: str | ParsedQuery = "",
        rescore: bool = True,
    ) -> None:
        super().__init__(hits)
        self.query = query
        """The parsed query, as searched."""
        self._index, self._vocabulary, self._rescore = index, vocabulary, rescore
        self._written = written if isinstance(written, str) else ""
        self._complete = top_k >= JUDGED or len(self) < top_k

    @cached_property
    def total(self) -> int:
        """The number of all results, including results beyond ``top_k``."""
        results = self._index.matching(self.query, self._vocabulary, rescore=self._rescore)
        return self._index.masks.num_documents(results)

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
        weighted = self._index.weigh([self.query], self._vocabulary, rescore=self._rescore)
        return [snippet for _, snippet in matches_of(self._index, weighted, self)]

    @property
    def unmatched_words(self) -> tuple[str, ...]:
        """The words of the query without documents, as spelled in the query, stop words aside;
        empty if no words are searched.
        """
        return self._words[1]

    @property
    def note(self) -> str:
        """A sentence about a query without good matches, unmatched words, results by meaning
        only, and conditions that exclude all matches; may be empty."""
        matched, unmatched = self._words
        clauses = [f"no document contains: {', '.join(unmatched)}"] if unmatched else []
        if self and self._by_text and not matched and self._vocabulary is None:
            clauses = clauses or ["no word matched"]
            clauses.append("results are by meaning only")
        if not self and matched and any(self.query.conditions):
            clauses.append(f"no document that meets the conditions {SHARES}")
        return "; ".join(["nothing matches well"] * self.weak + clauses)

    @property
    def notes(self) -> list[str]:
        """``note`` and ``did_you_mean`` as sentences, as far as there are any."""
        meant = f"did you mean: {self.did_you_mean}" if self.did_you_mean else ""
        return [*filter(None, (self.note, meant))]

    @cached_property
    def weak(self) -> bool:
        """True if nothing matches well, whatever ``top_k``; see ``matches_badly``. False for a
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
        terms = vectorizer.query_tokenizer(text).spans(text)
        words = {text[start:end]: vectorizer.dimension(term) for term, (start, end) in terms}
        numbers = np.array([word for word in words.values() if word is not None], np.int64)
        df = self._index.engine.df[numbers + self._index.span("words").start]
        matched = set(numbers[df > 0].tolist())
        return bool(matched), tuple(word for word in words if words[word] not in matched)


def matches_badly(index: IndexReader, query: ParsedQuery, hits: Sequence[Hit]) -> bool:
    """Return True if none of the best ``JUDGED`` hits of a search of all vocabularies, or of all if
    there are fewer, matches the query well: they resemble the text little, and have few of its
    words.

    The numbers were chosen on real questions to two documentations, CACM, Vaswani and articles of
    SQuAD, against questions of other fields and nonsense.
    """
    best = hits[:JUDGED]
    cosine = max((hit.similarity or 0.0 for hit in best), default=0.0) / SIMILARITY
    return cosine + COVERAGE * coverage(index, query.text, [hit.number for hit in best]) < LEAST


def coverage(index: IndexReader, text: str, passages: Sequence[int]) -> float:
    """Return the largest share of a text's words, by idf, that a passage has; 0 without words."""
    if (vectorizer := index.word_vectorizer()) is None:
        return 0.0
    terms = {term for term, _ in vectorizer.query_tokenizer(text).spans(text)}
    known_dimensions = [word for term in terms if (word := vectorizer.dimension(term)) is not None]
    dimensions = np.array(known_dimensions, np.int64) + index.span("words").start
    df, count = index.engine.df[dimensions], len(index)
    idf = lucene_idf(count, df)
    unknown = (len(terms) - len(known_dimensions)) * float(lucene_idf(count, np.array([0]))[0])
    documents, _, sizes = index.engine.posting_lists(dimensions)
    words = np.repeat(np.arange(dimensions.size), sizes)
    among = np.isin(documents, passages)
    documents, words = documents[among], words[among]
    present = [idf[words[documents == passage]].sum() for passage in passages]
    return float(max(present, default=0.0) / ((idf.sum() + unknown) or 1.0))
