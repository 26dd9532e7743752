"""Relevance feedback in an index, and queries made of documents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from numbers import Integral

import numpy as np
import scipy.sparse as sp

from lexicept.checks import Count, Positive, check
from lexicept.errors import InputError
from lexicept.explanation.contributions import QueryTerm
from lexicept.index.reader import IndexReader
from lexicept.index.spelling import as_spelled
from lexicept.queries.syntax import DimensionNumbers, ParsedQuery
from lexicept.vectors import prune_rows, stack_rows

DIMENSIONS = 30
"""Dimensions that feedback adds at most."""

STRENGTH = 0.5
"""Length of what feedback adds, as a share of the query's."""

Marked = int | Sequence[str]
"""Ids of relevant documents, or the number of first results that are taken for relevant."""


def with_feedback(
    index: IndexReader,
    query: ParsedQuery,
    marked: Marked,
    vocabulary: str | None = None,
    *,
    rescore: bool = True,
) -> ParsedQuery:
    """Return a query with the largest dimensions of relevant documents added. Raises InputError for
    an unknown id, a number below 1, or an error of the search.

    Args:
        marked: ids of relevant documents, or the number of first results to take.
        vocabulary: of the search for the first results, and of the added dimensions.
        rescore: of the search for the first results; see ``IndexReader.search``.
    """
    if isinstance(marked, Integral):
        (hits,) = index.search([query], int(marked), vocabulary, rescore=rescore)
        numbers = [hit.number for hit in hits]
    elif isinstance(marked, str) or not isinstance(marked, Sequence):
        raise InputError(f"feedback is a number of results or a list of ids, not {marked!r:.80}")
    else:
        numbers = [number for name in marked for number in index.entries_of(name)]
    if not numbers:
        return query
    plain = replace(query, boosts={}, added={}, steering={})
    documents = document_weights(index, numbers, vocabulary)
    vector = rocchio(index.query_vectors([plain], vocabulary), documents)
    return replace(query, added=_sum(query.added, _by_dimension(index, vector)))


def like(index: IndexReader, document_id: str, query: ParsedQuery | None = None) -> ParsedQuery:
    """Return a query for documents similar to a document, which is left out of the results."""
    query = ParsedQuery("") if query is None else query
    documents = document_weights(index, index.entries_of(document_id))
    added = _sum(query.added, _by_dimension(index, centroid(documents, DIMENSIONS)))
    return replace(query, hidden=(*query.hidden, document_id), added=added)


def document_weights(
    index: IndexReader, numbers: Iterable[int], vocabulary: str | None = None
) -> sp.csr_array:
    """Return the weights of documents [n, V], in a vocabulary or all."""
    num_dimensions = index.engine.num_dimensions
    vectors = []
    for number in numbers:
        by_vocabulary = [np.empty(0, np.int64)]
        for searched in index.vocabularies:
            if vocabulary in (None, searched.name):
                tf = index.stored_tf(searched)[number : number + 1].load()
                by_vocabulary.append(tf.indices + searched.dimensions.start)
        dimensions = np.concatenate(by_vocabulary)
        weights = index.engine.document_weights(number, dimensions).astype(np.float32)
        indptr = np.array([0, dimensions.size])
        vector = sp.csr_array((weights, dimensions, indptr), shape=(1, num_dimensions))
        vector.eliminate_zeros()
        vectors.append(vector)
    return stack_rows(vectors, num_dimensions)


def added_terms(index: IndexReader, added: DimensionNumbers) -> list[QueryTerm]:
    """Return added dimensions with labels, the largest weights first; words in the spelling of
    documents. Raises InputError for an unknown vocabulary or dimension."""
    terms = []
    for name, global_dimension, weight in index.weigher.checked("added", "weight", added):
        vocabulary = index.weigher.vocabulary(name)
        dimension = global_dimension - vocabulary.dimensions.start
        spelling = as_spelled(index, dimension) if name == "words" else ""
        label = spelling or vocabulary.term(dimension)
        terms.append(QueryTerm(name, dimension, label, weight, (), ()))
    return sorted(terms, key=lambda term: -term.weight)


def _sum(weights: DimensionNumbers, more: DimensionNumbers) -> dict[tuple[str, int], float]:
    return {**weights, **{key: weights.get(key, 0.0) + weight for key, weight in more.items()}}


def _by_dimension(index: IndexReader, vector: sp.csr_array) -> dict[tuple[str, int], float]:
    """Return the weights of a vector by vocabulary and dimension, the largest first."""
    order = np.argsort(-vector.data, kind="stable")
    weights = (round(float(weight), 6) for weight in vector.data[order])
    return dict(zip(index.weigher.numbered(vector.indices[order]), weights, strict=True))


def centroid(documents: sp.csr_array, dimensions: int) -> sp.csr_array:
    """Return the largest dimensions of the mean of documents [n, V], each of length 1 [1, V]."""
    check("dimensions", dimensions, Count)
    lengths = np.sqrt(documents.multiply(documents).sum(axis=1))
    scaling = sp.diags_array(np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0))
    return prune_rows(sp.csr_array((scaling @ documents).mean(axis=0).reshape(1, -1)), dimensions)


def rocchio(
    query: sp.csr_array,
    documents: sp.csr_array,
    dimensions: int = DIMENSIONS,
    strength: float = STRENGTH,
) -> sp.csr_array:
    """Return the dimensions to add to a query [1, V] (Rocchio 1971, without negative part).

    The query moves towards the centroid of the documents, over words and concepts at once.
    Dimensions of the query may get more weight. Raises InputError for a number out of range.

    Args:
        query: weights [1, V]; an empty query counts as of length 1.
        documents: weights of the relevant documents [n, V].
        dimensions: the most dimensions to add, at least 1.
        strength: length of the added part, as a share of the query's, above 0.
    """
    check("strength", strength, Positive)
    added = centroid(documents, dimensions)
    length = float(np.linalg.norm(added.data))
    scale = strength * (float(np.linalg.norm(query.data)) or 1.0)
    return added * np.float32(scale / length) if length else added
