"""Expanded vocabularies: dimensions are the words of a corpus (ESPLADE, section 3.1).

A word is a unit of the backbone's tokenizer before sub-words, in the spelling of the tokenizer's
normaliser, so that words can be recognised in a text's sub-words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice, pairwise
from typing import Any, NamedTuple

from lexicept.encoding.windows import Window
from lexicept.encoding.word_spans import split_words
from lexicept.errors import InputError

BATCH = 512
"""Texts tokenised together."""


class WordSpan(NamedTuple):
    """A run of a window's tokens that make a word of the vocabulary."""

    start: int
    end: int
    """Position after the last token."""
    dimension: int


def expanded_words(
    texts: Iterable[str], tokenizer: Any, size: int
) -> tuple[list[str], list[list[int]]]:
    """Return the ``size`` most frequent words of a stream of texts, most frequent first, and the
    ids of each word's sub-words (ESPLADE, 3.1.1). A word has a letter or a digit, and no unknown
    sub-word; its most frequent tokenisation counts. Equally frequent words are in alphabetical
    order. Raises InputError for a size below 1, or for texts without words."""
    if size < 1:
        raise InputError(f"a vocabulary has at least 1 word, not {size}")
    special = set(tokenizer.all_special_ids)
    counts: dict[str, Counter[tuple[int, ...]]] = {}
    for subwords, count in _count(texts, tokenizer).items():
        if (word := _spell(subwords, tokenizer, special)) is not None:
            counts.setdefault(word, Counter())[subwords] = count
    if not counts:
        raise InputError("a vocabulary can't be made: the texts have no words")
    words = sorted(counts, key=lambda word: (-counts[word].total(), word))[:size]
    # The tokenisation seen most often.
    tokenisations = [
        min(counts[word].items(), key=lambda item: (-item[1], item[0])) for word in words
    ]
    return words, [list(subwords) for subwords, _ in tokenisations]


def _count(texts: Iterable[str], tokenizer: Any) -> Counter[tuple[int, ...]]:
    """Count the sub-word sequences of the words of texts."""
    counts: Counter[tuple[int, ...]] = Counter()
    stream = iter(texts)
    while batch := list(islice(stream, BATCH)):
        options = {"add_special_tokens": False, "return_offsets_mapping": True, "verbose": False}
        encoded = tokenizer(batch, **options)
        for index, (text, ids) in enumerate(zip(batch, encoded["input_ids"], strict=True)):
            offsets = encoded["offset_mapping"][index]
            spans = _word_runs(split_words(text, encoded.word_ids(index), offsets))
            counts.update(tuple(ids[start:end]) for start, end in spans)
    return counts


def _word_runs(word_indices: Sequence[int | None]) -> list[tuple[int, int]]:
    """Return start and end of every run of tokens with the same word number."""
    borders = [i for i in range(1, len(word_indices)) if word_indices[i] != word_indices[i - 1]]
    runs = pairwise([0, *borders, len(word_indices)])
    return [(start, end) for start, end in runs if start < end and word_indices[start] is not None]


def _spell(subwords: tuple[int, ...], tokenizer: Any, special: set[int]) -> str | None:
    """Return the word of sub-words; None for unknown sub-words or no word."""
    if not special.isdisjoint(subwords):
        return None
    tokens = tokenizer.convert_ids_to_tokens(list(subwords))
    word: str = tokenizer.convert_tokens_to_string(tokens).strip()
    return word if any(character.isalnum() for character in word) else None


class WordFinder:
    """A search for the words of a vocabulary in windows.

    Args:
        words: the term of every dimension.
    """

    def __init__(self, words: Sequence[str], tokenizer: Any) -> None:
        self._dimensions = {word: dimension for dimension, word in enumerate(words)}
        self._tokenizer = tokenizer
        self._special = set(tokenizer.all_special_ids)
        self._cache: dict[tuple[int, ...], int | None] = {}

    def spans(self, window: Window, *, cut_start: bool, cut_end: bool) -> list[WordSpan]:
        """Return the words of the vocabulary in a window, in order, except words that may be cut:
        the first with ``cut_start`` (the text begins before the window), the last with ``cut_end``.
        """
        runs = _word_runs(window.words)
        runs = runs[cut_start : len(runs) - cut_end]
        candidates = [(start, end, self._find(window.token_ids[start:end])) for start, end in runs]
        return [
            WordSpan(start, end, dimension)
            for start, end, dimension in candidates
            if dimension is not None
        ]

    def _find(self, ids: Sequence[int]) -> int | None:
        subwords = tuple(ids)
        if subwords not in self._cache:
            word = _spell(subwords, self._tokenizer, self._special)
            self._cache[subwords] = None if word is None else self._dimensions.get(word)
        return self._cache[subwords]
