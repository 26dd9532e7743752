"""Operations on tiles of scores on a CPU: largest entries, exact values of rounded ones.

All kernels work on some of the rows, ``first`` to ``last``, without Python's lock: threads share
the rows (``threads.over_rows``).
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

HALF = 1 / 255
"""A little more than the largest relative error of rounding to bfloat16."""

LOWEST, HIGHEST = -(2**15), 2**15 - 1
"""Smallest and largest 16-bit key."""


def keep_largest_reference(
    scores: Floats, start: int, values: Floats, columns: Integers, first: int, last: int
) -> None:
    """Add a tile of scores [n, T], whose columns begin at ``start``, to the largest of each row.

    ``values`` [n, k] are the largest so far, falling, 0 at first, and ``columns`` [n, k] where they
    were found. Of equal ones the first stays.
    """
    added = np.arange(start, start + scores.shape[1])
    for i in range(first, last):
        own = np.concatenate([values[i], scores[i]])
        best = np.argsort(-own, kind="stable")[: values.shape[1]]
        values[i], columns[i] = own[best], np.concatenate([columns[i], added])[best]


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
    products, scales, errors, x, rows, bias, row_scales, row_errors, start, values, columns,
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
        rows, bias, row_scales: of the tile [T, d], [T] and [T].
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
        kept = values[i, -1]
        floor = kept
        rank = maxima.size - values.shape[1]
        if start == 0 and rank >= 0:
            # As many groups as there are places reach it, each in one of its columns at least.
            floor = max(floor, _number_of(np.partition(maxima, rank)[rank]) - error)
        least = _key_of(floor - error)
        for group in range(maxima.size):
            if maxima[group] <= least:
                continue
            part = keys[group * GROUP : (group + 1) * GROUP]
            for j in range(part.size):
                if part[j] <= least:
                    continue
                column = group * GROUP + j
                score = _dot(x[i], rows[column]) + bias[column]
                if score > kept:
                    _insert(values[i], columns[i], score, start + column)
                    kept = values[i, -1]
                    if kept > floor:
                        floor = kept
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
def dot_products(x, rows, columns, products, first, last):  # pragma: no cover - compiled
    """Write ``x_i · rows[columns_ij]`` to ``products`` [n, c], for x [n, d]."""
    for i in range(first, last):
        for place in range(columns.shape[1]):
            products[i, place] = _dot(x[i], rows[columns[i, place]])


@compiled()
def ragged_dots(x, rows, starts, columns, products, first, last):  # pragma: no cover - compiled
    """Write ``x_i · rows[columns_p]`` to ``products``, for p from ``starts[i]`` to
    ``starts[i + 1]``."""
    for i in range(first, last):
        for place in range(starts[i], starts[i + 1]):
            products[place] = _dot(x[i], rows[columns[place]])


@compiled()
def count_above(bits, errors, row_errors, counts, first, last):  # pragma: no cover - compiled
    """Count the bfloat16 scores of each token that may stand for numbers above 0.

    Args:
        bits: scores [n, T] in bfloat16, as signed integers. Those of token i are off by at most
            ``errors[i] · row_errors[:2] + row_errors[2]``, and by 1/256 of themselves.
        errors: [n, 2]
        row_errors: [3]
        counts: the results [n].
    """
    keys = np.empty(bits.shape[1], np.int16)
    for i in range(first, last):
        error = errors[i, 0] * row_errors[0] + errors[i, 1] * row_errors[1] + row_errors[2]
        least = _key_below(np.float32(0), error)
        _keys(bits[i], keys)
        above = 0
        for j in range(keys.size):
            above += keys[j] > least
        counts[i] = above


@compiled()
def fill_above(
    bits, errors, row_errors, x, rows, bias, floor, starts, counts, columns, outputs, first, last
):  # pragma: no cover - compiled
    """Write the columns of each token whose exact scores are above a floor, and these scores.

    Args:
        bits, errors, row_errors: see ``count_above``.
        x: tokens [n, d].
        rows, bias, floor: of the tile [T, d], [T] and [T].
        starts: place of each token's first column [n + 1], with room for every candidate.
        counts: number of each token's columns [n], a result.
        columns, outputs: the columns and scores, results.
    """
    keys = np.empty(bits.shape[1], np.int16)
    for i in range(first, last):
        counts[i] = 0
        if starts[i] == starts[i + 1]:
            continue
        error = errors[i, 0] * row_errors[0] + errors[i, 1] * row_errors[1] + row_errors[2]
        least = _key_below(np.float32(0), error)
        _keys(bits[i], keys)
        for begin in range(0, keys.size, BLOCK):
            part = keys[begin : begin + BLOCK]
            above = 0
            for j in range(part.size):
                above += part[j] > least
            if above == 0:
                continue
            for j in range(begin, begin + part.size):
                if keys[j] <= least:
                    continue
                output = _dot(x[i], rows[j]) + bias[j]
                if output > floor[j]:
                    columns[starts[i] + counts[i]] = j
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
def add_products(starts, columns, values, rows, sums, first, last):  # pragma: no cover - compiled
    """Add up, for each column from ``first`` to ``last``, the products of its row and the values of
    the tokens that have an entry of it.

    Args:
        starts: place of each token's first entry [n + 1].
        columns: of the entries, ascending in each token.
        values: [n, d].
        rows: [M, d].
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
                sums[columns[place]] += _dot(values[i], rows[columns[place]])
                place += 1
            places[i] = place


@compiled()
def exact_maxima(
    bits, errors, x, bounds, rows, bias, row_errors, maxima, tokens, first, last
):  # pragma: no cover - compiled
    """Find the largest output above 0 of each text's tokens, in columns ``first`` to ``last``.

    Only candidates for the largest, within the error bounds, are computed.

    Args:
        bits: outputs [n, T] in bfloat16, as signed integers. Those of a text's tokens in column j
            are off by at most ``errors[text] · row_errors[j, :2] + row_errors[j, 2]``, and by 1/256
            of themselves.
        errors: [texts, 2]
        x: tokens [n, d], text by text.
        bounds: text t has tokens ``bounds[t]`` to ``bounds[t + 1]``.
        rows, bias: of the tile [T, d] and [T].
        row_errors: [T, 3]
        maxima, tokens: the results [texts, T]; 0 at first.
    """
    keys = np.empty(STRIP, np.int16)
    best = np.empty(STRIP, np.int16)
    for begin in range(first, last, STRIP):  # whose rows stay in the cache
        width = min(STRIP, last - begin)
        for text in range(bounds.size - 1):
            best[:] = LOWEST
            for i in range(bounds[text], bounds[text + 1]):
                _keys(bits[i, begin : begin + width], keys)
                for j in range(width):
                    best[j] = max(best[j], keys[j])
            _lower(best[:width], errors[text], row_errors[begin : begin + width])
            for i in range(bounds[text], bounds[text + 1]):
                _keys(bits[i, begin : begin + width], keys)
                reached = 0
                for j in range(width):
                    reached += keys[j] > best[j]
                if reached == 0:
                    continue
                for j in range(width):
                    if keys[j] > best[j]:
                        output = _dot(x[i], rows[begin + j]) + bias[begin + j]
                        if output > maxima[text, begin + j]:
                            maxima[text, begin + j] = output
                            tokens[text, begin + j] = i


@compiled(inline="always")
def _keys(bits, keys):  # pragma: no cover - compiled
    """Write integers in the order of the numbers that have these bits to ``keys``."""
    for j in range(bits.size):
        keys[j] = bits[j] ^ ((bits[j] >> np.int16(15)) & np.int16(0x7FFF))


@compiled()
def _lower(best, errors, row_errors):  # pragma: no cover - compiled
    """Lower the keys of maxima to keys below every candidate for the maximum above 0."""
    for j in range(best.size):
        error = row_errors[j, 2]
        for part in range(errors.size):
            error += errors[part] * row_errors[j, part]
        number = _number(best[j])
        if number + abs(number) * HALF + error <= 0:
            best[j] = HIGHEST
        else:
            best[j] = _key_below(np.float32(number - abs(number) * HALF - error), error)


@compiled()
def _number(key):  # pragma: no cover - compiled
    """Return the bfloat16 number of a key."""
    word = np.empty(1, np.uint32)
    word[0] = np.uint32(key ^ ((key >> 15) & 0x7FFF)) << np.uint32(16)
    return word.view(np.float32)[0]


@compiled()
def _key_below(number, error):  # pragma: no cover - compiled
    """Return a key below those of all bfloat16 scores that may stand for this number or more."""
    least = np.empty(1, np.float32)
    least[0] = number - error
    least[0] -= abs(least[0]) * HALF
    bits = np.int64(least.view(np.uint32)[0] >> np.uint32(16))
    key = (bits if bits <= HIGHEST else 0xFFFF - bits + LOWEST) - 1
    return np.int16(key if key > LOWEST else LOWEST)


@compiled(fastmath={"reassoc", "contract"})
def _dot(a, b):  # pragma: no cover - compiled
    total = np.float32(0)
    for j in range(a.size):
        total += a[j] * b[j]
    return total
