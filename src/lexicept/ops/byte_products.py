"""Linear layers in 8 bits on a CPU, and what follows them in a transformer's block, row by row."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lexicept.ops.bfloat16 import _narrow_product, _power, _sum, _sum_of_squares
from lexicept.ops.compiled import compiled, over_rows
from lexicept.ops.quantisation import SMALLEST, quantised
from lexicept.ops.tile_kernels import _key_of, _number_of
from lexicept.vectors import Floats, Integers

FARTHEST = np.float32(7)
LOGIT = tuple(np.float32(c) for c in (-2.30126894, -0.106638977, 0.000991684195))
"""Coefficients of x, x³ and x⁵, up to ``FARTHEST``, of ``log₂(1 / Φ(x) − 1)``, Φ the normal
distribution: GELU, ``x · Φ(x)``, is off by .00003 at most."""


class Rounded(NamedTuple):
    """Rows ``numbers · scales + offsets``, with 8-bit integers [n, d]. ``rests`` are added at
    ``places``, of each row's farthest number, which would make the steps of the others coarse."""

    numbers: Integers
    places: Integers
    scales: Floats
    offsets: Floats
    rests: Floats

    @classmethod
    def empty(cls, n: int, d: int) -> Rounded:
        numbers, places = np.empty((n, d), np.int8), np.empty(n, np.int64)
        return cls(numbers, places, *np.empty((3, n), np.float32))

    @classmethod
    def of(cls, numbers: Tensor) -> Rounded:
        """Round single precision [n, d]. A row with a number that is not finite becomes NaN."""
        result = cls.empty(*numbers.shape)
        kernel = partial(round_rows, numbers.numpy(), result)
        over_rows(kernel, len(numbers), torch.get_num_threads())
        return result


class Layer(NamedTuple):
    """Weights [d, m] in 8 bits; scales, sums of the rounded weights, and biases of the outputs [m]:
    outputs are ``products · x.scales · scales + x.offsets · sums + bias``, and rests' products."""

    columns: Integers
    scales: Floats
    sums: Floats
    bias: Floats


class ByteLinear:
    """A linear layer with weights [m, d] of 8 bits, and a bias [m], for rounded input [n, d]."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        self._numbers, _, _, scales = quantised(weight)
        sums = self._numbers.sum(dim=1) * scales
        columns = np.ascontiguousarray(self._numbers.numpy().T)
        self._layer = Layer(columns, scales.numpy(), sums.numpy(), bias.numpy())

    def bfloat16(self, x: Rounded) -> Tensor:
        """Return the outputs in bfloat16 [n, m]."""
        halves = torch.empty(len(x.numbers), len(self._numbers), dtype=torch.bfloat16)
        self._run(narrow_outputs, x, halves.view(torch.int16).numpy())
        return halves

    def gelu(self, x: Rounded) -> Rounded:
        """Return GELU of the outputs, rounded [n, m]."""
        result = Rounded.empty(len(x.numbers), len(self._numbers))
        self._run(gelu_rows, x, result)
        return result

    def add_norm_(self, x: Rounded, added: Tensor, norm: tuple[Tensor, Tensor, float]) -> Rounded:
        """Replace ``added`` [n, m] by the layer norm, of a weight [m], bias [m] and ε, of its sum
        with the outputs; return that rounded."""
        result, (weight, bias, eps) = Rounded.empty(*added.shape), norm
        settings = weight.numpy(), bias.numpy(), np.float32(eps)
        self._run(add_norm_rows, x, added.numpy(), settings, result)
        return result

    def _run(self, kernel: Any, x: Rounded, *arguments: Any) -> None:
        products = torch._int_mm(torch.from_numpy(x.numbers), self._numbers.T).numpy()
        run = partial(kernel, products, x, self._layer, *arguments)
        over_rows(run, len(products), torch.get_num_threads())


@compiled()
def round_rows(rows, rounded, first, last):
    for i in range(first, last):
        _round(rows[i], rounded, i)


@compiled()
def narrow_outputs(products, x, layer, bits, first, last):
    """Write a layer's outputs as bfloat16, signed integers [n, m]."""
    row = np.empty(bits.shape[1], np.float32)
    for i in range(first, last):
        _outputs(products[i], x, i, layer, row)
        _narrow_product(row, np.float32(1), bits[i])


@compiled()
def gelu_rows(products, x, layer, rounded, first, last):
    row = np.empty(products.shape[1], np.float32)
    for i in range(first, last):
        _outputs(products[i], x, i, layer, row)
        _gelu(row)
        _round(row, rounded, i)


@compiled()
def add_norm_rows(products, x, layer, added, norm, rounded, first, last):
    weight, bias, eps = norm
    row = np.empty(products.shape[1], np.float32)
    for i in range(first, last):
        _outputs(products[i], x, i, layer, row)
        row += added[i]
        mean = _sum(row) / np.float32(row.size)
        variance = _sum_of_squares(row, mean) / np.float32(row.size)
        _normalise(row, mean, np.float32(1) / np.sqrt(variance + eps), weight, bias, added[i])
        _round(added[i], rounded, i)


@compiled(fastmath={"contract"})
def _outputs(products, x, i, layer, row):
    columns, scales, sums, bias = layer
    scale, offset, rest, column = x.scales[i], x.offsets[i], x.rests[i], columns[x.places[i]]
    for j in range(row.size):
        product = np.float32(products[j]) * scale + np.float32(column[j]) * rest
        row[j] = product * scales[j] + (offset * sums[j] + bias[j])


@compiled()
def _round(row, rounded, i):
    """Round a row, all but the farthest number, in 255 steps from the smallest, -128, to the
    largest."""
    bits = row.view(np.int32)
    low, high = _extremes(bits)
    smallest, largest = _number_of(low), _number_of(high)
    # The same bits, as a NaN differs from itself.
    farthest, place = _key_of(largest if largest > -smallest else smallest), 0
    while _key_of(row[place]) != farthest:
        place += 1
    number, row[place] = row[place], row[place - 1]
    low, high = _extremes(bits)
    smallest, largest = _number_of(low), _number_of(high)
    scale = (largest - smallest) / np.float32(255)
    scale = np.float32(SMALLEST) if scale < np.float32(SMALLEST) else scale
    offset = smallest + np.float32(128) * scale
    _write(row, smallest, np.float32(1) / scale, rounded.numbers[i])
    row[place] = number
    rest = number - (np.float32(rounded.numbers[i, place]) * scale + offset)
    rounded.places[i], rounded.rests[i] = place, rest + (rest - rest)  # NaN if infinite
    rounded.scales[i], rounded.offsets[i] = scale, offset


@compiled()
def _extremes(bits):
    """Return the smallest and the largest key of numbers; the key of a NaN is an extreme."""
    low, high = np.int32(0x7FFFFFFF), np.int32(-(2**31))
    for j in range(bits.size):
        key = np.int32(bits[j] ^ ((bits[j] >> np.int32(31)) & np.int32(0x7FFFFFFF)))
        low, high = min(low, key), max(high, key)
    return low, high


@compiled(fastmath={"contract"})
def _write(row, smallest, per_scale, numbers):
    for j in range(row.size):
        numbers[j] = np.int8(np.rint((row[j] - smallest) * per_scale) - np.float32(128))


@compiled(fastmath={"contract"}, error_model="numpy")  # a check for 0 would not be vectorised
def _gelu(row):
    for j in range(row.size):
        near = min(max(row[j], -FARTHEST), FARTHEST)
        square = near * near
        exponent = near * (LOGIT[0] + square * (LOGIT[1] + square * LOGIT[2]))
        row[j] = row[j] / (np.float32(1) + _power(exponent))


@compiled(fastmath={"contract"})
def _normalise(row, mean, scale, weight, bias, normed):
    for j in range(row.size):
        normed[j] = (row[j] - mean) * scale * weight[j] + bias[j]
