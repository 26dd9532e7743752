"""Terms of documents from which concepts get names: stems, and pairs of stems side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from lexicept.segments import firsts
from lexicept.vectorizers.words import Tokenizer, stop_words
from lexicept.vectors import Floats, Integers

FEWEST = 3
"""Smallest number of documents that have a pair."""

GENERIC = {"en": stop_words("en_plus")}
"""Words by language that are no name, beside the tokenizer's stop words."""


@dataclass(frozen=True)
class DocumentTerms:
    """The terms of D documents: S stems, and after them the pairs."""

    contained: sp.csr_array
    """1 where a document has a term, f32 [D, T]."""
    spelled: list[str]
    """The commonest spelling of each term [T]."""
    pairs: Integers
    """The two stems of each pair [T − S, 2]."""
    stems: Mapping[str, int]
    """The number of each stem."""

    def stem(self, word: str, tokenizer: Tokenizer) -> int:
        """Return the number of a word's stem; −1 for one that is no term of the documents."""
        found = tokenizer(word)
        return self.stems.get(found[0], -1) if len(found) == 1 and _names(word, tokenizer) else -1

    @property
    def frequencies(self) -> Floats:
        """The share of the documents that has each term [T]."""
        documents = max(1, self.contained.shape[0])
        return np.asarray(self.contained.sum(axis=0) / documents).ravel()


def document_terms(texts: Iterable[str], tokenizer: Tokenizer) -> DocumentTerms:
    """Find the terms of documents.

    Stop words, generic words and words without a letter are no terms. A pair is two stems side by
    side in at least ``FEWEST`` documents; languages of character bigrams have none.
    """
    numbers: dict[str, int] = {}
    read = [
        np.array([numbers.setdefault(w, len(numbers)) for w in tokenizer.split(text)], np.int64)
        for text in texts
    ]
    word: Integers = np.concatenate([np.zeros(0, np.int64), *read])
    document: Integers = np.repeat(np.arange(len(read)), [part.size for part in read])
    stems: dict[str, int] = {}
    stem_of = np.array([_stem(w, stems, tokenizer) for w in numbers], np.int64)
    stem = stem_of[word]
    spelled = _commonest(stem_of, np.bincount(word, minlength=len(numbers)), len(stems))
    words = list(numbers)
    spellings = [words[place] for place in spelled]
    size = max(1, len(stems))
    entries = np.unique(document[stem >= 0] * size + stem[stem >= 0])
    rows, columns = [entries // size], [entries % size]
    pairs: Integers = np.zeros((0, 2), np.int64)
    if not tokenizer.bigrams:
        row, pair, pairs, of_words = _pairs(document, stem, word)
        rows.append(row)
        columns.append(pair + len(stems))
        spellings += [f"{words[a]} {words[b]}" for a, b in of_words.tolist()]
    row, column = np.concatenate(rows), np.concatenate(columns)
    entry = (np.ones(row.size, np.float32), (row, column))
    contained = sp.csr_array(entry, shape=(len(read), len(spellings)))
    return DocumentTerms(contained, spellings, pairs, stems)


def _stem(word: str, stems: dict[str, int], tokenizer: Tokenizer) -> int:
    """Return the number of a word's stem; −1 for a word that is no term."""
    found = tokenizer(word)
    if len(found) != 1 or not _names(word, tokenizer):
        return -1
    return stems.setdefault(found[0], len(stems))


def _names(word: str, tokenizer: Tokenizer) -> bool:
    """Return whether a word says something: it has a letter and is not generic."""
    return any(map(str.isalpha, word)) and word not in GENERIC.get(tokenizer.language, ())


def _commonest(group: Integers, counts: Integers, size: int) -> Integers:
    """Return the place of the largest count in each of ``size`` groups; −1 is no group."""
    order = np.lexsort((-counts, group))
    order = order[group[order] >= 0]
    return order[firsts(group[order])][:size]


def _pairs(
    document: Integers, stem: Integers, word: Integers
) -> tuple[Integers, Integers, Integers, Integers]:
    """Return documents and their pairs, both [n]; the stems of each pair and the two words that
    spell it most often, both [pairs, 2]."""
    beside = (stem[:-1] >= 0) & (stem[1:] >= 0) & (stem[:-1] != stem[1:])
    places = np.flatnonzero(beside & (document[:-1] == document[1:]))
    keys, pair = np.unique(stem[places] << 32 | stem[places + 1], return_inverse=True)
    entries = np.unique(document[places] * max(1, keys.size) + pair)
    row, of_row = entries // max(1, keys.size), entries % max(1, keys.size)
    kept = np.bincount(of_row, minlength=keys.size) >= FEWEST
    number = np.where(kept, np.cumsum(kept) - 1, -1)
    spellings, first, counts = np.unique(
        word[places] << 32 | word[places + 1], return_index=True, return_counts=True
    )
    spelled = spellings[_commonest(number[pair[first]], counts, int(kept.sum()))]
    chosen = number[of_row] >= 0
    return row[chosen], number[of_row[chosen]], _halves(keys[kept]), _halves(spelled)


def _halves(keys: Integers) -> Integers:
    return np.stack([keys >> 32, keys & 0xFFFFFFFF], axis=1)
