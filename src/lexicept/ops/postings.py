"""CSC postings: filled document at a time, searched term at a time."""

from __future__ import annotations

import numpy as np
from numba import njit

from lexicept.vectors import Floats, Integers

BLOCK = 256
"""Scores that are compared with the worst result at once."""


@njit(cache=True, nogil=True)
def fill_postings(  # pragma: no cover - compiled
    indptr, columns, data, first, cursors, documents, weights
):
    """Put the non-zeros of CSR rows [n, V] into postings.

    Args:
        first: number of the first row's document.
        cursors: where the next posting of each dimension belongs [V]; they move on.
        documents, weights: written to [non-zeros].

    Raises:
        IndexError: more postings than there is space for.
    """
    for row in range(indptr.size - 1):
        for i in range(indptr[row], indptr[row + 1]):
            place = cursors[columns[i]]
            if place >= documents.size:
                raise IndexError("more postings than were counted")
            documents[place] = first + row
            weights[place] = data[i]
            cursors[columns[i]] = place + 1


def search_postings_reference(
    indptr: Integers,
    documents: Integers,
    weights: Floats,
    offsets: Floats,
    dimensions: Integers,
    query_weights: Floats,
    query_offset: float,
    top_k: int,
) -> tuple[Integers, Floats]:
    """The ``top_k`` documents of one query with a positive score, best first.

    Args:
        indptr, documents, weights: postings of dimension t at ``indptr[t]:indptr[t + 1]``.
        offsets: a number per document [N], multiplied by ``query_offset``.
        dimensions, query_weights: the query's non-zeros.

    Returns:
        Document numbers and scores; equal scores in document order.

    Raises:
        IndexError: a posting of a document that is not there.
    """
    scores = (offsets * np.float32(query_offset)).astype(np.float32)
    for dimension, weight in zip(dimensions, query_weights, strict=True):
        span = slice(indptr[dimension], indptr[dimension + 1])
        scores[documents[span]] += np.float32(weight) * weights[span]
    best = np.lexsort((np.arange(scores.size), -scores))[:top_k]
    best = best[scores[best] > 0]
    return best, scores[best]


@njit(cache=True, nogil=True)
def search_postings(  # pragma: no cover - compiled
    indptr, documents, weights, offsets, dimensions, query_weights, query_offset, top_k
):
    """Compiled twin of ``search_postings_reference``."""
    scores = np.empty(offsets.size, np.float32)
    factor = np.float32(query_offset)
    if factor == 0:
        scores[:] = 0
    else:
        for document in range(offsets.size):
            scores[document] = offsets[document] * factor
    limit = np.uint32(offsets.size)
    for i in range(dimensions.size):
        weight = np.float32(query_weights[i])
        for p in range(indptr[dimensions[i]], indptr[dimensions[i] + 1]):
            # A damaged file must not write out of bounds; unsigned, one comparison is enough.
            if np.uint32(documents[p]) >= limit:
                raise IndexError("no such document")
            scores[documents[p]] += weight * weights[p]

    # A binary heap of the best so far with the worst of them on top: of two documents the lower
    # score is worse, and of equal scores the later document.
    top_k = min(top_k, offsets.size)
    heap_scores = np.empty(top_k, np.float32)
    heap_documents = np.empty(top_k, np.int64)
    size = 0
    bar = np.float32(0)  # what a later document must exceed
    for block in range(0, scores.size, BLOCK):
        end = min(block + BLOCK, scores.size)
        above = 0
        for document in range(block, end):  # without branches, so that it is vectorised
            above += scores[document] > bar
        if above == 0:
            continue
        for document in range(block, end):
            score = scores[document]
            if score <= bar:
                continue
            if size < top_k:
                hole = size
                size += 1
                while hole > 0:
                    parent = (hole - 1) // 2
                    if score > heap_scores[parent]:
                        break
                    heap_scores[hole] = heap_scores[parent]
                    heap_documents[hole] = heap_documents[parent]
                    hole = parent
            else:
                hole = _sift_down(heap_scores, heap_documents, size, score, document)
            heap_scores[hole] = score
            heap_documents[hole] = document
            if size == top_k:
                bar = heap_scores[0]
    found_scores = heap_scores[:size].copy()
    found_documents = heap_documents[:size].copy()
    for end in range(size - 1, -1, -1):
        found_scores[end] = heap_scores[0]
        found_documents[end] = heap_documents[0]
        last_score, last_document = heap_scores[end], heap_documents[end]
        hole = _sift_down(heap_scores, heap_documents, end, last_score, last_document)
        heap_scores[hole] = last_score
        heap_documents[hole] = last_document
    return found_documents, found_scores


@njit(cache=True, nogil=True, inline="always")
def _sift_down(heap_scores, heap_documents, size, score, document):  # pragma: no cover - compiled
    """Where an entry that replaces the top of the heap belongs, after moving smaller ones up."""
    hole = 0
    while True:
        child = 2 * hole + 1
        if child >= size:
            return hole
        right = child + 1
        if right < size and (
            heap_scores[right] < heap_scores[child]
            or (
                heap_scores[right] == heap_scores[child]
                and heap_documents[right] > heap_documents[child]
            )
        ):
            child = right
        if score < heap_scores[child] or (
            score == heap_scores[child] and document > heap_documents[child]
        ):
            return hole
        heap_scores[hole] = heap_scores[child]
        heap_documents[hole] = heap_documents[child]
        hole = child
