"""Postings in segments of documents, searched term at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from lexicept.ops.compiled import compiled
from lexicept.vectors import Floats, Integers

BLOCK = 256
"""Scores compared at once with the worst result."""

SEARCHED = 8
"""Postings of a list for each allowed document from which on these are looked up in the list, and
it is not read whole."""

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


def search_postings_reference(
    segment: int,
    share: int,
    lengths: Integers,
    starts: Integers,
    documents: Integers,
    weights: Floats,
    table: Floats,
    scales: Floats,
    offsets: Floats,
    largest: Floats,
    offset_ranges: Floats,
    dimensions: Integers,
    query_weights: Floats,
    query_offset: float,
    top_k: int,
    allowed: Any,
    counts: Integers,
    few: Integers,
    few_starts: Integers,
) -> tuple[Integers, Floats]:
    """Return the ``top_k`` documents of one query with a positive score, best first.

    Args:
        segment: documents of a segment; the last one may have fewer.
        share: a dimension that more than one in ``share`` of a segment's documents have is in the
            table there.
        lengths: documents that have a dimension [segments, V].
        starts: where its postings, or its part of the table, begin [segments, V].
        documents: u16, a document's number in its segment [postings].
        weights: f32, or u8 that the dimension's scale is multiplied with [postings].
        table: weights of all documents of a segment in a row, 0 where there is none.
        scales: [V].
        offsets: a number per document [N], multiplied by ``query_offset``.
        largest: the largest weight of a dimension in a segment, like the weights [segments, V].
        offset_ranges: the smallest and the largest offset of a segment [segments, 2].
        dimensions, query_weights: the query's non-zeros.
        allowed: whether a document may be a result, bool [N]; [0] allows all.
        counts: documents that are allowed in each segment [segments]; [0] with ``allowed``.
        few: u16, the allowed documents of the segments that have few of them, ascending.
        few_starts: where those of each segment begin, and the last end [segments + 1]; without any,
            its allowed documents are none or many.

    Returns:
        Document numbers and scores; equal scores in document order.
    """
    scores = all_scores(
        segment, share, lengths, starts, documents, weights, table, scales, offsets,
        dimensions, query_weights, query_offset,
    )  # fmt: skip
    if allowed.size:
        scores[~allowed] = 0
    best = np.lexsort((np.arange(scores.size), -scores))[:top_k]
    best = best[scores[best] > 0]
    return best, scores[best]


def all_scores(
    segment: int,
    share: int,
    lengths: Integers,
    starts: Integers,
    documents: Integers,
    weights: Floats,
    table: Floats,
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
            length = lengths[first // segment, dimension]
            start = starts[first // segment, dimension]
            factor = np.float32(weight) * scales[dimension]
            if length * share > part.size:
                part += factor * table[start : start + part.size]
            else:
                span = slice(start, start + length)
                part[documents[span]] += factor * weights[span]
    return scores


@compiled()
def search_postings(  # pragma: no cover - compiled
    segment,
    share,
    lengths,
    starts,
    documents,
    weights,
    table,
    scales,
    offsets,
    largest,
    offset_ranges,
    dimensions,
    query_weights,
    query_offset,
    top_k,
    allowed,
    counts,
    few,
    few_starts,
):
    """Compiled version of ``search_postings_reference``.

    A segment's scores stay in the processor's cache. All that a 16-bit document number can name is
    within them, whatever a damaged file says. Where few documents are allowed, only theirs are set,
    looked up and compared; elsewhere those of others start at -inf.

    Once there are ``top_k`` results, the lists of a segment that can't lift a document above the
    worst of them, even together, count for documents of its other lists alone (MaxScore, Turtle and
    Flood 1995): see ``_essential`` and ``_pruned``.
    """
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
    floor = np.float32(0)  # what a result must exceed, by ``_probed``
    bar = np.float32(0)  # what a later document must exceed
    clean = True  # all scores are 0
    probed = False
    for number in range(lengths.shape[0]):
        first = number * segment
        count = min(segment, offsets.size - first)
        if filtered and counts[number] == 0:
            continue
        chosen = few[few_starts[number] : few_starts[number + 1]] if filtered else few
        own_lengths = lengths[number]
        own_starts = starts[number]
        if size == top_k and not probed:
            probed = True
            scores[:] = 0
            clean = True
            floor = _probed(
                segment, share, lengths, starts, documents, weights, table, offsets, largest,
                offset_ranges, dimensions, factors, offset, allowed, number, bar,
                heap_scores.copy(), heap_documents.copy(), scores,
            )  # fmt: skip
            bar = max(bar, floor)
        if size == top_k and chosen.size == 0:
            order, essential, most, spare, error = _essential(
                share, count, own_lengths, largest[number], offset_ranges[number], dimensions,
                factors, offset, bar,
            )  # fmt: skip
            if essential == 0:
                continue
            if essential > 0:
                if not clean:
                    scores[:] = 0
                    clean = True
                part = allowed[first : first + count]
                found, lists, clean = _candidates(
                    share, own_lengths, own_starts, documents, weights, count, dimensions, factors,
                    most, order, essential, spare, part, scores,
                )  # fmt: skip
                live, whole = _pruned(
                    share, own_lengths, own_starts, documents, weights, table,
                    offsets[first : first + count], offset, dimensions, factors, most, order,
                    lists, error, bar, found, scores,
                )  # fmt: skip
                clean = clean and not whole
                found = np.sort(found[:live])
                for i in range(live):
                    score = _score(
                        found[i], share, own_lengths, own_starts, documents, weights, table,
                        offsets[first : first + count], offset, dimensions, factors,
                    )  # fmt: skip
                    if score > bar:
                        document = first + np.int64(found[i])
                        size = _push(heap_scores, heap_documents, size, score, document)
                        bar = max(heap_scores[0], floor)
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
            length = own_lengths[dimensions[i]]
            start = own_starts[dimensions[i]]
            if length * share > count:
                row = table[start : start + count]
                if chosen.size > 0:
                    for j in range(chosen.size):
                        scores[chosen[j]] += factors[i] * row[chosen[j]]
                else:
                    for document in range(row.size):
                        scores[document] += factors[i] * row[document]
            elif chosen.size > 0 and chosen.size * SEARCHED < length:
                _add_chosen(
                    scores, chosen, documents[start : start + length],
                    weights[start : start + length], factors[i],
                )  # fmt: skip
            else:
                for p in range(start, start + length):
                    scores[documents[p]] += factors[i] * weights[p]
        if chosen.size > 0:
            for i in range(chosen.size):
                score = scores[chosen[i]]
                if score > bar:
                    document = first + np.int64(chosen[i])
                    size = _push(heap_scores, heap_documents, size, score, document)
                    if size == top_k:
                        bar = max(heap_scores[0], floor)
            continue
        for block in range(0, count, BLOCK):
            end = min(block + BLOCK, count)
            above = 0
            for document in range(block, end):  # without branches, so that it is vectorised
                above += scores[document] > bar
            if above == 0:
                continue
            for document in range(block, end):
                score = scores[document]
                if score > bar:
                    size = _push(heap_scores, heap_documents, size, score, first + document)
                    if size == top_k:
                        bar = max(heap_scores[0], floor)
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


@compiled()
def _essential(
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
def _candidates(
    share, lengths, starts, documents, weights, count, dimensions, factors, most, order, essential,
    spare, allowed, scores,
):  # fmt: skip  # pragma: no cover - compiled
    """Find the documents of a segment that may exceed the bar by the lists that are read first.

    Other lists are added before candidates are chosen where that is cheap: it leaves few of them.

    Args:
        lengths, starts: of the segment [V].
        count: documents of the segment.
        most, order, essential, spare: see ``_essential``.
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
        return _above(scores[:count], needed, allowed), lists, False
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
def _above(scores, needed, allowed):  # pragma: no cover - compiled
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
def _pruned(
    share, lengths, starts, documents, weights, table, offsets, offset, dimensions, factors, most,
    order, lists, error, bar, found, scores,
):  # fmt: skip  # pragma: no cover - compiled
    """Move the candidates whose score may exceed ``bar`` to the front; return their number, and
    whether the scores of other documents have changed.

    The other lists follow, that with the fewest postings for what it adds first, and from time to
    time the candidates that can't exceed the bar any more are dropped.

    Args:
        lengths, starts, offsets: of the segment.
        most, order, error: see ``_essential``.
        lists: number of lists that ``scores`` has already.
        found, scores: see ``_candidates``; both are changed, and the candidates' scores are zeros
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
                p = _place(documents, start, length, found[i], offsets.size)
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
def _probed(
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
        order, essential, most, spare, _ = _essential(
            share, count, lengths[number], largest[number], offset_ranges[number], dimensions,
            factors, offset, bar,
        )  # fmt: skip
        read = 0
        for j in range(essential):
            read += lengths[number, dimensions[order[j]]]
        if essential <= 0 or read > FEW_POSTINGS // 4:
            continue
        found, _, _ = _candidates(
            share, lengths[number], starts[number], documents, weights, count, dimensions, factors,
            most, order[:essential], essential, spare, allowed[first : first + count], scores,
        )  # fmt: skip
        sums = scores[found]
        scores[found] = 0
        for _ in range(min(tries, found.size)):
            best = np.argmax(sums)
            sums[best] = -1
            score = _score(
                found[best], share, lengths[number], starts[number], documents, weights, table,
                offsets[first : first + count], offset, dimensions, factors,
            )  # fmt: skip
            if score > heap_scores[0]:
                document = first + np.int64(found[best])
                _push(heap_scores, heap_documents, heap_scores.size, score, document)
                bar = max(bar, np.nextafter(heap_scores[0], np.float32(0)))
    return bar


@compiled()
def _score(
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
            p = _place(documents, start, length, document, offsets.size)
            if p < start + length and documents[p] == document:
                score += factors[i] * weights[p]
    return score


@compiled(inline="always")
def _place(documents, start, length, document, count):  # pragma: no cover - compiled
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


@compiled(inline="always")
def _add_chosen(scores, chosen, documents, weights, factor):  # pragma: no cover - compiled
    """Add what one posting list gives to the scores of some documents, looked up by bisection."""
    low = 0
    for i in range(chosen.size):
        high = documents.size
        while low < high:
            middle = (low + high) // 2
            if documents[middle] < chosen[i]:
                low = middle + 1
            else:
                high = middle
        if low == documents.size:
            return
        if documents[low] == chosen[i]:
            scores[chosen[i]] += factor * weights[low]


@compiled(inline="always")
def _push(heap_scores, heap_documents, size, score, document):  # pragma: no cover - compiled
    """Put a document on the heap, in place of the worst where it is full; return its size."""
    if size < heap_scores.size:
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
    return size


@compiled(inline="always")
def _sift_down(heap_scores, heap_documents, size, score, document):  # pragma: no cover - compiled
    """Return the place of an entry that replaces the heap's top, after moving smaller ones up."""
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
