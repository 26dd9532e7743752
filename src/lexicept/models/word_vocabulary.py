"""Expanded vocabularies: dimensions are the words of a corpus, whatever sub-words they are made of.

ESPLADE, section 3.1. A word is what the backbone's tokenizer sets apart before it looks for
sub-words, spelled as its normaliser leaves it, so that it can be found again among them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice, pairwise
from typing import Any, NamedTuple

from lexicept.errors import InputError
from lexicept.models.windows import Window, split_words

BATCH = 512
"""Texts that are tokenised together."""


class Span(NamedTuple):
    """Neighbouring tokens of a window that stand for one dimension."""

    start: int
    end: int
    """The first place after the span."""
    dimension: int


def expanded_words(
    texts: Iterable[str], tokenizer: Any, size: int
) -> tuple[list[str], list[list[int]]]:
    """The most frequent words of texts, and what the tokenizer makes of them (ESPLADE, 3.1.1).

    Only what has a letter or a digit counts as a word, and only if all its sub-words are known.
    Of several ways to tokenise a word, as at the start of a text and after a space, the most
    frequent one is kept. Among equally frequent words the alphabet decides.

    Args:
        texts: read once, as a stream.
        tokenizer: a fast tokenizer of transformers.
        size: number of words; of texts that have fewer, all are returned.

    Returns:
        The words, most frequent first, and the ids of each one's sub-words, without special tokens.

    Raises:
        InputError: a size below 1, or texts without a word.
    """
    if size < 1:
        raise InputError(f"a vocabulary has at least 1 word, not {size}")
    special = set(tokenizer.all_special_ids)
    found: dict[str, Counter[tuple[int, ...]]] = {}
    for pieces, count in _count(texts, tokenizer).items():
        if (word := _spell(pieces, tokenizer, special)) is not None:
            found.setdefault(word, Counter())[pieces] = count
    if not found:
        raise InputError("a vocabulary can't be made: the texts have no words")
    words = sorted(found, key=lambda word: (-found[word].total(), word))[:size]
    pieces_of = [min(found[word].items(), key=lambda item: (-item[1], item[0])) for word in words]
    return words, [list(pieces) for pieces, _ in pieces_of]


def _count(texts: Iterable[str], tokenizer: Any) -> Counter[tuple[int, ...]]:
    """How often the texts have each sequence of sub-words between two words' borders."""
    counts: Counter[tuple[int, ...]] = Counter()
    stream = iter(texts)
    while batch := list(islice(stream, BATCH)):
        options = {"add_special_tokens": False, "return_offsets_mapping": True, "verbose": False}
        encoded = tokenizer(batch, **options)
        for number, (text, ids) in enumerate(zip(batch, encoded["input_ids"], strict=True)):
            offsets = encoded["offset_mapping"][number]
            places = _word_places(split_words(text, encoded.word_ids(number), offsets))
            counts.update(tuple(ids[start:end]) for start, end in places)
    return counts


def _word_places(numbers: Sequence[int | None]) -> list[tuple[int, int]]:
    """Start and end of every run of tokens that have the same word's number."""
    borders = [i for i in range(1, len(numbers)) if numbers[i] != numbers[i - 1]]
    runs = pairwise([0, *borders, len(numbers)])
    return [(start, end) for start, end in runs if start < end and numbers[start] is not None]


def _spell(pieces: tuple[int, ...], tokenizer: Any, special: set[int]) -> str | None:
    """The word that sub-words make, None for what is none: an unknown one is a special token."""
    if not special.isdisjoint(pieces):
        return None
    tokens = tokenizer.convert_ids_to_tokens(list(pieces))
    word: str = tokenizer.convert_tokens_to_string(tokens).strip()
    return word if any(character.isalnum() for character in word) else None


class WordFinder:
    """Finds the words of a vocabulary in windows.

    Args:
        words: the term of every dimension.
        tokenizer: the one that made the windows.
    """

    def __init__(self, words: Sequence[str], tokenizer: Any) -> None:
        self._dimensions = {word: dimension for dimension, word in enumerate(words)}
        self._tokenizer = tokenizer
        self._special = set(tokenizer.all_special_ids)
        self._known: dict[tuple[int, ...], int | None] = {}

    def spans(self, window: Window, *, cut_start: bool, cut_end: bool) -> list[Span]:
        """The words of the vocabulary, in the order of the text.

        Args:
            window: of any text.
            cut_start: whether the text begins before the window, whose first word may be a part
                of one and is left out.
            cut_end: the same for the end.
        """
        places = _word_places(window.words)
        places = places[cut_start : len(places) - cut_end]
        found = [(start, end, self._find(window.token_ids[start:end])) for start, end in places]
        return [
            Span(start, end, dimension) for start, end, dimension in found if dimension is not None
        ]

    def _find(self, ids: Sequence[int]) -> int | None:
        pieces = tuple(ids)
        if pieces not in self._known:
            word = _spell(pieces, self._tokenizer, self._special)
            self._known[pieces] = None if word is None else self._dimensions.get(word)
        return self._known[pieces]
