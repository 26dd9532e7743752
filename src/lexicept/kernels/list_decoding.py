"""Decodes whole posting lists of the layout of ``posting_lists``."""

from __future__ import annotations

import numpy as np

from lexicept.kernels.compiled import by_work, compiled
from lexicept.kernels.posting_lists import PACK_SECONDS, Postings, eight_bytes, list_reference
from lexicept.vectors import Floats, Integers


def read_lists(
    segment: int, postings: Postings, dimensions: Integers
) -> tuple[Integers, Floats, Integers]:
    """Return documents i64, weights f32, and the size of each of some dimensions' lists, one after
    another; by the kernel after a process's first work."""
    seconds = int(postings.lengths[:, dimensions].sum()) * PACK_SECONDS
    read = by_work(seconds, decode_lists, decode_lists_reference)
    documents, weights, sizes = read(segment, postings, dimensions)
    return documents, weights, sizes


def decode_lists_reference(
    segment: int, postings: Postings, dimensions: Integers
) -> tuple[Integers, Floats, Integers]:
    """Decode the lists of dimensions; see ``read_lists``."""
    documents, weights = [np.empty(0, np.int64)], [np.empty(0, np.float32)]
    sizes = np.zeros(len(dimensions), np.int64)
    in_segment: Integers
    for i, dimension in enumerate(dimensions.tolist()):
        for number, first in enumerate(range(0, postings.offsets.size, segment)):
            if postings.widths[number, dimension] == 0:
                start = int(postings.starts[number, dimension])
                count = min(segment, postings.offsets.size - first)
                in_segment, values = np.arange(count), postings.table[start : start + count]
            else:
                in_segment, values = list_reference(postings, number, dimension)
            having = values != 0  # fillers have weight 0
            documents.append(in_segment[having] + first)
            weights.append(values[having] * postings.scales[dimension])
            sizes[i] += documents[-1].size
    return np.concatenate(documents), np.concatenate(weights), sizes


@compiled()
def decode_lists(segment, postings, dimensions):
    """Compiled version of ``decode_lists_reference``."""
    most = np.int64(0)
    for dimension in dimensions:
        most += np.int64(postings.lengths[:, dimension].astype(np.int64).sum())
    documents, weights = np.empty(most, np.int64), np.empty(most, np.float32)
    sizes = np.zeros(dimensions.size, np.int64)
    size = 0
    for i in range(dimensions.size):
        before, dimension = size, dimensions[i]
        for number in range(postings.lengths.shape[0]):
            first = number * segment
            start = postings.starts[number, dimension]
            width = np.uint64(postings.widths[number, dimension])
            bit = np.uint64(postings.gap_starts[number, dimension]) << np.uint64(3)
            length = np.int64(postings.lengths[number, dimension])
            document = np.int64(first)
            if width == 0:
                length = min(segment, postings.offsets.size - first)
            for p in range(length):
                if width == 0:
                    document, weight = first + p, postings.table[start + p]
                else:
                    gap = eight_bytes(postings.gaps, bit >> np.uint64(3)) >> (bit & np.uint64(7))
                    document += np.int64(gap & ((np.uint64(1) << width) - np.uint64(1)))
                    bit += width
                    weight = postings.weights[start + p]
                if weight != 0 and size < most:  # damaged rows may have more
                    documents[size] = document
                    weights[size] = np.float32(weight) * postings.scales[dimension]
                    size += 1
        sizes[i] = size - before
    return documents[:size], weights[:size], sizes
