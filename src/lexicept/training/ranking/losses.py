"""Ranking losses: scores of queries and documents → one number to minimise.

A query's candidates are a row: scores [B, n], by convention the positive in column 0. Lists of
unequal length are padded, and ``mask`` [B, n] (bool) marks the real candidates, all by default:
values in the padding, NaN included, change neither a loss nor a gradient. Results are scalars in
the dtype of the scores; a batch without anything to rank gives 0 with zero gradients.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from lexicept.neural.kernels.linear_outputs import top_columns


class Ranked(NamedTuple):
    """A batch of B queries with n candidates each, and D documents in all, for an own loss."""

    queries: Tensor
    """Query vectors [B, V]."""
    documents: Tensor
    """Document vectors [D, V]."""
    scores: Tensor
    """Scores of all pairs [B, D], with temperature, learned factor and words."""
    known: Tensor
    """True for known relevant documents [B, D]."""
    lists: Tensor
    """Scores of each query's own candidates [B, n]."""
    mask: Tensor
    """True for candidates, False for padding [B, n]."""
    relevant: Tensor
    """True where the candidate in column 0 is relevant [B]."""
    taught: Tensor | None
    """The teacher's, or the lists' own, scores of the candidates [B, n]; None without."""


def kl_divergence(scores: Tensor, teacher: Tensor, *, mask: Tensor | None = None) -> Tensor:
    """Return KL(softmax(teacher) ‖ softmax(scores)) of scores [B, n]; the teacher is constant.

    Summed over candidates, mean over the queries with at least 2 candidates (SPLADE-v2 and -v3,
    SAE-SPLADE, SPLARE equation 3). A student's temperature divides ``scores`` beforehand and does
    not multiply the loss, unlike Hinton's and sentence-transformers' distillation losses.
    """
    real = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask
    target = _log_softmax(teacher.detach(), real).exp()
    terms = F.kl_div(_log_softmax(scores, real), target, reduction="none")
    # Padding has NaN; the term of a candidate alone is 0.
    return terms.masked_fill(~real, 0.0).sum() / (real.sum(dim=1) >= 2).sum().clamp(min=1)


def fraction_unexplained(x: Tensor, x_hat: Tensor) -> Tensor:
    """Return Σ ‖x̂ − x‖² / Σ ‖x − x̄‖² of token states x and their reconstructions x̂, both [n, d].

    States and their variance are constants (no gradient). 0 for states without variance.
    """
    if not len(x):
        return x_hat.sum()
    x = x.detach()
    variance = (x - x.mean(dim=0)).square().sum()
    error = (x_hat - x).square().sum()
    return error / variance if variance > 0 else 0.0 * error


def margin_mse(scores: Tensor, teacher: Tensor, *, mask: Tensor | None = None) -> Tensor:
    """Return ((s_pos − s_neg) − (t_pos − t_neg))², the mean over pairs of a query and a negative.

    Hofstätter et al. 2020, for scores [B, n] and a constant teacher. A query with padding in column
    0, the positive, has no pairs.
    """
    real = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask
    pairs = real[:, :1] & real[:, 1:]
    # (s_pos − t_pos) − (s_neg − t_neg) is the difference of both margins.
    gaps = scores - teacher.detach()
    errors = (gaps[:, :1] - gaps[:, 1:]).masked_fill(~pairs, 0.0)
    return errors.square().sum() / pairs.sum().clamp(min=1)


def in_batch_softmax(
    scores: Tensor, positives: Tensor, *, excluded: Tensor | None = None
) -> Tensor:
    """Return the cross entropy of each query's positive among all documents, the mean over queries:
    the N-pair loss (Sohn 2016; ESPLADE equation 1). Scores are of every query with every document
    [B, D]; ``excluded`` [B, D] leaves documents out of a query's denominator, such as further
    relevant documents, but for the positive."""
    columns = positives.long()
    if excluded is not None:
        scores = scores.masked_fill(excluded.scatter(1, columns[:, None], False), -torch.inf)
    return F.cross_entropy(scores, columns, reduction="sum") / max(len(scores), 1)


def mask_top_k(vectors: Tensor, k: int) -> Tensor:
    """Keep the k largest entries of non-negative vectors [n, V], 0 elsewhere (Yang et al. 2021;
    ESPLADE's q_K, d_K).

    Zeros are never among the k. Only the k entries have a gradient. A k of at least V returns the
    vectors unchanged.
    """
    if k >= vectors.shape[1]:
        return vectors
    largest = top_columns(vectors.detach(), k)
    left = torch.zeros_like(vectors, dtype=torch.bool).scatter(1, largest, True) & (vectors > 0)
    return vectors.masked_fill(~left, 0.0)


def _log_softmax(scores: Tensor, real: Tensor) -> Tensor:
    """Return log-softmax over the real candidates [B, n]; values in the padding are arbitrary."""
    return torch.log_softmax(scores.masked_fill(~real, -torch.inf), dim=1)
