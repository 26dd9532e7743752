"""Aligning the rows of collections that hold the same texts."""

from __future__ import annotations

from collections.abc import Sequence

import scipy.sparse as sp

from lexicept.errors import InputError
from lexicept.vectors import SparseVectors


def align(collections: Sequence[SparseVectors]) -> list[sp.csr_array]:
    """Return the weights of each collection [N, V_i], in the order of the first one's ids.

    Raises:
        InputError: no collections, or an id that is not in all of them.
    """
    if not collections:
        raise InputError("no collections to compare")
    ids = collections[0].ids
    aligned = []
    for collection in collections:
        if collection.ids == ids:
            aligned.append(collection.weights)
            continue
        rows = {name: row for row, name in enumerate(collection.ids)}
        if strange := set(ids) ^ rows.keys():
            name = min(strange)
            raise InputError(f"collections of different texts: {name!r} is not in all of them")
        aligned.append(collection.weights[[rows[name] for name in ids]])
    return aligned
