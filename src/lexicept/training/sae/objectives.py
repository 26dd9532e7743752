"""SAE architectures: the active latents in training, and the loss.

An objective holds the SAE in training and the architecture's further parameters; ``finish`` folds
everything into an SAE with k active latents or with thresholds, the two forms of inference. Losses
are summed over d and averaged over tokens.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lexicept.models.sae.model import SAE, fold_gate
from lexicept.ops.jump_relu import jump_sums
from lexicept.ops.linear_topk import tiles, top_activations
from lexicept.ops.sparse_linear import Entries, entries_above, entry_outputs, sum_entries
from lexicept.training.sae.processes import Processes
from lexicept.training.sae.settings import SAESettings

ESTIMATE_DECAY = 0.95
"""Decay of the running estimate of BatchTopK's threshold."""

CONTROL = 0.03
"""Speed of λ towards ℓ0 = k: a step changes log λ by ``CONTROL`` · log(ℓ0 / k)."""

WARMUP_STEPS = 50
"""Steps of λ's linear warm-up."""

OWN_RATE = 10.0
"""Factor on the learning rate of an objective's own parameters: Adam moves all by the same step,
and a threshold has further to go than an entry of a unit row."""

FLOOR_TOKENS = 32
"""Tokens of the sample that estimates a floor of a batch's largest activations."""


class Outcome(NamedTuple):
    """Loss and activity of a batch."""

    loss: Tensor
    error: Tensor
    """x − x̂ [n, d] of the SAE itself."""
    active: Tensor
    """Number of active tokens of each latent [num_latents]."""


class SAEObjective(nn.Module, ABC):
    """An SAE in training, with the k or the thresholds of the architecture."""

    def __init__(self, sae: SAE, settings: SAESettings) -> None:
        super().__init__()
        self.sae = sae
        self.settings = settings
        self.processes = Processes()
        """The processes of a launcher, which share every batch."""

    def begin(self, x: Tensor) -> None:
        """Initialise scale-dependent parameters from a first batch [n, d]."""

    @abstractmethod
    def forward(self, x: Tensor, dead: Tensor) -> Outcome:
        """Return loss and activity of a batch [n, d], given the numbers of the dead latents."""

    def own_parameters(self) -> list[nn.Parameter]:
        """Return the objective's parameters outside the SAE."""
        sae_ids = {id(parameter) for parameter in self.sae.parameters()}
        return [parameter for parameter in self.parameters() if id(parameter) not in sae_ids]

    def after_step(self, l0: float) -> None:
        """Normalise the decoder rows after an optimiser step with a mean ℓ0 of ``l0``."""
        with torch.no_grad():
            self.sae.W_dec.copy_(F.normalize(self.sae.W_dec, dim=1))

    def finish(self) -> None:
        """Write the learned parameters into the SAE; the objective is unusable afterwards."""


class TopK(SAEObjective):
    """The k largest latents of every token (Gao et al. 2024, section 2.3), and the auxiliary loss
    ``auxiliary · ‖ê − e‖²``: the 2k largest dead latents reconstruct the error e (section A.2)."""

    def forward(self, x: Tensor, dead: Tensor) -> Outcome:
        latents = self._largest(x, self.settings.k)[1]
        acts = _acts_of(self.sae, x, latents)
        error = x - self.sae.decode(acts, latents)
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
        if not len(dead):
            return x.new_zeros(())
        latents = dead[self._largest(x, min(2 * self.settings.k, len(dead)), dead)[1]]
        revived = self.sae.decode(_acts_of(self.sae, x, latents), latents) - self.sae.b_dec
        return self.settings.auxiliary * _squared(revived - error.detach())

    def _counts(self, acts: Tensor, latents: Tensor) -> Tensor:
        return torch.bincount(latents[acts.detach() > 0], minlength=self.sae.num_latents)


class BatchTopK(TopK):
    """The k · n largest latents of a batch of n tokens (Bussmann et al. 2024). The threshold of
    inference, one for all latents, is a running mean of the batches' smallest activation."""

    def forward(self, x: Tensor, dead: Tensor) -> Outcome:
        sae, centred = self.sae, self.sae.centre(x)
        # k · n over the tokens of all processes, wherever the largest activations are.
        count = self.settings.k * self.processes.total(len(x))
        entries, smallest = largest_entries(centred, sae.W_enc, sae.b_enc, count, self.processes)
        acts = F.relu(entry_outputs(centred, sae.W_enc, sae.b_enc, entries))
        error = x - sum_entries(acts, entries, sae.W_dec) - sae.b_dec
        assert sae.threshold is not None
        if smallest > 0:
            # The first batch sets the estimate; 0 stands for no batch yet.
            step = 1 - ESTIMATE_DECAY if bool(sae.threshold.any()) else 1.0
            sae.threshold.lerp_(sae.threshold.new_tensor(smallest), step)
        loss = _squared(error) + self._revival(x, error, dead)
        return Outcome(loss, error, self._counts(acts, entries.columns))


class HierarchicalTopK(TopK):
    """``1/|ks| Σ_k ‖x̂_k − x‖²``: x̂_k has a token's k largest activations (Balagansky et al. 2025).

    The largest k is the SAE's k.
    """

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


class Activity(NamedTuple):
    """Latents above their thresholds."""

    sums: Tensor
    """``Σ_j z_ij W_dec_j`` [n, d]."""
    active: Tensor
    """Number of active tokens of each latent [num_latents]."""
    penalty: Tensor
    """The penalty []."""
    extra: Tensor
    """The loss's other terms []."""


class Penalised(SAEObjective):
    """Latents active above a threshold, with the number of active latents controlled by λ.

    ``‖x̂ − x‖² + λ · penalty``. λ grows linearly over the warm-up, and is steered towards k active
    latents per token: a step changes log λ by ``CONTROL`` · log(ℓ0 / k), with the batch's mean ℓ0.
    So all architectures can be compared at one k.
    """

    weight: Tensor
    """λ, without warm-up."""
    step: Tensor

    def __init__(self, sae: SAE, settings: SAESettings) -> None:
        super().__init__(sae, settings)
        self.register_buffer("weight", torch.zeros(()))
        self.register_buffer("step", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def begin(self, x: Tensor) -> None:
        sae = self.sae
        threshold = equal_shares(sae.centre(x), sae.W_enc, sae.b_enc, self.settings.k)
        self.weight.copy_(self.first_weight(threshold.mean()))
        self.start(threshold)
        # Many rows are alike at first and would add up to far more than x: scale the sum to fit.
        x_hat = self.activate(x).sums
        fit = (x_hat * (x - self.sae.b_dec)).sum() / x_hat.square().sum()
        if 0 < fit < 1:
            self.sae.W_enc.mul_(fit)
            self.start(fit * threshold)

    @abstractmethod
    def start(self, threshold: Tensor) -> None:
        """Set the parameters for latents active above thresholds [num_latents]."""

    def first_weight(self, threshold: Tensor) -> Tensor:
        """Return the first λ for a mean threshold []."""
        return threshold

    def forward(self, x: Tensor, dead: Tensor) -> Outcome:
        sums, active, penalty, extra = self.activate(x)
        error = x - sums - self.sae.b_dec
        warm = min(1.0, (int(self.step) + 1) / max(1, WARMUP_STEPS))
        loss = _squared(error) + warm * self.weight * penalty + extra
        return Outcome(loss, error, active)

    @abstractmethod
    def activate(self, x: Tensor) -> Activity:
        """Activate latents above their thresholds."""

    def after_step(self, l0: float) -> None:
        super().after_step(l0)
        self.step += 1
        self.weight *= max(l0 / self.settings.k, 0.01) ** CONTROL


class ReLU(Penalised):
    """ReLU, and as penalty ``Σ_j z_j ‖W_dec_j‖`` (Bricken et al. 2023; the rows' length is 1)."""

    def start(self, threshold: Tensor) -> None:
        self.sae.b_enc.copy_(-threshold)

    def activate(self, x: Tensor) -> Activity:
        sae = self.sae
        entries, acts = _positive_outputs(sae, x)
        sums = sum_entries(acts, entries, sae.W_dec)
        active = torch.bincount(entries.columns, minlength=sae.num_latents)
        return Activity(sums, active, acts.sum() / len(x), x.new_zeros(()))


class JumpReLU(Penalised):
    """``z = p · H(p − θ)`` with learned θ, and as penalty ‖z‖₀ (Rajamanoharan et al. 2024b).

    θ learns by pseudo-derivatives with a rectangle kernel of bandwidth ε, see ``ops.jump``; ε is
    each θ itself (in the paper, a multiple of the first θ), as states may have any scale.
    """

    def __init__(self, sae: SAE, settings: SAESettings) -> None:
        super().__init__(sae, settings)
        self.log_threshold = nn.Parameter(torch.zeros(sae.num_latents))

    def start(self, threshold: Tensor) -> None:
        self.log_threshold.copy_(threshold.log())

    def first_weight(self, threshold: Tensor) -> Tensor:
        return threshold.square() / 20

    def activate(self, x: Tensor) -> Activity:
        sae, threshold = self.sae, self.log_threshold.exp()
        bandwidth, centred = threshold.detach(), sae.centre(x)
        jumps = jump_sums(centred, sae.W_enc, sae.b_enc, threshold, bandwidth, sae.W_dec)
        return Activity(jumps.sums, jumps.active, jumps.number / len(x), x.new_zeros(()))

    def finish(self) -> None:
        assert self.sae.threshold is not None
        self.sae.threshold.copy_(self.log_threshold.detach().exp())


class Gated(Penalised):
    """``z = [π > 0] · ReLU(m)``, where π = W (x − b_dec) + b_gate and m = exp(r) W (x − b_dec) +
    b_mag (Rajamanoharan et al. 2024a, section 3.2).

    The penalty is ``Σ_j ReLU(π_j)``, plus ``‖x̂(ReLU(π)) − x‖²`` with a frozen decoder. In training
    the SAE holds W and b_gate. As π > 0 is m > b_mag − exp(r) b_gate, the finished SAE has the rows
    exp(r) W, the bias b_mag and the threshold max(0, b_mag − exp(r) b_gate).
    """

    def __init__(self, sae: SAE, settings: SAESettings) -> None:
        super().__init__(sae, settings)
        self.r = nn.Parameter(torch.zeros(sae.num_latents))
        self.b_mag = nn.Parameter(torch.zeros(sae.num_latents))

    def start(self, threshold: Tensor) -> None:
        self.sae.b_enc.copy_(-threshold)

    def activate(self, x: Tensor) -> Activity:
        sae = self.sae
        entries, opened = _positive_outputs(sae, x)
        # index_select, as the gradient of an index in brackets is far slower.
        r, b_gate, b_mag = (
            values.index_select(0, entries.columns)
            for values in (self.r.exp(), sae.b_enc, self.b_mag)
        )
        acts = F.relu(r * (opened - b_gate) + b_mag)
        sums = sum_entries(acts, entries, sae.W_dec)
        by_gate = x - sum_entries(opened, entries, sae.W_dec.detach()) - sae.b_dec.detach()
        fired = entries.columns[acts.detach() > 0]
        active = torch.bincount(fired, minlength=sae.num_latents)
        return Activity(sums, active, opened.sum() / len(x), _squared(by_gate))

    def finish(self) -> None:
        sae = self.sae
        assert sae.threshold is not None
        with torch.no_grad():
            sae.threshold.copy_(fold_gate(sae.W_enc, sae.b_enc, self.r, self.b_mag))
            sae.b_enc.copy_(self.b_mag)


def _positive_outputs(sae: SAE, x: Tensor) -> tuple[Entries, Tensor]:
    """Return the places and values, with gradients, of the pre-activations above 0."""
    centred = sae.centre(x)
    entries = entries_above(centred, sae.W_enc, sae.b_enc, sae.b_enc.new_zeros(()))
    return entries, F.relu(entry_outputs(centred, sae.W_enc, sae.b_enc, entries))


def largest_entries(
    x: Tensor, rows: Tensor, bias: Tensor, count: int, processes: Processes
) -> tuple[Entries, float]:
    """Find the ``count`` largest outputs above 0 over the tokens of all processes.

    Returns:
        This process's entries among them (see ``ops.entries``), and the smallest of all processes'
        outputs, 0 without any.
    """
    zero = bias.new_zeros(())
    # A likely floor spares most of the search; the search repeats from 0 if the floor is too high.
    for floor in (_likely_floor(x, rows, bias, count), zero):
        entries = entries_above(x, rows, bias, floor)
        if len(entries.columns) >= count or not floor > 0:
            break
    with torch.no_grad():
        values = entry_outputs(x, rows, bias, entries)
    selected = _among_largest(values, count)
    gathered = processes.gather(values[selected])
    if not len(gathered):
        return entries, 0.0
    smallest = gathered[_among_largest(gathered, count)].min()
    if processes.count > 1:
        selected &= values >= smallest
    return entries.where(selected), float(smallest)


def _among_largest(values: Tensor, count: int) -> Tensor:
    """Return a mask of the ``count`` largest values [entries]."""
    if len(values) <= count:
        return torch.ones(len(values), dtype=torch.bool, device=values.device)
    mask = torch.zeros(len(values), dtype=torch.bool, device=values.device)
    mask[torch.topk(values, count, sorted=False).indices] = True
    return mask


@torch.no_grad()
def _likely_floor(x: Tensor, rows: Tensor, bias: Tensor, count: int) -> Tensor:
    """Estimate, from a sample of tokens, a floor [] just below the ``count`` largest outputs; at
    least 0."""
    sample = x[:: max(1, len(x) // FLOOR_TOKENS)]
    outputs = torch.addmm(bias, sample, rows.T).ravel()
    above = math.ceil(1.5 * count * len(sample) / len(x)) + FLOOR_TOKENS
    return F.relu(torch.topk(outputs, min(above, len(outputs))).values[-1])


@torch.no_grad()
def equal_shares(x: Tensor, rows: Tensor, bias: Tensor, k: int) -> Tensor:
    """Return thresholds [M] for equally frequent outputs of ``rows · x_i + bias``: every output
    exceeds its threshold on the same share of tokens, k outputs per token on average."""
    n, M = len(x), len(rows)
    count = min(n, max(1, round(k * n / M)))
    reached = [
        torch.topk(torch.addmm(bias[tile, None], rows[tile], x.T), count).values[:, -1]
        for tile in tiles(n, rows)
    ]
    return (torch.cat(reached) * (1 - 1e-3)).clamp_min(1e-6)


OBJECTIVES: dict[str, type[SAEObjective]] = {
    "topk": TopK,
    "batch_topk": BatchTopK,
    "jumprelu": JumpReLU,
    "relu": ReLU,
    "gated": Gated,
    "hierarchical": HierarchicalTopK,
    "matryoshka": MatryoshkaTopK,
}


def _squared(error: Tensor) -> Tensor:
    return error.square().sum(dim=1).mean()


def _acts_of(sae: SAE, x: Tensor, latents: Tensor) -> Tensor:
    return F.relu(sae.pre_acts_of(x, latents))
