"""Queries that a model encoded lately, in a bounded number of bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from sys import getsizeof
from threading import Lock
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from lexicept.vectors import Floats, Integers

OVERHEAD = 512
"""Bytes of an entry beside its text and its numbers: the objects that hold them, at most."""


class Row(NamedTuple):
    """The term frequencies of one query."""

    dimensions: Integers
    tf: Floats

    def bytes_with(self, text: str) -> int:
        """Return the memory that it takes as the entry of a text."""
        return OVERHEAD + getsizeof(text) + self.dimensions.nbytes + self.tf.nbytes


class QueryCache:
    """Text → the term frequencies of a query, of those that were used last.

    They depend on the model and the text alone: weighting, boosts, steering and filters come after
    it. Threads may share a cache.

    Args:
        most_bytes: what it may hold; a query that takes more by itself is not kept.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._rows: OrderedDict[str, Row] = OrderedDict()
        self._lock = Lock()
        self.num_bytes = 0
        """Memory of what it holds."""

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, text: str) -> Row | None:
        """Return the entry of a text, which is now the one that was used last; None for none."""
        with self._lock:
            row = self._rows.get(text)
            if row is not None:
                self._rows.move_to_end(text)
            return row

    def put(self, texts: Iterable[str], tf: sp.csr_array) -> list[Row]:
        """Keep what texts were encoded as [n, size], and return their rows."""
        rows = []
        for number, text in enumerate(texts):
            span = slice(tf.indptr[number], tf.indptr[number + 1])
            # Copies: a view would keep the arrays of all texts.
            rows.append(Row(tf.indices[span].astype(np.int32), tf.data[span].copy()))
            self._keep(text, rows[-1])
        return rows

    def _keep(self, text: str, row: Row) -> None:
        size = row.bytes_with(text)
        if size > self._most_bytes:
            return
        with self._lock:
            if text in self._rows:
                return
            self._rows[text] = row
            self.num_bytes += size
            while self.num_bytes > self._most_bytes:
                oldest, dropped = self._rows.popitem(last=False)
                self.num_bytes -= dropped.bytes_with(oldest)


def stack(rows: Iterable[Row], size: int) -> sp.csr_array:
    """Return the term frequencies of queries, CSR [n, size]."""
    listed = list(rows)
    ends = np.cumsum([0, *(row.tf.size for row in listed)])
    dimensions = np.concatenate([np.empty(0, np.int32), *(row.dimensions for row in listed)])
    tf = np.concatenate([np.empty(0, np.float32), *(row.tf for row in listed)])
    return sp.csr_array((tf, dimensions, ends), shape=(len(listed), size))
