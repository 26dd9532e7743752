"""Values of documents, counted and summed up."""

import numpy as np

from lexicept.kernels.compiled import compiled


@compiled()
def count_values(codes, offsets, allowed, size):
    """Return how many documents have each value [size]; a repeated value of a document counts once.

    Args:
        codes: numbers of values, below ``size``; negative for missing ones [values].
        offsets: where the values of each document begin, and the last end [N + 1].
        allowed: which documents count, bool [N]."""
    counts = np.zeros(size, np.int64)
    for document in range(allowed.size):
        if not allowed[document]:
            continue
        first, end = offsets[document], offsets[document + 1]
        for position in range(first, end):
            code = codes[position]
            if code < 0 or code >= size:
                continue
            # Values of a document are few: a search of the earlier values needs no set.
            before = first
            while codes[before] != code:
                before += 1
            if before == position:
                counts[code] += 1
    return counts


@compiled()
def any_of(chosen, offsets):
    """Return whether any value of each document is chosen, bool [N].

    Args:
        chosen: which values are chosen, bool [values].
        offsets: where the values of each document begin, and the last end [N + 1]."""
    matching = np.zeros(offsets.size - 1, np.bool_)
    for document in range(matching.size):
        for position in range(offsets[document], offsets[document + 1]):
            matching[document] |= chosen[position]  # a branch would often be guessed wrongly
    return matching
