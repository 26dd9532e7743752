"""Windows as tensors: padded, one after another in a row, and their stored states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from lexicept.encoding.windows import Window


def pad_windows(windows: Sequence[Window], padding: int) -> dict[str, Tensor]:
    """Return ``input_ids``, ``attention_mask`` and ``token_mask`` (False for padding and tokens
    left out) of windows, [windows, length], padded at the end with the token ``padding``."""
    return _stack([attended(window, padding) for window in windows], padding)


def join_windows(windows: Sequence[Window], padding: int) -> dict[str, Tensor]:
    """Return the windows of each text one after another, in a row: the tensors of ``pad_windows``
    and ``window_start`` (True for the first token of a window), all [texts, length].

    Losses of sentence-transformers slice and concatenate the rows of a batch and pad them with
    zeros; ``split_rows`` finds the windows in the result."""
    texts: list[tuple[list[int], list[int]]] = []
    starts: list[list[int]] = []
    for window in windows:
        ids, left_out = attended(window, padding)
        if window.text == len(texts):
            texts.append(([], []))
            starts.append([])
        texts[-1][0].extend(ids)
        texts[-1][1].extend(left_out)
        starts[-1] += [1] + [0] * (len(ids) - 1)
    start = pad_sequence([torch.tensor(marks) for marks in starts], batch_first=True)
    return {**_stack(texts, padding), "window_start": start.bool()}


def split_rows(features: Mapping[str, Tensor], padding: int) -> dict[str, Tensor]:
    """Return the windows in the rows of ``join_windows``.

    Returns:
        The tensors of ``pad_windows``, and ``window_text`` [windows], the row of each window.
    """
    # Tokens in order, without padding; each knows its window and its place there.
    real = features["attention_mask"].bool()
    start = features["window_start"][real]
    window, first_tokens = start.cumsum(0) - 1, start.nonzero().ravel()
    position = torch.arange(len(start), device=start.device) - first_tokens[window]
    shape = (len(first_tokens), int(position.max()) + 1)
    spaced = {}
    for name, fill in (("input_ids", padding), ("attention_mask", 0), ("token_mask", 0)):
        spaced[name] = features[name].new_full(shape, fill)
        spaced[name][window, position] = features[name][real]
    return {**spaced, "window_text": real.nonzero()[first_tokens, 0]}


def attended(window: Window, padding: int) -> tuple[list[int], list[int]]:
    """Return a window's tokens and marks, or a token of padding: attention to nothing is NaN."""
    return (window.token_ids, window.left_out) if window.token_ids else ([padding], [1])


def _stack(runs: Sequence[tuple[list[int], list[int]]], padding: int) -> dict[str, Tensor]:
    ids = [torch.tensor(token_ids) for token_ids, _ in runs]
    counted = [torch.tensor(marks) == 0 for _, marks in runs]
    attention = [torch.ones_like(token_ids) for token_ids in ids]
    return {
        "input_ids": pad_sequence(ids, batch_first=True, padding_value=padding),
        "attention_mask": pad_sequence(attention, batch_first=True),
        "token_mask": pad_sequence(counted, batch_first=True),
    }


Batches: TypeAlias = Iterator[tuple[list[int], Tensor]]
"""Numbers of windows, and states of the windows' tokens, window by window."""


class KnownStates(Protocol):
    """Stored states of windows."""

    def find(self, window: Window) -> Tensor | None:
        """Return the states [tokens, d] of a window's counted tokens; None if unknown."""

    def __contains__(self, window: object) -> bool: ...


def read_known(
    windows: Sequence[Window], stored: KnownStates | None, limit: int, fresh: list[int]
) -> Batches:
    """Yield batches of stored states, full after ``limit`` tokens, and add the indices of unknown
    windows to ``fresh``."""
    batch: list[int] = []
    batch_states: list[Tensor] = []
    tokens = 0
    for index, window in enumerate(windows):
        states = None if stored is None else stored.find(window)
        if states is None:
            fresh.append(index)
            continue
        batch.append(index)
        batch_states.append(states)
        tokens += len(states)
        if tokens >= limit:
            yield batch, torch.cat(batch_states)
            batch, batch_states, tokens = [], [], 0
    if batch:
        yield batch, torch.cat(batch_states)
