"""States of windows that are known before the backbone runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor

from lexicept.models.windows import Window


class KnownStates(Protocol):
    """States that need not be computed again."""

    def find(self, window: Window) -> Tensor | None:
        """Return the states [tokens, d] of the tokens that a window does not leave out; None for
        a window that is not known."""


def read_known(
    windows: Sequence[Window], known: KnownStates | None, limit: int, fresh: list[int]
) -> Iterator[tuple[list[int], Tensor]]:
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
