"""The largest entries of long rows."""

from __future__ import annotations

import torch
from torch import Tensor

COLUMNS = 64
"""Columns of a chunk, of which the first pass over a long row reads the maximum."""

LONG_ROW = 8
"""Fewest chunks per wanted entry for which two passes are faster than one."""


def top_columns_reference(scores: Tensor, k: int) -> Tensor:
    """Return the columns of each row's ``k`` largest entries: [n, k] from [n, M], unordered."""
    return torch.topk(scores, k, dim=1, sorted=False).indices


def top_columns(scores: Tensor, k: int) -> Tensor:
    """Fast version of ``top_columns_reference``; among equal entries another may be chosen."""
    n, size = scores.shape
    chunks = size // COLUMNS
    if chunks < LONG_ROW * k:
        return top_columns_reference(scores, k)
    # The k largest entries lie in the k chunks with the largest maxima, or after the last chunk.
    chunked = scores[:, : chunks * COLUMNS].unflatten(1, (chunks, COLUMNS))
    best = top_columns_reference(chunked.amax(dim=2), k)
    columns = torch.arange(size, device=scores.device)
    within, after = columns[:COLUMNS], columns[chunks * COLUMNS :].expand(n, -1)
    candidates = torch.cat([(best[:, :, None] * COLUMNS + within).flatten(1), after], dim=1)
    return candidates.gather(1, top_columns_reference(scores.gather(1, candidates), k))
