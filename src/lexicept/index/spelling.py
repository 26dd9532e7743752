"""Spelling suggestions from the words of an index, and words as documents spell them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from lexicept.index.reader import IndexReader
from lexicept.queries.spelling import edits, most_edits, nearest
from lexicept.vectorizers.words import WordVectorizer

CANDIDATES = 10
"""Stems that are compared as documents spell them, for each suggestion that is wanted."""

READ = 3
"""Documents that are read to see how a stem is spelled."""


class Suggestion(NamedTuple):
    """A word of the index that may have been meant."""

    word: str
    """As documents spell it most often, in lower case."""
    documents: int
    """Number of documents that have it, in any form."""
    edits: int
    """Letters that differ: added, left out, replaced, or exchanged with a neighbour."""


def suggestions(index: IndexReader, word: str, most: int = 3) -> list[Suggestion]:
    """Return the words of an index that a word may have been meant for, the nearest first, and of
    equally near ones the most frequent.

    None are suggested for a word that a document has, for numbers, and where words are cut into
    pairs of characters.
    """
    if "words" not in index.settings:
        return []
    words = index.vectorizers.get("words")
    assert isinstance(words, WordVectorizer)
    lower = word.lower()
    limit = most_edits(lower)
    if words.tokenizer.bigrams or limit == 0:
        return []
    with index.vectorizers.lock("words"):
        stems = words.tokenizer(lower)
        terms = words.terms
        own = [words.dimension(stem) for stem in stems]
    df = index.engine.df[index.span("words")]
    if len(stems) != 1 or (own[0] is not None and df[own[0]] > 0):
        return []
    # A stem loses its end: an error there may count twice, and one edit more may be none.
    near = nearest(stems[0], terms, df, most * CANDIDATES, limit + 1)
    found = {}
    for number in near:
        spelled = as_spelled(index, number)
        if spelled and 0 < (distance := edits(lower, spelled)) <= limit:
            found[spelled] = Suggestion(spelled, int(df[number]), distance)
    ranked = sorted(
        found.values(), key=lambda one: (one.edits, one.word[0] != lower[0], -one.documents)
    )
    return ranked[:most]


def corrected(index: IndexReader, query: str, unknown: Iterable[str]) -> str:
    """Return a query with the first suggestion in place of each unknown word; "" without any."""
    changed = query
    for word in unknown:
        if near := suggestions(index, word, 1):
            changed = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", near[0].word, changed)
    return "" if changed == query else changed


def as_spelled(index: IndexReader, dimension: int) -> str:
    """Return how documents spell a stem most often, in lower case; "" where none has it."""
    words = index.vectorizers.get("words")
    assert isinstance(words, WordVectorizer)
    place = index.span("words").start + dimension
    documents, weights = index.engine.postings(slice(place, place + 1))
    best = np.argsort(-weights, kind="stable")[:READ]
    forms: Counter[str] = Counter()
    for number in documents[best].tolist():
        content = index.stored(number).content
        with index.vectorizers.lock("words"):
            for found, (start, end) in words.terms_in(content):
                if found == dimension:
                    forms[content[start:end].lower()] += 1
    return forms.most_common(1)[0][0] if forms else ""
