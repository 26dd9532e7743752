"""Ranking losses: scores of queries and documents → one number to minimise.

A query's candidates are a row: scores [B, n], by convention the positive in column 0. Lists of
unequal length are padded, and ``mask`` [B, n] (bool) marks the real candidates: values in the
padding, NaN included, change neither a loss nor a gradient. Results are scalars in the dtype of the
scores; a batch without anything to rank gives 0 with zero gradients.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from lexicept.errors import InputError
from lexicept.ops.topk import top_columns


def kl_divergence(
    scores: Tensor,
    teacher: Tensor,
    *,
    temperature: float = 1.0,
    teacher_temperature: float = 1.0,
    mask: Tensor | None = None,
) -> Tensor:
    """Return KL(softmax(teacher / teacher_temperature) ‖ softmax(scores / temperature)).

    Summed over candidates, mean over the queries with at least 2 candidates (SPLADE-v2 and -v3,
    SAE-SPLADE; SPLARE equation 3 with temperatures 80, 50 and 10 for the student alone). Not
    multiplied by temperature², unlike Hinton's and sentence-transformers' distillation losses.

    Args:
        scores: the student's [B, n].
        teacher: the teacher's [B, n], constant (no gradient).

    Raises:
        InputError: different shapes, a temperature of 0 or below, a mask of numbers.
    """
    real = _real_candidates(scores, teacher, mask)
    counted = real.sum(dim=1) >= 2
    target = _log_softmax(teacher.detach(), teacher_temperature, real).exp()
    terms = F.kl_div(_log_softmax(scores, temperature, real), target, reduction="none")
    # Padding has NaN; the term of a candidate alone is 0.
    return terms.masked_fill(~real, 0.0).sum() / counted.sum().clamp(min=1)


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

    Hofstätter et al. 2020. A query with padding in column 0, the positive, has no pairs.

    Args:
        scores: the student's [B, n].
        teacher: the teacher's [B, n], constant (no gradient).

    Raises:
        InputError: different shapes, a mask of numbers.
    """
    real = _real_candidates(scores, teacher, mask)
    pairs = real[:, :1] & real[:, 1:]
    # (s_pos − t_pos) − (s_neg − t_neg) is the difference of both margins.
    gaps = scores - teacher.detach()
    errors = (gaps[:, :1] - gaps[:, 1:]).masked_fill(~pairs, 0.0)
    return errors.square().sum() / pairs.sum().clamp(min=1)


def in_batch_softmax(
    scores: Tensor, positives: Tensor, *, temperature: float = 1.0, excluded: Tensor | None = None
) -> Tensor:
    """Return the cross entropy of each query's positive among all documents, the mean over queries.

    The N-pair loss (Sohn 2016; ESPLADE equation 1).

    Args:
        scores: every query with every document [B, D]; hard negatives are more columns.
        positives: the column of each query's positive [B].
        excluded: documents to leave out of a query's denominator [B, D] (bool), such as further
            relevant documents; the query's positive always stays in.

    Raises:
        InputError: wrong shapes, a column out of range, a temperature of 0 or below, an
            ``excluded`` of numbers.
    """
    if scores.ndim != 2 or positives.shape != scores.shape[:1]:
        raise InputError(
            f"scores [B, D] and positives [B] can't be {_shape(scores)} and {_shape(positives)}"
        )
    out_of_range = (positives < 0) | (positives >= scores.shape[1])
    if positives.is_floating_point() or bool(out_of_range.any()):
        raise InputError(f"positives must be columns 0 to {scores.shape[1] - 1}, not {positives}")
    columns = positives.long()
    logits = _cooled(scores, temperature)
    if excluded is not None:
        _check_bool("excluded", excluded, scores)
        without_positives = excluded.scatter(1, columns[:, None], False)
        logits = logits.masked_fill(without_positives, -torch.inf)
    return F.cross_entropy(logits, columns, reduction="sum") / max(len(scores), 1)


def mask_top_k(vectors: Tensor, k: int) -> Tensor:
    """Keep the k largest entries of each row, 0 elsewhere (Yang et al. 2021; ESPLADE's q_K, d_K).

    Args:
        vectors: [n, V], non-negative. Zeros are never among the k.
        k: number of entries; at least V returns the vectors unchanged.

    Returns:
        [n, V]; only the k entries have a gradient.

    Raises:
        InputError: k below 1, or vectors of another shape.
    """
    if vectors.ndim != 2:
        raise InputError(f"vectors must be [n, V], not {_shape(vectors)}")
    if k < 1:
        raise InputError(f"k must be at least 1, not {k}")
    if k >= vectors.shape[1]:
        return vectors
    largest = top_columns(vectors.detach(), k)
    left = torch.zeros_like(vectors, dtype=torch.bool).scatter(1, largest, True) & (vectors > 0)
    return vectors.masked_fill(~left, 0.0)


def mask_divergence(
    scores: Tensor, masked_scores: Tensor, *, temperature: float = 1.0, mask: Tensor | None = None
) -> Tensor:
    """Return the KL from the ranking of whole vectors to that of vectors cut by ``mask_top_k``.

    The whole vectors are the teacher, without gradient (ESPLADE's mask KL, after the self-learning
    of Yang et al. 2021).

    Args:
        scores: of whole vectors [B, n].
        masked_scores: of cut vectors [B, n].
        temperature: divides both.

    Raises:
        InputError: as ``kl_divergence``.
    """
    return kl_divergence(
        masked_scores, scores, temperature=temperature, teacher_temperature=temperature, mask=mask
    )


def _real_candidates(scores: Tensor, teacher: Tensor, mask: Tensor | None) -> Tensor:
    """Check both kinds of scores; return the mask [B, n], all True by default."""
    if scores.ndim != 2 or teacher.shape != scores.shape:
        raise InputError(
            f"two kinds of scores [B, n] can't be {_shape(scores)} and {_shape(teacher)}"
        )
    if mask is None:
        return torch.ones_like(scores, dtype=torch.bool)
    _check_bool("mask", mask, scores)
    return mask


def _log_softmax(scores: Tensor, temperature: float, real: Tensor) -> Tensor:
    """Return log-softmax over the real candidates [B, n]; values in the padding are arbitrary."""
    logits = _cooled(scores, temperature).masked_fill(~real, -torch.inf)
    return torch.log_softmax(logits, dim=1)


def _check_bool(name: str, marks: Tensor, scores: Tensor) -> None:
    if marks.dtype != torch.bool or marks.shape != scores.shape:
        raise InputError(
            f"{name} must be {_shape(scores)} of torch.bool, not {_shape(marks)} of {marks.dtype}"
        )


def _cooled(scores: Tensor, temperature: float) -> Tensor:
    if not 0 < temperature < math.inf:
        raise InputError(f"a temperature must be positive, not {temperature}")
    return scores / temperature


def _shape(tensor: Tensor) -> list[int]:
    return list(tensor.shape)
