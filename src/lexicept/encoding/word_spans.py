"""The words of a text that a tokenizer's tokens are parts of; needs no model."""

from __future__ import annotations

from collections.abc import Sequence


def split_words(
    text: str, words: Sequence[int | None], offsets: Sequence[tuple[int, int]]
) -> list[int | None]:
    """Return the index of every token's word; None for special tokens. The tokenizer's words are
    split at spaces, by the ``offsets`` of tokens: some tokenizers take a whole text for a word."""
    word_indices: list[int | None] = []
    word_index, before, last_end = -1, None, 0
    for word, (start, end) in zip(words, offsets, strict=True):
        apart = word != before or any(map(str.isspace, text[last_end : start + 1]))
        if word is not None and apart:
            word_index += 1
        word_indices.append(None if word is None else word_index)
        before, last_end = word, end
    return word_indices


def whole_words(
    words: Sequence[int | None], offsets: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Return start and end of every token's word, in characters; a token of no word has its own.
    Neighbouring tokens of one word share the word's number."""
    spans = list(offsets)
    start = 0
    for end in range(1, len(spans) + 1):
        if end == len(spans) or words[end] != words[start]:
            if words[start] is not None:
                spans[start:end] = [(offsets[start][0], offsets[end - 1][1])] * (end - start)
            start = end
    return spans
