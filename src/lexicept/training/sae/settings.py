"""How a sparse autoencoder is trained."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

from lexicept.errors import InputError

Architecture = Literal[
    "topk", "batch_topk", "jumprelu", "relu", "gated", "hierarchical", "matryoshka"
]


@dataclass(frozen=True)
class SAESettings:
    """How an SAE is trained. Sources: SAE-SPLADE and its authors' code, Gao et al. 2024, and for
    the other architectures the papers that ``sae.objectives`` names."""

    num_latents: int = 8192
    """Number of concepts M."""
    k: int = 8
    """Active latents per token; their mean for batch_topk and, by a λ that is steered, for
    jumprelu, relu and gated."""
    tokens: int = 1_000_000
    """Token states to train on, epochs included."""
    architecture: Architecture = "topk"
    """Which latents are active, and the loss."""
    batch_size: int = 2048
    """Token states of a step."""
    learning_rate: float = 1e-3
    """Of AdamW, after warm-up."""
    warmup_steps: int = 50
    """Steps of linear warm-up."""
    decay: bool = True
    """Whether the learning rate falls linearly to 0 over the last fifth of the steps."""
    weight_decay: float = 0.01
    """Of AdamW."""
    max_grad_norm: float = 1.0
    """Gradients are clipped to this norm, of all parameters together."""
    auxiliary: float = 1 / 16
    """Weight of the auxiliary loss of the top-k architectures: dead latents reconstruct what the
    live ones leave over."""
    dead_tokens: int = 200_000
    """A latent is dead when it has not fired for so many tokens."""
    ks: tuple[int, ...] | None = None
    """For hierarchical: the k whose reconstructions are learned, ascending to ``k``; 1, 2, 4, 8
    and so on by default."""
    prefixes: tuple[int, ...] | None = None
    """For matryoshka: how many latents each nested SAE has, ascending to ``num_latents``; by
    default 1, 3, 7 and 15 parts of 32, and all (SAE-SPLADE's 2048 to 65,536)."""
    sparsity: float = 1.0
    """For jumprelu, relu and gated: the first λ, before it is steered, where 1 is of the size that
    states ask for: the mean threshold θ of the first batch, θ² / 20 for jumprelu."""
    sparsity_warmup_steps: int = 50
    """For the same: steps of λ's linear warm-up."""
    bandwidth: float = 1.0
    """For jumprelu: ε of its gradient's kernel, in units of each threshold."""
    normalise: bool = False
    """Whether states become (h − h̄) / σ, with h̄ [d] and the scalar σ of the first buffer."""
    initialisation: Literal["data", "random"] = "data"
    """Decoder rows at first: states of random tokens, or random directions. The encoder starts
    as a copy of them."""
    buffer_tokens: int = 2**19
    """Token states that are shuffled together; 4 d bytes each."""
    seed: int = 0

    def __post_init__(self) -> None:
        whole = ("num_latents", "k", "tokens", "batch_size", "dead_tokens", "buffer_tokens")
        for name in whole:
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.k > self.num_latents:
            raise InputError(f"k {self.k} is larger than num_latents {self.num_latents}")
        if self.initialisation not in ("data", "random"):
            raise InputError(f"initialisation is data or random, not {self.initialisation!r}")
        known = get_args(Architecture)
        if self.architecture not in known:
            raise InputError(f"architecture is {', '.join(known)}, not {self.architecture!r}")
        for name in ("sparsity", "bandwidth"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} must be above 0, not {getattr(self, name)}")
        for name, values, least, most in (
            ("ks", self.ks, 1, self.k),
            ("prefixes", self.prefixes, self.k, self.num_latents),
        ):
            if values is not None and not _ascends(values, least, most):
                raise InputError(f"{name} must ascend from {least} or more to {most}: {values}")

    @property
    def steps(self) -> int:
        """Optimiser steps of the whole training."""
        return math.ceil(self.tokens / self.batch_size)

    @property
    def hierarchy(self) -> tuple[int, ...]:
        """``ks`` or its default."""
        doubled = (2**i for i in range(self.k.bit_length()))
        return self.ks or (*(k for k in doubled if k < self.k), self.k)

    @property
    def nested(self) -> tuple[int, ...]:
        """``prefixes`` or its default, without those that have fewer than k latents."""
        parts = (share * self.num_latents // 32 for share in (1, 3, 7, 15))
        return self.prefixes or (*(size for size in parts if size >= self.k), self.num_latents)


def _ascends(values: tuple[int, ...], least: int, most: int) -> bool:
    ascending = all(a < b for a, b in pairwise(values))
    return bool(values) and ascending and values[0] >= least and values[-1] == most
