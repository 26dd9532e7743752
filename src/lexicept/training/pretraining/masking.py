"""Masking of sub-words and words in windows of text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from lexicept.errors import InputError
from lexicept.models.word_vocabulary import Span

BLANK = "_"
"""Token that stands for a masked one where a tokenizer has no mask token (BehnamGhader et al.
2024)."""


HIDDEN_SHARE = 0.9
"""Share of the chosen units that are hidden (BERT: 80 % masked, 10 % random, 10 % as they are)."""


class Masked(NamedTuple):
    """A window with tokens to predict."""

    token_ids: list[int]
    places: list[int]
    """Places to predict from: the tokens' own, or those before them."""
    labels: list[int]
    """Dimension to predict at each place."""


def subword_spans(token_ids: Sequence[int], ordinary: Sequence[bool]) -> list[Span]:
    """Return a span of its own for every ordinary token; its dimension is the token's id.

    Args:
        ordinary: whether each token is to be predicted; special tokens are not.
    """
    return [
        Span(place, place + 1, token)
        for place, (token, is_ordinary) in enumerate(zip(token_ids, ordinary, strict=True))
        if is_ordinary
    ]


def mask(
    token_ids: Sequence[int],
    spans: Sequence[Span],
    share: float,
    mask_id: int,
    replacements: np.ndarray,
    random: np.random.Generator,
    hidden_share: float = HIDDEN_SHARE,
) -> Masked:
    """Mask a share of the spans: exactly ``round(share · spans)`` of them, at least one.

    All tokens of a chosen span become ``mask_id`` (eight times as often) or random tokens, or stay
    unchanged. The label is the span's dimension, at each of its tokens (ESPLADE, 3.1.2).

    Args:
        token_ids: those of a window, special tokens included.
        spans: at least one; sub-words or words, which do not overlap.
        replacements: token ids that random tokens are drawn from.
        hidden_share: share of the chosen spans that do not stay as they are.
    """
    masked = Masked(list(token_ids), [], [])
    chosen = random.choice(len(spans), max(1, round(share * len(spans))), replace=False)
    for number, fate in zip(chosen, random.random(len(chosen)), strict=True):
        start, end, dimension = spans[number]
        if fate < hidden_share * 8 / 9:
            masked.token_ids[start:end] = [mask_id] * (end - start)
        elif fate < hidden_share:
            masked.token_ids[start:end] = random.choice(replacements, end - start).tolist()
        masked.places.extend(range(start, end))
        masked.labels.extend([dimension] * (end - start))
    return masked


def mask_token(tokenizer: Any) -> int:
    """Return the id of the tokenizer's mask token, or of ``BLANK``.

    Raises:
        InputError: it has neither.
    """
    token = tokenizer.mask_token_id
    token = tokenizer.get_vocab().get(BLANK) if token is None else token
    if token is None:
        raise InputError(f"pretraining: the tokenizer has no mask token and no {BLANK!r}")
    return int(token)
