"""Training a TopK sparse autoencoder on frozen token states."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from lexicept.backbone import Backbone
from lexicept.errors import InputError, LexiceptError
from lexicept.ops.topk import top_columns
from lexicept.progress import Progress, silent
from lexicept.sae.model import TopKSAE
from lexicept.sae.states import Position, StateStream
from lexicept.storage import replacing

CHECKPOINT_SECONDS = 60
"""Time between two checkpoints."""


@dataclass(frozen=True)
class SAESettings:
    """How a TopK SAE is trained. Sources: SAE-SPLADE and its authors' code, Gao et al. 2024."""

    num_latents: int = 8192
    """Number of concepts M."""
    k: int = 8
    """Active latents per token."""
    tokens: int = 1_000_000
    """Token states to train on, epochs included."""
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
    """Weight of the auxiliary loss: dead latents reconstruct what the live ones leave over."""
    dead_tokens: int = 200_000
    """A latent is dead when it has not fired for so many tokens."""
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

    @property
    def steps(self) -> int:
        """Optimiser steps of the whole training."""
        return math.ceil(self.tokens / self.batch_size)


def train_sae(
    backbone: Backbone,
    texts: Sequence[str],
    settings: SAESettings,
    checkpoints: Path | None = None,
    progress: Progress = silent,
) -> TopKSAE:
    """Train on the states of a corpus' tokens, special tokens left out.

    Args:
        backbone: frozen; its last block's output is what the SAE learns.
        texts: any sequence, such as one that reads from disk.
        checkpoints: a folder. Training that was stopped goes on from there and ends with the
            weights of an unbroken run; another corpus or other settings need another folder.
        progress: called after every step with the number of tokens; the detail is loss, FVU (the
            fraction of variance unexplained), dead latents and tokens per second.

    Raises:
        InputError: texts without a single token.
        LexiceptError: a loss that is not finite; the last checkpoint is kept.
    """

    path = None if checkpoints is None else checkpoints / "checkpoint.pt"
    trainer, start = None, Position()
    if path is not None and path.exists():
        trainer, start = Trainer.load(path, settings)

    def filling(tokens: int) -> None:
        done = 0 if trainer is None else trainer.tokens
        progress("training", done, settings.tokens, f"reading states {tokens:,}")

    batch, buffer = settings.batch_size, settings.buffer_tokens
    stream = StateStream(backbone, texts, batch, buffer, settings.seed, filling)
    saved = time.monotonic()
    if trainer is None or trainer.steps < settings.steps:
        for position, states in stream.batches(start):
            if trainer is None:
                trainer = Trainer(initial_sae(states, settings), settings)
            detail = trainer.step(states)
            progress("training", min(trainer.tokens, settings.tokens), settings.tokens, detail)
            last = trainer.steps >= settings.steps
            if path is not None and (last or time.monotonic() - saved > CHECKPOINT_SECONDS):
                trainer.save(path, position)
                saved = time.monotonic()
            if last:
                break
    if trainer is None:
        raise InputError("an SAE can't be trained: the texts have no tokens")
    return trainer.sae.eval().requires_grad_(False)


class Trainer:
    """The model, its optimiser and what they have seen; all of it is in a checkpoint."""

    def __init__(self, sae: TopKSAE, settings: SAESettings) -> None:
        self.sae = sae
        self.settings = settings
        self.steps = 0
        self.tokens = 0
        self._rate = 0.0
        self._optimizer = torch.optim.AdamW(
            sae.parameters(),
            lr=settings.learning_rate,
            eps=6e-10,
            weight_decay=settings.weight_decay,
            fused=True,
        )
        self._quiet = torch.zeros(settings.num_latents, dtype=torch.long)
        """Tokens since each latent fired."""

    def step(self, states: Tensor) -> str:
        """One optimiser step on a batch [n, d]; returns what a progress bar shows."""
        began = time.perf_counter()
        sae = self.sae
        x = sae.normalise(states)
        loss, fvu, fired = self.loss(x)
        shown = float(loss.detach())
        if not math.isfinite(shown):
            raise LexiceptError(
                f"SAE training: the loss is {shown} at step {self.steps}; a lower learning "
                "rate or normalise=True may help"
            )
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        remove_parallel_gradient(sae.W_dec)
        torch.nn.utils.clip_grad_norm_(sae.parameters(), self.settings.max_grad_norm)
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate(self.steps, self.settings)
        self._optimizer.step()
        with torch.no_grad():
            sae.W_dec.copy_(F.normalize(sae.W_dec, dim=1))
        self._quiet += len(states)
        self._quiet[fired] = 0
        self.steps += 1
        self.tokens += len(states)
        seconds = time.perf_counter() - began
        # Smoothed, so that a person can read it.
        self._rate = 0.9 * (self._rate or len(states) / seconds) + 0.1 * len(states) / seconds
        dead = float((self._quiet >= self.settings.dead_tokens).float().mean())
        return f"loss {shown:.3f}  FVU {fvu:.3f}  dead {dead:.1%}  {self._rate:,.0f} tokens/s"

    def loss(self, x: Tensor) -> tuple[Tensor, float, Tensor]:
        """``‖x̂ − x‖² + auxiliary · ‖ê − e‖²``, e = x − x̂, each summed over d and averaged over
        tokens; FVU; and the latents that fired."""
        sae = self.sae
        with torch.no_grad():
            pre = sae.pre_acts(x)
            latents = top_columns(pre, sae.k)
        acts = sae.acts(x, latents)
        reconstruction = sae.decode(acts, latents)
        error = x - reconstruction
        squared = error.square().sum(dim=1).mean()
        variance = (x - x.mean(dim=0)).square().sum(dim=1).mean()
        fvu = float(squared.detach() / variance) if float(variance) > 0 else 0.0
        dead = torch.nonzero(self._quiet >= self.settings.dead_tokens).ravel()
        loss = squared
        if len(dead):
            chosen = dead[top_columns(pre[:, dead], min(2 * sae.k, len(dead)))]
            residual = sae.decode(sae.acts(x, chosen), chosen) - sae.b_dec
            auxiliary = (residual - error.detach()).square().sum(dim=1).mean()
            loss = loss + self.settings.auxiliary * auxiliary
        fired = latents[acts.detach() > 0]
        return loss, fvu, fired

    def save(self, path: Path, position: Position) -> None:
        """Write a checkpoint atomically."""
        content = {
            "settings": asdict(self.settings),
            "position": list(position),
            "steps": self.steps,
            "tokens": self.tokens,
            "quiet": self._quiet,
            "model": self.sae.state_dict(),
            "optimizer": self._optimizer.state_dict(),
        }
        with replacing(path) as file:
            torch.save(content, file)

    @classmethod
    def load(cls, path: Path, settings: SAESettings) -> tuple[Trainer, Position]:
        """Read a checkpoint; also return where the stream of batches goes on.

        Raises:
            InputError: damaged, or of other settings.
        """
        try:
            content: dict[str, Any] = torch.load(path, weights_only=True)
            if content["settings"] != asdict(settings):
                raise InputError(f"{path}: a checkpoint of other settings; use another folder")
            d_in = content["model"]["W_dec"].shape[1]
            trainer = cls(TopKSAE(d_in, settings.num_latents, settings.k), settings)
            trainer.sae.load_state_dict(content["model"])
            trainer._optimizer.load_state_dict(content["optimizer"])
            trainer._quiet = content["quiet"]
            trainer.steps, trainer.tokens = content["steps"], content["tokens"]
            return trainer, Position(*content["position"])
        except InputError:
            raise
        except Exception as error:  # torch.load raises many kinds
            raise InputError(f"{path}: this checkpoint can't be read: {error}") from None


def initial_sae(states: Tensor, settings: SAESettings) -> TopKSAE:
    """An SAE before training, from a first batch of states [n, d]."""
    generator = torch.Generator().manual_seed(settings.seed)
    d_in = states.shape[1]
    sae = TopKSAE(d_in, settings.num_latents, settings.k)
    with torch.no_grad():
        if settings.normalise:
            sae.mean.copy_(states.mean(dim=0))
            sae.scale.copy_((states - sae.mean).square().mean().sqrt().clamp_min(1e-8))
        x = sae.normalise(states)
        sae.b_dec.copy_(x.mean(dim=0))
        if settings.initialisation == "data":
            # With fewer tokens than latents some come twice: noise tells the copies apart.
            drawn = torch.randint(len(x), (settings.num_latents,), generator=generator)
            rows = x[drawn] - sae.b_dec
            noise = torch.randn(rows.shape, generator=generator)
            rows = rows + 0.1 * rows.norm(dim=1, keepdim=True) * F.normalize(noise, dim=1)
        else:
            rows = torch.randn((settings.num_latents, d_in), generator=generator)
        sae.W_dec.copy_(F.normalize(rows, dim=1))
        sae.W_enc.copy_(sae.W_dec)
    return sae


def learning_rate(step: int, settings: SAESettings) -> float:
    """Linear warm-up, constant, and, where decay is on, linear to 0 over the last fifth."""
    rate = settings.learning_rate * min(1.0, (step + 1) / settings.warmup_steps)
    if settings.decay:
        rate *= min(1.0, (settings.steps - step) / max(1, settings.steps // 5))
    return rate


def remove_parallel_gradient(rows: torch.nn.Parameter) -> None:
    """Take out of the gradient of unit-norm rows what would only change their length."""
    if rows.grad is not None:
        rows.grad -= (rows.grad * rows.data).sum(dim=1, keepdim=True) * rows.data
