"""Queries as an index reads them: checked, encoded once, and steered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from lexicept.errors import InputError
from lexicept.explanation.contributions import Sources
from lexicept.index.loaded import LoadedVectorizers
from lexicept.vectors import canonical_csr

Steering = Mapping[tuple[str, int], float]
"""Factors on a query's weights, by vocabulary and dimension."""

MAX_FACTOR = 1e6
"""The largest factor of a steering: it keeps scores within single precision."""

SourceFinder = Callable[[Sequence[int]], dict[int, Sources]]
"""Returns the sources of some dimensions of one vocabulary."""


@dataclass(frozen=True)
class WeightedQuery:
    """A query that was encoded once, for search and explanation."""

    text: str
    vector: sp.csr_array
    """Weights after pruning and steering, CSR [1, V]."""
    sources: Mapping[str, SourceFinder]
    """By vocabulary."""


class Term(NamedTuple):
    """A dimension of one vocabulary, and what a person sees for it."""

    vocabulary: str
    dimension: int
    term: str


def dimensions_in(terms: Iterable[Term], vocabulary: str) -> list[int]:
    """Return the dimensions that lie in one vocabulary."""
    return [term.dimension for term in terms if term.vocabulary == vocabulary]


def check_query_encoder(query_encoder: object, path: Path, loaded: LoadedVectorizers) -> None:
    """Raise InputError for an unknown encoder of queries, or one that an index does not have."""
    if query_encoder not in ("model", "lookup"):
        raise InputError(f"query_encoder is model or lookup, not {query_encoder!r:.40}")
    if query_encoder == "lookup" and not loaded.has_table:
        raise InputError(
            f"{path} has no token table to look queries up in: only concepts that are latents of "
            "an SAE with k have one, in an index that this version built"
        )


def checked_texts(queries: object) -> list[str]:
    """Return queries as a list. Raises InputError for anything but texts that UTF-8 can hold."""
    if isinstance(queries, str) or not isinstance(queries, Iterable):
        raise InputError(f"queries are a list of texts, not {queries!r:.40}")
    texts = list(queries)
    for query in texts:
        check_query(query)
    return texts


def check_query(query: object) -> None:
    """Raise InputError for a query that is no text, or that UTF-8 can't hold."""
    if not isinstance(query, str):
        raise InputError(f"a query is a text, not {query!r:.40}")
    try:
        query.encode()
    except UnicodeEncodeError:
        raise InputError("the query is not valid UTF-8") from None


def steer(weights: sp.csr_array, steering: Steering, span: Callable[[str], slice]) -> sp.csr_array:
    """Return query weights [n, V] times the factors of a steering.

    Args:
        span: returns the dimensions of a vocabulary.

    Raises:
        InputError: a dimension that a vocabulary does not have, or a factor out of range.
    """
    if not isinstance(steering, Mapping):
        raise InputError(f"steering maps (vocabulary, dimension) to a factor: {steering!r:.80}")
    factors = np.ones(weights.shape[1], np.float32)
    for key, factor in steering.items():
        if not isinstance(key, tuple) or len(key) != 2:
            raise InputError(f"steering: a key is (vocabulary, dimension), not {key!r:.80}")
        name, dimension = key
        own = span(name)
        if not isinstance(dimension, Integral) or not 0 <= dimension < own.stop - own.start:
            raise InputError(f"steering: {name} has no dimension {dimension!r:.80}")
        if not isinstance(factor, Real) or not 0 <= factor <= MAX_FACTOR:
            limits = f"must be from 0 to {MAX_FACTOR:,.0f}, not {factor!r:.80}"
            raise InputError(f"steering: the factor on {name} {dimension} {limits}")
        factors[own.start + dimension] = factor
    data = weights.data * factors[weights.indices]
    return canonical_csr(sp.csr_array((data, weights.indices, weights.indptr), weights.shape))
