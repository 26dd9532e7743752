"""Activations of concepts in texts: frequencies, words and best examples; mean states of words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
import torch

from lexicept.models.encoder import Encoder, TokenActivations
from lexicept.models.sae.states import READ
from lexicept.parallel.ray import Cluster
from lexicept.progress import Progress
from lexicept.sanitize import one_line
from lexicept.segments import Booleans, csr_of_rows, firsts, ranks
from lexicept.vectorizers.concepts import ConceptVectorizer
from lexicept.vectors import Floats, Integers

EXAMPLES = 8
"""Number of example documents of a concept."""

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


Read: TypeAlias = Callable[[Iterable[list[str]]], Iterator[ReadTexts]]
"""Reads blocks of texts, in order."""


def read_texts(encoder: Encoder, texts: Sequence[str]) -> ReadTexts:
    """Read texts through an encoder."""
    windows = encoder.backbone.windows(texts)
    numbers = np.array([window.text for window in windows], np.int64)
    return ReadTexts(
        numbers, [window.word_spans() for window in windows], encoder.token_activations(windows)
    )


class TextReader:
    """Reads texts by a saved ``ConceptVectorizer``'s encoder, in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self._encoder = ConceptVectorizer.load(folder).encoder

    def documents(self, texts: Sequence[str]) -> ReadTexts:
        """Read texts, with all of their batches."""
        read = read_texts(self._encoder, texts)
        return read._replace(batches=list(read.batches))


@contextmanager
def reading_on(cluster: Cluster | None, encoder: Encoder, folder: Path) -> Iterator[Read]:
    """Yield a reader of texts on a cluster or, without a cluster, on this machine. The encoder's
    ``ConceptVectorizer`` is saved in the folder, on a disk that all nodes see."""
    if cluster is None:
        yield partial(map, partial(read_texts, encoder))
        return
    with cluster.encoding(partial(TextReader, folder)) as read:
        yield read


class FiringReader:
    """Reader of texts that collects activations by word and the best examples of M concepts.

    Tokens that two windows of a text share are read twice. ``texts`` are the documents, which
    ``read`` takes by number.
    """

    def __init__(self, encoder: Encoder, texts: Sequence[str], read: Read | None = None) -> None:
        self._read_blocks = read or partial(map, partial(read_texts, encoder))
        self._texts = texts
        self._size = size = encoder.head.size
        self.numbers: set[int] = set()
        """Numbers of the texts that were read."""
        self.tokens = 0
        """Number of tokens read for all concepts."""
        self.firings = np.zeros(size, np.int64)
        """Number of read tokens on which each concept fires [M]."""
        self.has_example = np.zeros(size, bool)
        self.background: Floats = np.zeros(0)
        """Number of occurrences of every word."""
        self._words: dict[str, int] = {}
        self._best = _Best(size)
        self._sums = _SumsByKey()
        self._states = _Means(encoder.head.d_in)
        self._counted = np.zeros(size, np.int64)

    @property
    def words(self) -> list[str]:
        """The words, in the order of their numbers."""
        return list(self._words)

    def read(
        self,
        numbers: Sequence[int],
        stage: str,
        progress: Progress,
        concepts: Booleans | None = None,
    ) -> int:
        """Read texts and return the number of tokens; collect ``concepts``, a mask [M], or all."""
        count = 0
        starts = range(0, len(numbers), READ)
        blocks = ([self._texts[n] for n in numbers[start : start + READ]] for start in starts)
        for start, texts in zip(starts, self._read_blocks(blocks), strict=True):
            block = numbers[start : start + READ]
            self.numbers.update(block)
            count += self._add_texts(block, texts, concepts)
            progress(stage, start + len(block), len(numbers))
        return count

    def _add_texts(self, numbers: Sequence[int], texts: ReadTexts, mask: Booleans | None) -> int:
        """Add the activations of texts, of concepts in a mask [M], and return their tokens."""
        count = 0
        batch = [self._texts[number] for number in numbers]
        for acts, concepts, tokens, states in texts.batches:
            count += len(tokens)
            fired = acts > 0
            if mask is None:
                self.tokens += len(tokens)
                self.firings += np.bincount(concepts[fired].numpy(), minlength=self._size)
            else:
                fired &= torch.from_numpy(mask)[concepts]
            token, place = (indices.numpy() for indices in fired.nonzero(as_tuple=True))
            concept, act = concepts.numpy()[token, place], acts.numpy()[token, place]
            # Places of the words: window, start and end. A word fires as its strongest token.
            places = [(window, *texts.spans[window][place]) for window, place in tokens]
            table = np.array(places, np.int64).reshape(-1, 3)
            read, of_token = np.unique(table, axis=0, return_inverse=True)
            concept, word, act = _maxima(concept, of_token[token], act)
            text = texts.texts[read[:, 0]]
            self._best.add(concept, np.asarray(numbers)[text][word], act, read[word, 1:])
            self.has_example[concept] = True
            spans = zip(text, read, strict=True)
            words = [self._word(batch[place][start:end]) for place, (_, start, end) in spans]
            spelled = np.array(words, np.int64)
            counts = np.bincount(spelled[spelled >= 0], minlength=len(self._words)).astype(float)
            counts[: self.background.size] += self.background
            self.background = counts
            self._states.add(spelled[of_token], states.numpy())
            self._add(concept, word, act, spelled)
        return count

    def _add(self, concept: Integers, word: Integers, act: Floats, spelled: Integers) -> None:
        # Only the strongest concepts of a word: other heads fire thousands on every word.
        order = np.lexsort((concept, -act, word))
        order = order[(ranks(word[order]) < STRONGEST) & (spelled[word[order]] >= 0)]
        concept = concept[order]
        self._counted += np.bincount(concept, minlength=self._size)
        self._sums.add(concept << 32 | spelled[word[order]], act[order])

    def _word(self, text: str) -> int:
        """Return the number of a word in lower case; −1 for blanks."""
        word = one_line(text[:LONGEST_WORD]).lower()
        return self._words.setdefault(word, len(self._words)) if word else -1

    def word_counts(self) -> sp.csr_array:
        """Return activations by word [M, W], scaled to add up to the number of words that the
        concept fires on."""
        keys, sums = self._sums.result()
        concept = keys >> 32
        totals = np.bincount(concept, sums, self._size)
        scaled = sums * self._counted[concept] / totals[concept]
        lengths = np.bincount(concept, minlength=self._size)
        return csr_of_rows(scaled, keys & 0xFFFFFFFF, lengths, (self._size, len(self._words)))

    def word_vectors(self) -> Floats:
        """Return the mean state of every word less the mean of all words, at unit length [W, d]."""
        return self._states.result(len(self._words))

    def examples(self) -> tuple[sp.csr_array, Integers]:
        """Return the activations of every concept in the best texts [M, N], largest first, and the
        spans of words."""
        concept, text, act, span = self._best.result()
        lengths = np.bincount(concept, minlength=self._size)
        return csr_of_rows(act, text, lengths, (self._size, len(self._texts))), span


class _Best:
    """The ``EXAMPLES`` largest activations of every concept, at most one per text."""

    def __init__(self, size: int) -> None:
        self._floor = np.zeros(size, np.float32)
        """Smallest activation that each concept keeps [M]."""
        self._blocks: list[tuple[Integers, Integers, Floats, Integers]] = []
        self._buffered = 0

    def add(self, concept: Integers, text: Integers, act: Floats, span: Integers) -> None:
        """Add concepts, texts and activations [n], and words' spans [n, 2]."""
        # Smaller activations than a concept's floor can't be among the largest any more.
        large = act >= self._floor[concept]
        self._blocks.append((concept[large], text[large], act[large], span[large]))
        self._buffered += int(large.sum())
        if self._buffered > BUFFER:
            self.result()

    def result(self) -> tuple[Integers, Integers, Floats, Integers]:
        """Return the entries sorted by concept and then by activation, largest first."""
        if not self._blocks:
            nothing = np.zeros(0, np.int64)
            return nothing, nothing, np.zeros(0), nothing.reshape(0, 2)
        concept, text, act, span = map(np.concatenate, zip(*self._blocks, strict=True))
        # The largest activation in each text, then the largest of all texts.
        order = np.lexsort((span[:, 0], -act, text, concept))
        order = order[firsts(concept[order], text[order])]
        order = order[np.lexsort((text[order], -act[order], concept[order]))]
        rank = ranks(concept[order])
        last = order[rank == EXAMPLES - 1]
        self._floor[concept[last]] = act[last]
        order = order[rank < EXAMPLES]
        self._blocks = [(concept[order], text[order], act[order], span[order])]
        self._buffered = 0
        return self._blocks[0]


class _SumsByKey:
    """Sums of values by key."""

    def __init__(self) -> None:
        self._keys: list[Integers] = [np.zeros(0, np.int64)]
        self._values: list[Floats] = [np.zeros(0)]
        self._buffered = 0

    def add(self, keys: Integers, values: Floats) -> None:
        self._keys.append(keys)
        self._values.append(values)
        self._buffered += keys.size
        if self._buffered > BUFFER:
            self.result()

    def result(self) -> tuple[Integers, Floats]:
        """Return the distinct keys in ascending order, and the sums."""
        keys, inverse = np.unique(np.concatenate(self._keys), return_inverse=True)
        sums = np.bincount(inverse, np.concatenate(self._values), keys.size).astype(float)
        self._keys, self._values, self._buffered = [keys], [sums], 0
        return keys, sums


class _Means:
    """Means of states by word."""

    def __init__(self, d: int) -> None:
        self._sums = np.zeros((0, d), np.float32)
        self._counts = np.zeros(0)

    def add(self, words: Integers, states: Floats) -> None:
        """Add words [n] and states [n, d]; words below 0 are left out."""
        size = int(words.max(initial=-1)) + 1
        if size > len(self._sums):
            room = 2 * size - len(self._sums)
            self._sums = np.pad(self._sums, ((0, room), (0, 0)))
            self._counts = np.pad(self._counts, (0, room))
        tokens = np.flatnonzero(words >= 0)
        distinct, place = np.unique(words[tokens], return_inverse=True)
        ones = np.ones(tokens.size, np.float32)
        of_word = sp.csr_array((ones, (place, tokens)), (distinct.size, len(words)))
        self._sums[distinct] += of_word @ states.astype(np.float32)
        self._counts[distinct] += np.bincount(place, minlength=distinct.size)

    def result(self, size: int) -> Floats:
        sums, counts = self._sums[:size], self._counts[:size]
        means = sums / np.maximum(counts, 1.0)[:, None]
        means = means - sums.sum(axis=0, dtype=float) / max(counts.sum(), 1.0)
        return np.asarray(means / np.maximum(np.linalg.norm(means, axis=1), 1e-12)[:, None])


def _maxima(concept: Integers, word: Integers, act: Floats) -> tuple[Integers, Integers, Floats]:
    """Return the largest activation of every concept on every word."""
    order = np.lexsort((-act, word, concept))
    order = order[firsts(concept[order], word[order])]
    return concept[order], word[order], act[order]
