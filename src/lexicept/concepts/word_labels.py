"""Names of concepts: the words that a concept fires on, tested on held-out texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lexicept.encoding.words import Tokenizer, stop_words
from lexicept.segments import Booleans, firsts
from lexicept.vectors import Floats, Integers
from lexicept.weighting import lucene_idf

SIGNIFICANT = 1.96
"""z-score above which a word is significant at 95 %."""

LEFT_OUT = """
    across along also although among amongst another anything can cannot could despite either ever
    every everything hence however indeed many may might much must neither nevertheless onto
    otherwise ought per perhaps quite rather shall since someone something than therefore though
    throughout thus toward towards unless unlike upon via whatever whereas whether whichever whose
    within without would yet
"""
"""Function words that the list ``en_plus`` leaves out."""

GENERIC = {"en": stop_words("en_plus") | {*LEFT_OUT.split()}}
"""Function words by language, beside the tokenizer's stop words."""

SOURCES = ("words", "function words", "punctuation", "numbers")
"""Classes of words; a concept's is the class with most activations, words with half of them."""

ENOUGH = 0.6
"""Share of the activations from which a name needs no further word."""

MOSTLY = 0.5
"""Share of the activations on function words, punctuation or numbers that names no topic."""

BOTH = 0.3
"""Smallest share of function words and of punctuation in a concept that is named by both."""

FEWEST = 0.25
"""Smallest share of the activations on the words of a name."""

COMPARABLE = 0.3
"""Smallest weight of a further word of a name, relative to the first."""

MOST_WORDS = 3
"""Most words of a name."""

SPELLING = 0.2
"""Smallest activation of a name's spelling, relative to the word of its stem with the largest."""

SHORTEST = 3
"""Smallest length of a beginning of words that is a name."""

SAME_BEGINNING = 4
"""Equal first letters of words that are not both in a name."""

TOPICAL = 0.05
"""Smallest s · ln(s / t) of a word that names a topic, for its share s of the activations and its
share t of the texts."""


class Tallies(NamedTuple):
    """Sums by key, in ascending order of the keys."""

    keys: Integers
    sums: Floats
    """Sum of values in texts that name concepts, sum and number in held-out texts [n, 3]."""
    repeated: Booleans
    """Whether two texts that name concepts have the key [n]."""


class Name(NamedTuple):
    """A concept's name; an empty label without a name."""

    label: str
    source: str
    """One of ``SOURCES``, one text, topic, various words, or none if it fires nowhere."""
    detection: float
    """Balanced accuracy of the label's words on held-out words; NaN without any held-out firing."""


@dataclass(frozen=True)
class Firings:
    """Words that concepts fire on, and the words of all texts that were read."""

    words: Sequence[str]
    tallies: Tallies
    """See ``FiringReader.tallies``."""
    text_counts: Floats
    """Number of texts with each word [W]."""
    num_texts: int
    held_out: Floats
    """Occurrences of each word in held-out texts [W]."""


class Namer:
    """Names concepts by the words with the largest weights: activation times idf.

    A word of a name fires its concept in two texts that are not held out, if any does. Concepts
    that fire on function words, punctuation or numbers are named by the topic, other words that are
    far more frequent there, or as such.
    """

    def __init__(self, firings: Firings, size: int, tokenizer: Tokenizer) -> None:
        self._firings, self._size = firings, size
        stems: dict[str, int] = {}
        sources = np.zeros(len(firings.words), np.int64)
        self._stem_of = np.full(len(firings.words), -1, np.int64)
        for index, spelling in enumerate(firings.words):
            sources[index] = SOURCES.index(_source(spelling, tokenizer))
            if not sources[index]:
                terms = tokenizer(spelling)
                key = terms[0] if len(terms) == 1 else spelling
                self._stem_of[index] = stems.setdefault(key, len(stems))
        is_content = self._stem_of >= 0
        stem_of = self._stem_of[is_content]
        self._held = np.bincount(stem_of, firings.held_out[is_content], len(stems))
        texts = np.bincount(stem_of, firings.text_counts[is_content], len(stems))
        texts = np.minimum(texts, firings.num_texts)
        idf = lucene_idf(firings.num_texts, texts)
        # Activations by concept and source, and by concept and stem.
        keys, sums, repeated = firings.tallies
        concept, word = keys >> 32, keys & 0xFFFFFFFF
        self._held_firings = np.bincount(concept, sums[:, 2], size)
        # Concepts of held-out texts alone are named by these, without a test.
        silent = np.bincount(concept, sums[:, 0], size) == 0
        self._held_firings[silent] = 0
        sums = np.where(silent[concept, None], sums[:, 1:2], sums)
        cells = concept * len(SOURCES) + sources[word]
        source_sums = np.bincount(cells, sums[:, 0], size * len(SOURCES))
        self._source_sums = source_sums.reshape(size, len(SOURCES))
        stem = np.where(is_content[word], self._stem_of[word], len(stems) + word)
        sources = sources[word]
        order = np.lexsort((-sums[:, 0], stem, concept))
        starts = np.flatnonzero(firsts(concept[order], stem[order]))
        self._concept, self._stem = concept[order][starts], stem[order][starts]
        # The most common spelling of each stem, of those with much of its activation.
        group = np.cumsum(firsts(concept[order], stem[order])) - 1
        much = sums[order, 0] >= SPELLING * sums[order, 0][starts][group]
        common = order[np.lexsort((-firings.text_counts[word[order]] * much, group))][starts]
        self._word, self._sources = word[common], sources[common]
        added = np.add.reduceat(sums[order], starts) if starts.size else sums
        self._repeated = np.maximum.reduceat(repeated[order], starts) if starts.size else repeated
        totals = np.maximum(self._source_sums.sum(axis=1), 1e-12)
        self._shares, self._fired = added[:, 0] / totals[self._concept], added[:, 2]
        stemmed = self._stem < len(stems)
        weights = np.ones(self._stem.size)
        weights[stemmed] = idf[self._stem[stemmed]]
        self._weights = self._shares * weights
        usual = (self._held + 1) / max(1.0, firings.held_out.sum())
        lifts = np.maximum(self._shares[stemmed] / usual[self._stem[stemmed]], 1.0)
        self._topical = np.zeros(self._stem.size, bool)
        self._topical[stemmed] = self._shares[stemmed] * np.log(lifts) >= TOPICAL

    def names(self) -> list[Name]:
        """Return the name of every concept [M]."""
        ends = np.searchsorted(self._concept, np.arange(self._size + 1))
        names = [Name("", "none", np.nan)] * self._size
        for concept in np.flatnonzero(np.diff(ends)).tolist():
            pairs = np.arange(ends[concept], ends[concept + 1])
            source, words = self._source_and_words(concept, pairs)
            names[concept] = self._name(concept, words, source)
            if not self._repeated[words].any():
                names[concept] = names[concept]._replace(source="one text")
            if source == "various words" and (beginning := self._beginning(pairs)):
                names[concept] = Name(f"words in {beginning}…", source, np.nan)
        by_words: dict[frozenset[str], str] = {}  # the same words in any order are a name
        return [
            name._replace(label=by_words.setdefault(frozenset(name.label.split(", ")), name.label))
            for name in names
        ]

    def _source_and_words(self, concept: int, pairs: Integers) -> tuple[str, list[int]]:
        """Return the source of a concept's name, and the (concept, stem) pairs of the name."""
        totals = self._source_sums[concept]
        source = 0 if totals[0] >= totals.sum() / 2 else int(totals[1:].argmax()) + 1
        content_pairs, alike = (pairs[self._sources[pairs] == index] for index in (0, source))
        for words in (alike[self._repeated[alike]], alike):
            selected = self._select(words)
            if self._shares[selected].sum() >= (MOSTLY if source else FEWEST):
                return SOURCES[source], selected
        if not source:
            return "various words", selected
        repeated = content_pairs[self._repeated[content_pairs]]
        words = repeated if self._repeated[pairs].any() else content_pairs
        topic = self._select(words[self._topical[words]])
        return ("topic", topic) if topic else (SOURCES[source], selected)

    def _select(self, pairs: Integers) -> list[int]:
        """Return the pairs of a name, the largest weight first."""
        pairs = pairs[np.argsort(-self._weights[pairs], kind="stable")]
        selected: list[int] = []
        for pair in pairs[: 2 * MOST_WORDS].tolist():
            share = self._shares[selected].sum()
            if len(selected) == MOST_WORDS or (selected and share >= ENOUGH):
                break
            if selected and self._weights[pair] < COMPARABLE * self._weights[selected[0]]:
                break
            beginnings = {self._spelled(earlier)[:SAME_BEGINNING] for earlier in selected}
            if self._spelled(pair)[:SAME_BEGINNING] not in beginnings:
                selected.append(pair)
        return selected

    def _beginning(self, pairs: Integers) -> str:
        """Return the beginning of the words with the largest shares; empty without one."""
        largest = pairs[np.argsort(-self._shares[pairs], kind="stable")[:MOST_WORDS]]
        words = sorted(self._spelled(pair) for pair in largest.tolist())
        beginning = words[0]
        while not words[-1].startswith(beginning):
            beginning = beginning[:-1]
        return beginning if len(words) > 1 and len(beginning) >= SHORTEST else ""

    def _spelled(self, pair: int) -> str:
        return self._firings.words[int(self._word[pair])]

    def _name(self, concept: int, pairs: list[int], source: str) -> Name:
        words = [self._spelled(pair) for pair in pairs]
        if source != "words":
            separator = " " if source == "punctuation" else ", "
            totals = self._source_sums[concept]
            both = source in SOURCES[1:3] and totals[1:3].min() >= BOTH * totals.sum()
            label = "function words and punctuation" if both else source
            return Name(f"{label}: {separator.join(words)}", source, np.nan)
        fired, firings = self._fired[pairs].sum(), self._held_firings[concept]
        if not firings:
            return Name(", ".join(words), source, np.nan)
        silent = self._held[self._stem[pairs]].sum() - fired
        rate = silent / max(1.0, self._firings.held_out.sum() - firings)
        return Name(", ".join(words), source, float((fired / firings + 1 - rate) / 2))


def _source(word: str, tokenizer: Tokenizer) -> str:
    """Return the class of a word, one of ``SOURCES``."""
    if not any(map(str.isalnum, word)):
        return "punctuation"
    if not any(map(str.isalpha, word)):
        return "numbers"
    generic = word in GENERIC.get(tokenizer.language, ())
    return "function words" if generic or not tokenizer(word) else "words"
