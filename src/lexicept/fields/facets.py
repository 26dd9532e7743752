"""Counts of the values of a field."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lexicept.fields.columns import MISSING, Column
from lexicept.fields.matching import Passing
from lexicept.fields.values import Scalar
from lexicept.ops.counting import count_values


class ValueCount(NamedTuple):
    """A value of a field, and how many documents have it."""

    value: Scalar
    documents: int


def value_counts(column: Column, allowed: Passing, most: int) -> list[ValueCount]:
    """Return the most frequent values of a field, of equal counts the smaller value first.

    Args:
        column: the field.
        allowed: which documents count [N].
        most: values at most.
    """
    offsets = column.offsets
    if offsets is None:
        offsets = np.arange(allowed.size + 1)
    if column.terms is not None:
        stored, codes = np.arange(len(column.terms)), np.asarray(column.values, np.int64)
    else:
        stored, codes = np.unique(column.values, return_inverse=True)
        missing = (stored == MISSING) | (stored != stored)
        codes = np.where(missing[codes], -1, codes)
    counts = count_values(codes, np.asarray(offsets), allowed, stored.size)
    order = np.argsort(-counts, kind="stable")[:most]
    found = ((column.scalar(stored[code].item()), int(counts[code])) for code in order)
    return [ValueCount(value, count) for value, count in found if count and value is not None]
