"""Skips postings that cannot change results: MaxScore (Turtle and Flood 1995) by segments.

Arguments are those of ``postings.search_postings_reference`` unless they are described here; of
``lists``, the segment ``number`` has ``count`` documents from ``first`` on.
"""

from __future__ import annotations

import numpy as np

from lexicept.ops.compiled import compiled
from lexicept.ops.heap import push
from lexicept.ops.lists import add_and_name, add_list, weight_of

BLOCK = 256
"""Scores compared at once with what a candidate needs."""

LOOKED_UP = 32
"""Postings of a list that are read in the time of looking one document up in it."""

FEW_POSTINGS = 8192
"""Postings from which on comparing all scores of a segment takes less time than reading them
again."""

ADDED = 4
"""Postings of other lists that are added for each one of those that candidates come from."""

SPREAD = 4
"""Documents of a segment whose scores are set and compared in the time of reading a posting."""

ROW = 8
"""Documents of a row of the table that are read in the time of reading a posting of a list."""

DROPPED = 4
"""Postings of a list that are read in the time of comparing one document's bound with the worst
result."""

PROBED = 2
"""Candidates of all segments that are scored ahead for each result."""

ROUNDING = 2.0**-23
"""Relative error of a product or sum in single precision, twice."""

LEAST = 2.0**-126
"""Smallest normal number in single precision: below it, errors are no longer relative."""


@compiled()
def reading(lists, number, count, dimension):  # pragma: no cover - compiled
    """Return the time of reading a dimension's list or row, in postings."""
    if lists.widths[number, dimension] == 0:
        return count // ROW
    return np.int64(lists.lengths[number, dimension])


@compiled()
def essential_lists(
    lists, number, count, largest, offset_range, dimensions, factors, offset, bar
):  # pragma: no cover - compiled
    """Choose the lists of a segment that are read whole.

    Args:
        largest, offset_range: of the segment.
        factors: the query's weights, times the scales of their dimensions.
        bar: what a score must exceed.

    Returns:
        The places of the query's dimensions in the order in which their lists are read; the number
        of those that are read whole, or -1 where setting and comparing all scores takes less time;
        what each of the query's dimensions adds at most; what a document needs of the lists that
        are read whole; the largest rounding error of a score; and the time of reading all lists,
        in postings.
    """
    most = np.empty(dimensions.size, np.float64)
    worth = np.empty(dimensions.size, np.float64)
    low = np.float64(offset_range[0] * offset)
    high = np.float64(offset_range[1] * offset)
    total = max(abs(low), abs(high))
    whole = np.int64(count // SPREAD)
    for i in range(dimensions.size):
        most[i] = np.float64(factors[i]) * np.float64(largest[dimensions[i]])
        length = np.int64(lists.lengths[number, dimensions[i]])
        worth[i] = length / max(most[i], LEAST)
        total += most[i]
        whole += reading(lists, number, count, dimensions[i])
    order = np.argsort(worth)
    error = (dimensions.size + 3) * (ROUNDING * total + LEAST)
    spare = np.float64(bar) - max(low, high) - error
    if not spare > 0:  # documents of no list may be results
        return order, -1, most, spare, error, whole
    # The lists with the most postings for the score that they can add are not essential.
    essential = dimensions.size
    while essential > 0 and most[order[essential - 1]] < spare:
        essential -= 1
        spare -= most[order[essential]]
    read = np.int64(0)
    for j in range(essential):
        read += np.int64(lists.lengths[number, dimensions[order[j]]])
        if lists.widths[number, dimensions[order[j]]] == 0:
            return order, -1, most, spare, error, whole
    if read > FEW_POSTINGS and whole - read < 2 * (count // SPREAD):
        essential = -1
    return order, essential, most, spare, error, whole


@compiled()
def candidates(
    lists, number, count, dimensions, factors, most, order, essential, spare, allowed, scores
):  # pragma: no cover - compiled
    """Find the documents of a segment that may exceed the bar by the lists that are read first.

    Other lists are added before candidates are chosen where that is cheap: it leaves few of them.

    Args:
        most, order, essential, spare: see ``essential_lists``.
        allowed: bool [count], or [0] where all are.
        scores: zeros for all documents; afterwards, what those found have of the lists read.

    Returns:
        The documents, the number of lists read, and whether other documents' scores are zeros.
    """
    read = np.int64(0)
    added = np.int64(0)
    last = 0
    while last < order.size:
        length = np.int64(lists.lengths[number, dimensions[order[last]]])
        if last < essential:
            read += length
        else:
            row = lists.widths[number, dimensions[order[last]]] == 0
            if row or added + length > ADDED * read + FEW_POSTINGS // ADDED:
                break
            added += length
            spare += most[order[last]]
        last += 1
    needed = np.float32(max(spare * (1 - ROUNDING) - LEAST, 0.0))
    if read > FEW_POSTINGS:
        for i in order[:last]:
            add_list(lists, number, dimensions[i], factors[i], scores, count)
        return above_all(scores[:count], needed, allowed), last, False
    # Where many are added, all scores are set again later, rather than one by one here.
    clean = added <= FEW_POSTINGS // 2
    named = np.empty(read + (added if clean else 0), np.uint16)
    size = np.int64(0)
    for i in order[: last if clean else essential]:
        end = size + np.int64(lists.lengths[number, dimensions[i]])
        add_and_name(lists, number, dimensions[i], factors[i], scores, named[size:end])
        size = end
    if not clean:
        for i in order[essential:last]:
            add_list(lists, number, dimensions[i], factors[i], scores, count)
    found = np.empty(read + 1, np.uint16)
    sums = np.empty(read + 1, np.float32)
    size = np.int64(0)
    for document in named[:read]:
        score = scores[document]
        scores[document] = 0  # found once, whatever the number of its lists
        found[size] = document
        sums[size] = score
        size += score > needed
    for document in named[read:]:
        scores[document] = 0
    kept = 0
    for i in range(size):
        document = found[i]
        if document < count and (allowed.size == 0 or allowed[document]):
            found[kept] = document
            scores[document] = sums[i]
            kept += 1
    return found[:kept], last, clean


@compiled()
def above_all(scores, needed, allowed):  # pragma: no cover - compiled
    """Return the documents with a score above a number, ascending."""
    found = np.empty(scores.size, np.uint16)
    size = 0
    for block in range(0, scores.size, BLOCK):
        end = min(block + BLOCK, scores.size)
        above = np.uint32(0)  # as wide as a score, so that more of them are compared at once
        for document in range(block, end):
            above = np.uint32(above + np.uint32(scores[document] > needed))
        if above == 0:
            continue
        for document in range(block, end):
            if scores[document] > needed and (allowed.size == 0 or allowed[document]):
                found[size] = document
                size += 1
    return found[:size]


@compiled()
def live_candidates(
    lists, number, first, count, offsets, offset, dimensions, factors, most, order, last, error,
    bar, found, scores,
):  # fmt: skip  # pragma: no cover - compiled
    """Move the candidates whose score may exceed ``bar`` to the front; return their number, whether
    the scores of other documents have changed, and the time that it took, in postings.

    The other lists follow, that with the fewest postings for what it adds first, and from time to
    time the candidates that can't exceed the bar any more are dropped.

    Args:
        most, order, error: see ``essential_lists``.
        last: number of lists that ``scores`` has already.
        found, scores: see ``candidates``; both are changed, and the candidates' scores are zeros
            afterwards.
    """
    rest = error
    for i in order[last:]:
        rest += most[i]
    if offset != 0:
        for document in found:
            scores[document] += offsets[first + np.int64(document)] * offset
    live = found.size
    whole = False
    spent = np.int64(0)
    read = np.int64(0)  # postings since candidates were dropped
    for j in range(last, order.size):
        if live == 0:
            break
        dimension = dimensions[order[j]]
        factor = factors[order[j]]
        length = np.int64(lists.lengths[number, dimension])
        rest -= most[order[j]]
        if lists.widths[number, dimension] == 0:
            read += DROPPED * live
            spent += DROPPED * live
            row = lists.table[lists.starts[number, dimension] :]
            for i in range(live):
                scores[found[i]] += factor * row[found[i]]
        elif live * LOOKED_UP < length:
            read += DROPPED * live
            spent += LOOKED_UP * live
            for i in range(live):
                scores[found[i]] += factor * weight_of(lists, number, dimension, found[i], count)
        else:
            read += length
            spent += length
            whole = True
            add_list(lists, number, dimension, factor, scores, count)
        if read < DROPPED * live and j < order.size - 1:
            continue
        read = np.int64(0)
        spent += DROPPED * live
        kept = 0
        for i in range(live):
            document = found[i]
            if np.float64(scores[document]) + rest > bar:
                found[kept] = document
                kept += 1
            else:
                scores[document] = 0
        live = kept
    for i in range(live):
        scores[found[i]] = 0
    return live, whole, spent


@compiled()
def probed(
    lists, segment, offsets, largest, offset_ranges, dimensions, factors, offset, allowed, begin,
    end, bar, heap_scores, heap_documents, scores,
):  # fmt: skip  # pragma: no cover - compiled
    """Return what a result must exceed, from a few candidates of each segment.

    Args:
        begin: the first of the segments.
        end: the one after the last of them.
        bar: what a result must exceed by the segments before.
        heap_scores, heap_documents: the best of the segments before; both are changed.
        scores: zeros for all documents, and zeros again afterwards.
    """
    tries = PROBED * heap_scores.size // (end - begin) + 1
    for number in range(begin, end):
        first = number * segment
        count = min(segment, offsets.size - first)
        order, essential, most, spare, _, _ = essential_lists(
            lists, number, count, largest[number], offset_ranges[number], dimensions, factors,
            offset, bar,
        )  # fmt: skip
        read = np.int64(0)
        for j in range(essential):
            read += np.int64(lists.lengths[number, dimensions[order[j]]])
        if essential <= 0 or read > FEW_POSTINGS // 4:
            continue
        found, _, _ = candidates(
            lists, number, count, dimensions, factors, most, order[:essential], essential, spare,
            allowed[first : first + count], scores,
        )  # fmt: skip
        sums = scores[found]
        scores[found] = 0
        for _ in range(min(tries, found.size)):
            best = np.argmax(sums)
            sums[best] = -1
            score = score_of(
                found[best], lists, number, first, count, offsets, offset, dimensions, factors
            )
            if score > heap_scores[0]:
                document = first + np.int64(found[best])
                push(heap_scores, heap_documents, heap_scores.size, score, document)
                bar = max(bar, np.nextafter(heap_scores[0], np.float32(0)))
    return bar


@compiled()
def score_of(
    document, lists, number, first, count, offsets, offset, dimensions, factors
):  # pragma: no cover - compiled
    """Return the score of a document of a segment, added up like those of all documents."""
    score = np.float32(0)
    if offset != 0:
        score = offsets[first + np.int64(document)] * offset
    for i in range(dimensions.size):
        score += factors[i] * weight_of(lists, number, dimensions[i], document, count)
    return score
