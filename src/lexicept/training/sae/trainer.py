"""Training a sparse autoencoder on frozen token states."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lexicept.errors import InputError, LexiceptError
from lexicept.models.backbone import Backbone
from lexicept.models.sae.model import SAE
from lexicept.models.sae.states import Position, Reader, StateStream, backbone_reader
from lexicept.progress import Progress, silent
from lexicept.storage.files import replacing
from lexicept.training.sae.objectives import OBJECTIVES, OWN_RATE, Objective
from lexicept.training.sae.settings import SAESettings

CHECKPOINT_SECONDS = 60
"""Time between two checkpoints."""


def train_sae(
    backbone: Backbone,
    texts: Sequence[str],
    settings: SAESettings,
    checkpoints: Path | None = None,
    progress: Progress = silent,
    *,
    transform: Callable[[Tensor], Tensor] | None = None,
) -> SAE:
    """Train on the states of a corpus' tokens, special tokens left out; see ``train_on_states``.

    Args:
        backbone: frozen; its last block's output is what the SAE learns.
        texts: any sequence, such as one that reads from disk; documents, or documents and queries.
        transform: what the SAE reads instead of a state, [n, d] from [n, d]: a language head's
            ``transform``, whose head an ``SAEHead`` gets as its inner one.
    """
    reader = backbone_reader(backbone, texts, transform)
    return train_on_states(reader, len(texts), settings, checkpoints, progress)


def train_on_states(
    reader: Reader,
    count: int,
    settings: SAESettings,
    checkpoints: Path | None = None,
    progress: Progress = silent,
) -> SAE:
    """Train on token states that are read text by text.

    Args:
        reader: the states [n, d] of some of the texts, by their numbers, on the device to train on.
        count: number of texts.
        checkpoints: a folder. Training that was stopped goes on from there and ends with the
            weights of an unbroken run; another corpus or other settings need another folder.
        progress: called after every step with the number of tokens; the detail is loss, FVU (the
            fraction of variance unexplained), active latents per token, dead latents and tokens
            per second.

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
    stream = StateStream(reader, count, batch, buffer, settings.seed, filling)
    saved = time.monotonic()
    batches = stream.batches(start)
    if trainer is None:
        trainer, batches = _begun(batches, settings)
    if trainer.steps < settings.steps:
        for position, states in batches:
            detail = trainer.step(states)
            progress("training", min(trainer.tokens, settings.tokens), settings.tokens, detail)
            last = trainer.steps >= settings.steps
            if path is not None and (last or time.monotonic() - saved > CHECKPOINT_SECONDS):
                trainer.save(path, position)
                saved = time.monotonic()
            if last:
                break
    trainer.objective.finish()
    return trainer.sae.eval().requires_grad_(False)


def _begun(
    batches: Iterator[tuple[Position, Tensor]], settings: SAESettings
) -> tuple[Trainer, Iterator[tuple[Position, Tensor]]]:
    """A trainer that starts from a token for every latent, and all batches, the first ones too.

    From fewer tokens, copies of them would compete, and most of those would die.
    """
    first: list[tuple[Position, Tensor]] = []
    tokens = 0
    while tokens < settings.num_latents:
        found = next(batches, None)
        if found is None:
            raise InputError("an SAE can't be trained: the texts have no tokens")
        first.append(found)
        tokens += len(found[1])
    trainer = Trainer.begin(torch.cat([states for _, states in first]), settings)
    return trainer, chain(first, batches)


class Trainer:
    """The model, its optimiser and what they have seen; all of it is in a checkpoint."""

    def __init__(self, objective: Objective, settings: SAESettings) -> None:
        self.objective = objective
        self.sae = objective.sae
        self.settings = settings
        self.steps = 0
        self.tokens = 0
        self._rate = 0.0
        groups: list[dict[str, Any]] = [{"params": list(self.sae.parameters()), "factor": 1.0}]
        if own := objective.own_parameters():
            groups.append({"params": own, "factor": OWN_RATE, "weight_decay": 0.0})
        self._optimizer = torch.optim.AdamW(
            groups,
            lr=settings.learning_rate,
            eps=6e-10,
            weight_decay=settings.weight_decay,
            fused=True,
        )
        device = self.sae.W_dec.device
        self._quiet = torch.zeros(settings.num_latents, dtype=torch.long, device=device)
        """Tokens since each latent fired."""

    @classmethod
    def begin(cls, states: Tensor, settings: SAESettings) -> Trainer:
        """A trainer before its first step, from first states [n, d]."""
        sae = initial_sae(states, settings)
        objective = OBJECTIVES[settings.architecture](sae, settings).to(states.device)
        objective.begin(sae.normalise(states))
        return cls(objective, settings)

    def step(self, states: Tensor) -> str:
        """One optimiser step on a batch [n, d]; returns what a progress bar shows."""
        began = time.perf_counter()
        sae = self.sae
        x = sae.normalise(states)
        dead = torch.nonzero(self._quiet >= self.settings.dead_tokens).ravel()
        outcome = self.objective(x, dead)
        shown = float(outcome.loss.detach())
        if not math.isfinite(shown):
            raise LexiceptError(
                f"SAE training: the loss is {shown} at step {self.steps}; a lower learning "
                "rate or normalise=True may help"
            )
        self._optimizer.zero_grad(set_to_none=True)
        outcome.loss.backward()
        remove_parallel_gradient(sae.W_dec)
        torch.nn.utils.clip_grad_norm_(self.objective.parameters(), self.settings.max_grad_norm)
        for group in self._optimizer.param_groups:
            group["lr"] = group["factor"] * learning_rate(self.steps, self.settings)
        self._optimizer.step()
        self.objective.after_step(outcome)
        self._quiet += len(states)
        self._quiet[outcome.active > 0] = 0
        self.steps += 1
        self.tokens += len(states)
        seconds = time.perf_counter() - began
        # Smoothed, so that a person can read it.
        self._rate = 0.9 * (self._rate or len(states) / seconds) + 0.1 * len(states) / seconds
        variance = float((x - x.mean(dim=0)).square().sum())
        fvu = float(outcome.error.detach().square().sum()) / variance if variance > 0 else 0.0
        l0 = float(outcome.active.sum()) / len(states)
        still = float((self._quiet >= self.settings.dead_tokens).float().mean())
        return (
            f"loss {shown:.3f}  FVU {fvu:.3f}  l0 {l0:.1f}  dead {still:.1%}  "
            f"{self._rate:,.0f} tokens/s"
        )

    def save(self, path: Path, position: Position) -> None:
        """Write a checkpoint atomically."""
        content = {
            "settings": asdict(self.settings),
            "position": list(position),
            "steps": self.steps,
            "tokens": self.tokens,
            "quiet": self._quiet,
            "objective": self.objective.state_dict(),
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
            weights = content["objective"]
            sae = _empty_sae(weights["sae.W_dec"].shape[1], settings)
            objective = OBJECTIVES[settings.architecture](sae, settings)
            objective.to(weights["sae.W_dec"].device).load_state_dict(weights)
            trainer = cls(objective, settings)
            trainer._optimizer.load_state_dict(content["optimizer"])
            trainer._quiet = content["quiet"]
            trainer.steps, trainer.tokens = content["steps"], content["tokens"]
            return trainer, Position(*content["position"])
        except InputError:
            raise
        except Exception as error:  # torch.load raises many kinds
            raise InputError(f"{path}: this checkpoint can't be read: {error}") from None


def initial_sae(states: Tensor, settings: SAESettings) -> SAE:
    """An SAE before training, from first states [n, d]."""
    generator = torch.Generator().manual_seed(settings.seed)
    d_in = states.shape[1]
    sae = _empty_sae(d_in, settings).to(states.device)
    with torch.no_grad():
        if settings.normalise:
            sae.mean.copy_(states.mean(dim=0))
            sae.scale.copy_((states - sae.mean).square().mean().sqrt().clamp_min(1e-8))
        x = sae.normalise(states)
        sae.b_dec.copy_(x.mean(dim=0))
        if settings.initialisation == "data":
            # With fewer tokens than latents some come twice: noise tells the copies apart.
            order = torch.randperm(len(x), generator=generator)
            drawn = order.repeat(math.ceil(settings.num_latents / len(x)))[: settings.num_latents]
            rows = x[drawn.to(x.device)] - sae.b_dec
            noise = torch.randn(rows.shape, generator=generator).to(x.device)
            rows = rows + 0.1 * rows.norm(dim=1, keepdim=True) * F.normalize(noise, dim=1)
        else:
            rows = torch.randn((settings.num_latents, d_in), generator=generator)
        sae.W_dec.copy_(F.normalize(rows, dim=1))
        sae.W_enc.copy_(sae.W_dec)
    return sae


def _empty_sae(d_in: int, settings: SAESettings) -> SAE:
    """An SAE with the k or the thresholds of its architecture."""
    k = None if OBJECTIVES[settings.architecture].thresholds else settings.k
    return SAE(d_in, settings.num_latents, k, architecture=settings.architecture)


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
