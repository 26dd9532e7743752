"""Which concepts are alike, by what they stand for in the space of states."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F

from lexicept.models.heads.base import Head
from lexicept.models.heads.sae import SAEHead
from lexicept.progress import Progress, silent
from lexicept.segments import Booleans, csr_of_rows
from lexicept.vectors import Floats, Integers

NEAREST = 8
"""Neighbours that are kept for a concept."""

COSINES = 2**24
"""Cosines that exist at once: 64 MB."""


def directions(head: Head) -> torch.Tensor:
    """What each dimension stands for in the space of states [M, d]: a decoder's row, or the head's
    own."""
    return (head.sae.W_dec if isinstance(head, SAEHead) else head.rows).detach().float()


def nearest(rows: torch.Tensor, active: Booleans, progress: Progress = silent) -> sp.csr_array:
    """The cosines of each active row [M, d] with the ``NEAREST`` active ones next to it, largest
    first [M, M]; never all at once."""
    numbers = np.flatnonzero(active)
    count = min(NEAREST, max(0, numbers.size - 1))
    lengths = np.zeros(len(rows), np.int64)
    lengths[numbers] = count
    kept = F.normalize(rows[torch.from_numpy(numbers).to(rows.device)], dim=1)
    values: list[Floats] = []
    columns: list[Integers] = []
    step = max(1, COSINES // max(1, len(kept)))
    for start in range(0, len(kept) if count else 0, step):
        cosines = kept[start : start + step] @ kept.T
        cosines.diagonal(offset=start).fill_(-2.0)  # nobody is their own neighbour
        found = cosines.topk(count, dim=1)
        values.append(found.values.cpu().numpy().ravel())
        columns.append(numbers[found.indices.cpu().numpy().ravel()])
        progress("neighbours", min(start + step, len(kept)), len(kept))
    empty = np.zeros(0, np.int64)
    return csr_of_rows(
        np.concatenate([empty.astype(np.float32), *values]),
        np.concatenate([empty, *columns]),
        lengths,
        (len(rows), len(rows)),
    )
