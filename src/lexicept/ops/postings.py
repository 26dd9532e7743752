"""Postings in segments of documents, searched term at a time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from lexicept.ops.compiled import by_work, compiled
from lexicept.ops.heap import push, sift_down
from lexicept.ops.lists import Lists, add_list, list_reference, weight_of
from lexicept.ops.pruning import (
    LOOKED_UP,
    candidates,
    essential_lists,
    live_candidates,
    probed,
    reading,
    score_of,
)
from lexicept.ops.threads import together
from lexicept.vectors import Floats, Integers

BLOCK = 256
"""Scores compared at once with the worst result."""

SEARCHED = 128
"""Postings per allowed document from which a list is searched for the allowed documents instead of
being read whole."""


FOUND = 2
"""Postings of a list that are read in the time of choosing a candidate."""

READ = 5e-8
"""Approximate seconds that NumPy takes per posting and per document."""


def first_or_later_search(
    read: int, bounds: Sequence[int], top_k: int, *arguments: Any
) -> tuple[Integers, Floats]:
    """Search by ``search_postings_reference`` in a process's first searches, later by the kernel.

    Args:
        read: time of reading the query's lists, in postings.
        bounds: the first segment, and the last end, of each thread's share.
        top_k: see ``search_postings_reference``.
        arguments: others of ``search_postings_reference``.
    """
    ranking: tuple[Integers, Floats]
    floor = np.zeros(1, np.float32)
    search = by_work(read * READ, search_postings, search_postings_reference)
    if search is search_postings_reference:
        try:
            ranking = search(*arguments, top_k, floor, bounds[0], bounds[-1])
        except IndexError:  # damage, which the kernel passes over
            pass
        else:
            return ranking
    kernel = partial(search_postings, *arguments, top_k, floor)
    shares = [partial(kernel, *share) for share in pairwise(bounds)]
    if len(shares) == 1:
        ranking = shares[0]()
        return ranking
    documents, scores = map(np.concatenate, zip(*together(shares), strict=True))
    best = np.argsort(-scores, kind="stable")[:top_k]
    return documents[best], scores[best]


def search_postings_reference(
    segment: int,
    lengths: Integers,
    widths: Integers,
    starts: Integers,
    places: Integers,
    gaps: Integers,
    weights: Floats,
    marks: Integers,
    table: Floats,
    scales: Floats,
    offsets: Floats,
    largest: Floats,
    offset_ranges: Floats,
    prunes: bool,
    dimensions: Integers,
    query_weights: Floats,
    query_offset: float,
    allowed: Any,
    counts: Integers,
    few: Integers,
    few_starts: Integers,
    top_k: int,
    floor: Floats,
    begin: int,
    end: int,
) -> tuple[Integers, Floats]:
    """Return the ``top_k`` documents of some segments with a positive score for one query, best
    first.

    Args:
        segment: documents of a segment; the last one may have fewer.
        lengths, widths, starts, places, gaps, weights, marks, table: see ``lists.Lists``.
        scales: [V].
        offsets: a number per document [N], multiplied by ``query_offset``.
        largest: the largest weight of a dimension in a segment, like the weights [segments, V].
        offset_ranges: the smallest and the largest offset of a segment [segments, 2].
        prunes: whether the kernel skips postings that can't change results.
        dimensions, query_weights: the query's non-zeros.
        allowed: whether a document may be a result, bool [N]; [0] allows all.
        counts: documents that are allowed in each segment [segments]; [0] with ``allowed``.
        few: u16, the allowed documents of the segments that have few of them, ascending.
        few_starts: where those of each segment begin, and the last end [segments + 1]; a segment
            without any has no allowed documents, or many.
        floor: what a result must exceed by other threads' segments [1]; the kernel raises it.
        begin: the first of the segments.
        end: the one after the last of them.

    Returns:
        Document numbers and scores; equal scores in document order.
    """
    lists = Lists(lengths, widths, starts, places, gaps, weights, marks, table)
    scores = all_scores(segment, lists, scales, offsets, dimensions, query_weights, query_offset)
    if allowed.size:
        scores[~allowed] = 0
    own = slice(begin * segment, end * segment)
    found = own.start + np.flatnonzero(scores[own] > 0)
    best = found[np.argsort(-scores[found], kind="stable")[:top_k]]
    return best, scores[best]


def all_scores(
    segment: int,
    lists: Lists,
    scales: Floats,
    offsets: Floats,
    dimensions: Integers,
    query_weights: Floats,
    query_offset: float,
) -> Floats:
    """Return the scores of all documents [N], f32; see ``search_postings_reference``."""
    scores = (offsets * np.float32(query_offset)).astype(np.float32)
    for first in range(0, scores.size, segment):
        part = scores[first : first + segment]
        for dimension, weight in zip(dimensions, query_weights, strict=True):
            number, factor = first // segment, np.float32(weight) * scales[dimension]
            if lists.widths[number, dimension] == 0:
                start = lists.starts[number, dimension]
                part += factor * lists.table[start : start + part.size]
            else:
                documents, weights = list_reference(lists, number, dimension)
                part[documents] += factor * weights
    return scores


@compiled()
def search_postings(  # pragma: no cover - compiled
    segment,
    lengths,
    widths,
    starts,
    places,
    gaps,
    weights,
    marks,
    table,
    scales,
    offsets,
    largest,
    offset_ranges,
    prunes,
    dimensions,
    query_weights,
    query_offset,
    allowed,
    counts,
    few,
    few_starts,
    top_k,
    floor,
    begin,
    end,
):
    """Compiled version of ``search_postings_reference``.

    A segment's scores stay in the processor's cache. All that a 16-bit document number can name is
    within them, whatever a damaged file says. Where few documents are allowed, only theirs are set,
    looked up and compared; elsewhere those of others start at -inf.

    With ``prunes``, once there are ``top_k`` results, the lists of a segment that can't lift a
    document above the worst of them, even together, count for documents of its other lists alone
    (MaxScore, Turtle and Flood 1995): see ``essential_lists`` and ``live_candidates``. A query for
    which that has taken longer than reading everything reads everything from then on. Threads that
    search shares of the segments tell each other what a result must exceed, by ``floor``.
    """
    lists = Lists(lengths, widths, starts, places, gaps, weights, marks, table)
    filtered = allowed.size > 0
    scores = np.zeros(max(segment, 2**16), np.float32)
    factors = np.empty(dimensions.size, np.float32)
    for i in range(dimensions.size):
        factors[i] = np.float32(query_weights[i]) * scales[dimensions[i]]
    offset = np.float32(query_offset)
    # A binary heap of the best so far with the worst of them on top: of two documents the lower
    # score is worse, and of equal scores the later document.
    top_k = min(top_k, offsets.size)
    heap_scores = np.empty(top_k, np.float32)
    heap_documents = np.empty(top_k, np.int64)
    size = 0
    bar = floor[0]  # what a later document must exceed
    clean = True  # all scores are 0
    looked_ahead = False
    spared = np.int64(0)  # time that pruning spares, in postings
    for number in range(begin, end):
        first = number * segment
        count = min(segment, offsets.size - first)
        if filtered and counts[number] == 0:
            continue
        chosen = few[few_starts[number] : few_starts[number + 1]] if filtered else few
        bar = max(bar, floor[0])
        if prunes and size == top_k and not looked_ahead:
            looked_ahead = True
            scores[:] = 0
            clean = True
            bar = probed(
                lists, segment, offsets, largest, offset_ranges, dimensions, factors, offset,
                allowed, number, end, bar, heap_scores.copy(), heap_documents.copy(), scores,
            )  # fmt: skip
        # Of equal scores, those of other threads' segments may be the earlier ones.
        floor[0] = max(floor[0], np.nextafter(bar, np.float32(0)))
        if prunes and bar > 0 and chosen.size == 0:
            order, essential, most, spare, error, whole = essential_lists(
                lists, number, count, largest[number], offset_ranges[number], dimensions, factors,
                offset, bar,
            )  # fmt: skip
            if essential == 0:
                spared += whole
                continue
            if essential > 0:
                if not clean:
                    scores[:] = 0
                    clean = True
                part = allowed[first : first + count]
                found, last, clean = candidates(
                    lists, number, count, dimensions, factors, most, order, essential, spare, part,
                    scores,
                )  # fmt: skip
                live, changed, time = live_candidates(
                    lists, number, first, count, offsets, offset, dimensions, factors, most, order,
                    last, error, bar, found, scores,
                )  # fmt: skip
                clean = clean and not changed
                time += live * dimensions.size * LOOKED_UP + found.size * FOUND
                for i in order[:last]:
                    time += reading(lists, number, count, dimensions[i])
                spared += whole - time
                found = np.sort(found[:live])
                for i in range(live):
                    score = score_of(
                        found[i], lists, number, first, count, offsets, offset, dimensions, factors
                    )
                    if score > bar:
                        document = first + np.int64(found[i])
                        size = push(heap_scores, heap_documents, size, score, document)
                        if size == top_k:
                            bar = max(heap_scores[0], bar)
                prunes = spared > 0
                continue
        clean = False
        if chosen.size > 0:
            for i in range(chosen.size):
                scores[chosen[i]] = offsets[first + np.int64(chosen[i])] * offset
        elif offset == 0:
            scores[:count] = 0
        else:
            for document in range(count):
                scores[document] = offsets[first + document] * offset
        if filtered and chosen.size == 0 and counts[number] < count:
            part = allowed[first : first + count]
            for document in range(part.size):
                scores[document] = scores[document] if part[document] else -np.inf
        for i in range(dimensions.size):
            dimension = dimensions[i]
            if chosen.size > 0 and widths[number, dimension] == 0:
                row = table[starts[number, dimension] :][:count]
                for document in chosen:
                    scores[document] += factors[i] * row[document]
            elif chosen.size * SEARCHED < lengths[number, dimension] and chosen.size > 0:
                for document in chosen:
                    weight = weight_of(lists, number, dimension, document, count)
                    scores[document] += factors[i] * weight
            else:
                add_list(lists, number, dimension, factors[i], scores, count)
        if chosen.size > 0:
            for i in range(chosen.size):
                score = scores[chosen[i]]
                if score > bar:
                    document = first + np.int64(chosen[i])
                    size = push(heap_scores, heap_documents, size, score, document)
                    if size == top_k:
                        bar = max(heap_scores[0], bar)
            continue
        for block in range(0, count, BLOCK):
            stop = min(block + BLOCK, count)
            above = np.uint32(0)  # as wide as a score, so that more of them are compared at once
            for document in range(block, stop):  # without branches, so that it is vectorised
                above = np.uint32(above + np.uint32(scores[document] > bar))
            if above == 0:
                continue
            for document in range(block, stop):
                score = scores[document]
                if score > bar:
                    size = push(heap_scores, heap_documents, size, score, first + document)
                    if size == top_k:
                        bar = max(heap_scores[0], bar)
    found_scores = heap_scores[:size].copy()
    found_documents = heap_documents[:size].copy()
    for last in range(size - 1, -1, -1):
        found_scores[last] = heap_scores[0]
        found_documents[last] = heap_documents[0]
        last_score, last_document = heap_scores[last], heap_documents[last]
        hole = sift_down(heap_scores, heap_documents, last, last_score, last_document)
        heap_scores[hole] = last_score
        heap_documents[hole] = last_document
    return found_documents, found_scores
