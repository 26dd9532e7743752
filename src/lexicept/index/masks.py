"""The documents that filters let pass, as engines take them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial

import numpy as np

from lexicept.engines.mask import Mask
from lexicept.errors import InputError, check_count
from lexicept.fields.columns import Columns
from lexicept.fields.facets import ValueCount, value_counts
from lexicept.fields.filters import Condition, Expression, Filter, parse
from lexicept.fields.matching import matching
from lexicept.index.passages import Passages

KEPT = 16
"""Filters whose documents are kept, at a byte per document."""


class Masks:
    """The masks of filters over the fields of an index; those of the last filters are kept."""

    def __init__(self, columns: Columns, passages: Passages) -> None:
        # Not a method: the cycle would keep the index, and its generation, for longer.
        self._of = lru_cache(KEPT)(partial(_mask, columns))
        self._columns, self._passages = columns, passages

    def of(self, given: Filter | None) -> Mask | None:
        """Return the documents that a filter lets pass; None without one.

        Raises:
            InputError: no filter, or one that does not fit the fields.
        """
        return None if given is None else self.matching(parse(given))

    def matching(self, expression: Expression) -> Mask:
        """Return the documents that meet a condition. Raises InputError as ``of``."""
        return self._of(expression)

    def having(self, name: str) -> int:
        """Return how many documents have a field."""
        return self.num_documents(self._of(Condition(name, "exists", ())))

    def num_documents(self, mask: Mask) -> int:
        """Return how many documents have a row that a mask allows."""
        if not len(self._passages):
            return mask.count
        return int(np.count_nonzero(self._passages.per_document(mask.allowed)))

    def counts(
        self, names: Sequence[str], masks: Sequence[Mask | None], most: int
    ) -> dict[str, list[ValueCount]]:
        """Return the most frequent values of fields among the documents that all masks allow.

        Raises:
            InputError: no such field, or ``most`` below 1.
        """
        check_count("most", most)
        if isinstance(names, str) or not isinstance(names, Sequence):
            raise InputError(f"fields must be a list of names, not {names!r:.80}")
        allowed = np.ones(self._columns.num_documents, bool)
        for mask in masks:
            if mask is not None:
                allowed &= mask.allowed
        allowed = self._passages.per_document(allowed)
        for name in names:
            if name not in self._columns:
                known = ", ".join(self._columns) or "none"
                raise InputError(f"there is no field {name!r}, only: {known}")
        return {name: value_counts(self._columns[name], allowed, most) for name in names}


def _mask(columns: Columns, expression: Expression) -> Mask:
    return Mask(matching(expression, columns))
