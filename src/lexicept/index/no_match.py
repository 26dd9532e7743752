"""Queries that nothing in an index matches well.

The best results of such a query resemble the text little, and have few of its words. The
numbers were chosen on real questions to two documentations, CACM, Vaswani and articles of SQuAD,
against questions of other fields and nonsense.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lexicept.index.hits import Hit
from lexicept.index.reader import IndexReader
from lexicept.index.text_vectors import SIMILARITY
from lexicept.queries.syntax import ParsedQuery
from lexicept.weighting import lucene_idf

JUDGED = 10
"""Results that are looked at, whatever number of results is wanted."""

COVERAGE = 0.2
"""Factor on the share of a query's words, by idf, beside the cosine."""

LEAST = 0.37
"""Least sum of the best cosine and ``COVERAGE`` times the best share of words, of a good match."""


def matches_badly(index: IndexReader, query: ParsedQuery, hits: Sequence[Hit]) -> bool:
    """Return True if none of the best ``JUDGED`` hits of a search of all vocabularies, or of all if
    there are fewer, matches the query well."""
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
