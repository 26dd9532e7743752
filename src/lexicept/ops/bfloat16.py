"""Operations on rows of bfloat16 in one pass on a CPU; torch takes several."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lexicept.ops.compiled import compiled, over_rows
from lexicept.vectors import Floats

LOG2E = np.float32(1.4426950408889634)

SHIFT = np.float32(1.5 * 2**23)
"""Added to a number of at most 2²², leaves the nearest integer in the lowest bits."""

POWERS = tuple(np.float32(c) for c in (0.99992807, 0.69326099, 0.24261112, 0.05517166))
"""Coefficients of a polynomial for 2^f, with relative error 0.0001, for f from -1/2 to 1/2."""

LEAST = np.float32(-126)
"""Smallest exponent; powers of 2 below count as the smallest."""


class Norm(NamedTuple):
    """Settings of a layer norm, as kernels take them."""

    weight: Floats
    bias: Floats
    eps: np.float32


def softmax_(scores: Tensor, lengths: Tensor) -> None:
    """Replace contiguous bfloat16 scores [n, rows, L] on a CPU by the softmax of the first numbers
    of each row, as many as ``lengths`` [n], and zeros; a NaN makes its row NaN."""
    bits = _bits(scores)
    over_rows(partial(softmax_rows, bits, lengths.numpy()), len(bits), torch.get_num_threads())


def add_norm_(x: Tensor, added: Tensor, weight: Tensor, bias: Tensor, eps: float) -> None:
    """Replace contiguous ``x`` on a CPU by the layer norm of ``x + added``, and ``added`` by the
    same in bfloat16.

    Args:
        x: [n, d]
        added: in bfloat16 [n, d].
        weight, bias, eps: of the norm, [d], [d] and a number.
    """
    norm = Norm(weight.numpy(), bias.numpy(), np.float32(eps))
    add_norm = partial(add_norm_rows, x.numpy(), _bits(added), norm)
    over_rows(add_norm, len(x), torch.get_num_threads())


def _bits(halves: Tensor) -> np.ndarray:
    return halves.view(torch.int16).numpy()


@compiled()
def softmax_rows(bits, lengths, first, last):
    """Do ``softmax_`` with bfloat16 as signed integers [n, rows, L]."""
    room = np.empty(bits.shape[2], np.float32)
    for i in range(first, last):
        powers = room[: lengths[i]]
        bits[i, :, lengths[i] :] = 0
        for j in range(bits.shape[1]):
            row = bits[i, j, : lengths[i]]
            # Subtracting the largest keeps powers from overflowing.
            key = _largest_key(row)
            largest = _number(key ^ ((key >> np.int16(15)) & np.int16(0x7FFF)))
            _powers(row, largest, powers)
            _narrow_product(powers, np.float32(1) / _sum(powers), row)


@compiled()
def add_norm_rows(x, halves, norm, first, last):
    """Replace ``x`` [n, d] and ``halves`` [n, d], bfloat16 as signed integers, by the layer norm of
    their sum."""
    total = np.empty(x.shape[1], np.float32)
    size = np.float32(total.size)
    for i in range(first, last):
        _add(x[i], halves[i], total)
        mean = _sum(total) / size
        variance = _sum_of_squares(total, mean) / size
        _normalise(total, mean, np.float32(1) / np.sqrt(variance + norm.eps), norm, x[i])
        _narrow_product(x[i], np.float32(1), halves[i])


@compiled(inline="always")
def _number(bits):
    """Return the bfloat16 number that has these bits."""
    return np.int32(np.int32(bits) << np.int32(16)).view(np.float32)


@compiled(inline="always")
def _half(number):
    """Return the bits of a number's bfloat16, to nearest, ties to even."""
    word = np.float32(number).view(np.int32)
    # Half a unit of the kept bits, less one if they are even, carries to the nearest.
    odd = np.int32((word >> np.int32(16)) & np.int32(1))
    return np.int16(np.int32(np.int32(word + np.int32(0x7FFF)) + odd) >> np.int32(16))


@compiled()
def _largest_key(bits):
    """Return the largest of bits as integers in the order of the numbers."""
    largest = np.int16(-(2**15))
    for j in range(bits.size):
        key = np.int16(bits[j] ^ ((bits[j] >> np.int16(15)) & np.int16(0x7FFF)))
        largest = max(largest, key)
    return largest


@compiled(fastmath={"contract"})
def _powers(bits, largest, powers):
    """Write ``exp`` of scores, less the largest, to ``powers``: 2^n from the bits of an exponent n,
    times a polynomial for the rest."""
    for j in range(bits.size):
        exponent = (_number(bits[j]) - largest) * LOG2E
        # Smaller powers would have no exponent to write; they are 0 beside the largest.
        exponent = LEAST if exponent < LEAST else exponent
        # The sum with SHIFT rounds to an integer, which stands in the lowest bits.
        whole = np.float32(exponent + SHIFT)
        fraction = exponent - (whole - SHIFT)
        power = POWERS[0] + fraction * (POWERS[1] + fraction * (POWERS[2] + fraction * POWERS[3]))
        # Shifted into the exponent's place and added, the integer multiplies by 2^n.
        scale = np.int32(whole.view(np.int32) << np.int32(23))
        powers[j] = np.int32(np.float32(power).view(np.int32) + scale).view(np.float32)


@compiled(fastmath={"reassoc"})
def _sum(numbers):
    total = np.float32(0)
    for j in range(numbers.size):
        total += numbers[j]
    return total


@compiled(fastmath={"reassoc", "contract"})
def _sum_of_squares(numbers, mean):
    total = np.float32(0)
    for j in range(numbers.size):
        total += (numbers[j] - mean) * (numbers[j] - mean)
    return total


@compiled()
def _add(x, halves, total):
    for j in range(x.size):
        total[j] = x[j] + _number(halves[j])


@compiled(fastmath={"contract"})
def _normalise(numbers, mean, scale, norm, x):
    weight, bias = norm.weight, norm.bias
    for j in range(x.size):
        x[j] = (numbers[j] - mean) * scale * weight[j] + bias[j]


@compiled()
def _narrow_product(numbers, factor, bits):
    for j in range(bits.size):
        bits[j] = _half(numbers[j] * factor)
