"""The largest outputs of a linear map, of every token or of every text, for some tokens at a time:
there is never an array of all tokens × outputs."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from lexicept.neural.kernels.topk import top_columns

CELLS = 2**23
"""Most cells of tokens × outputs in memory at once: 32 MB."""

GPU_CELLS = 2**26
"""The same on a GPU, which needs large products to be busy: 256 MB."""


@torch.no_grad()
def top_activations(
    x: Tensor, matrix: Tensor, bias: Tensor, k: int | None, threshold: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return each token's k largest activations f(matrix · x_i + bias) and their dimensions, both
    [n, k], unordered, without gradient.

    For k None there are as many columns as the token with most active dimensions needs. Under
    autocast values are still of the precision of x and the matrix.

    Args:
        x: tokens [n, d].
        matrix, bias: [V, d] and [V].
        k: at most V.
        threshold: [V], at least 0; f(v) is v above it and 0 elsewhere. None is ReLU.

    Returns:
        Activations, at least 0, and dimensions; one of activation 0 may be any.
    """
    width = min(k or 1, len(matrix))
    acts = x.new_zeros(len(x), width)
    dimensions = torch.zeros(len(x), width, dtype=torch.long, device=x.device)
    step = tokens_at_once(matrix)
    for start in range(0, len(x), step):
        with torch.autocast(x.device.type, enabled=False):
            pre = torch.addmm(bias, x[start : start + step], matrix.T)
        if threshold is not None:
            pre = fire(pre, threshold)
        if k is None:
            # Without k a token keeps all active dimensions.
            width = max(width, int((pre > 0).sum(dim=1).max()))
            added = width - acts.shape[1]
            acts, dimensions = F.pad(acts, (0, added)), F.pad(dimensions, (0, added))
        columns = top_columns(pre, width)
        # Preallocated: small arrays between large arrays would prevent the reuse of memory.
        dimensions[start : start + step] = columns
        acts[start : start + step] = F.relu(pre.gather(1, columns))
    return acts, dimensions


@torch.no_grad()
def largest_outputs(
    x: Tensor, text: Tensor, num_texts: int, matrix: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    """Return ``max(0, max_i matrix · x_i + bias)`` over each text's tokens, and the first token i
    with the maximum, without gradient; a NaN is a maximum.

    Under autocast values are still of the precision of x and the matrix.

    Args:
        x: tokens [n, d].
        text: the text of each token [n], rising.
        num_texts: texts, some perhaps without tokens.
        matrix, bias: [V, d] and [V].

    Returns:
        Maxima and tokens, both [num_texts, V]; any token for a maximum of 0."""
    maxima = x.new_zeros(num_texts, len(matrix))
    tokens = torch.zeros(num_texts, len(matrix), dtype=torch.long, device=x.device)
    step = tokens_at_once(matrix)
    for start in range(0, len(x), step):
        with torch.autocast(x.device.type, enabled=False):
            outputs = torch.addmm(bias, x[start : start + step], matrix.T)
        texts, counts = text[start : start + step].unique_consecutive(return_counts=True)
        token_before = start
        for index, of_text in zip(texts.tolist(), outputs.split(counts.tolist()), strict=True):
            best, token = of_text.max(dim=0)
            # Of equal maxima the earlier token stays.
            better = (best > maxima[index]) | best.isnan()
            maxima[index] = torch.where(better, best, maxima[index])
            tokens[index] = torch.where(better, token + token_before, tokens[index])
            token_before += len(of_text)
    return maxima, tokens


def fire(pre: Tensor, threshold: Tensor | None) -> Tensor:
    """Return activations of pre-activations [n, V]: ReLU, or JumpReLU of thresholds [V] of at
    least 0 (Rajamanoharan et al. 2024b, equation 3). A NaN stays one."""
    return F.relu(pre) if threshold is None else pre.masked_fill(pre <= threshold, 0.0)


def tokens_at_once(matrix: Tensor) -> int:
    """Return the number of tokens to compute all outputs of at once."""
    return max(1, (GPU_CELLS if matrix.is_cuda else CELLS) // len(matrix))
