"""Settings of the training of a sparse autoencoder."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import ClassVar, Literal

from lexicept.checks import Count, Items, NotNegative, Positive, Seed, Whole, settings
from lexicept.errors import InputError

FEW_STEPS = 1000
"""Most steps of a training at the higher learning rate."""

Architecture = Literal["topk", "batch_topk", "hierarchical", "matryoshka"]


@settings
class SAESettings:
    """Training of a sparse autoencoder (SAE-SPLADE and its authors' code; Gao et al. 2024; for the
    other architectures, the papers in ``training.sae.objectives``).

    Raises:
        InputError: a value out of range, a k above ``num_latents``, or ``prefixes`` in another
            order or with another end.
    """

    num_latents: Count = 8192
    """Number of latents M."""
    k: Count = 8
    """Active latents per token; for batch_topk the mean."""
    tokens: Whole = 1_000_000
    """Token states to train on; a smaller corpus is read several times. 0 leaves the SAE
    untrained (SAE-SPLADE, C.1: "Rand.")."""
    architecture: Architecture = "topk"
    """Architecture: the rule for active latents, and the loss."""
    batch_size: Count = 2048
    """Token states of a step."""
    learning_rate: Positive | None = None
    """AdamW's learning rate after warm-up; null for 3e-3 in a training of up to 1,000 steps, and
    1e-3 in a longer one."""
    warmup_steps: Whole = 50
    """Steps of linear warm-up."""
    decay: bool = True
    """Let the learning rate fall linearly to 0 over the last fifth of the steps."""
    weight_decay: NotNegative = 0.01
    """AdamW's weight decay."""
    auxiliary: NotNegative = 1 / 16
    """Weight of the auxiliary loss of the top-k architectures: dead latents reconstruct the error
    of the live latents. 0 leaves them as they are."""
    auxiliary_every: Count = 1
    """Distance of the tokens of a step that the auxiliary loss is the mean of."""
    dead_tokens: Count = 200_000
    """Tokens without activity after which a latent counts as dead."""
    prefixes: Items[Count] | None = None
    """For matryoshka: the number of latents of each prefix, ascending to ``num_latents``; by
    default 1, 3, 7 and 15 parts of 32, and all (SAE-SPLADE's 2048 to 65,536)."""
    normalise: bool = False
    """Normalise states to (h − h̄) / σ, with the mean state h̄ [d] and the mean norm σ of the first
    states (SAE-SPLADE, B.1)."""
    initialisation: Literal["data", "random"] = "data"
    """Decoder rows before training: states of random tokens, or random directions. The encoder
    starts as a copy of them."""
    decoder_bias: Literal["mean", "zero"] = "mean"
    """Decoder bias before training: the mean of the first states, or 0 (SAE-SPLADE, App. A)."""
    drop_sinks: bool = True
    """Leave attention sinks, states 10 times as long as the median, out of training."""
    buffer_tokens: Count = 2**19
    """Token states to shuffle together; 4 d bytes each."""
    seed: Seed = 0
    """Seed of the initial weights and of the order of states."""

    def __post_init__(self) -> None:
        if self.k > self.num_latents:
            raise InputError(f"k {self.k} is larger than num_latents {self.num_latents}")
        if self.prefixes is not None:
            ascending = all(a < b for a, b in pairwise(self.prefixes))
            if not ascending or self.prefixes[-1:] != (self.num_latents,):
                raise InputError(f"prefixes must ascend to {self.num_latents}: {self.prefixes}")

    schedule_steps: ClassVar[None] = None
    """The learning rate's schedule ends with the training."""

    @property
    def steps(self) -> int:
        """Optimiser steps of the whole training."""
        return math.ceil(self.tokens / self.batch_size)

    @property
    def rate(self) -> float:
        """Learning rate after warm-up."""
        return self.learning_rate or (3e-3 if self.steps <= FEW_STEPS else 1e-3)

    @property
    def decay_steps(self) -> int | None:
        """Last steps, in which the learning rate falls to 0; None for no decay."""
        return self.steps // 5 if self.decay else None

    @property
    def has_thresholds(self) -> bool:
        """True if the trained SAE has thresholds instead of k."""
        return self.architecture == "batch_topk"

    @property
    def hierarchy(self) -> tuple[int, ...]:
        """For hierarchical: the values of k with a reconstruction loss."""
        doubled = (2**i for i in range(self.k.bit_length()))
        return (*(k for k in doubled if k < self.k), self.k)

    @property
    def nested(self) -> tuple[int, ...]:
        """``prefixes`` or its default."""
        sizes = (share * self.num_latents // 32 for share in (1, 3, 7, 15))
        return self.prefixes or (*(size for size in sizes if size), self.num_latents)
