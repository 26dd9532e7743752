"""States of windows that are known before the backbone runs, or after it has read others."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

from lexicept.models.windows import Window

Batches: TypeAlias = Iterator[tuple[list[int], Tensor]]
"""The numbers of some windows, and the states of their tokens, window by window."""


class KnownStates(Protocol):
    """States that need not be computed again."""

    def find(self, window: Window) -> Tensor | None:
        """Return the states [tokens, d] of the tokens that a window does not leave out; None for
        a window that is not known."""


def read_known(
    windows: Sequence[Window], known: KnownStates | None, limit: int, fresh: list[int]
) -> Batches:
    """Yield the states of known windows, and add the numbers of all others to ``fresh``.

    Args:
        limit: tokens after which a batch is full.

    Yields:
        For a batch of windows: their numbers, and the states of their tokens, window by window.
    """
    batch: list[int] = []
    parts: list[Tensor] = []
    tokens = 0
    for number, window in enumerate(windows):
        states = None if known is None else known.find(window)
        if states is None:
            fresh.append(number)
            continue
        batch.append(number)
        parts.append(states)
        tokens += len(states)
        if tokens >= limit:
            yield batch, torch.cat(parts)
            batch, parts, tokens = [], [], 0
    if batch:
        yield batch, torch.cat(parts)


def read_once(
    windows: Sequence[Window],
    numbers: Sequence[int],
    run: Callable[[Sequence[Window]], Batches],
    limit: int,
) -> Batches:
    """Yield the states of some windows; those of the same tokens are computed once.

    Args:
        run: computes the states of windows.
        limit: most tokens of a batch of copies, unless one window has more.
    """
    first: dict[tuple[bytes, bytes], int] = {}
    copies: dict[int, list[int]] = {}
    for number in numbers:
        window = windows[number]
        key = (array("q", window.token_ids).tobytes(), bytes(window.left_out))
        if (original := first.setdefault(key, number)) != number:
            copies.setdefault(original, []).append(number)
    distinct = list(first.values())
    for batch, states in run([windows[number] for number in distinct]):
        own = [distinct[place] for place in batch]
        yield own, states
        if copies.keys().isdisjoint(own):
            continue
        lengths = [windows[number].left_out.count(0) for number in own]
        for number, part in zip(own, states.split(lengths), strict=True):
            others, step = copies.get(number, []), max(1, limit // max(1, len(part)))
            for start in range(0, len(others), step):
                some = others[start : start + step]
                yield some, part.repeat(len(some), 1)
