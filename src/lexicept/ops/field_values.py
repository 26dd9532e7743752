"""Values of documents, counted and summed up."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from lexicept.ops.compiled import compiled
from lexicept.vectors import Integers


def count_values_reference(codes: Any, offsets: Any, allowed: Any, size: int) -> Integers:
    """Return how many documents have each value [size].

    Args:
        codes: numbers of values, below ``size``; negative for missing ones [values].
        offsets: where the values of each document begin, and the last end [N + 1].
        allowed: which documents count, bool [N].
    """
    counts = np.zeros(size, np.int64)
    for document in np.flatnonzero(allowed):
        values = np.unique(codes[offsets[document] : offsets[document + 1]])
        counts[values[values >= 0]] += 1
    return counts


@compiled()
def count_values(codes, offsets, allowed, size):
    """Compiled version of ``count_values_reference``. A value that a document has twice counts
    once."""
    counts = np.zeros(size, np.int64)
    for document in range(allowed.size):
        if not allowed[document]:
            continue
        first, end = offsets[document], offsets[document + 1]
        for place in range(first, end):
            code = codes[place]
            if code < 0 or code >= size:
                continue
            # Values of a document are few: a search of the earlier values needs no set.
            before = first
            while codes[before] != code:
                before += 1
            if before == place:
                counts[code] += 1
    return counts


def any_of_reference(places: Any, offsets: Any) -> Any:
    """Return whether any value of each document is chosen, bool [N].

    Args:
        places: which values are chosen, bool [values].
        offsets: where the values of each document begin, and the last end [N + 1].
    """
    return np.array([places[a:b].any() for a, b in pairwise(offsets.tolist())], bool)


@compiled()
def any_of(places, offsets):
    """Compiled version of ``any_of_reference``."""
    matching = np.zeros(offsets.size - 1, np.bool_)
    for document in range(matching.size):
        for place in range(offsets[document], offsets[document + 1]):
            matching[document] |= places[place]  # a branch would often be guessed wrongly
    return matching
