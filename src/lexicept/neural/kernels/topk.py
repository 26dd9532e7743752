"""The largest entries of long rows."""

from __future__ import annotations

import torch
from torch import Tensor

COLUMNS = 64
"""Columns of a chunk, of which the first pass over a long row reads the maximum."""

LONG_ROW = 16_384
"""Fewest columns for which two passes are faster than one."""


def top_columns_reference(scores: Tensor, k: int) -> Tensor:
    """Return the columns of each row's ``k`` largest entries: [n, k] from [n, M], unordered."""
    return torch.topk(scores, k, dim=1, sorted=False).indices


def top_columns(scores: Tensor, k: int) -> Tensor:
    """Fast version of ``top_columns_reference``; among equal entries another may be chosen."""
    n, size = scores.shape
    chunks = size // COLUMNS
    if size < LONG_ROW or size % COLUMNS or chunks <= k:
        return top_columns_reference(scores, k)
    # The k largest entries of a row lie in the k chunks with the largest maxima.
    grouped = scores.view(n, chunks, COLUMNS)
    best = torch.topk(grouped.amax(dim=2), k, dim=1, sorted=False).indices
    candidates = grouped.gather(1, best[:, :, None].expand(-1, -1, COLUMNS)).flatten(1)
    positions = torch.topk(candidates, k, dim=1, sorted=False).indices
    return best.gather(1, positions // COLUMNS) * COLUMNS + positions % COLUMNS
