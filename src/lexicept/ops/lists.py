"""Posting lists in segments of documents: packed gaps between documents, and weights.

An entry of a list is a gap, the difference from the document before (the first: from 0), and a
weight. All gaps of a list have the same few bits. Where one needs more, *fillers* come before its
entry: the largest gap that the bits hold, with a weight of 0, which changes no score. A list begins
with a byte; lists come one after the other, dimension by dimension, segment by segment.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lexicept.ops.compiled import by_work, compiled
from lexicept.vectors import Floats, Integers

WIDTHS = 4, 14
"""Fewest and most bits of a gap: four of them, from any bit on, are in eight bytes."""

SPREAD = 2.5
"""Largest gap without a filler, in mean gaps: of random documents, one in twelve is larger."""

STEP = 64
"""Entries from one mark to the next."""

MARGIN = 8
"""Bytes after the last gap, which are read with it."""

PACKED = 2.5e-7
"""Seconds that NumPy takes to pack or unpack an entry, about."""


class Lists(NamedTuple):
    """Posting lists [segments, V], as kernels take them."""

    lengths: Integers
    """Entries of a list, or documents of a row of the table, u16 [segments, V]."""
    widths: Integers
    """Bits of the gaps of a list; 0: it is a row of the table. u8 [segments, V]."""
    starts: Integers
    """The first weight of a list, or of its row in the table, i64 [segments, V]."""
    places: Integers
    """The byte where its gaps begin, i64 [segments, V]."""
    gaps: Integers
    """u8 [bytes + MARGIN]."""
    weights: Floats
    """f32, or u8 that the dimension's scale is multiplied with [entries]."""
    marks: Integers
    """The document before every STEP-th entry of all, 0 at the start of a list, u16."""
    table: Floats
    """Weights of all documents of a segment in a row, 0 where there is none, like ``weights``."""


class Packed(NamedTuple):
    """Lists packed one after the other; see ``Lists``."""

    gaps: Integers
    weights: Floats
    lengths: Integers
    marks: Integers


def fitting_widths(lengths: Integers, count: int) -> Integers:
    """Return the bits of gaps for lists of so many of ``count`` documents, u8."""
    widths = np.ceil(np.log2(SPREAD * max(count, 1) / np.maximum(lengths, 1)))
    return np.asarray(np.clip(widths, *WIDTHS), np.uint8)


def num_bytes(lengths: Integers, widths: Integers) -> Integers:
    """Return the bytes of the gaps of lists of so many entries."""
    size: Integers = -(-lengths.astype(np.int64) * widths // 8)
    return size


def pack(
    documents: Integers, weights: Floats, postings: Integers, widths: Integers, first: int
) -> Packed:
    """Pack lists by ``pack_reference`` in a process's first work, later by the kernel."""
    seconds = documents.size * PACKED
    own = by_work(seconds, pack_lists, pack_reference)
    return Packed(*own(documents, weights, postings, widths, first))


def pack_reference(
    documents: Integers, weights: Floats, postings: Integers, widths: Integers, first: int
) -> Packed:
    """Pack lists.

    Args:
        documents: i32 numbers in the segment, ascending within a list, one list after the other.
        weights: of the postings; above 0.
        postings: their number in each list, i64 [lists].
        widths: bits of the gaps of each list, u8 [lists].
        first: entries of all lists before.
    """
    largest = (1 << widths.astype(np.int64)) - 1
    own = np.repeat(np.arange(postings.size), postings)
    gaps = np.diff(documents, prepend=0).astype(np.int64)
    begins = np.cumsum(postings) - postings
    gaps[begins[postings > 0]] = documents[begins[postings > 0]]
    fillers = np.maximum(gaps - 1, 0) // largest[own]
    lengths = postings + np.bincount(own, fillers, postings.size).astype(np.int64)
    place = np.cumsum(fillers + 1) - 1
    lists = np.repeat(np.arange(postings.size), lengths)
    entries = largest[lists]
    entries[place] = gaps - fillers * largest[own]
    spread = np.zeros(entries.size, weights.dtype)
    spread[place] = weights
    sizes, starts = num_bytes(lengths, widths), np.cumsum(lengths) - lengths
    width, within = widths[lists].astype(np.int64), np.arange(entries.size) - starts[lists]
    bit = 8 * (np.cumsum(sizes) - sizes)[lists] + within * width
    bits = np.zeros(8 * int(sizes.sum()), np.bool_)
    for i in range(WIDTHS[1]):
        some = width > i
        bits[bit[some] + i] = entries[some] >> i & 1
    before = np.concatenate([[0], np.cumsum(entries)])
    marks = (before[:-1] - before[starts[lists]])[-first % STEP :: STEP]
    return Packed(np.packbits(bits, bitorder="little"), spread, lengths, marks.astype(np.uint16))


@compiled()
def pack_lists(documents, weights, postings, widths, first):  # pragma: no cover - compiled
    """Compiled version of ``pack_reference``."""
    lengths = np.zeros(postings.size, np.int64)
    size = 0
    p = 0
    for i in range(postings.size):
        largest = (1 << np.int64(widths[i])) - 1
        before = 0
        for _ in range(postings[i]):
            gap = documents[p] - before
            lengths[i] += 1 + (max(gap - 1, 0) // largest)
            before = documents[p]
            p += 1
        size += (lengths[i] * widths[i] + 7) // 8
    gaps = np.empty(size, np.uint8)
    spread = np.zeros(lengths.sum(), weights.dtype)
    marks = np.empty((first + spread.size - 1) // STEP - (first - 1) // STEP, np.uint16)
    number = entry = p = size = 0
    for i in range(postings.size):
        width = np.uint64(widths[i])
        largest = (1 << np.int64(width)) - 1
        waiting = bits = np.uint64(0)  # what is not written yet, and its number
        before = 0
        for _ in range(postings[i]):
            while True:
                if (first + entry) % STEP == 0:
                    marks[number] = before
                    number += 1
                rest = documents[p] - before
                gap = min(rest, largest)
                waiting |= np.uint64(gap) << bits
                bits += width
                while bits >= np.uint64(8):
                    gaps[size] = waiting & np.uint64(255)
                    waiting >>= np.uint64(8)
                    bits -= np.uint64(8)
                    size += 1
                before += gap
                entry += 1
                if rest <= largest:
                    break
            spread[entry - 1] = weights[p]
            p += 1
        if bits > np.uint64(0):
            gaps[size] = waiting
            size += 1
    return gaps, spread, lengths, marks


def marks_of(documents: Integers, starts: Integers, first: int) -> Integers:
    """Return the document before every ``STEP``-th entry of all, 0 at the start of a list, u16.

    Args:
        documents: of the entries of lists that follow each other.
        starts: the first entry of each list.
        first: entries of all lists before these.
    """
    marked = np.arange(-first % STEP, documents.size, STEP)
    before = np.where(np.isin(marked, starts), 0, documents[marked - 1])
    return np.asarray(before, np.uint16)


def unpack(gaps: Integers, lengths: Integers, widths: Integers) -> Integers:
    """Unpack lists by ``unpack_reference`` in a process's first work, later by the kernel."""
    seconds = int(lengths.sum()) * PACKED
    documents: Integers = by_work(seconds, unpack_lists, unpack_reference)(gaps, lengths, widths)
    return documents


def unpack_reference(gaps: Integers, lengths: Integers, widths: Integers) -> Integers:
    """Return the documents of all entries of lists that follow each other, fillers' included, i64.

    Args:
        gaps: theirs, and ``MARGIN`` bytes more.
        lengths: entries of each list, i64 [lists].
        widths: bits of its gaps, u8 [lists].
    """
    sizes = num_bytes(lengths, widths)
    lists = np.repeat(np.arange(lengths.size), lengths)
    starts = np.cumsum(lengths) - lengths
    within = np.arange(lists.size) - starts[lists]
    first = 8 * (np.cumsum(sizes) - sizes)
    entries = entries_of(gaps, first[lists] + within * widths[lists], widths[lists])
    after = np.concatenate([[0], np.cumsum(entries)])
    documents: Integers = after[1:] - after[starts[lists]]
    return documents


def entries_of(gaps: Integers, bits: Any, widths: Integers | int) -> Integers:
    """Return the gaps that begin with these bits, i64."""
    byte = bits >> 3
    three = sum(gaps[byte + i].astype(np.int64) << 8 * i for i in range(3))
    largest = (1 << np.asarray(widths, np.int64)) - 1
    return np.asarray(three >> (bits & 7) & largest, np.int64)


@compiled()
def unpack_lists(gaps, lengths, widths):  # pragma: no cover - compiled
    """Compiled version of ``unpack_reference``."""
    documents = np.empty(lengths.sum(), np.int64)
    entry = size = 0
    for i in range(lengths.size):
        width = np.int64(widths[i])
        bit = np.int64(8 * size)
        document = np.int64(0)
        for _ in range(lengths[i]):
            three = np.int64(0)
            for j in range(3):
                three |= np.int64(gaps[(bit >> 3) + j]) << (8 * j)
            document += (three >> (bit & 7)) & ((1 << width) - 1)
            documents[entry] = document
            entry += 1
            bit += width
        size += (lengths[i] * width + 7) // 8
    return documents


def list_reference(lists: Lists, number: int, dimension: int) -> tuple[Integers, Floats]:
    """Return documents and weights of the entries of one list, fillers included."""
    start, place = int(lists.starts[number, dimension]), int(lists.places[number, dimension])
    length, width = int(lists.lengths[number, dimension]), int(lists.widths[number, dimension])
    gaps = entries_of(lists.gaps, 8 * place + np.arange(length) * width, width)
    return np.cumsum(gaps), lists.weights[start : start + length]


def weight_reference(lists: Lists, number: int, dimension: int, document: int) -> float:
    """Return the weight of a document of a segment on a dimension, before it is scaled; 0: none."""
    start, place = int(lists.starts[number, dimension]), int(lists.places[number, dimension])
    length, width = int(lists.lengths[number, dimension]), int(lists.widths[number, dimension])
    if width == 0:
        return float(lists.table[start + document])
    low, high = -(-start // STEP), -(-(start + length) // STEP)
    mark = low + int(np.searchsorted(lists.marks[low:high], document)) - 1
    first = start if mark < low else mark * STEP
    before = 0 if mark < low else int(lists.marks[mark])
    entries = np.arange(first, min((first // STEP + 1) * STEP, start + length))
    gaps = entries_of(lists.gaps, 8 * place + (entries - start) * width, width)
    own = entries[before + np.cumsum(gaps) == document]
    return float(lists.weights[own].sum())


@compiled(inline="always")
def eight_bytes(gaps, byte):  # pragma: no cover - compiled
    """Return the 64 bits from a byte on: one load, to the compiler."""
    return (
        np.uint64(gaps[byte])
        | np.uint64(gaps[byte + np.uint64(1)]) << np.uint64(8)
        | np.uint64(gaps[byte + np.uint64(2)]) << np.uint64(16)
        | np.uint64(gaps[byte + np.uint64(3)]) << np.uint64(24)
        | np.uint64(gaps[byte + np.uint64(4)]) << np.uint64(32)
        | np.uint64(gaps[byte + np.uint64(5)]) << np.uint64(40)
        | np.uint64(gaps[byte + np.uint64(6)]) << np.uint64(48)
        | np.uint64(gaps[byte + np.uint64(7)]) << np.uint64(56)
    )


@compiled()
def add_list(lists, number, dimension, factor, scores, count):  # pragma: no cover - compiled
    """Add what a list gives to the scores of a segment of ``count`` documents.

    16 bits of a document's number count, so that damaged gaps name a score that is there. Unsigned
    numbers are what keeps numba from looking for negative ones, which would take a third longer.
    """
    start = lists.starts[number, dimension]
    if lists.widths[number, dimension] == 0:
        row = lists.table[start : start + count]
        for i in range(row.size):
            scores[i] += factor * row[i]
        return
    gaps = lists.gaps
    weights = lists.weights
    width = np.uint64(lists.widths[number, dimension])
    mask = (np.uint64(1) << width) - np.uint64(1)
    last = np.uint64(0xFFFF)
    bit = np.uint64(lists.places[number, dimension]) << np.uint64(3)
    p = np.uint64(start)
    end = p + np.uint64(lists.lengths[number, dimension])
    document = np.uint64(0)
    while p + np.uint64(4) <= end:
        four = eight_bytes(gaps, bit >> np.uint64(3)) >> (bit & np.uint64(7))
        document = (document + (four & mask)) & last
        scores[document] += factor * weights[p]
        four >>= width
        document = (document + (four & mask)) & last
        scores[document] += factor * weights[p + np.uint64(1)]
        four >>= width
        document = (document + (four & mask)) & last
        scores[document] += factor * weights[p + np.uint64(2)]
        four >>= width
        document = (document + (four & mask)) & last
        scores[document] += factor * weights[p + np.uint64(3)]
        bit += width << np.uint64(2)
        p += np.uint64(4)
    four = eight_bytes(gaps, bit >> np.uint64(3)) >> (bit & np.uint64(7))
    while p < end:
        document = (document + (four & mask)) & last
        scores[document] += factor * weights[p]
        four >>= width
        p += np.uint64(1)


@compiled()
def add_and_name(lists, number, dimension, factor, scores, named):  # pragma: no cover - compiled
    """Add a list as ``add_list`` does, and write its documents, fillers' included, to ``named``."""
    start = np.uint64(lists.starts[number, dimension])
    width = np.uint64(lists.widths[number, dimension])
    mask = (np.uint64(1) << width) - np.uint64(1)
    bit = np.uint64(lists.places[number, dimension]) << np.uint64(3)
    document = np.uint64(0)
    gaps = lists.gaps
    weights = lists.weights
    four = np.uint64(0)
    for p in range(np.uint64(named.size)):
        if p & np.uint64(3) == 0:
            four = eight_bytes(gaps, bit >> np.uint64(3)) >> (bit & np.uint64(7))
            bit += width << np.uint64(2)
        document = (document + (four & mask)) & np.uint64(0xFFFF)
        four >>= width
        named[p] = document
        scores[document] += factor * weights[start + p]


@compiled(inline="always")
def weight_of(lists, number, dimension, document, count):  # pragma: no cover - compiled
    """Compiled version of ``weight_reference``, in a segment of ``count`` documents; f32."""
    start = lists.starts[number, dimension]
    width = np.uint64(lists.widths[number, dimension])
    if width == 0:
        return np.float32(lists.table[start + document])
    length = np.int64(lists.lengths[number, dimension])
    low = (start + STEP - 1) // STEP
    high = (start + length + STEP - 1) // STEP
    mark = place_of(lists.marks, low, high - low, document, count) - 1
    wanted = np.uint64(document)
    before = np.uint64(0)
    p = np.uint64(start)
    if mark >= low:
        before = np.uint64(lists.marks[mark])
        p = np.uint64(mark * STEP)
    end = np.uint64(min((np.int64(p) // STEP + 1) * STEP, start + length))
    mask = (np.uint64(1) << width) - np.uint64(1)
    bit = (np.uint64(lists.places[number, dimension]) << np.uint64(3)) + (
        p - np.uint64(start)
    ) * width
    while p + np.uint64(4) <= end:
        four = eight_bytes(lists.gaps, bit >> np.uint64(3)) >> (bit & np.uint64(7))
        after = before + (four & mask) + ((four >> width) & mask)
        four >>= width << np.uint64(1)
        after += (four & mask) + ((four >> width) & mask)
        if after >= wanted:
            break
        before = after
        bit += width << np.uint64(2)
        p += np.uint64(4)
    while p < end:
        four = eight_bytes(lists.gaps, bit >> np.uint64(3)) >> (bit & np.uint64(7))
        before += four & mask
        if before >= wanted:
            return np.float32(lists.weights[p] if before == wanted else 0)
        bit += width
        p += np.uint64(1)
    return np.float32(0)


@compiled()
def place_of(documents, start, length, document, count):  # pragma: no cover - compiled
    """Return the place of a document, or of the first after it, among ascending numbers.

    The search begins where it is if they are spread evenly over ``count`` documents.
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
