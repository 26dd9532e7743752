"""Training a sparse autoencoder on frozen token states."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from itertools import chain
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lexicept.encoding.windows import READ
from lexicept.errors import InputError
from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.heads.sae import SAEHead
from lexicept.neural.sae.model import SAE
from lexicept.neural.sae.states import (
    Position,
    Reader,
    Shuffling,
    StateStream,
    backbone_reader,
    origin_of,
)
from lexicept.neural.vectorizers.concepts import ConceptVectorizer
from lexicept.progress import Progress, silent
from lexicept.training.loop import Checkpoint, Loop, StepLoss
from lexicept.training.sae.objectives import OBJECTIVES, Outcome
from lexicept.training.sae.settings import SAESettings

CPU = torch.device("cpu")

Batches = Iterator[tuple[Position, Tensor]]


def train_sae(
    backbone: Backbone,
    texts: Sequence[str],
    settings: SAESettings,
    checkpoints: Path | None = None,
    progress: Progress = silent,
    *,
    transform: Callable[[Tensor], Tensor] | None = None,
) -> SAE:
    """Train an SAE on the token states of texts; see ``train_on_states``. Its ``origin`` names the
    frozen backbone, whose last output the SAE reads, with special tokens if the backbone counts
    them. A ``transform`` [n, d] to [n, d] is applied before: that of a language head, the inner
    head of the later ``SAEHead``."""
    sae = train_on_states(
        backbone_reader(backbone, texts, transform),
        len(texts),
        settings,
        checkpoints,
        progress,
        device=backbone.model.device,
    )
    sae.origin = origin_of(backbone, transformed=transform is not None)
    return sae


def train_concepts(
    texts: Sequence[str],
    backbone: Backbone,
    sae: SAESettings,
    checkpoints: Path | None = None,
    progress: Progress = silent,
) -> ConceptVectorizer:
    """Train an SAE on the texts' token states; the latents are the concepts. See
    ``train_on_states``."""
    trained = train_sae(backbone, texts, sae, checkpoints, progress)
    return ConceptVectorizer(Encoder.of(backbone, SAEHead.of_concepts(trained)))


def train_on_states(
    reader: Reader,
    count: int,
    settings: SAESettings,
    checkpoints: Path | None = None,
    progress: Progress = silent,
    *,
    start: SAE | None = None,
    device: torch.device = CPU,
    documents: int = READ,
) -> SAE:
    """Train an SAE on token states, read text by text. Raises InputError for texts without a single
    token; a ``start`` with thresholds, with another number of latents or with settings for
    thresholds; a damaged checkpoint or a checkpoint of other settings. Raises NotFiniteError if the
    loss is not finite; the last checkpoint is kept.

    Args:
        checkpoints: folder of the checkpoint. Interrupted training resumes and ends with the
            weights of an unbroken run; another corpus or other settings need another folder.
        progress: called after every step with the number of tokens; the detail is loss, FVU (the
            fraction of variance unexplained), active latents per token, dead latents and tokens per
            second.
        start: an SAE to train further, with the settings' k; a copy is trained.
        documents: texts of a call of ``reader``; fewer, where reading is cheap, take less memory.
    """
    position = Position()
    if start is not None and (start.threshold is not None or settings.has_thresholds):
        raise InputError("an SAE with thresholds can't be trained on, only one with k")
    if start is not None and start.num_latents != settings.num_latents:
        sizes = f"{start.num_latents} latents can't be trained on as one of {settings.num_latents}"
        raise InputError(f"an SAE of {sizes}")
    checkpoint = Checkpoint.find(checkpoints, settings, device)
    loop = None if start is None else SAELoop(_copied(start, settings), settings)
    if checkpoint is not None:
        loop, position = resume(checkpoint, settings, loop)

    def report_filling(tokens: int) -> None:
        done = 0 if loop is None else loop.done()[0]
        progress(SAELoop.stage, done, settings.tokens, f"reading states {tokens:,}")

    shuffling = Shuffling(
        settings.batch_size, settings.buffer_tokens, settings.seed, settings.drop_sinks, documents
    )
    batches = StateStream(reader, count, shuffling, report_filling).batches(position)
    if loop is None:
        states, batches = _first_states(batches, settings.num_latents)
        loop = SAELoop(initial_sae(states, settings), settings)
    loop.run(batches, checkpoints, progress)
    return loop.sae.eval().requires_grad_(False)


def _first_states(batches: Batches, num_latents: int) -> tuple[Tensor, Batches]:
    """Return the states of the first batches, one token per latent, and all batches.

    With fewer tokens than latents, copies of a token would compete and mostly die.
    """
    initial: list[tuple[Position, Tensor]] = []
    while sum(len(states) for _, states in initial) < num_latents:
        batch = next(batches, None)
        if batch is None:
            raise InputError("an SAE can't be trained: the texts have no tokens")
        initial.append(batch)
    return torch.cat([states for _, states in initial]), chain(initial, batches)


def _copied(start: SAE, settings: SAESettings) -> SAE:
    """Return a copy of an SAE to train further."""
    sae = deepcopy(start).train().requires_grad_(True)
    sae.k, sae.architecture, sae.decoder = settings.k, settings.architecture, True
    return sae


def resume(
    checkpoint: Checkpoint, settings: SAESettings, loop: SAELoop | None = None
) -> tuple[SAELoop, Position]:
    """Return the loop of a checkpoint, ``loop`` or that of a new SAE, and the position in the
    stream of batches. Raises InputError for a checkpoint of another model."""
    with checkpoint.reading() as state:
        if loop is None:
            W_dec = state["task"]["objective"]["sae.W_dec"]
            loop = SAELoop(_empty_sae(W_dec.shape[1], settings).to(W_dec.device), settings)
    return loop, Position(*loop.load(checkpoint))


class SAELoop(Loop[Tensor]):
    """An SAE in training, the number of tokens so far, and each latent's last activity."""

    title = "SAE training"
    stage = "training"
    advice = "a lower learning rate or normalise=True may help"
    epsilon = 6e-10

    def __init__(self, sae: SAE, settings: SAESettings) -> None:
        super().__init__(settings, [{"params": list(sae.parameters())}])
        self.settings: SAESettings = settings
        self.sae = sae
        self.objective = OBJECTIVES[settings.architecture](sae, settings)
        self.tokens = 0
        self._quiet = torch.zeros(settings.num_latents, dtype=torch.long, device=sae.W_dec.device)
        """Tokens since each latent was active."""
        self._last: tuple[Tensor, Outcome] | None = None
        """States and outcome of the current step."""

    def backward(self, batch: Tensor) -> StepLoss:
        x = self.sae.normalise(batch)
        dead = torch.nonzero(self._quiet >= self.settings.dead_tokens).ravel()
        outcome = self.objective(x, dead)
        outcome.loss.backward()
        remove_parallel_gradient(self.sae.W_dec)
        self._last = x, outcome
        return StepLoss(float(outcome.loss.detach()), len(batch))

    def after_step(self) -> str:
        assert self._last is not None
        (x, outcome), self._last = self._last, None
        tokens = len(x)
        l0 = float(outcome.active.sum()) / tokens
        with torch.no_grad():
            W_dec = self.sae.W_dec
            W_dec.div_(W_dec.norm(dim=1, keepdim=True).clamp_min(torch.finfo(W_dec.dtype).tiny))
        # A latent without activity ages by the batch's tokens.
        self._quiet += tokens
        self._quiet[outcome.active > 0] = 0
        self.tokens += tokens
        variance = float((x - x.mean(dim=0)).square().sum())
        fvu = float(outcome.error.detach().square().sum()) / variance if variance > 0 else 0.0
        dead = float((self._quiet >= self.settings.dead_tokens).float().mean())
        return f"FVU {fvu:.3f}  l0 {l0:.1f}  dead {dead:.1%}"

    def done(self) -> tuple[int, int]:
        return min(self.tokens, self.settings.tokens), self.settings.tokens

    def state(self) -> dict[str, Any]:
        objective = self.objective.state_dict()
        return {"objective": objective, "quiet": self._quiet, "tokens": self.tokens}

    def restore(self, state: dict[str, Any]) -> None:
        self.objective.load_state_dict(state["objective"])
        self._quiet, self.tokens = state["quiet"], state["tokens"]


def initial_sae(states: Tensor, settings: SAESettings) -> SAE:
    """Return an untrained SAE, initialised from states [n, d]."""
    generator = torch.Generator().manual_seed(settings.seed)
    d_in = states.shape[1]
    sae = _empty_sae(d_in, settings).to(states.device)
    with torch.no_grad():
        if settings.normalise:
            sae.mean.copy_(states.mean(dim=0))
            sae.scale.copy_(states.norm(dim=1).mean().clamp_min(1e-8))
        x = sae.normalise(states)
        if settings.decoder_bias == "mean":
            sae.b_dec.copy_(x.mean(dim=0))
        if settings.initialisation == "data":
            # With fewer tokens than latents some come twice: noise separates the copies.
            order = torch.randperm(len(x), generator=generator)
            drawn = order.repeat(math.ceil(settings.num_latents / len(x)))[: settings.num_latents]
            directions = x[drawn.to(x.device)] - sae.b_dec
            noise = torch.randn(directions.shape, generator=generator).to(x.device)
            lengths = directions.norm(dim=1, keepdim=True)
            directions = directions + 0.1 * lengths * F.normalize(noise, dim=1)
        else:
            directions = torch.randn((settings.num_latents, d_in), generator=generator)
        sae.W_dec.copy_(F.normalize(directions, dim=1))
        sae.W_enc.copy_(sae.W_dec)
    return sae


def _empty_sae(d_in: int, settings: SAESettings) -> SAE:
    """Return an SAE of zeros with the architecture's k or thresholds."""
    k = None if settings.has_thresholds else settings.k
    return SAE(d_in, settings.num_latents, k, architecture=settings.architecture)


def remove_parallel_gradient(rows: torch.nn.Parameter) -> None:
    """Remove from unit-norm rows' gradient the component along the rows."""
    if rows.grad is not None:
        along = torch.einsum("md,md->m", rows.grad, rows.data)
        rows.grad.addcmul_(along[:, None], rows.data, value=-1)
