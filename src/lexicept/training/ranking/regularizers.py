"""Sparsity regularisers: vectors [n, V], non-negative → one number to minimise.

All are 0, with a zero gradient, for all-zero vectors and for no vectors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn


def flops(vectors: Tensor) -> Tensor:
    """Return Σ_t (mean_b w_t)² (Paria et al. 2020; SPLADE)."""
    return _mean(vectors).square().sum()


def l1(vectors: Tensor) -> Tensor:
    """Return mean_b Σ_t |w_t|."""
    return _mean(vectors.abs()).sum()


def joint_flops(queries: Tensor, documents: Tensor) -> Tensor:
    """Return ⟨mean_b w(q), mean_b w(d)⟩ (ESPLADE equation 3), from [B, V] and [D, V]."""
    return _mean(queries) @ _mean(documents)


def df_flops(vectors: Tensor, penalties: Tensor) -> Tensor:
    """Return Σ_t (a_t mean_b w_t)² with penalties a [V] of ``df_penalties`` (DF-FLOPS, Porco et al.
    2025; SPLARE)."""
    return (penalties * _mean(vectors)).square().sum()


def df_penalties(ratios: Tensor, alpha: float = 0.1, beta: float = 10.0) -> Tensor:
    """Return the penalty of each dimension's share x of documents: a = 1 / (1 + (x^(log_α 2) −
    1)^β) (Porco et al. 2025). Increasing in x: 0 at x = 0, 1/2 at x = α, 1 at x = 1."""
    # expm1 is exact where x is almost 1, and never below 0, where a power would be NaN.
    return 1 / (1 + torch.expm1(torch.log(ratios) * (math.log(2) / math.log(alpha))) ** beta)


class DocumentFrequencies(nn.Module):
    """Share of recent documents in which each dimension is active, for DF-FLOPS.

    The exact share for the first ``window`` documents, then a running average with weight
    n / window for n new documents. The documents of all processes count. Both buffers are in the
    state dict: ``ratios`` [V], 0 at first, in single precision (a half can't count so far), and
    ``count``, the number of documents so far.
    """

    ratios: Tensor
    count: Tensor

    def __init__(self, num_dimensions: int, window: int = 10_000) -> None:
        super().__init__()
        self.window = window
        self.register_buffer("ratios", torch.zeros(num_dimensions))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def update(self, vectors: Tensor) -> None:
        """Count a batch of documents [n, V]; of more than ``window``, the last."""
        recent = vectors[-self.window :]
        sizes = self.count.new_tensor([len(recent), len(vectors)])
        counts = _over_processes(torch.cat([(recent > 0).sum(dim=0), sizes]))
        active, documents = counts[:-2], counts[-2]
        self.count += counts[-1]
        # n / seen is the exact share at first; n / window the running average afterwards.
        weight = (documents / self.count.clamp(1, self.window)).clamp(max=1)
        self.ratios.lerp_(active / documents.clamp(min=1), weight)

    def recount(self, batches: Iterable[Tensor]) -> None:
        """Replace the shares by the shares in a sample [n, V], over all processes together."""
        counts = self.ratios.new_zeros(len(self.ratios) + 1, dtype=torch.int64)
        for vectors in batches:
            counts[:-1] += (vectors > 0).sum(dim=0)
            counts[-1] += len(vectors)
        counts = _over_processes(counts)
        self.ratios.copy_(counts[:-1] / counts[-1].clamp(min=1))
        self.count.copy_(counts[-1])


def _over_processes(counts: Tensor) -> Tensor:
    """Add up the counts of all processes, in place."""
    if torch.distributed.is_initialized():
        torch.distributed.all_reduce(counts)
    return counts


def _mean(vectors: Tensor) -> Tensor:
    """Return mean_b w [V]; 0 without vectors."""
    return vectors.sum(dim=0) / max(len(vectors), 1)
