"""Operations on tiles of scores on a CPU: largest entries, exact values of rounded ones.

All kernels work on some of the rows, ``first`` to ``last``, without Python's lock: threads share
the rows (``compiled.over_rows``).
"""

from __future__ import annotations

import numpy as np

from lexicept.ops.compiled import compiled
from lexicept.vectors import Floats, Integers

BLOCK = 64
"""Entries whose maximum is compared with the least of the largest at once."""

GROUP = 32
"""Scores whose maximum is compared with the least candidate at once."""

STRIP = 128
"""Columns whose rows are in use together."""


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
def keep_largest(scores, start, values, columns, first, last):  # pragma: no cover - compiled
    """Compiled version of ``keep_largest_reference``."""
    for i in range(first, last):
        for begin in range(0, scores.shape[1], BLOCK):
            block = scores[i, begin : begin + BLOCK]
            above = 0
            for j in range(block.size):
                above += block[j] > values[i, -1]
            if above == 0:
                continue
            for j in range(block.size):
                if block[j] > values[i, -1]:
                    _insert(values[i], columns[i], block[j], start + begin + j)


@compiled()
def keep_largest_of_bytes(
    products, scales, errors, x, matrix, bias, row_scales, row_errors, start, values, columns,
    first, last,
):  # fmt: skip  # pragma: no cover - compiled
    """Add a tile of scores: only candidates for the largest, within the error bounds, are computed
    in single precision.

    Args:
        products: of 8-bit numbers, int32 [n, T]. Scores ``products[i, j] · scales[i] ·
            row_scales[j] + bias[j]`` are off by at most ``errors[i] · row_errors[:2] +
            row_errors[2]``.
        scales: [n]
        errors: [n, 2]
        x: tokens [n, d].
        matrix, bias, row_scales: of the tile [T, d], [T] and [T].
        row_errors: [3]
    """
    size = bias.size
    scores = np.empty(size, np.float32)
    keys = scores.view(np.int32)
    maxima = np.empty(-(-size // GROUP), np.int32)
    for i in range(first, last):
        error = errors[i, 0] * row_errors[0] + errors[i, 1] * row_errors[1] + row_errors[2]
        _scores(products[i], scales[i], row_scales, bias, scores)
        _in_order(keys)
        for group in range(maxima.size):
            maxima[group] = _largest_key(keys[group * GROUP : (group + 1) * GROUP])
        lowest = values[i, -1]
        floor = lowest
        rank = maxima.size - values.shape[1]
        if start == 0 and rank >= 0:
            # As many groups as there are places reach it, each in one of its columns at least.
            floor = max(floor, _number_of(np.partition(maxima, rank)[rank]) - error)
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
                    if lowest > floor:
                        floor = lowest
                        least = _key_of(floor - error)


@compiled(fastmath={"contract"})
def _scores(products, scale, row_scales, bias, scores):  # pragma: no cover - compiled
    for j in range(scores.size):
        scores[j] = np.float32(products[j]) * (scale * row_scales[j]) + bias[j]


@compiled()
def _in_order(bits):  # pragma: no cover - compiled
    """Turn bits of single precision into integers in the order of the numbers."""
    for j in range(bits.size):
        bits[j] = bits[j] ^ ((bits[j] >> np.int32(31)) & np.int32(0x7FFFFFFF))


@compiled()
def _largest_key(keys):  # pragma: no cover - compiled
    largest = keys[0]
    for j in range(keys.size):
        largest = max(largest, keys[j])
    return largest


@compiled()
def _key_of(number):  # pragma: no cover - compiled
    """Return the integer that ``_in_order`` makes of a number's bits."""
    bits = np.float32(number).view(np.int32)
    return np.int32(bits ^ ((bits >> np.int32(31)) & np.int32(0x7FFFFFFF)))


@compiled()
def _number_of(key):  # pragma: no cover - compiled
    """Return the number of a key of ``_key_of``."""
    return np.int32(key ^ ((key >> np.int32(31)) & np.int32(0x7FFFFFFF))).view(np.float32)


@compiled()
def _insert(values, columns, value, column):  # pragma: no cover - compiled
    """Replace the last entry, and keep the values falling."""
    place = values.size - 1
    while place > 0 and values[place - 1] < value:
        values[place], columns[place] = values[place - 1], columns[place - 1]
        place -= 1
    values[place], columns[place] = value, column


@compiled()
def fill_up(values, columns, first, last):  # pragma: no cover - compiled
    """Fill empty places, after fewer entries above 0, with other columns, none twice."""
    for i in range(first, last):
        column = 0
        for place in range(values.shape[1]):
            if values[i, place] > 0:
                continue
            while np.any(columns[i, :place] == column):
                column += 1
            columns[i, place] = column


@compiled()
def ragged_dots(x, matrix, starts, columns, products, first, last):  # pragma: no cover - compiled
    """Write ``x_i · matrix[columns_p]`` to ``products``, for p from ``starts[i]`` to
    ``starts[i + 1]``."""
    for i in range(first, last):
        for place in range(starts[i], starts[i + 1]):
            products[place] = _dot(x[i], matrix[columns[place]])


@compiled()
def count_above(
    products, scales, errors, row_scales, lifted, row_errors, counts, first, last
):  # pragma: no cover - compiled
    """Count the outputs of each token that may be above their floors.

    Args:
        products: of 8-bit numbers, int32 [n, T]. Outputs less their floors are ``products[i, j] ·
            scales[i] · row_scales[j] + lifted[j]``, off by at most ``errors[i] · row_errors[:2] +
            row_errors[2]``.
        scales: [n]
        errors: [n, 2]
        row_scales, lifted: of the tile [T], the latter biases less floors.
        row_errors: [3]
        counts: the results [n].
    """
    scores = np.empty(lifted.size, np.float32)
    for i in range(first, last):
        error = errors[i, 0] * row_errors[0] + errors[i, 1] * row_errors[1] + row_errors[2]
        _scores(products[i], scales[i], row_scales, lifted, scores)
        counts[i] = _number_above(scores, -error)


@compiled()
def fill_above(
    products, scales, errors, row_scales, lifted, row_errors, x, matrix, bias, floor, starts,
    counts, columns, outputs, first, last,
):  # fmt: skip  # pragma: no cover - compiled
    """Write the columns of each token whose exact outputs are above a floor, and these outputs.

    Args:
        products, scales, errors, row_scales, lifted, row_errors: see ``count_above``.
        x: tokens [n, d].
        matrix, bias, floor: of the tile [T, d], [T] and [T].
        starts: place of each token's first column [n + 1], with room for every candidate.
        counts: number of each token's columns [n], a result.
        columns, outputs: the columns and outputs, results.
    """
    scores = np.empty(lifted.size, np.float32)
    for i in range(first, last):
        counts[i] = 0
        if starts[i] == starts[i + 1]:
            continue
        error = errors[i, 0] * row_errors[0] + errors[i, 1] * row_errors[1] + row_errors[2]
        _scores(products[i], scales[i], row_scales, lifted, scores)
        for begin in range(0, scores.size, GROUP):
            group_scores = scores[begin : begin + GROUP]
            if _number_above(group_scores, -error) == 0:
                continue
            for j in range(group_scores.size):
                if group_scores[j] <= -error:
                    continue
                column = begin + j
                output = _dot(x[i], matrix[column]) + bias[column]
                if output > floor[column]:
                    columns[starts[i] + counts[i]] = column
                    outputs[starts[i] + counts[i]] = output
                    counts[i] += 1


@compiled()
def count_over(scores, floor, counts, first, last):  # pragma: no cover - compiled
    """Count the scores [n, M] of each token that are not at most their floors [M]."""
    for i in range(first, last):
        over = 0
        for j in range(floor.size):
            over += not scores[i, j] <= floor[j]
        counts[i] = over


@compiled()
def fill_over(
    scores, floor, starts, counts, columns, outputs, first, last
):  # pragma: no cover - compiled
    """Write the columns of each token whose scores are above their floors, and the first NaN's; see
    ``fill_above``."""
    for i in range(first, last):
        counts[i], lost = 0, False
        for begin in range(0, floor.size, BLOCK):
            end = min(begin + BLOCK, floor.size)
            over = 0
            for j in range(begin, end):
                over += not scores[i, j] <= floor[j]
            if over == 0:
                continue
            for j in range(begin, end):
                first_lost = scores[i, j] != scores[i, j] and not lost
                if scores[i, j] > floor[j] or first_lost:
                    columns[starts[i] + counts[i]] = j
                    outputs[starts[i] + counts[i]] = scores[i, j]
                    counts[i] += 1
                    lost = lost or first_lost


@compiled()
def add_products(starts, columns, values, matrix, sums, first, last):  # pragma: no cover - compiled
    """Add up, for each column from ``first`` to ``last``, the products of its row and the values of
    the tokens that have an entry of it.

    Args:
        starts: place of each token's first entry [n + 1].
        columns: of the entries, ascending in each token.
        values: [n, d].
        matrix: [M, d].
        sums: the results [M], in double precision.
    """
    places = np.empty(starts.size - 1, np.int64)
    for i in range(places.size):
        places[i] = starts[i] + np.searchsorted(columns[starts[i] : starts[i + 1]], first)
    for begin in range(first, last, STRIP):  # whose rows stay in the cache
        end = min(begin + STRIP, last)
        for i in range(places.size):
            place = places[i]
            while place < starts[i + 1] and columns[place] < end:
                sums[columns[place]] += _dot(values[i], matrix[columns[place]])
                place += 1
            places[i] = place


@compiled()
def exact_maxima(
    products, scales, errors, x, bounds, matrix, bias, row_scales, row_errors, maxima, tokens,
    first, last,
):  # fmt: skip  # pragma: no cover - compiled
    """Find the largest output above 0 of each text's tokens, in columns ``first`` to ``last``.

    Only candidates for the largest, within the error bounds, are computed.

    Args:
        products: of 8-bit numbers, int32 [n, T]. Outputs ``products[i, j] · scales[i] ·
            row_scales[j] + bias[j]`` of a text's tokens are off by at most ``errors[text] ·
            row_errors[j, :2] + row_errors[j, 2]``.
        scales: [n]
        errors: [texts, 2]
        x: tokens [n, d], text by text.
        bounds: text t has tokens ``bounds[t]`` to ``bounds[t + 1]``.
        matrix, bias, row_scales: of the tile [T, d], [T] and [T].
        row_errors: [T, 3]
        maxima, tokens: the results [texts, T]; 0 at first.
    """
    scores = np.empty(STRIP, np.float32)
    least = np.empty(STRIP, np.float32)
    for begin in range(first, last, STRIP):  # whose rows stay in the cache
        end = min(begin + STRIP, last)
        some, bar = scores[: end - begin], least[: end - begin]
        own_scales, own_bias = row_scales[begin:end], bias[begin:end]
        for text in range(bounds.size - 1):
            bar[:] = -np.inf
            for i in range(bounds[text], bounds[text + 1]):
                _scores(products[i, begin:end], scales[i], own_scales, own_bias, some)
                _raise(bar, some)
            _lower(bar, errors[text], row_errors[begin:end])
            for i in range(bounds[text], bounds[text + 1]):
                _scores(products[i, begin:end], scales[i], own_scales, own_bias, some)
                if _number_over(some, bar) == 0:
                    continue
                for j in range(some.size):
                    if some[j] > bar[j]:
                        output = _dot(x[i], matrix[begin + j]) + bias[begin + j]
                        if output > maxima[text, begin + j]:
                            maxima[text, begin + j] = output
                            tokens[text, begin + j] = i


@compiled()
def _number_above(scores, least):  # pragma: no cover - compiled
    above = np.int32(0)
    for j in range(scores.size):
        above = np.int32(above + np.int32(scores[j] > least))
    return above


@compiled()
def _number_over(scores, least):  # pragma: no cover - compiled
    above = np.int32(0)
    for j in range(scores.size):
        above = np.int32(above + np.int32(scores[j] > least[j]))
    return above


@compiled()
def _raise(largest, scores):  # pragma: no cover - compiled
    for j in range(largest.size):
        largest[j] = scores[j] if scores[j] > largest[j] else largest[j]


@compiled()
def _lower(largest, errors, row_errors):  # pragma: no cover - compiled
    """Lower the largest scores below every candidate for the maximum above 0."""
    for j in range(largest.size):
        error = errors[0] * row_errors[j, 0] + errors[1] * row_errors[j, 1] + row_errors[j, 2]
        sure = max(largest[j] - error, np.float32(0))
        # Where the largest can't be above 0 there is no candidate.
        largest[j] = sure - error if largest[j] + error > 0 else np.inf


@compiled(fastmath={"reassoc", "contract"})
def _dot(a, b):  # pragma: no cover - compiled
    total = np.float32(0)
    for j in range(a.size):
        total += a[j] * b[j]
    return total
