"""Numbers rounded to 8 bits, which some CPUs multiply faster, with bounds on the error."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lexicept.kernels.compiled import compiled, over_rows

ROUNDING = 2.0**-24
"""Relative rounding error of one operation in single precision."""

SMALLEST = 2.0**-126
"""Smallest number of full precision."""

MANY = 64
"""Tokens from which rounding a matrix pays."""

LARGEST_DIM = 2**17
"""Most dimensions of rows: sums of more products might not fit 32 bits."""

LARGEST = 127
"""Largest 8-bit number."""


@cache
def multiplies_bytes() -> bool:
    """Return True if this CPU adds up products of 8-bit numbers and torch uses the instructions;
    without, sums may not be exact."""
    if not has_instructions("avx512_vnni", "amx_int8"):
        return False
    most = torch.full((64, 64), LARGEST, dtype=torch.int8)
    signs = torch.tensor([1, -1], dtype=torch.int8).repeat(32)
    return all(
        torch.equal(torch._int_mm(most, other), most.int() @ other.int())
        for other in (most, -most, most * signs)
    )


def choose_by_bytes(x: Tensor, matrix: Tensor) -> bool:
    """Return True if products of 8 bits choose candidates among products of x [n, d] and a matrix
    [V, d]: in single precision, for many tokens, on a CPU with 8-bit products."""
    fits = len(x) >= MANY and x.shape[1] <= LARGEST_DIM
    return fits and single_on_cpu(x, matrix) and multiplies_bytes()


def single_on_cpu(x: Tensor, matrix: Tensor) -> bool:
    """Return True if kernels take both: single precision in a CPU's memory."""
    return x.dtype == matrix.dtype == torch.float32 and x.device.type == "cpu"


def has_instructions(*names: str) -> bool:
    """Return True if this CPU has any of these instruction sets; torch 2.6 knows none."""
    read: Callable[[], dict[str, object]] = getattr(torch.cpu, "get_capabilities", dict)
    capabilities = read()
    return any(capabilities.get(name) for name in names)


class Quantised(NamedTuple):
    """Numbers [n, d] as 8-bit integers times a scale for each row."""

    numbers: Tensor
    norms: Tensor
    """The norm of each row before rounding [n]."""
    errors: Tensor
    """The norm of each row's rounding errors [n]."""
    scales: Tensor
    """[n]"""

    def factors(self) -> Tensor:
        """Return the factors of a row's norm and error that bound the error of products [n, 2].

        With x = x̃ + δ and a row w = w̃ + ε, where x̃ and w̃ are rounded, the products differ by
        ``|x·w − x̃·w̃| ≤ ‖δ‖ ‖w‖ + ‖x̃‖ ‖ε‖``, plus rounding errors: d of an exact sum, d / 2 of each
        norm of errors, and at most 17 of single operations.
        """
        sums = 4 * (self.numbers.shape[1] + 4) * ROUNDING
        return torch.stack([self.errors + sums * self.norms, self.norms + self.errors], dim=1)


def worst_errors(tile: Quantised, summand: Tensor) -> Tensor:
    """Return coefficients [3] of a token's two factors and of 1 in the bound on the error of its
    outputs: largest norm and largest error of a tile [T, d], and error of adding summands [T]."""
    return torch.stack([tile.norms.max(), tile.errors.max(), summed_errors(tile, summand).max()])


def summed_errors(tile: Quantised, summand: Tensor) -> Tensor:
    """Return bounds on the errors of adding a summand to a product of each row [T]: at most four
    roundings of the summand, and what is lost of numbers below ``SMALLEST``."""
    lost = (tile.numbers.shape[1] + 4) * 2.0**-134
    return 4 * ROUNDING * summand.abs() + lost


def quantised(numbers: Tensor) -> Quantised:
    """Round numbers [n, d] to 8 bits, in units of a 127th of each row's largest."""
    rounded = np.empty(numbers.shape, np.int8)
    norms, errors, scales = (np.empty(len(numbers), np.float32) for _ in range(3))
    fill = partial(quantise, numbers.numpy(), rounded, norms, errors, scales)
    over_rows(fill, len(numbers), torch.get_num_threads())
    return Quantised(*map(torch.from_numpy, (rounded, norms, errors, scales)))


def products(a: Quantised, b: Quantised) -> Tensor:
    """Return the products of the 8-bit numbers of all rows of a [n, d] and b [m, d], exact 32-bit
    integers [n, m] for d up to 133,000."""
    if a.numbers.shape[1] == 1:  # torch 2.13 returns unwritten memory
        return a.numbers.int() * b.numbers.int().T
    return torch._int_mm(a.numbers, b.numbers.T)


@compiled()
def quantise(numbers, rounded, norms, errors, scales, first, last):
    """Round single precision [n, d] to multiples of a scale for each row, to nearest, ties to even.

    The results are those of ``Quantised``. Norms are not finite where a row is not. Rows of tiny
    numbers are rounded to 0.
    """
    for i in range(first, last):
        largest = _largest(numbers[i].view(np.int32))
        scale = largest / np.float32(LARGEST)
        if scale < SMALLEST:
            # Squares of such numbers would vanish: the bound is √d of the largest.
            rounded[i], scales[i] = 0, 0
            norms[i] = errors[i] = largest * np.float32(1.001 * np.sqrt(numbers.shape[1]))
            continue
        # In units of the scale no square overflows.
        length, error = _rounded(numbers[i], np.float32(1) / scale, rounded[i])
        scales[i] = scale
        norms[i], errors[i] = scale * np.sqrt(length), scale * np.sqrt(error)


@compiled()
def _largest(bits):
    """Return the largest magnitude of numbers with these bits; a NaN is the largest of all."""
    largest = np.int32(0)
    for j in range(bits.size):
        largest = max(largest, np.int32(bits[j] & np.int32(0x7FFFFFFF)))
    return np.int32(largest).view(np.float32)


@compiled(fastmath={"reassoc", "contract"})
def _rounded(numbers, per_scale, rounded):
    """Return the squared norms of numbers in units of a scale and of their rounding errors."""
    length, error = np.float32(0), np.float32(0)
    for j in range(numbers.size):
        number = numbers[j] * per_scale
        nearest = np.rint(number)
        rounded[j] = np.int8(nearest)
        length += number * number
        error += (number - nearest) * (number - nearest)
    return length, error
