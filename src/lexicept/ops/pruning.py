"""What a search of postings leaves out: MaxScore (Turtle and Flood 1995) in segments of documents.

Arguments are those of ``postings.search_postings_reference`` unless they are described here.
"""

from __future__ import annotations

import numpy as np

from lexicept.ops.compiled import compiled
from lexicept.ops.heap import push

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
def essential_lists(
    share, count, lengths, largest, offset_range, dimensions, factors, offset, bar
):  # pragma: no cover - compiled
    """Choose the lists of a segment that are read whole.

    Args:
        lengths, largest, offset_range: of the segment.
        factors: the query's weights, times the scales of their dimensions.
        bar: what a score must exceed.

    Returns:
        The places of the query's dimensions in the order in which their lists are read; the number
        of those that are read whole, or -1 where setting and comparing all scores takes less time;
        what each of the query's dimensions adds at most; what a document needs of the lists that
        are read whole; and the largest rounding error of a score.
    """
    most = np.empty(dimensions.size, np.float64)
    worth = np.empty(dimensions.size, np.float64)
    low = np.float64(offset_range[0] * offset)
    high = np.float64(offset_range[1] * offset)
    total = max(abs(low), abs(high))
    postings = 0
    for i in range(dimensions.size):
        most[i] = np.float64(factors[i]) * np.float64(largest[dimensions[i]])
        worth[i] = lengths[dimensions[i]] / max(most[i], LEAST)
        total += most[i]
        postings += lengths[dimensions[i]]
    order = np.argsort(worth)
    error = (dimensions.size + 3) * (ROUNDING * total + LEAST)
    spare = np.float64(bar) - max(low, high) - error
    if not spare > 0:  # documents of no list may be results
        return order, -1, most, spare, error
    # Those with the most postings for what they add are not.
    essential = dimensions.size
    while essential > 0 and most[order[essential - 1]] < spare:
        essential -= 1
        spare -= most[order[essential]]
    read = 0
    for j in range(essential):
        length = lengths[dimensions[order[j]]]
        read += length
        if length * share > count:
            return order, -1, most, spare, error
    if read > FEW_POSTINGS and postings - read < count // SPREAD:
        essential = -1
    return order, essential, most, spare, error


@compiled()
def candidates(
    share, lengths, starts, documents, weights, count, dimensions, factors, most, order, essential,
    spare, allowed, scores,
):  # fmt: skip  # pragma: no cover - compiled
    """Find the documents of a segment that may exceed the bar by the lists that are read first.

    Other lists are added before candidates are chosen where that is cheap: it leaves few of them.

    Args:
        lengths, starts: of the segment [V].
        count: documents of the segment.
        most, order, essential, spare: see ``essential_lists``.
        allowed: bool [count], or [0] where all are.
        scores: zeros for all documents; afterwards, what those found have of the lists read.

    Returns:
        The documents, the number of lists read, and whether other documents' scores are zeros.
    """
    read = 0
    added = 0
    lists = 0
    while lists < order.size:
        factor = factors[order[lists]]
        start = starts[dimensions[order[lists]]]
        length = lengths[dimensions[order[lists]]]
        if lists < essential:
            read += length
        else:
            added += length
            if added > ADDED * read + FEW_POSTINGS // ADDED or length * share > count:
                break
            spare += most[order[lists]]
        lists += 1
        for p in range(start, start + length):
            scores[documents[p]] += factor * weights[p]
    needed = np.float32(max(spare * (1 - ROUNDING) - LEAST, 0.0))
    if read > FEW_POSTINGS:
        return above_all(scores[:count], needed, allowed), lists, False
    found = np.empty(read + 1, np.uint16)
    sums = np.empty(read + 1, np.float32)
    size = 0
    for j in range(essential):
        start = starts[dimensions[order[j]]]
        for p in range(start, start + lengths[dimensions[order[j]]]):
            document = documents[p]
            score = scores[document]
            scores[document] = 0  # found once, whatever the number of its lists
            found[size] = document
            sums[size] = score
            size += score > needed
    for j in range(essential, lists):
        start = starts[dimensions[order[j]]]
        for p in range(start, start + lengths[dimensions[order[j]]]):
            scores[documents[p]] = 0
    kept = 0
    for i in range(size):
        document = found[i]
        if document < count and (allowed.size == 0 or allowed[document]):
            found[kept] = document
            scores[document] = sums[i]
            kept += 1
    return found[:kept], lists, True


@compiled()
def above_all(scores, needed, allowed):  # pragma: no cover - compiled
    """Return the documents with a score above a number, ascending."""
    found = np.empty(scores.size, np.uint16)
    size = 0
    for block in range(0, scores.size, BLOCK):
        end = min(block + BLOCK, scores.size)
        above = 0
        for document in range(block, end):
            above += scores[document] > needed
        if above == 0:
            continue
        for document in range(block, end):
            if scores[document] > needed and (allowed.size == 0 or allowed[document]):
                found[size] = document
                size += 1
    return found[:size]


@compiled()
def live_candidates(
    share, lengths, starts, documents, weights, table, offsets, offset, dimensions, factors, most,
    order, lists, error, bar, found, scores,
):  # fmt: skip  # pragma: no cover - compiled
    """Move the candidates whose score may exceed ``bar`` to the front; return their number, and
    whether the scores of other documents have changed.

    The other lists follow, that with the fewest postings for what it adds first, and from time to
    time the candidates that can't exceed the bar any more are dropped.

    Args:
        lengths, starts, offsets: of the segment.
        most, order, error: see ``essential_lists``.
        lists: number of lists that ``scores`` has already.
        found, scores: see ``candidates``; both are changed, and the candidates' scores are zeros
            afterwards.
    """
    rest = error
    for j in range(lists, order.size):
        rest += most[order[j]]
    if offset != 0:
        for i in range(found.size):
            scores[found[i]] += offsets[found[i]] * offset
    live = found.size
    whole = False
    read = 0  # postings since candidates were dropped
    for j in range(lists, order.size):
        if live == 0:
            break
        factor = factors[order[j]]
        start = starts[dimensions[order[j]]]
        length = lengths[dimensions[order[j]]]
        rest -= most[order[j]]
        if length * share > offsets.size:
            read += DROPPED * live
            for i in range(live):
                scores[found[i]] += factor * table[start + found[i]]
        elif live * LOOKED_UP < length:
            read += DROPPED * live
            for i in range(live):
                p = place_of(documents, start, length, found[i], offsets.size)
                if p < start + length and documents[p] == found[i]:
                    scores[found[i]] += factor * weights[p]
        else:
            read += length
            whole = True
            for p in range(start, start + length):
                scores[documents[p]] += factor * weights[p]
        if read < DROPPED * live and j < order.size - 1:
            continue
        read = 0
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
    return live, whole


@compiled()
def probed(
    segment, share, lengths, starts, documents, weights, table, offsets, largest, offset_ranges,
    dimensions, factors, offset, allowed, begin, bar, heap_scores, heap_documents, scores,
):  # fmt: skip  # pragma: no cover - compiled
    """Return what a result must exceed, from a few candidates of each segment from a number on.

    Args:
        begin: the number.
        bar: what a result must exceed by the segments before.
        heap_scores, heap_documents: the best of the segments before; both are changed.
        scores: zeros for all documents, and zeros again afterwards.
    """
    tries = PROBED * heap_scores.size // (lengths.shape[0] - begin) + 1
    for number in range(begin, lengths.shape[0]):
        first = number * segment
        count = min(segment, offsets.size - first)
        order, essential, most, spare, _ = essential_lists(
            share, count, lengths[number], largest[number], offset_ranges[number], dimensions,
            factors, offset, bar,
        )  # fmt: skip
        read = 0
        for j in range(essential):
            read += lengths[number, dimensions[order[j]]]
        if essential <= 0 or read > FEW_POSTINGS // 4:
            continue
        found, _, _ = candidates(
            share, lengths[number], starts[number], documents, weights, count, dimensions, factors,
            most, order[:essential], essential, spare, allowed[first : first + count], scores,
        )  # fmt: skip
        sums = scores[found]
        scores[found] = 0
        for _ in range(min(tries, found.size)):
            best = np.argmax(sums)
            sums[best] = -1
            score = score_of(
                found[best], share, lengths[number], starts[number], documents, weights, table,
                offsets[first : first + count], offset, dimensions, factors,
            )  # fmt: skip
            if score > heap_scores[0]:
                document = first + np.int64(found[best])
                push(heap_scores, heap_documents, heap_scores.size, score, document)
                bar = max(bar, np.nextafter(heap_scores[0], np.float32(0)))
    return bar


@compiled()
def score_of(
    document, share, lengths, starts, documents, weights, table, offsets, offset, dimensions,
    factors,
):  # fmt: skip  # pragma: no cover - compiled
    """Return the score of a document of a segment, added up like those of all documents."""
    score = np.float32(0)
    if offset != 0:
        score = offsets[document] * offset
    for i in range(dimensions.size):
        start = starts[dimensions[i]]
        length = lengths[dimensions[i]]
        if length * share > offsets.size:
            score += factors[i] * table[start + document]
        else:
            p = place_of(documents, start, length, document, offsets.size)
            if p < start + length and documents[p] == document:
                score += factors[i] * weights[p]
    return score


@compiled(inline="always")
def place_of(documents, start, length, document, count):  # pragma: no cover - compiled
    """Return the place of a document, or of the first after it, in a list.

    The search begins where the document is if the list is spread evenly over ``count`` documents.
    """
    low = start
    high = start + length
    middle = start + min(np.int64(document) * length // count, length - 1)
    step = 8
    if length > 0 and documents[middle] < document:
        low = middle + 1
        while low + step < high and documents[low + step] < document:
            low += step + 1
            step *= 2
        high = min(high, low + step + 1)
    elif length > 0:
        high = middle
        while high - step > low and documents[high - step] >= document:
            high -= step
            step *= 2
        low = max(low, high - step)
    while low < high:
        middle = (low + high) // 2
        if documents[middle] < document:
            low = middle + 1
        else:
            high = middle
    return low
