"""A decoder for an SAE that was saved without its decoder."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from lexicept.neural.kernels.sparse_linear import sum_by_group, sum_chosen
from lexicept.neural.sae.model import SAE
from lexicept.neural.sae.quality import SAEReport, report_states

FITTED_TOKENS = 100_000
"""Most tokens that a decoder is fitted to."""

BLOCK = 256
"""Neighbouring tokens that are fitted to, or held out, together."""

HELD_OUT = 10
"""One block of so many is held out, to measure the error."""

STEPS = 20
"""Steps of the conjugate gradients."""


@torch.no_grad()
def fit_decoder(sae: SAE, batches: Iterable[Tensor]) -> SAEReport:
    """Fit the rows of the decoder to batches of states [n, d] by least squares; return the quality
    on held-out tokens, or on all of too few. The encoder and b_dec do not change.

    The rows W minimise ``Σ ‖x − b_dec − Wᵀ z‖² + r ‖W‖²`` with r the mean square of activations z,
    one more firing of each latent; the normal equations are solved by conjugate gradients.
    """
    fitted: list[Tensor] = []
    held_out: list[Tensor] = []
    tokens = 0
    for batch in batches:
        for index, block in enumerate(batch.split(BLOCK), len(fitted) + len(held_out)):
            (held_out if index % HELD_OUT == HELD_OUT - 1 else fitted).append(block)
        tokens += len(batch)
        if tokens >= FITTED_TOKENS:
            break
    states = torch.cat(fitted)
    acts, latents = sae.encode(states)
    acts, size = acts / sae.scale, sae.num_latents
    token = torch.arange(len(states), device=acts.device).repeat_interleave(acts.shape[1])

    def of_latents(x: Tensor) -> Tensor:
        return sum_by_group(acts.ravel(), latents.ravel(), token, x, size)

    squares = torch.bincount(latents.ravel(), acts.square().ravel(), size)[:, None]
    ridge = acts.square().sum() / (acts > 0).sum().clamp_min(1)
    diagonal = (squares + ridge).clamp_min(1e-12)
    weights = torch.zeros(size, sae.d_in, device=acts.device)
    residual = of_latents(sae.normalise(states) - sae.b_dec)
    direction = residual / diagonal
    product = (residual * direction).sum(dim=0)
    for _ in range(STEPS):
        image = of_latents(sum_chosen(acts, latents, direction)) + ridge * direction
        step = product / (direction * image).sum(dim=0).clamp_min(1e-30)
        weights += step * direction
        residual -= step * image
        scaled = residual / diagonal
        before, product = product, (residual * scaled).sum(dim=0)
        direction = scaled + product / before.clamp_min(1e-30) * direction
    sae.W_dec.copy_(weights)
    sae.decoder = True
    return report_states(held_out or fitted, sae)
