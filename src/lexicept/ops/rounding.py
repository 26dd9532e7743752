"""Numbers rounded to 16 or 8 bits, which some CPUs multiply faster, with bounds on what is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

from lexicept.ops.compiled import compiled
from lexicept.ops.threads import over_rows

ROUNDING = 2.0**-24
"""Relative rounding error of one operation in single precision."""

LARGEST = 127
"""Largest 8-bit number."""


@cache
def multiplies_bfloat16() -> bool:
    """Return whether this CPU has instructions that multiply bfloat16."""
    return _has("avx512_bf16", "amx_bf16")


@cache
def multiplies_bytes() -> bool:
    """Return whether this CPU has instructions that add up products of 8-bit numbers."""
    return _has("avx512_vnni", "amx_int8")


def _has(*names: str) -> bool:
    read: Callable[[], dict[str, object]] = getattr(torch.cpu, "get_capabilities", dict)
    capabilities = read()  # none by torch 2.6
    return any(capabilities.get(name) for name in names)


@dataclass(frozen=True)
class Rounded:
    """Numbers [n, d] in bfloat16."""

    numbers: Tensor
    norms: Tensor
    """The norm of each row before rounding [n]."""
    errors: Tensor
    """The norm of each row's rounding errors [n]."""

    def factors(self) -> Tensor:
        """Return the factors of a row's norm and error that bound the error of products [n, 2].

        With x = x̃ + δ and a row w = w̃ + ε, where x̃ and w̃ are rounded, the products differ by
        ``|x·w − x̃·w̃| ≤ ‖δ‖ ‖w‖ + ‖x̃‖ ‖ε‖``, plus the rounding errors of additions.
        """
        sums = 4 * (self.numbers.shape[1] + 4) * ROUNDING
        return torch.stack([self.errors + sums * self.norms, self.norms + self.errors], dim=1)


@dataclass(frozen=True)
class Quantised(Rounded):
    """Numbers [n, d] as 8-bit integers times a scale for each row."""

    scales: Tensor
    """[n]"""


def narrowed(numbers: Tensor) -> Rounded:
    """Round numbers [n, d] to bfloat16."""
    bits = np.empty(numbers.shape, np.uint16)
    norms, errors = _over_rows(narrow, numbers, bits, 2)
    return Rounded(torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16), norms, errors)


def quantised(numbers: Tensor) -> Quantised:
    """Round numbers [n, d] to 8 bits, in units of a 127th of each row's largest."""
    rounded = np.empty(numbers.shape, np.int8)
    norms, errors, scales = _over_rows(quantise, numbers, rounded, 3)
    return Quantised(torch.from_numpy(rounded), norms, errors, scales)


def _over_rows(
    kernel: Callable[..., None], numbers: Tensor, rounded: np.ndarray, facts: int
) -> list[Tensor]:
    """Round rows; return the facts of each row that the kernel writes [n]."""
    found = [np.empty(len(numbers), np.float32) for _ in range(facts)]
    threads = torch.get_num_threads()
    over_rows(kernel, len(numbers), threads, numbers.numpy(), rounded, *found)
    return [torch.from_numpy(fact) for fact in found]


@compiled()
def narrow(numbers, narrowed, norms, errors, first, last):  # pragma: no cover - compiled
    """Round single precision [n, d] to the bits of bfloat16, to nearest, ties to even.

    Each row's norm is written to ``norms`` [n], the norm of its rounding errors to ``errors`` [n];
    they are not finite where a row is not.
    """
    bits = numbers.view(np.uint32)
    rounded = np.empty(numbers.shape[1], np.uint32)
    back = rounded.view(np.float32)
    for i in range(first, last):
        for j in range(numbers.shape[1]):
            half = np.uint32(0x7FFF) + ((bits[i, j] >> np.uint32(16)) & np.uint32(1))
            rounded[j] = (bits[i, j] + half) & np.uint32(0xFFFF0000)
            narrowed[i, j] = np.uint16(rounded[j] >> np.uint32(16))
        norms[i], errors[i] = _norms(numbers[i], back)


@compiled(fastmath={"reassoc", "contract"})
def _norms(numbers, rounded):  # pragma: no cover - compiled
    """Return the norms of numbers and of their rounding errors; squares of small numbers are not 0
    in double precision."""
    length, error = 0.0, 0.0
    for j in range(numbers.size):
        number = np.float64(numbers[j])
        lost = number - np.float64(rounded[j])
        length += number * number
        error += lost * lost
    return np.sqrt(length), np.sqrt(error)


@compiled()
def quantise(numbers, quantised, norms, errors, scales, first, last):  # pragma: no cover - compiled
    """Round single precision [n, d] to multiples of ``scales`` [n], to nearest, ties to even; see
    ``narrow``."""
    for i in range(first, last):
        scale = _largest(numbers[i].view(np.int32)) / np.float32(LARGEST)
        per_scale = np.float32(1) / scale if scale > 0 else np.float32(0)
        length, error = _rounded(numbers[i], per_scale, quantised[i])
        scales[i] = scale
        norms[i], errors[i] = scale * np.sqrt(length), scale * np.sqrt(error)


@compiled()
def _largest(bits):  # pragma: no cover - compiled
    """Return the largest magnitude of numbers with these bits; a NaN is the largest of all."""
    largest = np.int32(0)
    for j in range(bits.size):
        largest = max(largest, np.int32(bits[j] & np.int32(0x7FFFFFFF)))
    return np.int32(largest).view(np.float32)


@compiled(fastmath={"reassoc", "contract"})
def _rounded(numbers, per_scale, rounded):  # pragma: no cover - compiled
    """Return the squared norms of numbers in units of a scale and of their rounding errors."""
    length, error = np.float32(0), np.float32(0)
    for j in range(numbers.size):
        number = numbers[j] * per_scale
        nearest = np.rint(number)
        rounded[j] = np.int8(nearest)
        length += number * number
        error += (number - nearest) * (number - nearest)
    return length, error
