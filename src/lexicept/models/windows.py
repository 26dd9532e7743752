"""Windows: the pieces of texts that a backbone reads at once, and their words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

LONGEST_WINDOW = 512
"""Tokens of a window where ``max_seq_length`` does not say otherwise (SPLARE evaluates at 512)."""


class Window(NamedTuple):
    """A run of a text's tokens that fits the backbone, special tokens included."""

    text: int
    """Number of the text it is from."""
    token_ids: list[int]
    special: list[int]
    """1 for each special token, wherever it comes from; such tokens are left out of vectors."""
    words: list[int | None]
    """A number that neighbouring tokens share where they are parts of one word."""
    offsets: list[tuple[int, int]]
    """The characters of the text that each token stands for."""


def split_words(
    text: str, words: Sequence[int | None], offsets: Sequence[tuple[int, int]]
) -> list[int | None]:
    """A tokenizer's words, cut where the text has a space: some take a whole text for one word.

    Args:
        words: of every token, None for special ones.
        offsets: the characters of every token.

    Returns:
        Numbers from 0 on, None for special tokens.
    """
    found: list[int | None] = []
    number, before, last = -1, None, 0
    for word, (start, end) in zip(words, offsets, strict=True):
        if word is not None and (word != before or any(map(str.isspace, text[last : start + 1]))):
            number += 1
        found.append(None if word is None else number)
        before, last = word, end
    return found


def word_spans(window: Window) -> list[tuple[int, int]]:
    """The characters of the word that each token is a part of; its own for a token of none."""
    spans = list(window.offsets)
    start = 0
    for end in range(1, len(spans) + 1):
        if end == len(spans) or window.words[end] != window.words[start]:
            if window.words[start] is not None:
                whole = (window.offsets[start][0], window.offsets[end - 1][1])
                spans[start:end] = [whole] * (end - start)
            start = end
    return spans
