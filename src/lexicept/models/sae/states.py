"""Token states for training: a corpus larger than memory, read in random order, shuffled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lexicept.models.backbone import Backbone

READ = 512
"""Documents that are read together: enough that texts of one length share a batch."""

SINK = 10.0
"""States that are so many times as long as the median are attention's sinks: the first token of a
decoder without a special one before it, or a comma. They say nothing of what a token means, and
the squares of a few would be nearly all that an SAE is asked to explain (Sun et al. 2024, "Massive
Activations in Large Language Models")."""

Reader = Callable[[Sequence[int]], Tensor]
"""The token states [n, d] of some texts, by their numbers."""


def backbone_reader(
    backbone: Backbone,
    texts: Sequence[str],
    transform: Callable[[Tensor], Tensor] | None = None,
) -> Reader:
    """Runs texts through a backbone, and a transform where one is given, in single precision."""

    def read(numbers: Sequence[int]) -> Tensor:
        windows = backbone.windows([texts[number] for number in numbers])
        parts = []
        with torch.no_grad():
            for _, states in backbone.token_states(windows):
                single = states.float()
                parts.append(single if transform is None else transform(single).float())
        # A copy: what was made in inference mode can't be trained on.
        return torch.cat(parts).clone() if parts else torch.empty(0, 0)

    return read


class Position(NamedTuple):
    """Where a stream of batches stands: enough to go on with the same batches."""

    epoch: int = 0
    document: int = 0
    """How many documents of the epoch came before the buffer's first."""
    batch: int = 0
    """How many of the buffer's batches were used."""
    whole: bool = False
    """Whether the buffer holds the whole corpus, and is kept from epoch to epoch."""


class StateStream:
    """Endless batches of shuffled token states of a corpus.

    Documents are read in a new random order every epoch. A buffer is filled with the states of as
    many as it takes, its tokens are shuffled and handed out in batches, and it is filled again. A
    corpus that fits the buffer goes through the backbone once. All is a function of the seed and
    the position, so that a resumed stream gives the batches of an unbroken one. Sinks, by the
    median of a buffer, are left out.

    Args:
        reader: reads the states of texts.
        count: number of texts.
        batch_size: tokens of a batch; batches of one buffer differ by one at most.
        buffer_tokens: tokens to shuffle together; 4 d bytes each.
        seed: of the orders.
        filling: called with the number of tokens in the buffer while it fills.
    """

    def __init__(
        self,
        reader: Reader,
        count: int,
        batch_size: int,
        buffer_tokens: int,
        seed: int,
        filling: Callable[[int], None],
    ) -> None:
        self._reader = reader
        self._count = count
        self._batch_size = batch_size
        self._buffer_tokens = buffer_tokens
        self._seed = seed
        self._filling = filling
        self._whole: Tensor | None = None

    def batches(self, start: Position) -> Iterator[tuple[Position, Tensor]]:
        """Batches [n, d] from a position on, each with the position after it. Ends only where no
        text has a token."""
        position = start
        while True:
            states, documents = self._buffer(position)
            position = position._replace(whole=documents == self._count)
            if len(states):
                order = torch.from_numpy(
                    self._random(position.epoch, position.document).permutation(len(states))
                )
                parts = order.tensor_split(-(-len(states) // self._batch_size))
                for number in range(position.batch, len(parts)):
                    position = position._replace(batch=number + 1)
                    yield position, states[parts[number]]
            elif position.whole:
                return
            after = position.document + documents
            if after >= self._count:
                position = Position(position.epoch + 1, whole=position.whole)
            else:
                position = Position(position.epoch, after)

    def _random(self, *key: int) -> np.random.Generator:
        return np.random.default_rng((self._seed, *key))

    def _buffer(self, position: Position) -> tuple[Tensor, int]:
        """States of the documents from a position on, and how many documents they are of."""
        if self._whole is not None:
            return self._whole, self._count
        start = position.document
        order = self._random(0 if position.whole else position.epoch).permutation(self._count)
        parts: list[Tensor] = []
        tokens, place = 0, start
        while tokens < self._buffer_tokens and place < len(order):
            numbers = order[place : place + READ].tolist()
            place += len(numbers)
            states = self._reader(numbers)
            if len(states):
                parts.append(states)
                tokens += len(states)
            self._filling(tokens)
        states = without_sinks(torch.cat(parts)) if parts else torch.empty(0, 0)
        if start == 0 and place == len(order):
            self._whole = states
        return states, place - start


def without_sinks(states: Tensor) -> Tensor:
    """States [n, d] that are not longer than ``SINK`` medians; what is not finite stays."""
    lengths = states.norm(dim=1)
    sinks = (lengths > SINK * lengths.median()) & lengths.isfinite()
    return states[~sinks] if bool(sinks.any()) else states
