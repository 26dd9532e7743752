"""Relevance feedback in an index, and queries made of documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from numbers import Integral

import numpy as np
import scipy.sparse as sp

from lexicept.errors import InputError
from lexicept.explanation.contributions import QueryTerm
from lexicept.fields.filters import Filter
from lexicept.index.queries import Steering, placed
from lexicept.index.reader import IndexReader
from lexicept.index.spelling import as_spelled
from lexicept.queries.feedback import DIMENSIONS, STRENGTH, centroid, rocchio
from lexicept.queries.syntax import ParsedQuery, Weights

Marked = int | Sequence[str]
"""Ids of documents that are relevant, or how many of the first results are taken to be."""


def with_feedback(
    index: IndexReader,
    query: ParsedQuery,
    marked: Marked,
    vocabulary: str | None = None,
    steering: Steering | None = None,
    filter: Filter | None = None,  # noqa: A002
    dimensions: int = DIMENSIONS,
    strength: float = STRENGTH,
) -> ParsedQuery:
    """Return a query with what relevant documents add to it.

    Args:
        marked: ids of relevant documents, or how many of the first results to take.
        vocabulary: see ``IndexReader.search``, of the dimensions that are added too.
        steering: as in ``IndexReader.search``, of the search for the first results.
        filter: likewise.
        dimensions: the most dimensions to add.
        strength: length of what is added, as a share of the query's.

    Raises:
        InputError: an unknown id, a number below 1, or what a search refuses.
    """
    if isinstance(marked, Integral):
        hits = index.search(query, int(marked), vocabulary, steering, filter=filter)
        numbers = [hit.number for hit in hits]
    elif isinstance(marked, str) or not isinstance(marked, Sequence):
        raise InputError(f"feedback is a number of results or a list of ids, not {marked!r:.80}")
    else:
        numbers = [row for name in marked for row in index.document_rows(name)]
    if not numbers:
        return query
    plain = index.query_vectors([replace(query, boosts={}, added={})], vocabulary)
    documents = rows(index, numbers, vocabulary)
    more = _weights(index, rocchio(plain, documents, dimensions, strength))
    return replace(query, added=_sum(query.added, more))


def like(index: IndexReader, document_id: str, query: ParsedQuery | None = None) -> ParsedQuery:
    """Return a query for documents like one: its largest dimensions, itself left out.

    Args:
        query: what else to search for.

    Raises:
        InputError: an unknown id.
    """
    query = ParsedQuery("") if query is None else query
    vector = centroid(rows(index, index.document_rows(document_id)), DIMENSIONS)
    added = _sum(query.added, _weights(index, vector))
    return replace(query, hidden=(*query.hidden, document_id), added=added)


def rows(index: IndexReader, numbers: Iterable[int], vocabulary: str | None = None) -> sp.csr_array:
    """Return the weights that some documents are searched with [n, V].

    Args:
        vocabulary: leave out the dimensions of others.
    """
    vectors = [sp.csr_array((0, index.engine.num_dimensions), dtype=np.float32)]
    for number in numbers:
        places = [np.empty(0, np.int64)]
        for entry in index.vocabularies:
            if vocabulary in (None, entry.name):
                tf = index.stored_tf(entry)[number : number + 1].load()
                places.append(tf.indices + index.span(entry.name).start)
        columns = np.concatenate(places)
        weights = index.engine.document_weights(number, columns).astype(np.float32)
        shape = (1, index.engine.num_dimensions)
        row = sp.csr_array((weights, columns, np.array([0, columns.size])), shape=shape)
        row.eliminate_zeros()
        vectors.append(row)
    return sp.csr_array(sp.vstack(vectors, format="csr"))


def added_terms(index: IndexReader, added: Mapping[tuple[str, int], float]) -> list[QueryTerm]:
    """Return added dimensions with what people call them, the largest weights first; a word as
    documents spell it.

    Raises:
        InputError: an unknown vocabulary or dimension.
    """
    found = []
    for (name, dimension), (_, _, weight) in zip(
        added, placed("added", "weight", added, index.span), strict=True
    ):
        (terms,) = (v.terms for v in index.vocabularies if v.name == name)
        term = as_spelled(index, dimension) if name == "words" else ""
        term = term or (str(dimension) if terms is None else terms[dimension])
        found.append(QueryTerm(name, int(dimension), term, weight, (), ()))
    return sorted(found, key=lambda one: -one.weight)


def _sum(one: Weights, other: Weights) -> dict[tuple[str, int], float]:
    """Return the sum of the weights of each dimension."""
    return {**one, **{key: one.get(key, 0.0) + weight for key, weight in other.items()}}


def _weights(index: IndexReader, vector: sp.csr_array) -> dict[tuple[str, int], float]:
    """Return the weights of a vector by vocabulary and dimension, the largest first."""
    weights = {}
    for place in np.argsort(-vector.data, kind="stable"):
        column = int(vector.indices[place])
        for entry in index.vocabularies:
            span = index.span(entry.name)
            if span.start <= column < span.stop:
                weights[entry.name, column - span.start] = round(float(vector.data[place]), 6)
    return weights
