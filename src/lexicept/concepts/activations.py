"""Activations of concepts in texts: frequencies, words and examples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from lexicept.concepts.word_labels import Tallies
from lexicept.encoding.pooled import TokenActivations, TokenReader
from lexicept.encoding.windows import READ
from lexicept.index.atlas import BINS, EXAMPLES
from lexicept.progress import Progress
from lexicept.sanitize import one_line
from lexicept.segments import Booleans, csr_of_rows, firsts, ranks
from lexicept.vectors import Floats, Integers, run_starts

HELD_OUT = 5
"""One text of so many is held out of names, which are tested there."""

LONGEST_WORD = 40
"""Largest number of characters of a word."""

STRONGEST = 64
"""Number of a word's strongest concepts that are counted: heads without k may have thousands."""

BUFFER = 2**21
"""Entries collected before they are reduced: about 100 MB."""


class ReadTexts(NamedTuple):
    """Texts that an encoder has read, or reads as their batches are iterated."""

    texts: Integers
    """The text number of each window [windows]."""
    spans: list[list[tuple[int, int]]]
    """The word of every token of each window; see ``Window.word_spans``."""
    batches: Iterable[TokenActivations]
    """The activations of the windows' tokens."""


def read_texts(encoder: TokenReader, texts: Sequence[str]) -> ReadTexts:
    windows = encoder.windows(texts)
    text_of = np.array([window.text for window in windows], np.int64)
    spans = [window.word_spans() for window in windows]
    return ReadTexts(text_of, spans, encoder.token_activations(windows))


class FiringReader:
    """Reader of texts that collects activations by word and the best examples of M concepts.

    Tokens that two windows of a text share are read twice. ``read`` takes indices of ``texts``.
    """

    def __init__(self, encoder: TokenReader, texts: Sequence[str]) -> None:
        self._encoder, self._texts = encoder, texts
        self._size = size = encoder.head.size
        self.texts_read: set[int] = set()
        """Indices of the texts that were read."""
        self.tokens = 0
        """Number of tokens read for all concepts."""
        self.firings = np.zeros(size, np.int64)
        """Number of read tokens on which each concept fires [M]."""
        self.has_example = np.zeros(size, bool)
        self.texts_fired = np.zeros(size, np.int64)
        """Number of texts that each concept fires in, without held-out texts [M]."""
        self.background = _Counts()
        """Number of occurrences of every word."""
        self.held_out_words = _Counts()
        """Number of occurrences of every word in held-out texts."""
        self.text_counts = _Counts()
        """Number of texts with every word."""
        self.histogram = np.zeros((size, BINS), np.int64)
        """Number of words by activation, in half octaves up to 2 ** (octave / 2) [M, BINS]."""
        self.octave: int | None = None
        self._words: dict[str, int] = {}
        self._best, self._drawn = _Best(size), _Best(size)
        self._tallies = _Tallies()
        self._counted = np.zeros(size, np.int64)

    @property
    def words(self) -> list[str]:
        """The words, in the order of their numbers."""
        return list(self._words)

    def read(
        self,
        indices: Sequence[int],
        stage: str,
        progress: Progress,
        concepts: Booleans | None = None,
    ) -> int:
        """Read texts and return the number of tokens; collect ``concepts``, a mask [M], or all."""
        count = 0
        starts = range(0, len(indices), READ)
        for start in starts:
            block = indices[start : start + READ]
            texts = read_texts(self._encoder, [self._texts[index] for index in block])
            self.texts_read.update(block)
            count += self._add_texts(block, texts, concepts)
            progress(stage, start + len(block), len(indices))
        return count

    def _add_texts(self, indices: Sequence[int], texts: ReadTexts, mask: Booleans | None) -> int:
        """Add the activations of texts, of concepts in a mask [M], and return their tokens."""
        count = 0
        batch = [self._texts[index] for index in indices]
        for acts, concepts, tokens in texts.batches:
            count += len(tokens)
            fired = acts > 0
            if mask is None:
                self.tokens += len(tokens)
                self.firings += np.bincount(concepts[fired], minlength=self._size)
            else:
                fired &= mask[concepts]
            token = fired.nonzero()[0]
            concept, act = concepts[fired], acts[fired]
            # Spans of the words: window, start and end. A word fires as its strongest token.
            word_spans = [(window, *texts.spans[window][position]) for window, position in tokens]
            table = np.array(word_spans, np.int64).reshape(-1, 3)
            read, of_token = np.unique(table, axis=0, return_inverse=True)
            concept, word, act = _maxima(concept, of_token[token], act)
            position = texts.texts[read[:, 0]]
            text = np.asarray(indices)[position]
            self._best.add(concept, text[word], act, read[word, 1:], act)
            # A random number for each concept in each text, the same in every run.
            chance = _hashed(concept * len(self._texts) + text[word]) / 2**32
            self._drawn.add(concept, text[word], act, read[word, 1:], chance)
            self.has_example[concept] = True
            spans = zip(position.tolist(), read.tolist(), strict=True)
            words = [self._word(batch[index][start:end]) for index, (_, start, end) in spans]
            spelled = np.array(words, np.int64)
            self._count(concept, text, word, act, spelled)
            self._add(concept, text, word, act, spelled)
        return count

    def _count(
        self, concept: Integers, text: Integers, word: Integers, act: Floats, spelled: Integers
    ) -> None:
        held = held_out(text)
        self.background.add(spelled)
        self.held_out_words.add(spelled[held])
        self.text_counts.add(np.unique(np.stack([text, spelled], axis=1), axis=0)[:, 1])
        fired = np.stack([concept, text[word]], axis=1)[~held[word]]
        self.texts_fired += np.bincount(np.unique(fired, axis=0)[:, 0], minlength=self._size)
        if not act.size:
            return
        if self.octave is None:
            self.octave = int(np.ceil(2 * np.log2(act.max()))) + 2
        bins = np.floor(2 * np.log2(act)).astype(np.int64) - self.octave + BINS
        np.add.at(self.histogram, (concept, np.clip(bins, 0, BINS - 1)), 1)

    def _add(
        self, concept: Integers, text: Integers, word: Integers, act: Floats, spelled: Integers
    ) -> None:
        # Only the strongest concepts of a word: other heads fire thousands on every word.
        order = np.lexsort((concept, -act, word))
        order = order[(ranks(word[order]) < STRONGEST) & (spelled[word[order]] >= 0)]
        concept, word, act = concept[order], word[order], act[order]
        self._counted += np.bincount(concept, minlength=self._size)
        self._tallies.add(concept << 32 | spelled[word], act, text[word])

    def _word(self, text: str) -> int:
        """Return the number of a word in lower case; −1 for blanks."""
        word = one_line(text[:LONGEST_WORD]).lower()
        return self._words.setdefault(word, len(self._words)) if word else -1

    def word_counts(self) -> sp.csr_array:
        """Return activations by word [M, W]; a row adds up to the number of its concept's words."""
        tallies = self._tallies.result()
        concept, sums = tallies.keys >> 32, tallies.sums[:, :2].sum(axis=1)
        scaled = sums * self._counted[concept] / np.bincount(concept, sums, self._size)[concept]
        lengths = np.bincount(concept, minlength=self._size)
        shape = (self._size, len(self._words))
        return csr_of_rows(scaled, tallies.keys & 0xFFFFFFFF, lengths, shape)

    def tallies(self) -> Tallies:
        """Return the activations; a key is the concept << 32 | the word's number."""
        return self._tallies.result()

    def examples(self) -> tuple[sp.csr_array, Integers]:
        """Return activations of every concept in texts [M, N], and the spans of words: the largest
        activations, and after ``EXAMPLES`` of these others drawn at random, each largest first."""
        best, drawn = self._best.result(), self._drawn.result()
        columns = [np.concatenate(pair) for pair in zip(best, drawn, strict=True)]
        concept, text, act, span, _ = columns
        random = np.arange(concept.size) >= best[0].size
        order = np.lexsort((random, text, concept))
        order = order[firsts(concept[order], text[order])]
        order = order[np.lexsort((text[order], -act[order], random[order], concept[order]))]
        lengths = np.bincount(concept[order], minlength=self._size)
        shape = (self._size, len(self._texts))
        return csr_of_rows(act[order], text[order], lengths, shape), span[order]


def held_out(texts: Integers) -> Booleans:
    """Return whether each text, by number, is held out of names."""
    held: Booleans = _hashed(texts) % HELD_OUT == 0
    return held


def _hashed(keys: Integers) -> Integers:
    """Return pseudo-random integers below 2³², one for each number."""
    mixed = keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return (mixed >> np.uint64(32)).astype(np.int64)


class _Counts:
    """A growing array of counts by number."""

    def __init__(self) -> None:
        self._counts: Floats = np.zeros(0)

    def add(self, ids: Integers) -> None:
        """Count numbers; those below 0 are left out."""
        counts = np.bincount(ids[ids >= 0], minlength=self._counts.size).astype(float)
        counts[: self._counts.size] += self._counts
        self._counts = counts

    def of(self, size: int) -> Floats:
        """Return the counts of the first numbers [size]."""
        return np.pad(self._counts, (0, max(0, size - self._counts.size)))[:size]


class _Best:
    """The ``EXAMPLES`` firings of every concept with the largest ranks, at most one per text."""

    def __init__(self, size: int) -> None:
        self._floor = np.zeros(size)
        """Smallest rank that each concept keeps [M]."""
        self._blocks: list[tuple[Integers, Integers, Floats, Integers, Floats]] = []
        self._buffered = 0

    def add(
        self, concept: Integers, text: Integers, act: Floats, span: Integers, rank: Floats
    ) -> None:
        """Add concepts, texts, activations and ranks [n], and words' spans [n, 2]."""
        # Ranks below a concept's floor can't be among the largest any more.
        large = rank >= self._floor[concept]
        self._blocks.append((concept[large], text[large], act[large], span[large], rank[large]))
        self._buffered += int(large.sum())
        if self._buffered > BUFFER:
            self.result()

    def result(self) -> tuple[Integers, Integers, Floats, Integers, Floats]:
        """Return the entries sorted by concept and then by rank, largest first."""
        if not self._blocks:
            nothing = np.zeros(0, np.int64)
            return nothing, nothing, np.zeros(0), nothing.reshape(0, 2), np.zeros(0)
        concept, text, act, span, rank = map(np.concatenate, zip(*self._blocks, strict=True))
        # The largest rank in each text, of equals the largest activation; then of all texts.
        order = np.lexsort((span[:, 0], -act, -rank, text, concept))
        order = order[firsts(concept[order], text[order])]
        order = order[np.lexsort((text[order], -rank[order], concept[order]))]
        position = ranks(concept[order])
        lowest = order[position == EXAMPLES - 1]
        self._floor[concept[lowest]] = rank[lowest]
        order = order[position < EXAMPLES]
        self._blocks = [(concept[order], text[order], act[order], span[order], rank[order])]
        self._buffered = 0
        return self._blocks[0]


class _Tallies:
    """Adds up values by key."""

    def __init__(self) -> None:
        empty: Integers = np.zeros(0, np.int64)
        self._blocks: list[tuple[Integers, Floats, Integers]] = [
            (empty, np.zeros((0, 3)), np.zeros((0, 2), np.int64))
        ]
        self._buffered = 0

    def add(self, keys: Integers, values: Floats, texts: Integers) -> None:
        """Add values of keys in texts, all [n]."""
        held = held_out(texts)
        sums = np.stack([values * ~held, values * held, held], axis=1)
        # The first and the last text, of those that are not held out.
        ends = np.stack([np.where(held, np.iinfo(np.int64).max, texts), np.where(held, -1, texts)])
        self._blocks.append((keys, sums, ends.T))
        self._buffered += keys.size
        if self._buffered > BUFFER:
            self.result()

    def result(self) -> Tallies:
        keys, sums, ends = map(np.concatenate, zip(*self._blocks, strict=True))
        order = np.argsort(keys, kind="stable")
        starts = run_starts(keys[order])
        if keys.size:
            sums = np.add.reduceat(sums[order], starts)
            earliest = np.minimum.reduceat(ends[order, 0], starts)
            lowest = np.maximum.reduceat(ends[order, 1], starts)
            ends = np.stack([earliest, lowest], axis=1)
        keys = keys[order][starts]
        self._blocks, self._buffered = [(keys, sums, ends)], 0
        return Tallies(keys, sums, ends[:, 0] < ends[:, 1])


def _maxima(concept: Integers, word: Integers, act: Floats) -> tuple[Integers, Integers, Floats]:
    """Return the largest activation of every concept on every word."""
    order = np.lexsort((-act, word, concept))
    order = order[firsts(concept[order], word[order])]
    return concept[order], word[order], act[order]
