"""Exact search, term at a time: all postings of a query's dimensions are added up, one segment of
documents after the other, so that a segment's scores stay in the processor's cache."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from lexicept.kernels.compiled import by_work, compiled, run_in_threads
from lexicept.kernels.posting_lists import Postings, add_list, list_reference
from lexicept.vectors import Floats, Integers

BLOCK = 256
"""Scores compared at once with the worst result."""

ROW = 8
"""Documents of a row of the table that are read in the time of reading a posting of a list."""

SHARE = 2**18
"""Postings of a query for each thread that searches a share of its segments."""

READ_SECONDS = 5e-8
"""Approximate seconds that NumPy takes per posting and per document."""


class WeightedQuery(NamedTuple):
    """The non-zeros of one query."""

    dimensions: Integers
    """i64 [non-zeros]."""
    weights: Floats
    """f32 [non-zeros]."""
    offset_factor: float | np.float32
    """Factor on the documents' offsets."""


class AllowedDocuments(NamedTuple):
    """The documents that may be results; both arrays are empty if every document may."""

    allowed: np.ndarray[Any, np.dtype[np.bool_]]
    """True if a document may be a result [N]."""
    counts: Integers
    """Number of allowed documents of each segment, i64 [segments]."""


def search(
    segment_size: int,
    postings: Postings,
    query: WeightedQuery,
    allowed: AllowedDocuments,
    top_k: int,
    cost: int,
    threads: int,
) -> tuple[Integers, Floats]:
    """Return the best documents with positive scores and the scores, best first.

    A process's first searches run ``search_postings_reference``, later searches the kernel.

    Args:
        segment_size: documents of a segment; the last segment may have fewer.
        postings: of N documents.
        query: dimensions below V.
        allowed: the documents that may be results.
        top_k: results at most, 1 to N.
        cost: time of reading the query's lists, in postings.
        threads: most threads that share the segments.

    Returns:
        Document numbers, i64, and scores, f32; equal scores in document order.
    """
    num_segments = len(postings.lengths)
    seconds = (postings.offsets.size + cost) * READ_SECONDS
    kernel = by_work(seconds, search_postings, search_postings_reference)
    documents, scores = np.empty(top_k, np.int64), np.empty(top_k, np.float32)
    shares = min(threads, num_segments, cost // SHARE)
    shared = (segment_size, postings, query, allowed)
    if kernel is search_postings_reference or shares < 2:
        try:
            size = kernel(*shared, documents, scores, 0, num_segments)
        except IndexError:  # damaged postings, which the compiled kernel tolerates
            size = search_postings(*shared, documents, scores, 0, num_segments)
        return documents[:size], scores[:size]
    bounds = [num_segments * share // shares for share in range(shares + 1)]
    # Each thread ranks neighbouring segments; a stable sort keeps equal scores in document order.
    heaps = [(np.empty(top_k, np.int64), np.empty(top_k, np.float32)) for _ in range(shares)]
    calls = [
        partial(search_postings, *shared, *heap, begin, end)
        for heap, (begin, end) in zip(heaps, pairwise(bounds), strict=True)
    ]
    sizes = run_in_threads(calls)
    documents = np.concatenate([heap[0][:size] for heap, size in zip(heaps, sizes, strict=True)])
    scores = np.concatenate([heap[1][:size] for heap, size in zip(heaps, sizes, strict=True)])
    best = np.argsort(-scores, kind="stable")[:top_k]
    return documents[best], scores[best]


def search_postings_reference(
    segment_size: int,
    postings: Postings,
    query: WeightedQuery,
    allowed: AllowedDocuments,
    documents: Integers,
    scores: Floats,
    begin: int,
    end: int,
) -> int:
    """Write the best documents of some segments and their scores, best first; return their number.

    Args:
        segment_size, postings, query, allowed: see ``search``.
        documents, scores: the results, i64 and f32 [top_k]; equal scores in document order.
        begin, end: the first segment, and the segment after the last.
    """
    # All scores, then a sort: few lines, and no kernel has to be loaded.
    totals = all_scores(segment_size, postings, query)
    if allowed.allowed.size:
        totals[~allowed.allowed] = 0
    first = begin * segment_size
    matches = first + np.flatnonzero(totals[first : end * segment_size] > 0)
    best = matches[np.argsort(-totals[matches], kind="stable")[: scores.size]]
    documents[: best.size], scores[: best.size] = best, totals[best]
    return int(best.size)


def all_scores(segment_size: int, postings: Postings, query: WeightedQuery) -> Floats:
    """Return the scores of all documents, f32 [N], infinite for NaN. Raises IndexError if damaged
    postings name a document outside of a segment."""
    scores = (postings.offsets * np.float32(query.offset_factor)).astype(np.float32)
    for segment, first in enumerate(range(0, scores.size, segment_size)):
        segment_scores = scores[first : first + segment_size]
        for dimension, weight in zip(query.dimensions, query.weights, strict=True):
            factor = np.float32(weight) * postings.scales[dimension]
            # A row of the table has a weight per document; a list names its documents.
            if postings.widths[segment, dimension] == 0:
                start = postings.starts[segment, dimension]
                segment_scores += factor * postings.table[start : start + segment_scores.size]
            else:
                documents, weights = list_reference(postings, segment, dimension)
                segment_scores[documents] += factor * weights
    scores[np.isnan(scores)] = np.inf  # the engine refuses infinite scores
    return scores


def score_all(segment_size: int, postings: Postings, query: WeightedQuery, cost: int) -> Floats:
    """Return the same as ``all_scores``, by the kernel after a process's first searches."""
    seconds = (postings.offsets.size + cost) * READ_SECONDS
    if by_work(seconds, write_scores, all_scores) is all_scores:
        with suppress(IndexError):  # damaged postings, which the compiled kernel tolerates
            return all_scores(segment_size, postings, query)
    scores = np.empty(postings.offsets.size, np.float32)
    write_scores(segment_size, postings, query, scores)
    scores[np.isnan(scores)] = np.inf
    return scores


@compiled()
def write_scores(segment_size, postings, query, scores):
    """Compiled version of ``all_scores``: write the scores of all documents [N]."""
    # A score for every 16-bit number: damaged postings write to no other memory.
    totals = np.zeros(max(segment_size, 2**16), np.float32)
    for segment in range(postings.lengths.shape[0]):
        first = segment * segment_size
        count = min(segment_size, scores.size - first)
        set_offsets(
            postings.offsets[first : first + count], np.float32(query.offset_factor), totals
        )
        for i in range(query.dimensions.size):
            dimension = query.dimensions[i]
            factor = np.float32(query.weights[i]) * postings.scales[dimension]
            add_list(postings, segment, dimension, factor, totals, count)
        scores[first : first + count] = totals[:count]


@compiled()
def search_postings(segment_size, postings, query, allowed, documents, scores, begin, end):
    """Compiled version of ``search_postings_reference``: ``documents`` and ``scores`` are a heap
    until they are sorted."""
    # One factor per list: the query's weight times the scale of the stored weights.
    factors = np.empty(query.dimensions.size, np.float32)
    for i in range(factors.size):
        factors[i] = np.float32(query.weights[i]) * postings.scales[query.dimensions[i]]
    # A score for every 16-bit number: damaged postings write to no other memory.
    totals = np.zeros(max(segment_size, 2**16), np.float32)
    size = 0
    for segment in range(begin, end):
        first = segment * segment_size
        count = min(segment_size, postings.offsets.size - first)
        # No list of a segment without allowed documents is read.
        if allowed.allowed.size > 0 and allowed.counts[segment] == 0:
            continue
        set_offsets(
            postings.offsets[first : first + count], np.float32(query.offset_factor), totals
        )
        if allowed.allowed.size > 0 and allowed.counts[segment] < count:
            # No sum lifts the other documents above −∞.
            segment_allowed = allowed.allowed[first : first + count]
            for i in range(count):
                totals[i] = totals[i] if segment_allowed[i] else -np.inf
        for i in range(factors.size):
            add_list(postings, segment, query.dimensions[i], factors[i], totals, count)
        # Scores above the worst result go to the heap, which lives on across segments.
        size = push_above(count, first, totals, documents, scores, size)
    sort_heap(documents, scores, size)
    return size


@compiled()
def set_offsets(offsets, factor, totals):
    """Begin the scores of a segment with the documents' offsets."""
    if factor == 0:
        totals[: offsets.size] = 0
    else:
        for i in range(offsets.size):
            totals[i] = offsets[i] * factor


@compiled()
def push_above(count, first, totals, documents, scores, size):
    """Put documents with scores above the worst result on the heap; return the heap's size."""
    bar = lowest_result(scores, size)
    for block in range(0, count, BLOCK):
        stop = min(block + BLOCK, count)
        # Most blocks have no result. A count without branches, as wide as a score, is vectorised.
        above = np.uint32(0)
        for i in range(block, stop):
            above = np.uint32(above + np.uint32(not totals[i] <= bar))
        if above == 0:
            continue
        for i in range(block, stop):
            score = totals[i]
            if not score <= bar:
                size = push(scores, documents, size, score, first + i)
                bar = lowest_result(scores, size)
    return size


@compiled(inline="always")
def lowest_result(scores, size):
    """Return the score that a result has to exceed: 0 until the heap is full."""
    return scores[0] if size == scores.size else np.float32(0)


@compiled(inline="always")
def push(scores, documents, size, score, document):
    """Put a document on a binary heap, instead of the worst on a full heap; return the heap's size.

    The worst is on top: the lowest score, and of equal scores the latest document. NaN becomes
    infinity, the best.
    """
    score = score if score == score else np.float32(np.inf)
    if size < scores.size:
        # Room at the end: better parents move down.
        hole = size
        size += 1
        while hole > 0:
            parent = (hole - 1) // 2
            if score > scores[parent]:
                break
            scores[hole] = scores[parent]
            documents[hole] = documents[parent]
            hole = parent
    else:
        hole = sift_down(scores, documents, size, score, document)
    scores[hole] = score
    documents[hole] = document
    return size


@compiled(inline="always")
def sift_down(scores, documents, size, score, document):
    """Return where a document goes that replaces the heap's top, after moving worse ones up."""
    hole = 0
    while True:
        child = 2 * hole + 1
        if child >= size:
            return hole
        # The worse child moves up: the lower score, or the later document.
        right = child + 1
        if right < size and (
            scores[right] < scores[child]
            or (scores[right] == scores[child] and documents[right] > documents[child])
        ):
            child = right
        if score < scores[child] or (score == scores[child] and document > documents[child]):
            return hole
        scores[hole] = scores[child]
        documents[hole] = documents[child]
        hole = child


@compiled()
def sort_heap(documents, scores, size):
    """Sort a heap in place, best first: the worst moves to the end of a heap that shrinks."""
    for last in range(size - 1, -1, -1):
        worst_score, worst_document = scores[0], documents[0]
        score, document = scores[last], documents[last]
        hole = sift_down(scores, documents, last, score, document)
        scores[hole] = score
        documents[hole] = document
        scores[last] = worst_score
        documents[last] = worst_document
