"""Windows: the pieces of texts that a backbone reads at once, and their words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

LONGEST_WINDOW = 512
"""Tokens of a window by default (SPLARE evaluates at 512)."""


class Window(NamedTuple):
    """A run of a text's tokens that fits the backbone, with special tokens around it."""

    text: int
    """Number of the window's text."""
    token_ids: list[int]
    special: list[int]
    """1 for each special token, which vectors leave out; 0 for any other token."""
    words: list[int | None]
    """Number of each token's word; neighbouring tokens of one word share it. None: no word."""
    offsets: list[tuple[int, int]]
    """Start and end of each token in the text, in characters."""


def cut_windows(
    texts: Sequence[str], tokenizer: Any, length: int, *, overlap: int, leave_out_special: bool
) -> list[Window]:
    """Cut texts into overlapping windows, each with its own special tokens.

    An empty text has one window, without any token where the tokenizer adds none.

    Args:
        tokenizer: a fast tokenizer of transformers.
        length: of a window at most, in tokens.
        overlap: tokens that neighbouring windows share.
        leave_out_special: whether special tokens are marked as such.
    """
    returned = ("overflowing_tokens", "special_tokens_mask", "offsets_mapping")
    wanted = {f"return_{name}": True for name in returned}
    encoded = tokenizer(list(texts), truncation=True, max_length=length, stride=overlap, **wanted)
    names = ("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")
    borders = {getattr(tokenizer, name) for name in names}
    windows = []
    for number, ids in enumerate(encoded["input_ids"]):
        text = encoded["overflow_to_sample_mapping"][number]
        # The tokenizer's mask marks only the tokens that it added itself, by its template.
        added = encoded["special_tokens_mask"][number]
        special = [int(one or token in borders) for one, token in zip(added, ids, strict=True)]
        if not leave_out_special:
            special = [0] * len(ids)
        offsets = encoded["offset_mapping"][number]
        words = split_words(texts[text], encoded.word_ids(number), offsets)
        windows.append(Window(text, ids, special, words, offsets))
    return windows


def first_windows(windows: Sequence[Window], count: int) -> list[Window]:
    """Return the first ``count`` windows of each text."""
    kept, seen = [], Counter[int]()
    for window in windows:
        seen[window.text] += 1
        if seen[window.text] <= count:
            kept.append(window)
    return kept


def pad_windows(windows: Sequence[Window], padding: int) -> dict[str, Tensor]:
    """Return windows as tensors of one length, padded at the end with the token ``padding``.

    Returns:
        ``input_ids``, ``attention_mask`` and ``token_mask`` (False for special tokens and padding),
        all [windows, length], and ``window_text`` [windows], the text of each window.
    """
    # A window without any token attends to one place of padding: no attention at all is NaN.
    length = max(1, *(len(window.token_ids) for window in windows))
    ids = torch.full((len(windows), length), padding)
    attention = torch.zeros((len(windows), length), dtype=torch.long)
    real = torch.zeros((len(windows), length), dtype=torch.bool)
    for row, window in enumerate(windows):
        size = len(window.token_ids)
        ids[row, :size] = torch.tensor(window.token_ids, dtype=torch.long)
        attention[row, : max(1, size)] = 1
        real[row, :size] = torch.tensor(window.special) == 0
    return {
        "input_ids": ids,
        "attention_mask": attention,
        "token_mask": real,
        "window_text": torch.tensor([window.text for window in windows]),
    }


def split_words(
    text: str, words: Sequence[int | None], offsets: Sequence[tuple[int, int]]
) -> list[int | None]:
    """Split a tokenizer's words at spaces: some tokenizers take a whole text for one word.

    Args:
        words: the word of every token; None for special tokens.
        offsets: start and end of every token, in characters.

    Returns:
        The number of every token's word, from 0; None for special tokens.
    """
    numbers: list[int | None] = []
    number, before, last = -1, None, 0
    for word, (start, end) in zip(words, offsets, strict=True):
        if word is not None and (word != before or any(map(str.isspace, text[last : start + 1]))):
            number += 1
        numbers.append(None if word is None else number)
        before, last = word, end
    return numbers


def word_spans(window: Window) -> list[tuple[int, int]]:
    """Return start and end of every token's word, in characters; a token of no word has its own."""
    spans = list(window.offsets)
    start = 0
    for end in range(1, len(spans) + 1):
        if end == len(spans) or window.words[end] != window.words[start]:
            if window.words[start] is not None:
                whole = (window.offsets[start][0], window.offsets[end - 1][1])
                spans[start:end] = [whole] * (end - start)
            start = end
    return spans
