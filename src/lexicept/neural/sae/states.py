"""Token states for training: shuffled batches from a corpus larger than memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING

from lexicept.encoding.windows import READ
from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.sae.model import layer_of

SINK = 10.0
"""Length, in medians, above which a state is an attention sink, such as a decoder's first token or
a comma. Sinks carry no meaning, but a few would be most of the variance for an SAE to explain (Sun
et al. 2024, "Massive Activations in Large Language Models")."""

Reader = Callable[[Sequence[int]], Tensor]
"""Numbers of texts → token states [n, d], of any precision."""


def backbone_reader(
    backbone: Backbone, texts: Sequence[str], transform: Callable[[Tensor], Tensor] | None = None
) -> Reader:
    """Return a reader of texts through a backbone, then a transform, in single precision."""

    def read(indices: Sequence[int]) -> Tensor:
        windows = backbone.windows([texts[index] for index in indices])
        batches = []
        with torch.no_grad():
            for _, states in backbone.token_states(windows):
                single = states.float()
                batches.append(single if transform is None else transform(single).float())
        # A copy, since tensors of inference mode can't be trained on.
        return torch.cat(batches).clone() if batches else torch.empty(0, 0)

    return read


def origin_of(backbone: Backbone, *, transformed: bool) -> dict[str, Any]:
    """Return the origin of an SAE over the states of a backbone, perhaps transformed: no hook has
    transformed states.

    The hook has TransformerLens' name in decoders, and the name of the last block's module in
    encoders: TransformerLens' hooks of encoders differ from model to model.
    """
    origin: dict[str, Any] = {"bidirectional": backbone.bidirectional}
    if transformed:
        return origin
    layer, model = backbone.num_layers, backbone.model
    names = (name for name, _ in model.named_modules())
    hook = next((name for name in names if layer_of(name) == layer), None)
    if hook is not None and type(model.config) not in MODEL_FOR_MASKED_LM_MAPPING:
        hook = f"blocks.{layer - 1}.hook_resid_post"
    return {"model": backbone.source, "hook": hook, "layer": layer, **origin}


class Position(NamedTuple):
    """Position in a stream of batches, to resume from."""

    epoch: int = 0
    document: int = 0
    """Documents of the epoch before the buffer's first."""
    batch: int = 0
    """Used batches of the buffer."""
    whole: bool = False
    """True if the buffer holds the whole corpus, for all epochs."""


@dataclass(frozen=True)
class Shuffling:
    """Order and size of a stream's batches."""

    batch_size: int
    """Tokens of a batch; the sizes of a buffer's batches differ by one at most."""
    buffer_tokens: int
    """Tokens shuffled together; each takes 4 d bytes."""
    seed: int
    """Seed of the random orders."""
    drop_sinks: bool = True
    """Leave attention sinks (see ``SINK``) out of every buffer."""
    documents: int = READ
    """Documents read together: a buffer has ``buffer_tokens`` and up to so many documents more."""


class StateStream:
    """An endless stream of batches of shuffled token states of a corpus; ``filling`` is called with
    the number of tokens in the buffer while it fills.

    Documents are read in a new random order every epoch. A buffer is filled with states, shuffled,
    handed out in batches, and filled again. A corpus that fits the buffer goes through the backbone
    once. Batches depend on seed and position only: a resumed stream gives equal batches."""

    def __init__(
        self, reader: Reader, count: int, shuffling: Shuffling, filling: Callable[[int], None]
    ) -> None:
        self._reader, self._count, self._shuffling = reader, count, shuffling
        self._filling = filling
        self._whole: Tensor | None = None

    def batches(self, start: Position) -> Iterator[tuple[Position, Tensor]]:
        """Yield batches [n, d] from a position on, each with the next position.

        The stream ends only if no text has a token.
        """
        position = start
        while True:
            states, documents = self._buffer(position)
            position = position._replace(whole=documents == self._count)
            # Batches of nearly equal size, so that none is small.
            if len(states):
                order = torch.from_numpy(
                    self._random(position.epoch, position.document).permutation(len(states))
                )
                batches = order.tensor_split(-(-len(states) // self._shuffling.batch_size))
                for index in range(position.batch, len(batches)):
                    position = position._replace(batch=index + 1)
                    yield position, states[batches[index]].float()
            elif position.whole:
                return
            del states  # before the next buffer is filled
            after, epoch = position.document + documents, position.epoch
            if after < self._count:
                position = Position(epoch, after)
            else:
                position = Position(epoch + 1, whole=position.whole)

    def _random(self, *key: int) -> np.random.Generator:
        return np.random.default_rng((self._shuffling.seed, *key))

    def _buffer(self, position: Position) -> tuple[Tensor, int]:
        """Return the states of the documents from a position on, and the number of documents."""
        if self._whole is not None:
            return self._whole, self._count
        start = position.document
        order = self._random(0 if position.whole else position.epoch).permutation(self._count)
        chunks: list[Tensor] = []
        tokens, document = 0, start
        while tokens < self._shuffling.buffer_tokens and document < len(order):
            following = document + self._shuffling.documents
            states = self._reader(order[document:following].tolist())
            document = min(following, len(order))
            if len(states):
                chunks.append(states)
                tokens += len(states)
            self._filling(tokens)
        states = torch.cat(chunks) if chunks else torch.empty(0, 0)
        if self._shuffling.drop_sinks and len(states):
            states = without_sinks(states)
        if start == 0 and document == len(order):
            self._whole = states
        return states, document - start


def without_sinks(states: Tensor) -> Tensor:
    """Drop states [n, d] longer than ``SINK`` medians; states that are not finite stay."""
    lengths = torch.cat([block.float().norm(dim=1) for block in states.split(READ)])
    sinks = (lengths > SINK * lengths.median()) & lengths.isfinite()
    return states[~sinks] if bool(sinks.any()) else states
