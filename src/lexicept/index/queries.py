"""Queries as an index reads them: checked, encoded once, and steered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import scipy.sparse as sp

from lexicept.errors import InputError
from lexicept.explanation.contributions import Sources
from lexicept.index.loaded import LoadedVectorizers
from lexicept.queries.syntax import ParsedQuery
from lexicept.vectors import canonical_csr

Steering = Mapping[tuple[str, int], float]
"""Factors on a query's weights, by vocabulary and dimension."""

MAX_FACTOR = 1e6
"""The largest factor of a steering: it keeps scores within single precision."""

Span = Callable[[str], slice]
"""Returns the dimensions of a vocabulary."""

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
    fired: frozenset[tuple[str, int]]
    """The dimensions that the text itself has, by vocabulary; others were added."""


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


def checked_queries(queries: object) -> list[ParsedQuery]:
    """Return queries in their parts, texts as they are.

    Raises:
        InputError: anything but texts and parsed queries that UTF-8 can hold.
    """
    if isinstance(queries, str) or not isinstance(queries, Iterable):
        raise InputError(f"queries are a list of texts, not {queries!r:.40}")
    return [checked_query(query) for query in queries]


def checked_query(query: object) -> ParsedQuery:
    """Return a query in its parts, a text as it is; raises InputError as ``checked_queries``."""
    parsed = query if isinstance(query, ParsedQuery) else ParsedQuery(cast(str, query))
    if not isinstance(parsed.text, str):
        raise InputError(f"a query is a text, not {parsed.text!r:.40}")
    try:
        for text in (parsed.text, *parsed.phrases, *parsed.without):
            text.encode()
    except UnicodeEncodeError:
        raise InputError("the query is not valid UTF-8") from None
    return parsed


def adjusted(
    weights: sp.csr_array,
    queries: Sequence[ParsedQuery],
    span: Span,
    searched: Sequence[str],
) -> sp.csr_array:
    """Return queries' weights [n, V] with their added dimensions, times their boosts.

    Args:
        span: returns the dimensions of a vocabulary.
        searched: the vocabularies that are searched; no dimension of another one is added.

    Raises:
        InputError: an unknown vocabulary or dimension, or a number out of range.
    """
    if not any(query.boosts or query.added for query in queries):
        return weights
    rows = []
    for number, query in enumerate(queries):
        row = weights[[number]].toarray().astype(np.float32)
        for name, place, weight in placed("added", "weight", query.added, span):
            if name in searched:
                row[0, place] += weight
        if not isinstance(query.boosts, Mapping):
            raise InputError(f"boosts map a vocabulary to a factor: {query.boosts!r:.80}")
        for name, factor in query.boosts.items():
            check_factor(f"boosts: the factor on {name}", factor)
            row[0, span(name)] *= factor
        rows.append(sp.csr_array(row))
    return canonical_csr(sp.vstack(rows, format="csr"))


def check_factor(subject: str, factor: object) -> None:
    """Raise InputError unless a factor is a number from 0 to ``MAX_FACTOR``."""
    if not isinstance(factor, Real) or not 0 <= float(factor) <= MAX_FACTOR:
        raise InputError(f"{subject} must be from 0 to {MAX_FACTOR:,.0f}, not {factor!r:.80}")


def placed(
    subject: str, noun: str, numbers: object, span: Span
) -> Iterator[tuple[str, int, float]]:
    """Yield vocabulary, place among all dimensions, and number of each entry of a mapping.

    Args:
        subject, noun: what the mapping and its numbers are called.
        span: returns the dimensions of a vocabulary.

    Raises:
        InputError: a dimension that a vocabulary does not have, or a number out of range.
    """
    if not isinstance(numbers, Mapping):
        raise InputError(f"{subject} maps (vocabulary, dimension) to a {noun}: {numbers!r:.80}")
    for key, number in numbers.items():
        if not isinstance(key, tuple) or len(key) != 2:
            raise InputError(f"{subject}: a key is (vocabulary, dimension), not {key!r:.80}")
        name, dimension = key
        own = span(name)
        if not isinstance(dimension, Integral) or not 0 <= int(dimension) < own.stop - own.start:
            raise InputError(f"{subject}: {name} has no dimension {dimension!r:.80}")
        check_factor(f"{subject}: the {noun} on {name} {dimension}", number)
        yield name, own.start + int(dimension), float(number)


def steer(weights: sp.csr_array, steering: Steering, span: Span) -> sp.csr_array:
    """Return query weights [n, V] times the factors of a steering.

    Args:
        span: returns the dimensions of a vocabulary.

    Raises:
        InputError: a dimension that a vocabulary does not have, or a factor out of range.
    """
    factors = np.ones(weights.shape[1], np.float32)
    for _, place, factor in placed("steering", "factor", steering, span):
        factors[place] = factor
    data = weights.data * factors[weights.indices]
    return canonical_csr(sp.csr_array((data, weights.indices, weights.indptr), weights.shape))
