"""The documents that filters let pass, as engines take them."""

from __future__ import annotations

from functools import lru_cache, partial

from lexicept.engines.mask import Mask
from lexicept.fields.columns import Columns
from lexicept.fields.filters import Expression, Filter, parse
from lexicept.fields.matching import matching

KEPT = 16
"""Filters whose documents are kept, at a byte per document."""


class Masks:
    """The masks of filters over the fields of an index; those of the last filters are kept."""

    def __init__(self, columns: Columns) -> None:
        # Not a method: the cycle would keep the index, and its generation, for longer.
        self._of = lru_cache(KEPT)(partial(_mask, columns))

    def of(self, given: Filter | None) -> Mask | None:
        """Return the documents that a filter lets pass; None without one.

        Raises:
            InputError: no filter, or one that does not fit the fields.
        """
        return None if given is None else self._of(parse(given))


def _mask(columns: Columns, expression: Expression) -> Mask:
    return Mask(matching(expression, columns))
