"""Operations on tiles of scores on a CPU: largest entries, exact values of rounded ones.

A tile is the outputs of all tokens of a pass in some neighbouring columns. All kernels work on some
of the rows, ``first`` to ``last``, without Python's lock: threads share the rows
(``compiled.over_rows``).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from torch import Tensor

from lexicept.kernels.compiled import compiled
from lexicept.neural.kernels.quantisation import Quantised, products
from lexicept.vectors import Floats, Integers

BLOCK = 64
"""Entries whose maximum is compared with the least of the largest at once."""

GROUP = 32
"""Scores whose maximum is compared with the least candidate at once."""

STRIP = 128
"""Columns whose rows are in use together."""


class Tile(NamedTuple):
    """The factors of exact outputs ``matrix · x_i + bias``."""

    x: Floats
    """Tokens [n, d]."""
    matrix: Floats
    """[T, d]"""
    bias: Floats
    """[T]"""


class ShortScores(NamedTuple):
    """Scores ``products[i, j] · scales[i] · row_scales[j] + summands[j]``, off by at most
    ``errors[i] · row_errors[:2] + row_errors[2]``."""

    products: Integers
    """Of 8-bit numbers, i32 [n, T]."""
    scales: Floats
    """[n]"""
    errors: Floats
    """[n, 2], or [texts, 2] for all tokens of a text."""
    row_scales: Floats
    """[T]"""
    summands: Floats
    """[T]"""
    row_errors: Floats
    """[3], or [T, 3] for each column."""

    @classmethod
    def of(
        cls, x: Quantised, tile: Quantised, summands: Floats, errors: Floats, row_errors: Tensor
    ) -> ShortScores:
        """Multiply tokens [n, d] and the rows of a tile [T, d]."""
        scales, row_scales = x.scales.numpy(), tile.scales.numpy()
        scores = products(x, tile).numpy()
        return cls(scores, scales, errors, row_scales, summands, row_errors.numpy())


def keep_largest_reference(
    scores: Floats, start: int, values: Floats, columns: Integers, first: int, last: int
) -> None:
    """Add a tile of scores [n, T], with columns from ``start`` on, to the largest of each row.

    ``values`` [n, k] are the largest so far, falling, 0 at first, and ``columns`` [n, k] their
    columns. Of equal values the first stays.
    """
    added = np.arange(start, start + scores.shape[1])
    for i in range(first, last):
        candidates = np.concatenate([values[i], scores[i]])
        best = np.argsort(-candidates, kind="stable")[: values.shape[1]]
        values[i], columns[i] = candidates[best], np.concatenate([columns[i], added])[best]


@compiled()
def keep_largest(scores, start, values, columns, first, last):
    """Compiled version of ``keep_largest_reference``."""
    for i in range(first, last):
        _keep(scores[i], start, values[i], columns[i])


@compiled()
def keep_likely(short, tile, start, values, columns, first, last):
    """Do as ``keep_largest_of_bytes`` without exact outputs: scores stay as they are."""
    products, scales, _, row_scales, summands, _ = short
    scores = np.empty(summands.size, np.float32)
    for i in range(first, last):
        _scores(products[i], scales[i], row_scales, summands, scores)
        _keep(scores, start, values[i], columns[i])


@compiled()
def _keep(scores, start, values, columns):
    for begin in range(0, scores.size, BLOCK):
        block = scores[begin : begin + BLOCK]
        # Most blocks have no new entry: counting without a branch is vectorised.
        if _number_above(block, values[-1]) == 0:
            continue
        for j in range(block.size):
            if block[j] > values[-1]:
                _insert(values, columns, block[j], start + begin + j)


@compiled()
def keep_largest_of_bytes(short, tile, start, values, columns, first, last):
    """Do as ``keep_largest`` with the outputs of a tile: only candidates for the largest, within
    the error bounds of ``short``, are computed."""
    # Out of the loops: each reading of a tuple's array counts a reference.
    products, scales, errors, row_scales, summands, row_errors = short
    x, matrix, bias = tile
    scores = np.empty(bias.size, np.float32)
    keys = scores.view(np.int32)
    maxima = np.empty(-(-scores.size // GROUP), np.int32)
    for i in range(first, last):
        error = _error(errors[i], row_errors)
        _scores(products[i], scales[i], row_scales, summands, scores)
        # Integers in the order of the scores: their maxima are vectorised, also with NaN.
        _in_order(keys)
        for group in range(maxima.size):
            maxima[group] = _largest_key(keys[group * GROUP : (group + 1) * GROUP])
        lowest = values[i, -1]
        floor = lowest
        rank = maxima.size - values.shape[1]
        if start == 0 and rank >= 0:
            # As many groups as there are places reach it, each in one of its columns at least.
            floor = max(floor, _number_of(np.partition(maxima, rank)[rank]) - error)
        # A candidate's exact output may exceed the floor.
        least = _key_of(floor - error)
        for group in range(maxima.size):
            if maxima[group] <= least:
                continue
            group_scores = keys[group * GROUP : (group + 1) * GROUP]
            for j in range(group_scores.size):
                if group_scores[j] <= least:
                    continue
                column = group * GROUP + j
                score = _dot(x[i], matrix[column]) + bias[column]
                if score > lowest:
                    _insert(values[i], columns[i], score, start + column)
                    lowest = values[i, -1]
                    # The floor rises with the least of the largest: fewer are candidates.
                    if lowest > floor:
                        floor = lowest
                        least = _key_of(floor - error)


@compiled(inline="always")
def _error(errors, row_errors):
    """Return the bound on the errors of a token's scores."""
    return errors[0] * row_errors[0] + errors[1] * row_errors[1] + row_errors[2]


@compiled(fastmath={"contract"})
def _scores(products, scale, row_scales, bias, scores):
    for j in range(scores.size):
        scores[j] = np.float32(products[j]) * (scale * row_scales[j]) + bias[j]


@compiled()
def _in_order(bits):
    """Turn bits of single precision into integers in the order of the numbers."""
    for j in range(bits.size):
        bits[j] = bits[j] ^ ((bits[j] >> np.int32(31)) & np.int32(0x7FFFFFFF))


@compiled()
def _largest_key(keys):
    largest = keys[0]
    for j in range(keys.size):
        largest = max(largest, keys[j])
    return largest


@compiled()
def _key_of(number):
    """Return the integer that ``_in_order`` makes of a number's bits."""
    bits = np.float32(number).view(np.int32)
    return np.int32(bits ^ ((bits >> np.int32(31)) & np.int32(0x7FFFFFFF)))


@compiled()
def _number_of(key):
    """Return the number of a key of ``_key_of``."""
    return np.int32(key ^ ((key >> np.int32(31)) & np.int32(0x7FFFFFFF))).view(np.float32)


@compiled()
def _insert(values, columns, value, column):
    """Replace the last entry, and keep the values falling."""
    position = values.size - 1
    while position > 0 and values[position - 1] < value:
        values[position], columns[position] = values[position - 1], columns[position - 1]
        position -= 1
    values[position], columns[position] = value, column


@compiled()
def fill_up(values, columns, first, last):
    """Fill empty places, after fewer entries above 0, with other columns, none twice."""
    for i in range(first, last):
        column = 0
        for position in range(values.shape[1]):
            if values[i, position] > 0:
                continue
            while np.any(columns[i, :position] == column):
                column += 1
            columns[i, position] = column


@compiled()
def chosen_dots(x, matrix, columns, products, first, last):
    """Write ``x_i · matrix[columns[i, p]]`` to ``products`` [n, k]."""
    for i in range(first, last):
        for position in range(columns.shape[1]):
            products[i, position] = _dot(x[i], matrix[columns[i, position]])


@compiled(fastmath={"contract"})
def sum_rows(places, entries, sums, first, last):
    """Write the sums of weighted rows of a matrix over the entries of each group to ``sums``.

    Args:
        places: start and end of each group in the order of the entries, and the order.
        entries: weights, numbers of rows, and the matrix.
    """
    starts, ends, order = places
    weights, chosen, matrix = entries
    for group in range(first, last):
        total = sums[group]
        total[:] = 0
        for position in range(starts[group], ends[group]):
            weight, row = weights[order[position]], matrix[chosen[order[position]]]
            for j in range(total.size):
                total[j] += weight * row[j]


@compiled()
def exact_maxima(short, tile, bounds, maxima, tokens, first, last):
    """Find the largest output above 0 of each text's tokens, in columns ``first`` to ``last``.

    Only candidates for the largest, within the error bounds, are computed.

    Args:
        short: scores of tokens, text by text; errors of each text and each column.
        tile: for exact outputs.
        bounds: text t has tokens ``bounds[t]`` to ``bounds[t + 1]``.
        maxima, tokens: the results [texts, T]; 0 at first.
    """
    # Out of the loops: each reading of a tuple's array counts a reference.
    products, scales = short.products, short.scales
    x, matrix, bias = tile
    scores = np.empty(STRIP, np.float32)
    least = np.empty(STRIP, np.float32)
    for begin in range(first, last, STRIP):  # whose rows stay in the cache
        end = min(begin + STRIP, last)
        some, bar = scores[: end - begin], least[: end - begin]
        row_scales, summands = short.row_scales[begin:end], short.summands[begin:end]
        for text in range(bounds.size - 1):
            # First pass: the largest score of each column, lowered to the least candidate.
            bar[:] = -np.inf
            for i in range(bounds[text], bounds[text + 1]):
                _scores(products[i, begin:end], scales[i], row_scales, summands, some)
                _raise(bar, some)
            _lower(bar, short.errors[text], short.row_errors[begin:end])
            # Second pass: exact outputs of candidates.
            for i in range(bounds[text], bounds[text + 1]):
                _scores(products[i, begin:end], scales[i], row_scales, summands, some)
                if _number_over(some, bar) == 0:
                    continue
                for j in range(some.size):
                    if some[j] > bar[j]:
                        output = _dot(x[i], matrix[begin + j]) + bias[begin + j]
                        if output > maxima[text, begin + j]:
                            maxima[text, begin + j] = output
                            tokens[text, begin + j] = i


@compiled()
def _number_above(scores, least):
    above = np.int32(0)
    for j in range(scores.size):
        above = np.int32(above + np.int32(scores[j] > least))
    return above


@compiled()
def _number_over(scores, least):
    above = np.int32(0)
    for j in range(scores.size):
        above = np.int32(above + np.int32(scores[j] > least[j]))
    return above


@compiled()
def _raise(largest, scores):
    for j in range(largest.size):
        largest[j] = scores[j] if scores[j] > largest[j] else largest[j]


@compiled()
def _lower(largest, errors, row_errors):
    """Lower the largest scores below every candidate for the maximum above 0."""
    for j in range(largest.size):
        error = errors[0] * row_errors[j, 0] + errors[1] * row_errors[j, 1] + row_errors[j, 2]
        sure = max(largest[j] - error, np.float32(0))
        # Where the largest can't be above 0 there is no candidate.
        largest[j] = sure - error if largest[j] + error > 0 else np.inf


@compiled(fastmath={"reassoc", "contract"})
def _dot(a, b):
    total = np.float32(0)
    for j in range(a.size):
        total += a[j] * b[j]
    return total
