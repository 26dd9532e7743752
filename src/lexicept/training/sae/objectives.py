"""SAE architectures: the active latents in training, and the loss.

Losses are summed over d and averaged over tokens.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lexicept.neural.kernels.linear_outputs import top_activations
from lexicept.neural.kernels.sparse_linear import sum_chosen
from lexicept.neural.sae.model import SAE
from lexicept.training.sae.settings import SAESettings

ESTIMATE_DECAY = 0.95
"""Decay of the running estimate of BatchTopK's threshold."""


class Outcome(NamedTuple):
    """Loss and activity of a batch."""

    loss: Tensor
    error: Tensor
    """x − x̂ [n, d] of the SAE itself."""
    active: Tensor
    """Number of active tokens of each latent [num_latents]."""


class TopK(nn.Module):
    """An SAE in training: the k largest latents of every token (Gao et al. 2024, section 2.3), and
    the auxiliary loss ``auxiliary · ‖ê − e‖²``: the 2k largest dead latents reconstruct the error e
    (section A.2)."""

    def __init__(self, sae: SAE, settings: SAESettings) -> None:
        super().__init__()
        self.sae = sae
        self.settings = settings

    def forward(self, x: Tensor, dead: Tensor) -> Outcome:
        """Return loss and activity of a batch [n, d], given the numbers of the dead latents."""
        sae, latents = self.sae, self._largest(x, self.settings.k)[1]
        acts = _acts_of(sae, x, latents)
        error = x - sum_chosen(acts, latents, sae.W_dec) - sae.b_dec
        loss = _squared(error) + self._revival(x, error, dead)
        return Outcome(loss, error, self._counts(acts, latents))

    def _largest(
        self, x: Tensor, k: int, among: Tensor | slice = slice(None)
    ) -> tuple[Tensor, Tensor]:
        """Return activations and places of each token's k largest latents in a subset [n, k]."""
        sae = self.sae
        with torch.no_grad():
            return top_activations(sae.centre(x), sae.W_enc[among], sae.b_enc[among], k)

    def _revival(self, x: Tensor, error: Tensor, dead: Tensor) -> Tensor:
        """Return the weighted auxiliary loss of dead latents."""
        if not (len(dead) and self.settings.auxiliary):
            return x.new_zeros(())
        x, error = (tokens[:: self.settings.auxiliary_every] for tokens in (x, error))
        latents = dead[self._largest(x, min(2 * self.settings.k, len(dead)), dead)[1]]
        revived = self.sae.decode(_acts_of(self.sae, x, latents), latents) - self.sae.b_dec
        return self.settings.auxiliary * _squared(revived - error.detach())

    def _counts(self, acts: Tensor, latents: Tensor) -> Tensor:
        return torch.bincount(latents[acts.detach() > 0], minlength=self.sae.num_latents)


class BatchTopK(TopK):
    """The k · n largest latents of a process's batch of n tokens (Bussmann et al. 2024), from all
    pre-activations [n, num_latents]. The threshold of inference, one for all latents, is a running
    mean of the batches' smallest activation."""

    def forward(self, x: Tensor, dead: Tensor) -> Outcome:
        sae = self.sae
        acts = F.relu(F.linear(sae.centre(x), sae.W_enc, sae.b_enc))
        count = min(self.settings.k * len(x), acts.numel())
        largest = torch.topk(acts.detach().ravel(), count).values
        smallest = largest[largest > 0].min() if (largest > 0).any() else largest[-1]
        acts = acts * (acts >= smallest)
        error = x - acts @ sae.W_dec - sae.b_dec
        assert sae.threshold is not None
        if smallest > 0:
            # The first batch sets the estimate; 0 stands for no batch yet.
            step = 1 - ESTIMATE_DECAY if bool(sae.threshold.any()) else 1.0
            sae.threshold.lerp_(smallest.expand_as(sae.threshold), step)
        loss = _squared(error) + self._revival(x, error, dead)
        return Outcome(loss, error, (acts.detach() > 0).sum(dim=0))


class HierarchicalTopK(TopK):
    """The mean of ``‖x̂_k − x‖²`` over k = 1, 2, 4 and so on to the SAE's k: x̂_k has a token's k
    largest activations (Balagansky et al. 2025)."""

    def forward(self, x: Tensor, dead: Tensor) -> Outcome:
        sae, ks = self.sae, self.settings.hierarchy
        # The error shrinks level by level: each decodes the latents that it adds.
        values, latents = self._largest(x, ks[-1])
        latents = latents.gather(1, values.argsort(dim=1, descending=True))
        acts = _acts_of(sae, x, latents)
        error, losses = x - sae.b_dec, []
        for start, end in zip((0, *ks[:-1]), ks, strict=True):
            error = error - (sae.decode(acts[:, start:end], latents[:, start:end]) - sae.b_dec)
            losses.append(_squared(error))
        loss = torch.stack(losses).mean() + self._revival(x, error, dead)
        return Outcome(loss, error, self._counts(acts, latents))


class MatryoshkaTopK(TopK):
    """``Σ_m ‖x̂_m − x‖²`` over prefixes of the latents (Bussmann et al. 2025): x̂_m decodes the part
    of a token's k largest activations among the first m latents. The last prefix is all latents.
    """

    def forward(self, x: Tensor, dead: Tensor) -> Outcome:
        sae = self.sae
        latents = self._largest(x, self.settings.k)[1]
        acts = _acts_of(sae, x, latents)
        error, loss, start = x - sae.b_dec, x.new_zeros(()), 0
        # Each prefix adds the latents between the last prefix and its end.
        for end in self.settings.nested:
            inside = (latents >= start) & (latents < end)
            error = error - (sae.decode(acts * inside, latents) - sae.b_dec)
            loss, start = loss + _squared(error), end
        return Outcome(loss + self._revival(x, error, dead), error, self._counts(acts, latents))


OBJECTIVES: dict[str, type[TopK]] = {
    "topk": TopK,
    "batch_topk": BatchTopK,
    "hierarchical": HierarchicalTopK,
    "matryoshka": MatryoshkaTopK,
}


def _squared(error: Tensor) -> Tensor:
    return error.square().sum(dim=1).mean()


def _acts_of(sae: SAE, x: Tensor, latents: Tensor) -> Tensor:
    return F.relu(sae.pre_acts_of(x, latents))
