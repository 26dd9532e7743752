"""Log-odds of words: those a text uses more than others do (Monroe, Colaresi & Quinn 2008)."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from lexicept.segments import csr_of_rows
from lexicept.vectors import Floats, row_numbers

PRIOR = 500.0
"""Weight of the log-odds' prior in words, distributed as in the background."""


def weighted_log_odds(counts: sp.csr_array, background: Floats) -> sp.csr_array:
    """Compare how often each row and its background use a word, in standard deviations.

    Returns the z-scores of log-odds ratios with an informative Dirichlet prior (Monroe, Colaresi &
    Quinn 2008, "Fightin' Words", equations 16, 20 and 22). With counts y of a row and c of all
    text that they were counted in, their sums n and m, and a prior α = ``PRIOR`` · c / m::

        δ = log((y + α) / (n + PRIOR − y − α)) − log((c + α) / (m + PRIOR − c − α))
        z = δ / √(1 / (y + α) + 1 / (c + α))

    Args:
        counts: y [M, W].
        background: c [W], above 0 wherever a row has a count.

    Returns:
        CSR [M, W], of the positive z alone, largest first in every row.
    """
    rows = row_numbers(counts)
    c = background[counts.indices]
    m = background.sum()
    prior = PRIOR * c / m
    y = counts.data + prior
    n = np.bincount(rows, counts.data, counts.shape[0])[rows] + PRIOR
    c = c + prior
    with np.errstate(divide="ignore", invalid="ignore"):  # a sample of a single word
        delta = np.log(y / (n - y)) - np.log(c / (m + PRIOR - c))
        z = np.nan_to_num(delta / np.sqrt(1 / y + 1 / c), nan=0.0, posinf=0.0, neginf=0.0)
    order = np.lexsort((counts.indices, -z, rows))
    order = order[z[order] > 0]
    lengths = np.bincount(rows[order], minlength=counts.shape[0])
    return csr_of_rows(z[order], counts.indices[order], lengths, counts.shape)
