"""Spelling suggestions from the words of an index, and the usual spelling of stems."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from lexicept.index.dimensions import strongest
from lexicept.index.reader import IndexReader
from lexicept.vectors import Integers

LONGEST = 40
"""Characters of the longest word with suggestions."""

CANDIDATES = 10
"""Stems for each wanted suggestion whose spelling in documents is compared."""

DOCUMENTS_PER_STEM = 3
"""Documents that are read for the spelling of a stem."""


class Suggestion(NamedTuple):
    """A similar word of the index."""

    word: str
    """The most frequent spelling in documents, in lower case."""
    documents: int
    """Number of documents with the word, in any form."""
    edits: int
    """Letters that differ: added, left out, replaced, or exchanged with a neighbour (optimal
    string alignment)."""


def suggestions(index: IndexReader, word: str, most: int = 3) -> list[Suggestion]:
    """Return similar words of an index, the nearest first; equally near words by frequency.
    There are none for a word of a document, for numbers, and in languages without spaces."""
    vectorizer = index.word_vectorizer()
    if vectorizer is None or vectorizer.tokenizer.bigrams:
        return []
    lower = vectorizer.tokenizer.form(word)
    if not (limit := most_edits(lower)):
        return []
    stems, terms = vectorizer.tokenizer(lower), vectorizer.terms
    dimensions = [vectorizer.dimension(stem) for stem in stems]
    df = index.engine.df[index.span("words")]
    if len(stems) != 1 or (dimensions[0] is not None and df[dimensions[0]] > 0):
        return []
    from rapidfuzz.distance import OSA  # a search without unknown words does without

    # A stem loses its end: an error there may count twice, and one edit more may be none.
    near = nearest(stems[0], terms, df, most * CANDIDATES, limit + 1)
    by_spelling = {}
    for dimension in near:
        spelling = as_spelled(index, dimension)
        if spelling and 0 < (distance := OSA.distance(lower, spelling)) <= limit:
            by_spelling[spelling] = Suggestion(spelling, int(df[dimension]), distance)
    ranked = sorted(
        by_spelling.values(), key=lambda s: (s.edits, s.word[0] != lower[0], -s.documents)
    )
    return ranked[:most]


def corrected(index: IndexReader, query: str, unknown: Iterable[str]) -> str:
    """Return a query with suggestions in place of unknown words; "" without suggestions. A word
    that is a token of the concepts' model is spelled right."""
    changed = query
    for word in islice(unknown, 20):  # each is compared with all words
        if not _is_token(index, word) and (near := suggestions(index, word, 1)):
            changed = re.sub(rf"(?<!\w)(?<!(?<!\w)-){re.escape(word)}(?!\w)", near[0].word, changed)
    return "" if changed == query else changed


def _is_token(index: IndexReader, word: str) -> bool:
    """Return True if the tokenizer of the concepts' model does not divide a word."""
    if index.vectors is None:
        return False
    encoder: Any = index.encoders["concepts"].for_queries()
    with index.encoders["concepts"].lock:
        windows = encoder.encoder.windows([word], "query")
    return [left_out for window in windows for left_out in window.left_out].count(0) == 1


def as_spelled(index: IndexReader, dimension: int) -> str:
    """Return the most frequent spelling of a stem in lower case; "" without documents."""
    vectorizer = index.word_vectorizer()
    assert vectorizer is not None
    spellings: Counter[str] = Counter()
    for number, _ in strongest(index, "words", dimension, DOCUMENTS_PER_STEM):
        content = index.stored(number).content
        for word, (start, end) in vectorizer.terms_in(content):
            if word == dimension:
                spellings[vectorizer.tokenizer.form(content[start:end])] += 1
    return spellings.most_common(1)[0][0] if spellings else ""


def most_edits(word: str) -> int:
    """Return the most edits of a suggestion: 1 for words of four characters, 2 for longer words.
    0 for shorter words (most are a single edit from another word), for numbers, and for words of
    more than ``LONGEST`` characters."""
    if not 4 <= len(word) <= LONGEST or not any(letter.isalpha() for letter in word):
        return 0
    return 1 if len(word) == 4 else 2


def nearest(word: str, terms: Sequence[str], df: Integers, most: int, limit: int) -> list[int]:
    """Return the terms fewest edits away from a word; equally near terms by document frequency.

    Args:
        df: document frequency of each term [V]; a term without documents is not suggested.
    """
    from rapidfuzz.distance import OSA
    from rapidfuzz.process import cdist

    if limit < 1 or not len(terms):
        return []
    distances = cdist([word], terms, scorer=OSA.distance, score_cutoff=limit, dtype=np.uint8)[0]
    near = np.flatnonzero((distances <= limit) & (df > 0))
    return [int(number) for number in near[np.lexsort((near, -df[near], distances[near]))[:most]]]
