"""Similar concepts, by the cosine of their directions in the space of states."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F

from lexicept.models.heads.base import Head
from lexicept.progress import Progress, silent
from lexicept.segments import Booleans, csr_of_rows
from lexicept.vectors import Floats, Integers

NEAREST = 8
"""Number of neighbours of a concept."""

COSINES = 2**24
"""Number of cosines in memory at once: 64 MB."""


def directions(head: Head) -> torch.Tensor:
    """Return each dimension's direction in the space of states [M, d], in single precision."""
    return head.directions.detach().float()


def nearest(rows: torch.Tensor, active: Booleans, progress: Progress = silent) -> sp.csr_array:
    """Return the cosines of each active row [M, d] with its ``NEAREST`` active neighbours, largest
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
        cosines.diagonal(offset=start).fill_(-2.0)  # no concept is its own neighbour
        largest = cosines.topk(count, dim=1)
        values.append(largest.values.cpu().numpy().ravel())
        columns.append(numbers[largest.indices.cpu().numpy().ravel()])
        progress("neighbours", min(start + step, len(kept)), len(kept))
    empty = np.zeros(0, np.int64)
    return csr_of_rows(
        np.concatenate([empty.astype(np.float32), *values]),
        np.concatenate([empty, *columns]),
        lengths,
        (len(rows), len(rows)),
    )
