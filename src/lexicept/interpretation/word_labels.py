"""Names of concepts: the words that a concept fires on, tested on held-out texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lexicept.segments import Booleans, firsts
from lexicept.vectorizers.words import Tokenizer, stop_words
from lexicept.vectors import Floats, Integers

SIGNIFICANT = 1.96
"""z-score above which a word is significant at 95 %."""

GENERIC = {"en": stop_words("en_plus")}
"""Function words by language, beside the tokenizer's stop words."""

KINDS = ("words", "function words", "punctuation", "numbers")
"""Kinds of words; a concept is of the kind with most of the activations, of words with half."""

ENOUGH = 0.6
"""Share of the activations from which a name needs no further word."""

FEWEST = 0.25
"""Smallest share of the activations on the words of a name."""

COMPARABLE = 0.3
"""Smallest weight of a further word of a name, relative to the first."""

MOST_WORDS = 3
"""Most words of a name."""

SAME_BEGINNING = 4
"""Equal first letters of words that are not both in a name."""

AFTER = 0.05
"""Smallest share of the neighbours that tells concepts of one name apart."""


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
    """One of ``KINDS``, or none."""
    detection: float
    """Balanced accuracy of the label's words on held-out words; NaN without any held-out firing."""


@dataclass(frozen=True)
class Firings:
    """Words and neighbours that concepts fire on, and the words of all texts that were read."""

    words: Sequence[str]
    tallies: Tallies
    """See ``FiringReader.tallies``."""
    neighbours: Tallies
    """See ``FiringReader.neighbours``."""
    text_counts: Floats
    """Number of texts with each word [W]."""
    num_texts: int
    held_out: Floats
    """Occurrences of each word in held-out texts [W]."""


class Namer:
    """Names concepts by the words with the largest weights: activation times idf.

    A word of a name fires its concept in two texts that are not held out. Concepts that fire on
    function words, punctuation or numbers are named as such. Of several concepts with one name,
    each gets the neighbouring word that is most its own: "json schema" beside "schema compiler".
    """

    def __init__(self, firings: Firings, size: int, tokenizer: Tokenizer) -> None:
        self._firings, self._size = firings, size
        stems: dict[str, int] = {}
        kind = np.zeros(len(firings.words), np.int64)
        self._stem_of = np.full(len(firings.words), -1, np.int64)
        for number, spelling in enumerate(firings.words):
            kind[number] = KINDS.index(_kind(spelling, tokenizer))
            if not kind[number]:
                terms = tokenizer(spelling)
                key = terms[0] if len(terms) == 1 else spelling
                self._stem_of[number] = stems.setdefault(key, len(stems))
        content = self._stem_of >= 0
        self._held = np.bincount(self._stem_of[content], firings.held_out[content], len(stems))
        texts = np.bincount(self._stem_of[content], firings.text_counts[content], len(stems))
        texts = np.minimum(texts, firings.num_texts)
        idf = np.log1p((firings.num_texts - texts + 0.5) / (texts + 0.5))
        # Activations by concept and kind, and by concept and stem.
        keys, sums, repeated = firings.tallies
        concept, word = keys >> 32, keys & 0xFFFFFFFF
        kinds = np.bincount(concept * len(KINDS) + kind[word], sums[:, 0], size * len(KINDS))
        self._kinds = kinds.reshape(size, len(KINDS))
        self._held_firings = np.bincount(concept, sums[:, 2], size)
        stem = np.where(content[word], self._stem_of[word], len(stems) + word)
        order = np.lexsort((-sums[:, 0], stem, concept))
        starts = np.flatnonzero(firsts(concept[order], stem[order]))
        self._concept, self._stem = concept[order][starts], stem[order][starts]
        self._word = word[order][starts]
        """The word of each stem with the largest activation."""
        added = np.add.reduceat(sums[order], starts) if starts.size else sums
        self._repeated = np.maximum.reduceat(repeated[order], starts) if starts.size else repeated
        totals = np.maximum(self._kinds.sum(axis=1), 1e-12)
        self._shares, self._fired = added[:, 0] / totals[self._concept], added[:, 2]
        known = self._stem < len(stems)
        weights = np.ones(self._stem.size)
        weights[known] = idf[self._stem[known]]
        self._weights, self._content = self._shares * weights, known

    def names(self) -> list[Name]:
        """Return the name of every concept [M]."""
        ends = np.searchsorted(self._concept, np.arange(self._size + 1))
        names: list[Name] = []
        chosen: list[list[int]] = []
        for concept in range(self._size):
            entries = np.arange(ends[concept], ends[concept + 1])
            kind = self._kind_of(concept)
            chosen.append(self._chosen(entries[self._content[entries] == (kind == "words")], kind))
            names.append(self._name(concept, chosen[-1], kind))
        counts = Counter(name.label for name in names if name.source == "words")
        for label in [label for label, count in counts.items() if count > 1]:
            alike = [number for number, name in enumerate(names) if name.label == label]
            own = {int(self._stem[entry]) for number in alike for entry in chosen[number]}
            for number, told in self._told_apart(alike, label, own).items():
                names[number] = names[number]._replace(label=told)
        return names

    def _kind_of(self, concept: int) -> str:
        """Return the kind of the words that a concept fires on."""
        of_kinds = self._kinds[concept]
        return (
            "words" if of_kinds[0] >= of_kinds.sum() / 2 else KINDS[int(of_kinds[1:].argmax()) + 1]
        )

    def _chosen(self, entries: Integers, kind: str) -> list[int]:
        """Return the entries of a name, the largest weight first."""
        entries = entries[self._repeated[entries]]
        entries = entries[np.argsort(-self._weights[entries], kind="stable")]
        chosen: list[int] = []
        for entry in entries[: 2 * MOST_WORDS].tolist():
            share = self._shares[chosen].sum()
            if len(chosen) == MOST_WORDS or (chosen and share >= ENOUGH):
                break
            if chosen and self._weights[entry] < COMPARABLE * self._weights[chosen[0]]:
                break
            beginnings = {self._spelled(other)[:SAME_BEGINNING] for other in chosen}
            if self._spelled(entry)[:SAME_BEGINNING] not in beginnings:
                chosen.append(entry)
        enough = kind != "words" or self._shares[chosen].sum() >= FEWEST
        return chosen if enough else []

    def _spelled(self, entry: int) -> str:
        return self._firings.words[int(self._word[entry])]

    def _name(self, concept: int, chosen: list[int], kind: str) -> Name:
        words = [self._spelled(entry) for entry in chosen]
        if not words:
            return Name("", "none", np.nan)
        if kind != "words":
            return Name(f"{kind} {' '.join(words)}", kind, np.nan)
        fired, firings = self._fired[chosen].sum(), self._held_firings[concept]
        if not firings:
            return Name(", ".join(words), kind, np.nan)
        silent = self._held[self._stem[chosen]].sum() - fired
        rate = silent / max(1.0, self._firings.held_out.sum() - firings)
        return Name(", ".join(words), kind, float((fired / firings + 1 - rate) / 2))

    def _told_apart(self, alike: Sequence[int], label: str, own: set[int]) -> dict[int, str]:
        """Return the labels of concepts with one name and neighbours of their own."""
        keys, sums, repeated = self._firings.neighbours
        shares: dict[int, dict[int, float]] = {}
        common: Counter[int] = Counter()
        for concept in alike:
            first, last = np.searchsorted(keys, [concept << 32, concept + 1 << 32]).tolist()
            counts = sums[first:last, 0]
            entries = np.flatnonzero(repeated[first:last])
            words = keys[first:last][entries] & 0xFFFFFFFF
            values = counts[entries] / max(1.0, counts.sum())
            named = [
                (word, value)
                for word, value in zip(words.tolist(), values.tolist(), strict=True)
                if (stem := self._stem_of[word >> 1]) >= 0 and stem not in own
            ]
            shares[concept] = dict(named)
            common.update(shares[concept])
        told = {}
        for concept, mine in shares.items():
            scores = {
                word: share * np.log(share * len(alike) / common[word])
                for word, share in mine.items()
                if share >= AFTER
            }
            if scores and (best := max(scores, key=lambda word: scores[word])) is not None:
                beside = self._firings.words[best >> 1]
                told[concept] = f"{label} {beside}" if best & 1 else f"{beside} {label}"
        return told


def _kind(word: str, tokenizer: Tokenizer) -> str:
    """Return the kind of a word, one of ``KINDS``."""
    if not any(map(str.isalnum, word)):
        return "punctuation"
    if not any(map(str.isalpha, word)):
        return "numbers"
    generic = word in GENERIC.get(tokenizer.language, ())
    return "function words" if generic or not tokenizer(word) else "words"
