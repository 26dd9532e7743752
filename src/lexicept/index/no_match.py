"""Queries that nothing in an index matches well.

No result has more than a few words of such a query, and the text resembles the collection no more
than random letters do. Neither measure needs judgements.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from weakref import WeakKeyDictionary

import numpy as np

from lexicept.index.reader import IndexReader
from lexicept.vectors import Floats, unit_rows

LEAST_COVERED = 0.3
"""Share of a query's words, by idf, that a good match has. The numbers were chosen on CACM,
Vaswani, MedQuAD, SQuAD's training questions and SciFact's training claims, against one another and
XQuAD's languages."""

ENOUGH_WORDS = 3
"""Words of a query that are enough for a good match."""

ABOVE_CHANCE = 1.15
"""Least similarity of a good match, as a multiple of the largest of random texts."""

LETTERS = ("az", "бя", "αω", "اي", "अह", "กฮ", "一龥", "가힣")
"""First and last letters of the scripts of random texts."""

RANDOM_TEXTS = 16
"""Random texts of each script."""

SAMPLED = 4096
"""Most documents and passages that a text is compared with."""


def has_few_words(index: IndexReader, text: str, documents: Iterable[int]) -> bool:
    """Return True if no document has ``LEAST_COVERED`` or ``ENOUGH_WORDS`` of a text's words."""
    vectorizer, first = index.word_vectorizer(), index.span("words").start
    if vectorizer is None:
        return False
    known, unknown = set(), set()
    with index.vectorizers.lock("words"):
        for term, _ in vectorizer.query_tokenizer(text).spans(text):
            word = vectorizer.dimension(term)
            if word is None:
                unknown.add(term)
            else:
                known.add(word)
    dimensions = np.array([*known], np.int64) + first
    df, count = index.engine.df[dimensions], len(index)
    idf = np.log1p((count - df + 0.5) / (df + 0.5))
    least = LEAST_COVERED * (idf.sum() + len(unknown) * math.log1p((count + 0.5) / 0.5))
    for document in documents:
        present = idf[index.engine.document_weights(document, dimensions) > 0]
        if present.size >= ENOUGH_WORDS or present.sum() >= least > 0:
            return False
    return True


def is_by_chance(index: IndexReader, text: str) -> bool:
    """Return True if a text resembles the collection no more than random letters do."""
    sample = _Sample.of(index)
    (similarity,) = sample.similarities(index.weigh([text]).text_vectors)
    return bool(similarity < ABOVE_CHANCE * sample.chance)


class _Sample:
    """Vectors of some documents, from the collection's centre."""

    def __init__(self, index: IndexReader) -> None:
        assert index.vectors is not None
        drawn = np.unique(np.linspace(0, len(index) - 1, SAMPLED).astype(np.int64))
        units = unit_rows(index.vectors.records(drawn)["steps"].astype(np.float32))
        self._centre = units.mean(axis=0)
        self._directions = unit_rows(units - self._centre)
        self.chance = float(self.similarities(index.weigh(_random_texts()).text_vectors).max())
        """The largest similarity of texts of random letters."""

    def similarities(self, vectors: Floats | None) -> Floats:
        """Return the largest cosine with a document of vectors [n, d], from the centre [n]."""
        assert vectors is not None
        directions = unit_rows(vectors - self._centre)
        directions[~vectors.any(axis=1)] = 0
        largest: Floats = (directions @ self._directions.T).max(axis=1)
        return largest

    @classmethod
    def of(cls, index: IndexReader) -> _Sample:
        """Return the sample of an index, made at its first use."""
        if index not in _samples:
            _samples[index] = cls(index)
        return _samples[index]


_samples: WeakKeyDictionary[IndexReader, _Sample] = WeakKeyDictionary()


def _random_texts() -> list[str]:
    chance, texts = random.Random(0), []
    for script in LETTERS:
        letters = [chr(code) for code in range(ord(script[0]), ord(script[1]) + 1)]
        for _ in range(RANDOM_TEXTS):
            lengths = [chance.randint(2, 9) for _ in range(chance.randint(1, 10))]
            texts.append(" ".join("".join(chance.choices(letters, k=k)) for k in lengths))
    return texts
