"""Posting lists in segments of documents: packed gaps between documents, and weights.

The layout, for a segment of 8 documents (real segments have 65,536) and three dimensions::

    dimension      0                1              2
    documents      1, 4, 5          none           0, 1, 2, 4, 5, 7: more than half
    lengths        3                0              6
    widths         4 bits           14 bits        0: a row of the table

    gaps           | 1  3  1  . |                                   three 4-bit numbers, padding
                   ^ gap_starts ^ gap_starts
    weights        | w  w  w |                                      f32 or u8, one for each gap
                   ^ starts  ^ starts
    table                                          | w w w 0 w w 0 w |   one for each document
                                                   ^ starts

An *entry* of a list is a gap, the difference from the document before (the first gap: from 0), and
a weight. All gaps of a list have the same few bits. If a gap needs more, *fillers* precede the
entry: the largest gap that the bits hold, with a weight of 0, which changes no score. Lists follow
each other dimension by dimension, segment by segment; each begins with a byte.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lexicept.kernels.compiled import by_work, compiled
from lexicept.vectors import Floats, Integers

SEGMENT = 2**16
"""Documents of a segment: their numbers fit 16 bits, their scores a processor's cache."""

WIDTHS = 4, 14
"""Fewest and most bits of a gap: eight bytes hold four gaps, from any bit on."""

SPREAD = 2.5
"""Largest gap without a filler, in mean gaps: of random documents, one in twelve is larger."""

MARGIN = 8
"""Bytes after the last gap, which are read with it."""

PACK_SECONDS = 2.5e-7
"""Approximate seconds that NumPy takes to pack or unpack an entry."""


class Postings(NamedTuple):
    """Posting lists of N documents over V dimensions, as kernels take them."""

    lengths: Integers
    """Entries of a list, or documents of a row of the table, at most 65,535; u16 [segments, V]."""
    widths: Integers
    """Bits of the gaps of a list; 0 for a row of the table. u8 [segments, V]."""
    starts: Integers
    """The first weight of a list, or of a row in the table, i64 [segments, V]."""
    gap_starts: Integers
    """The first byte of a list's gaps, i64 [segments, V]."""
    gaps: Integers
    """u8 [bytes + MARGIN]."""
    weights: Floats
    """f32, or u8 to be multiplied by the dimension's scale [entries]."""
    table: Floats
    """Rows of weights like ``weights``, a weight per document of the segment; 0 for no posting."""
    scales: Floats
    """Scale of each dimension's weights, f32 [V]."""
    offsets: Floats
    """Offset of each document, f32 [N]."""


class PackedLists(NamedTuple):
    """Neighbouring lists; see ``Postings``."""

    gaps: Integers
    weights: Floats
    lengths: Integers


def fitting_widths(lengths: Integers, count: int) -> Integers:
    """Return the bits of gaps, u8, for lists with these numbers of ``count`` documents."""
    widths = np.ceil(np.log2(SPREAD * max(count, 1) / np.maximum(lengths, 1)))
    return np.asarray(np.clip(widths, *WIDTHS), np.uint8)


def num_bytes(lengths: Integers, widths: Integers) -> Integers:
    """Return the bytes of each list's gaps."""
    return -(-lengths.astype(np.int64) * widths // 8)


def pack(documents: Integers, weights: Floats, sizes: Integers, widths: Integers) -> PackedLists:
    """Pack lists by ``pack_reference`` in a process's first work, later by the kernel."""
    pack_fast = by_work(documents.size * PACK_SECONDS, pack_lists, pack_reference)
    return PackedLists(*pack_fast(documents, weights, sizes, widths))


def pack_reference(
    documents: Integers, weights: Floats, sizes: Integers, widths: Integers
) -> PackedLists:
    """Pack lists.

    Args:
        documents: i32 numbers in the segment, ascending within a list, list after list.
        weights: of the postings; above 0.
        sizes: postings of each list, i64 [lists].
        widths: bits of the gaps of each list, u8 [lists].
    """
    largest = (1 << widths.astype(np.int64)) - 1
    list_of = np.repeat(np.arange(sizes.size), sizes)
    gaps = np.diff(documents, prepend=0).astype(np.int64)
    begins = (np.cumsum(sizes) - sizes)[sizes > 0]
    gaps[begins] = documents[begins]
    # Fillers of the largest gap come before the entry that they leave a smaller gap for.
    fillers = np.maximum(gaps - 1, 0) // largest[list_of]
    lengths = sizes + np.bincount(list_of, fillers, sizes.size).astype(np.int64)
    positions = np.cumsum(fillers + 1) - 1
    list_of_entry = np.repeat(np.arange(sizes.size), lengths)
    steps = largest[list_of_entry]
    steps[positions] = gaps - fillers * largest[list_of]
    entry_weights = np.zeros(steps.size, weights.dtype)
    entry_weights[positions] = weights
    # Every list begins with a byte: its entries' bits follow each other from there.
    bytes_of, starts = num_bytes(lengths, widths), np.cumsum(lengths) - lengths
    width = widths[list_of_entry].astype(np.int64)
    within = np.arange(steps.size) - starts[list_of_entry]
    bit = 8 * (np.cumsum(bytes_of) - bytes_of)[list_of_entry] + within * width
    # One array element per bit, lowest first.
    bits = np.zeros(8 * int(bytes_of.sum()), np.bool_)
    for i in range(WIDTHS[1]):
        wide = width > i
        bits[bit[wide] + i] = steps[wide] >> i & 1
    return PackedLists(np.packbits(bits, bitorder="little"), entry_weights, lengths)


@compiled()
def pack_lists(documents, weights, sizes, widths):
    """Compiled version of ``pack_reference``."""
    # First pass: entries with fillers, and bytes.
    lengths = np.zeros(sizes.size, np.int64)
    num_gap_bytes = 0
    posting = 0
    for i in range(sizes.size):
        largest = (1 << np.int64(widths[i])) - 1
        before = 0
        for _ in range(sizes[i]):
            gap = documents[posting] - before
            lengths[i] += 1 + (max(gap - 1, 0) // largest)
            before = documents[posting]
            posting += 1
        num_gap_bytes += (lengths[i] * widths[i] + 7) // 8
    gaps = np.empty(num_gap_bytes, np.uint8)
    entry_weights = np.zeros(lengths.sum(), weights.dtype)
    # Second pass: bits wait in a word until they fill a byte.
    entry = posting = byte = 0
    for i in range(sizes.size):
        width = np.uint64(widths[i])
        largest = (1 << np.int64(width)) - 1
        waiting = num_bits = np.uint64(0)
        before = 0
        for _ in range(sizes[i]):
            while True:
                distance = documents[posting] - before
                # A filler if the distance exceeds the bits: the loop repeats with the rest.
                gap = min(distance, largest)
                waiting |= np.uint64(gap) << num_bits
                num_bits += width
                while num_bits >= np.uint64(8):
                    gaps[byte] = waiting & np.uint64(255)
                    waiting >>= np.uint64(8)
                    num_bits -= np.uint64(8)
                    byte += 1
                before += gap
                entry += 1
                if distance <= largest:
                    break
            entry_weights[entry - 1] = weights[posting]
            posting += 1
        # The list ends in the middle of a byte.
        if num_bits > np.uint64(0):
            gaps[byte] = waiting
            byte += 1
    return gaps, entry_weights, lengths


def unpack(gaps: Integers, lengths: Integers, widths: Integers) -> Integers:
    """Unpack lists by ``unpack_reference`` in a process's first work, later by the kernel."""
    seconds = int(lengths.sum()) * PACK_SECONDS
    documents: Integers = by_work(seconds, unpack_lists, unpack_reference)(gaps, lengths, widths)
    return documents


def unpack_reference(gaps: Integers, lengths: Integers, widths: Integers) -> Integers:
    """Return the documents of all entries of neighbouring lists, fillers included, i64 [entries].

    Args:
        gaps: of these lists, with ``MARGIN`` more bytes.
        lengths: entries of each list, i64 [lists].
        widths: bits of each list's gaps, u8 [lists].
    """
    bytes_of = num_bytes(lengths, widths)
    list_of = np.repeat(np.arange(lengths.size), lengths)
    starts = np.cumsum(lengths) - lengths
    within = np.arange(list_of.size) - starts[list_of]
    first_bits = 8 * (np.cumsum(bytes_of) - bytes_of)
    width = widths[list_of]
    steps = gaps_at(gaps, first_bits[list_of] + within * width, width)
    # A running sum over all lists, less the sum before each list.
    after = np.concatenate([[0], np.cumsum(steps)])
    documents: Integers = after[1:] - after[starts[list_of]]
    return documents


def gaps_at(gaps: Integers, bits: Any, widths: Integers | int) -> Integers:
    """Return the gaps that begin with these bits, i64."""
    byte = bits >> 3
    # Three bytes hold a gap of 14 bits that begins anywhere in the first.
    three = sum(gaps[byte + i].astype(np.int64) << 8 * i for i in range(3))
    largest = (1 << np.asarray(widths, np.int64)) - 1
    return np.asarray(three >> (bits & 7) & largest, np.int64)


@compiled()
def unpack_lists(gaps, lengths, widths):
    """Compiled version of ``unpack_reference``."""
    documents = np.empty(lengths.sum(), np.int64)
    entry = byte = 0
    for i in range(lengths.size):
        width = np.uint64(widths[i])
        mask = (np.uint64(1) << width) - np.uint64(1)
        bit = np.uint64(8 * byte)
        document = np.uint64(0)
        for _ in range(lengths[i]):
            document += (eight_bytes(gaps, bit >> np.uint64(3)) >> (bit & np.uint64(7))) & mask
            documents[entry] = document
            entry += 1
            bit += width
        byte += (lengths[i] * widths[i] + 7) // 8
    return documents


def list_reference(postings: Postings, segment: int, dimension: int) -> tuple[Integers, Floats]:
    """Return documents and weights of a list's entries, fillers included, in a segment."""
    start, byte = (int(each[segment, dimension]) for each in (postings.starts, postings.gap_starts))
    length, width = (int(each[segment, dimension]) for each in (postings.lengths, postings.widths))
    gaps = gaps_at(postings.gaps, 8 * byte + np.arange(length) * width, width)
    return np.cumsum(gaps), postings.weights[start : start + length]


@compiled(inline="always")
def eight_bytes(gaps, byte):
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
def add_list(postings, segment, dimension, factor, scores, count):
    """Add the products of a list's weights and ``factor`` to the scores of ``count`` documents.

    Only 16 bits of a document's number count: damaged gaps name no score outside of the segment's
    65,536. Unsigned numbers keep numba from checking for negative ones, which takes a third longer.
    """
    start = postings.starts[segment, dimension]
    if postings.widths[segment, dimension] == 0:
        # A row of the table: a vectorised sum over all documents of the segment.
        table_row = postings.table[start : start + count]
        for i in range(table_row.size):
            scores[i] += factor * table_row[i]
        return
    gaps = postings.gaps
    weights = postings.weights
    width = np.uint64(postings.widths[segment, dimension])
    mask = (np.uint64(1) << width) - np.uint64(1)
    last = np.uint64(0xFFFF)
    bit = np.uint64(postings.gap_starts[segment, dimension]) << np.uint64(3)
    p = np.uint64(start)
    end = p + np.uint64(postings.lengths[segment, dimension])
    document = np.uint64(0)
    # Four gaps of 14 bits at most come from one load of eight bytes.
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
    # One to three entries are left, or none.
    four = eight_bytes(gaps, bit >> np.uint64(3)) >> (bit & np.uint64(7))
    while p < end:
        document = (document + (four & mask)) & last
        scores[document] += factor * weights[p]
        four >>= width
        p += np.uint64(1)
