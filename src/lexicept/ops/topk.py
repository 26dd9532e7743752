"""The largest entries of long rows."""

from __future__ import annotations

import torch
from torch import Tensor

CHUNK = 64
"""Columns of a block, of which the first pass reads the maximum."""

LONG_ROW = 16_384
"""Fewest columns for which two passes are faster than one."""


def top_columns_reference(scores: Tensor, k: int) -> Tensor:
    """Return the columns of each row's ``k`` largest entries: [n, k] from [n, M], unordered."""
    return torch.topk(scores, k, dim=1, sorted=False).indices


def top_columns(scores: Tensor, k: int) -> Tensor:
    """Fast version of ``top_columns_reference``.

    The k largest entries of a row lie in the k chunks with the largest maxima, so that a pass of
    maxima leaves k × CHUNK candidates; among equal entries another may be chosen.
    """
    rows, columns = scores.shape
    chunks = columns // CHUNK
    if columns < LONG_ROW or columns % CHUNK or chunks <= k:
        return top_columns_reference(scores, k)
    grouped = scores.view(rows, chunks, CHUNK)
    best = torch.topk(grouped.amax(dim=2), k, dim=1, sorted=False).indices
    candidates = grouped.gather(1, best[:, :, None].expand(-1, -1, CHUNK)).flatten(1)
    positions = torch.topk(candidates, k, dim=1, sorted=False).indices
    return best.gather(1, positions // CHUNK) * CHUNK + positions % CHUNK
