"""Queries that nothing in an index matches well.

The best results of such a query resemble the text little, and have few of its words. The
numbers were chosen on real questions to two documentations, CACM, Vaswani and articles of SQuAD,
against questions of other fields and nonsense.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

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


def matches_badly(index: IndexReader, query: ParsedQuery) -> bool:
    """Return True if no result matches a query well; False for an index without vectors."""
    weighted = index.weigh([query])
    if index.vectors is None or weighted.text_vectors is None:
        return False
    (hits,) = index.rank(weighted, JUDGED, [query])
    passages = np.array([hit.number for hit in hits], np.int64)
    similarities = index.vectors.similarities(weighted.text_vectors[0], passages)
    cosine = float(similarities.max(initial=0)) / SIMILARITY
    return cosine + COVERAGE * coverage(index, query.text, passages.tolist()) < LEAST


def coverage(index: IndexReader, text: str, passages: Sequence[int]) -> float:
    """Return the largest share of a text's words, by idf, that a passage has; 0 without words."""
    if (vectorizer := index.word_vectorizer()) is None:
        return 0.0
    with index.vectorizers.lock("words"):
        terms = {term for term, _ in vectorizer.query_tokenizer(text).spans(text)}
        known = [word for term in terms if (word := vectorizer.dimension(term)) is not None]
    dimensions = np.array(known, np.int64) + index.span("words").start
    df, count = index.engine.df[dimensions], len(index)
    idf = lucene_idf(count, df)
    unknown = (len(terms) - len(known)) * float(lucene_idf(count, np.array([0]))[0])
    present = [idf[index.engine.document_weights(p, dimensions) > 0].sum() for p in passages]
    return float(max(present, default=0.0) / ((idf.sum() + unknown) or 1.0))
