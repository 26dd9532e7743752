"""Weightings: from term frequencies (tf) to weights, so that words and concepts are commensurable.

A vectorizer emits *tf*: how often a word occurs, how strongly a latent fires. A weighting
turns them into document and query weights. BM25 treats a latent as a word whose term frequency is
its activation, so that words and concepts share one scoring function, one idf and one scale.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import scipy.sparse as sp

from lexicept.errors import InputError
from lexicept.vectors import Floats, Integers, with_entries


@dataclass(frozen=True)
class Statistics:
    """Statistics of a collection for weights; statistics of disjoint collections add up."""

    num_documents: int
    length: float
    """Sum of all term frequencies (tf)."""
    df: Integers
    """Document frequency of each dimension [V]."""

    @classmethod
    def of(cls, tf: sp.csr_array) -> Statistics:
        """Return the statistics of tf, CSR [n, V]."""
        df = np.bincount(tf.indices, minlength=tf.shape[1])
        return cls(tf.shape[0], float(_lengths(tf).sum()), df)

    def __add__(self, other: Statistics) -> Statistics:
        length = self.length + other.length
        return Statistics(self.num_documents + other.num_documents, length, self.df + other.df)


@runtime_checkable
class Weighting(Protocol):
    """Document weights from a collection's tf, query weights from a query's own."""

    def documents(self, tf: sp.csr_array, collection: Statistics | None = None) -> sp.csr_array:
        """Return document weights, CSR [n, V], from tf, CSR [n, V].

        ``collection`` has the statistics of all documents, by default of ``tf``.
        """

    def queries(self, tf: sp.csr_array) -> sp.csr_array:
        """Return query weights, CSR [n, V], from tf, CSR [n, V]."""

    def settings(self) -> dict[str, Any]:
        """Return the settings for ``from_settings``."""


@dataclass(frozen=True)
class BM25:
    """BM25, Lucene's variant: ``idf(t) · f / (f + k1 (1 − b + b |d| / avgdl))``.

    Robertson and Zaragoza 2009; the variant is "BM25 accurate Lucene" of Kamphuis et al. 2020,
    without the constant factor k1 + 1. |d| is the sum of the document's tf.

    Raises:
        InputError: a parameter out of range.
    """

    k1: float = 1.5
    """BM25's k1 (term-frequency saturation), at least 0."""
    b: float = 0.75
    """BM25's b (length normalisation), 0 (none) to 1 (full)."""
    k3: float | None = None
    """BM25's k3 (saturation in queries, ``f / (f + k3)``); None keeps the frequency."""
    query_exponent: float = 1.0
    """Exponent of a query's frequency, before k3: 2 with pooling ``sqrt_sum``, so that documents
    have the root, and queries the sum."""
    query_scale: float = 1.0
    """Factor on query weights, relative to those of other vocabularies."""

    def __post_init__(self) -> None:
        above_0 = (1.0 if self.k3 is None else self.k3, self.query_exponent, self.query_scale)
        sound = 0 <= self.k1 <= sys.float_info.max and 0 <= self.b <= 1
        if not (sound and all(0 < value <= sys.float_info.max for value in above_0)):
            raise InputError(
                f"{self}: k1 must be at least 0, b within 0 and 1, k3 above 0 or None, "
                "query_exponent and query_scale above 0"
            )

    def documents(self, tf: sp.csr_array, collection: Statistics | None = None) -> sp.csr_array:
        collection = collection or Statistics.of(tf)
        average = collection.length / max(collection.num_documents, 1) or 1.0
        pivot = self.k1 * (1 - self.b + self.b * _lengths(tf) / average)
        weights = lucene_idf(collection.num_documents, collection.df)[tf.indices]
        values = tf.data.astype(np.float64)
        weights *= values  # in place: shards are large
        values += np.repeat(pivot, np.diff(tf.indptr))
        weights /= values
        return _with_data(tf, weights)

    def queries(self, tf: sp.csr_array) -> sp.csr_array:
        values = tf.data if self.query_exponent == 1 else tf.data**self.query_exponent
        if self.k3 is not None:
            values = values / (values + self.k3)
        return _with_data(tf, values * self.query_scale)

    def settings(self) -> dict[str, Any]:
        return {"name": "bm25", **asdict(self)}


@dataclass(frozen=True)
class _Elementwise:
    """Weights that depend on their own frequency alone."""

    name: ClassVar[str]
    weights: ClassVar[Any]
    """Returns the weights of tf [nnz], before ``query_scale``."""

    query_scale: float = 1.0
    """Factor on query weights, learned where a head was trained beside words."""

    def __post_init__(self) -> None:
        if not 0 < self.query_scale <= sys.float_info.max:
            raise InputError(f"{self}: query_scale must be above 0")

    def documents(self, tf: sp.csr_array, collection: Statistics | None = None) -> sp.csr_array:
        return _with_data(tf, self.weights(tf.data))

    def queries(self, tf: sp.csr_array) -> sp.csr_array:
        return _with_data(tf, self.weights(tf.data) * self.query_scale)

    def settings(self) -> dict[str, Any]:
        return {"name": self.name, **asdict(self)}


class Splade(_Elementwise):
    """SPLADE's saturation, ``log(1 + f)``, of documents and queries: for heads trained for it."""

    name, weights = "splade", np.log1p


class Unchanged(_Elementwise):
    """Frequencies that are weights already, as those of the poolings sum and sqrt_sum are."""

    name, weights = "unchanged", np.positive  # a copy: a weight may be changed in place


def from_settings(settings: dict[str, Any]) -> Weighting:
    """Return the weighting that ``settings()`` describes. Raises InputError for an unknown name or
    parameter, or a parameter out of range."""
    weightings: dict[str, Callable[..., Weighting]]
    weightings = {"bm25": BM25, "splade": Splade, "unchanged": Unchanged}
    arguments = dict(settings)
    name = arguments.pop("name", None)
    if name not in weightings:
        raise InputError(f"no weighting {name!r}, only: {', '.join(weightings)}")
    try:
        return weightings[name](**arguments)
    except (TypeError, OverflowError) as error:
        raise InputError(f"weighting {name!r}: {error}") from None


def lucene_idf(num_documents: int, df: Floats | Integers) -> Floats:
    """Return ``ln(1 + (N − df + ½) / (df + ½))`` of every dimension [V], always positive."""
    return np.log1p((num_documents - df + 0.5) / (df + 0.5))


def usefulness(num_documents: int, df: Integers) -> Floats:
    """Return df · idf² of every dimension [V]: its part in documents' scores for one another."""
    return df * lucene_idf(num_documents, df) ** 2


def _lengths(tf: sp.csr_array) -> Floats:
    """Return the sum of the tf of every document [n]."""
    return np.asarray(tf.sum(axis=1), dtype=np.float64).ravel()


def _with_data(matrix: sp.csr_array, data: Floats) -> sp.csr_array:
    return with_entries(matrix, data.astype(np.float32, copy=False), matrix.indices, matrix.indptr)
