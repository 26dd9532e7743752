"""An SAE's quality: reconstruction error, use of latents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lexicept.encoding.windows import READ
from lexicept.errors import InputError
from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.sae.model import SAE
from lexicept.neural.sae.states import Reader, backbone_reader
from lexicept.progress import Progress, silent

EDGES = tuple(-6 + step / 2 for step in range(13))
"""Borders between the bins of a histogram, as log10 of shares of tokens."""

TOGETHER = 4096
"""Tokens encoded together."""


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


def report_sae(
    backbone: Backbone,
    sae: SAE,
    texts: Sequence[str],
    *,
    transform: Callable[[Tensor], Tensor] | None = None,
    progress: Progress = silent,
) -> SAEReport:
    """Measure an SAE of a backbone's last output, perhaps transformed before, on all tokens of
    texts except special ones. Raises InputError without tokens."""
    reader = backbone_reader(backbone, texts, transform)
    return report_states(read_all(reader, len(texts), progress), sae)


def read_all(reader: Reader, count: int, progress: Progress = silent) -> Iterator[Tensor]:
    """Yield the states [n, d] of all texts, ``READ`` texts at a time."""
    for start in range(0, count, READ):
        indices = range(start, min(start + READ, count))
        yield reader(indices)
        progress("states", indices.stop, count)


@torch.no_grad()
def report_states(batches: Iterable[Tensor], sae: SAE) -> SAEReport:
    """Measure an SAE on states [n, d], in double precision. Raises InputError without states."""
    device, tokens = sae.W_enc.device, 0
    total = torch.zeros(sae.d_in, dtype=torch.float64, device=device)
    active = torch.zeros(sae.num_latents, dtype=torch.long, device=device)
    squares = errors = 0.0
    for states in (chunk for batch in batches for chunk in batch.to(device).split(TOGETHER)):
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
    return SAEReport(
        tokens,
        fvu=errors / variance if variance > 0 else float(errors > 0),
        l0=float(counts.sum()) / tokens,
        dead=float((counts == 0).mean()),
        histogram=tuple(np.bincount(bins, minlength=len(EDGES)).tolist()),
    )
