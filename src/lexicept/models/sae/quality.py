"""An SAE's quality: reconstruction error, use of latents, loss recovered; and anisotropy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lexicept.errors import InputError
from lexicept.models.backbone import Backbone
from lexicept.models.heads.base import Head
from lexicept.models.sae.model import SAE
from lexicept.models.sae.states import READ, Reader, backbone_reader
from lexicept.progress import Progress, silent

SAMPLE_TOKENS = 50_000
"""Least number of tokens sampled, text by text, for loss recovered and anisotropy."""

EDGES = tuple(-6 + step / 2 for step in range(13))
"""Borders between the bins of a histogram, as log10 of shares of tokens."""

SAMPLE_TEXTS = 64
"""Texts drawn together."""

TOGETHER = 4096
"""Tokens encoded together."""

LOGITS = 2**24
"""Limit on the logits in memory at once: 64 MB."""

Change = Callable[[Tensor], Tensor]
"""States [n, d] → replacements [n, d]."""


class LanguageModel(NamedTuple):
    """A whole backbone and the pretrained head."""

    backbone: Backbone
    head: Head
    shifted: bool
    """True if a token is predicted from the state before it, as by a decoder."""


@dataclass(frozen=True)
class Recovered:
    """Cross entropies, in nats, of a language model with an SAE's reconstructions as states.

    Nothing is masked: an encoder predicts a token from the token's state, a decoder from the state
    before. States of special tokens stay.
    """

    original: float
    """Cross entropy with the states as they are."""
    reconstructed: float
    """Cross entropy with the SAE's reconstructions."""
    ablated: float
    """Cross entropy with the mean of all states."""

    @property
    def share(self) -> float:
        """The loss recovered, ``(ablated − reconstructed) / (ablated − original)``."""
        lost = self.ablated - self.original
        return (self.ablated - self.reconstructed) / lost if lost else 0.0


@dataclass(frozen=True)
class SAEReport:
    """An SAE's reconstruction error and its use of latents."""

    tokens: int
    fvu: float
    """Fraction of variance unexplained, ``Σ ‖ĥ − h‖² / Σ ‖h − h̄‖²``."""
    l0: float
    """Mean number of active latents per token."""
    dead: float
    """Share of the latents active on no token."""
    histogram: tuple[int, ...]
    """Number of latents by the share of tokens with the latent, in bins with upper borders
    ``10 ** edge`` for the ``EDGES``. Dead latents are not counted."""
    recovered: Recovered | None = None
    """Loss recovered; None without a language model."""


def report_sae(
    backbone: Backbone,
    sae: SAE,
    texts: Sequence[str],
    *,
    transform: Change | None = None,
    language_model: LanguageModel | None = None,
    progress: Progress = silent,
) -> SAEReport:
    """Measure an SAE on all tokens of texts except special ones. Raises InputError without tokens.

    Args:
        backbone: the SAE reads the output of the last block.
        transform: the transform of states before the SAE, as for ``train_sae``.
        language_model: the whole language model, to measure ``recovered`` on a sample of the texts.
            A transform must be the transform of the language model's head.
    """
    reader = backbone_reader(backbone, texts, transform)
    report, mean = _measure(read_all(reader, len(texts), progress), sae)
    if language_model is None:
        return report
    layer = None if transform is not None else backbone.num_layers
    return replace(report, recovered=loss_recovered(language_model, sae, mean, layer, texts))


def report_states(batches: Iterable[Tensor], sae: SAE) -> SAEReport:
    """Measure an SAE on batches of states [n, d]. Raises InputError without any states."""
    return _measure(batches, sae)[0]


def read_all(reader: Reader, count: int, progress: Progress = silent) -> Iterator[Tensor]:
    """Yield the states [n, d] of all texts, ``READ`` texts at a time."""
    for start in range(0, count, READ):
        numbers = range(start, min(start + READ, count))
        yield reader(numbers)
        progress("states", numbers.stop, count)


@torch.no_grad()
def _measure(batches: Iterable[Tensor], sae: SAE) -> tuple[SAEReport, Tensor]:
    """Return the report and the mean state [d]; sums are in double precision."""
    device, tokens = sae.W_enc.device, 0
    total = torch.zeros(sae.d_in, dtype=torch.float64, device=device)
    active = torch.zeros(sae.num_latents, dtype=torch.long, device=device)
    squares = errors = 0.0
    for states in (part for batch in batches for part in batch.to(device).split(TOGETHER)):
        acts, latents = sae.encode(states)
        tokens += len(states)
        total += states.double().sum(dim=0)
        squares += float(states.double().square().sum())
        errors += float((sae.reconstruct(acts, latents) - states).double().square().sum())
        active += torch.bincount(latents[acts > 0], minlength=len(active))
    if not tokens:
        raise InputError("an SAE can't be measured: the texts have no tokens")
    # Σ ‖h − h̄‖² = Σ ‖h‖² − ‖Σ h‖² / n
    variance = squares - float(total.square().sum()) / tokens
    counts = active.cpu().numpy()
    bins = np.searchsorted(EDGES, np.log10(counts[counts > 0] / tokens))
    report = SAEReport(
        tokens,
        fvu=errors / variance if variance > 0 else 0.0,
        l0=float(counts.sum()) / tokens,
        dead=float((counts == 0).mean()),
        histogram=tuple(np.bincount(bins, minlength=len(EDGES)).tolist()),
    )
    return report, (total / tokens).float()


def loss_recovered(
    language_model: LanguageModel,
    sae: SAE,
    mean: Tensor,
    layer: int | None,
    texts: Sequence[str],
    tokens: int = SAMPLE_TOKENS,
) -> Recovered:
    """Measure the cross entropies of a sample of at least ``tokens`` tokens: original,
    reconstructed and ablated. Raises InputError for texts without a token to predict.

    Args:
        mean: the mean [d] of the states that the SAE reads.
        layer: number of blocks before the SAE; None for the output of the head's transform.
    """

    def reconstructed(states: Tensor) -> Tensor:
        reconstruction: Tensor = sae(states.to(sae.W_enc.device))
        return reconstruction.to(states)

    def ablated(states: Tensor) -> Tensor:
        return mean.to(states).expand_as(states)

    entropy = partial(_cross_entropy, language_model, layer, texts, tokens)
    return Recovered(entropy(None), entropy(reconstructed), entropy(ablated))


@torch.no_grad()
def _cross_entropy(
    language_model: LanguageModel,
    layer: int | None,
    texts: Sequence[str],
    tokens: int,
    change: Change | None,
) -> float:
    backbone, head, shifted = language_model
    total, count = 0.0, 0
    for features in _sample(backbone, texts, tokens):
        ids, mask = features["input_ids"], features["token_mask"]
        attention_mask = features["attention_mask"]
        if change is None or layer is None:
            states = backbone.states(ids, attention_mask)
        else:
            with backbone.hooked(layer, partial(_replaced, mask=mask, change=change)):
                states = backbone.states(ids, attention_mask)
        predictors, labels = states[mask], ids[mask]
        if shifted:
            # The state of each token but the last predicts the next.
            after = mask[:, 1:] & attention_mask[:, :-1].bool()
            predictors, labels = states[:, :-1][after], ids[:, 1:][after]
        count += len(labels)
        step = max(1, LOGITS // len(head.rows))
        for batch, expected in zip(predictors.split(step), labels.split(step), strict=True):
            x = head.transform(batch)
            if change is not None and layer is None:
                x = change(x)
            logits = F.linear(x, head.rows, head.bias)
            total += float(F.cross_entropy(logits, expected, reduction="sum"))
    if not count:
        raise InputError("an SAE can't be measured: the texts have no token to predict")
    return total / count


def _replaced(output: Tensor, mask: Tensor, change: Change) -> Tensor:
    """Return a block's output [windows, length, d] with the states of masked tokens replaced."""
    changed = output.clone()
    changed[mask] = change(output[mask].float()).to(output.dtype)
    return changed


@torch.no_grad()
def anisotropy(
    backbone: Backbone,
    texts: Sequence[str],
    tokens: int = SAMPLE_TOKENS,
    transform: Change | None = None,
) -> tuple[float, ...]:
    """Return each layer's anisotropy: the mean cosine of two tokens' states (SAE-SPLADE, Table 2).

    The mean over all pairs of different tokens of a sample is ``(‖Σ_u u‖² − n) / (n (n − 1))``, for
    states u of length 1. States after the last block are transformed, if ``transform`` is given.

    Raises InputError for texts with fewer than two tokens.
    """
    sums: list[Tensor | float] = [0.0] * backbone.num_layers
    count = 0
    for features in _sample(backbone, texts, tokens):
        mask = features["token_mask"]
        count += int(mask.sum())

        def add(output: Tensor, layer: int, mask: Tensor = mask) -> None:
            states = output[mask]
            if transform is not None and layer == backbone.num_layers - 1:
                states = transform(states.float())
            sums[layer] = sums[layer] + F.normalize(states.double(), dim=1).sum(dim=0)

        with ExitStack() as hooks:
            for layer in range(backbone.num_layers):
                hooks.enter_context(backbone.hooked(layer + 1, partial(add, layer=layer)))
            backbone.states(features["input_ids"], features["attention_mask"])
    if count < 2:
        raise InputError("anisotropy needs two tokens: the texts have none or one")
    squared = [float(torch.as_tensor(total).square().sum()) for total in sums]
    return tuple((value - count) / (count * (count - 1)) for value in squared)


def _sample(backbone: Backbone, texts: Sequence[str], tokens: int) -> Iterator[dict[str, Tensor]]:
    """Yield batches of texts in a fixed random order, up to a number of tokens."""
    order = np.random.default_rng(0).permutation(len(texts))
    count = 0
    for start in range(0, len(order), SAMPLE_TEXTS):
        some = [texts[int(number)] for number in order[start : start + SAMPLE_TEXTS]]
        for _, features in backbone.batches(backbone.windows(some)):
            count += int(features["token_mask"].sum())
            yield features
        if count >= tokens:
            return
