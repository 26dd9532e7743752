"""The largest output of a linear map among each text's tokens, without tokens × outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from lexicept.kernels.compiled import over_rows
from lexicept.neural.kernels.linear_topk import tiles
from lexicept.neural.kernels.quantisation import choose_by_bytes, quantised, summed_errors
from lexicept.neural.kernels.tile_kernels import ShortScores, Tile, exact_maxima

TOKENS = 4096
"""Tokens of one pass over the matrix."""


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
    x, matrix, bias = x.detach().contiguous(), matrix.detach().contiguous(), bias.detach()
    maxima = x.new_zeros(num_texts, len(matrix))
    tokens = torch.zeros(num_texts, len(matrix), dtype=torch.long, device=x.device)
    with torch.autocast(x.device.type, enabled=False):
        for start in range(0, len(x), TOKENS):
            some = x[start : start + TOKENS]
            names, counts = torch.unique_consecutive(
                text[start : start + TOKENS], return_counts=True
            )
            # Only the texts of these tokens, whose first may have begun before.
            ends = [0, *counts.cumsum(0).tolist()]
            by_bytes = choose_by_bytes(some, matrix)
            of_tile = _by_bytes(some, ends) if by_bytes else partial(_of_tile, some, ends)
            for columns in tiles(len(some), matrix):
                best, token = of_tile(matrix[columns], bias[columns])
                before, earlier = maxima[names, columns], tokens[names, columns]
                # Of equal maxima the earlier token stays.
                better = (best > before) | best.isnan()
                maxima[names, columns] = torch.where(better, best, before)
                tokens[names, columns] = torch.where(better, token + start, earlier)
    return maxima, tokens


Maxima = tuple[Tensor, Tensor]
"""The maxima of some texts in some columns, and their tokens: both [texts, T]."""


def _of_tile(x: Tensor, ends: Sequence[int], matrix: Tensor, bias: Tensor) -> Maxima:
    """Return the maxima of a tile; text t has tokens ``ends[t]`` to ``ends[t + 1]`` of x."""
    outputs = torch.addmm(bias, x, matrix.T)
    largest = [outputs[start:end].max(dim=0) for start, end in pairwise(ends)]
    starts = torch.tensor(ends[:-1], device=x.device)
    best, token = (torch.stack(tensors) for tensors in zip(*largest, strict=True))
    return best, token + starts[:, None]


def _by_bytes(x: Tensor, ends: Sequence[int]) -> Callable[[Tensor, Tensor], Maxima]:
    """Do as ``_of_tile`` on a CPU that multiplies 8-bit numbers faster: only candidates for the
    maximum, within the rounding errors, are computed in single precision.
    """
    rounded, bounds = quantised(x), np.array(ends)
    factors = rounded.factors()
    # A bound for a text is the largest of its tokens.
    of_texts = np.stack([factors[start:end].amax(dim=0).numpy() for start, end in pairwise(ends)])

    def of_tile(matrix: Tensor, bias: Tensor) -> Maxima:
        short = quantised(matrix)
        of_columns = torch.stack([short.norms, short.errors, summed_errors(short, bias)], dim=1)
        if not bool((factors.sum() * of_columns.sum()).isfinite()):
            return _of_tile(x, ends, matrix, bias)
        tile = Tile(x.numpy(), matrix.numpy(), bias.numpy())
        scores = ShortScores.of(rounded, short, tile.bias, of_texts, of_columns)
        maxima = torch.zeros(len(ends) - 1, len(matrix))
        tokens = torch.zeros(maxima.shape, dtype=torch.long)
        find = partial(exact_maxima, scores, tile, bounds, maxima.numpy(), tokens.numpy())
        over_rows(find, len(matrix), torch.get_num_threads())
        return maxima, tokens

    return of_tile
