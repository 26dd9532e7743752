"""Linear layers in 8 bits, and what follows them, against torch in single precision."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from lexicept.ops.byte_products import ByteLinear, Rounded
from lexicept.ops.quantisation import multiplies_bytes

pytestmark = pytest.mark.skipif(not multiplies_bytes(), reason="no products of 8 bits here")


def value(rounded):
    numbers, places, scales, offsets, rests = map(torch.from_numpy, rounded)
    values = numbers * scales[:, None] + offsets[:, None]
    return values.scatter_add(1, places[:, None], rests[:, None])


def drawn(n, d, m):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, d, generator=generator)
    weight, bias = torch.randn(m, d, generator=generator), torch.randn(m, generator=generator)
    return Rounded.of(x), ByteLinear(weight, bias), F.linear(x, weight, bias)


def test_a_row_is_in_255_steps_but_for_its_farthest_number():
    x = torch.tensor([[-2.0, 253, 0, 0.4, -900], [7] * 5, [0] * 5])
    rounded = Rounded.of(x)
    assert rounded.numbers.tolist() == [[-128, 127, -126, -126, -126], [-128] * 5, [-128] * 5]
    expected = [[-2, 253, 0, 0, -900], [7] * 5, [0] * 5]
    torch.testing.assert_close(value(rounded), torch.tensor(expected, dtype=torch.float32))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("n", "d", "m"), [(64, 384, 1536), (3, 32, 48)])
def test_layers_are_near_those_in_single_precision(n, d, m, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    x, linear, exact = drawn(n, d, m)
    # Rounding errors of a product are some hundredths of its spread, which is √d.
    near = {"rtol": 0, "atol": 0.06 * d**0.5}
    torch.testing.assert_close(linear.bfloat16(x).float(), exact, **near)
    torch.testing.assert_close(value(linear.gelu(x)), F.gelu(exact), **near)
    added = torch.linspace(-9, 9, n * m).view(n, m)
    weight, bias = torch.linspace(0.5, 2, m), torch.linspace(-1, 1, m)
    normed = F.layer_norm(exact + added, (m,), weight, bias)
    rounded = linear.add_norm_(x, added, (weight, bias, 1e-5))
    torch.testing.assert_close(added, normed, rtol=0, atol=0.2)
    torch.testing.assert_close(value(rounded), added, rtol=0, atol=0.05)
    torch.set_num_threads(before)


def test_gelu_is_torchs():
    x = torch.cat([torch.linspace(-12, 12, 4095), torch.zeros(1)])[None]
    # One input of 1 and no bias: the outputs are the weights, in 8 bits.
    steps = (x.T * 127 / 12).round() * 12 / 127
    rounded = ByteLinear(torch.cat([steps, 0 * steps], 1), torch.zeros(4096)).gelu(
        Rounded(np.array([[1, 0]], np.int8), np.array([0]), *np.array([[1], [0], [0]], np.float32))
    )
    expected = F.gelu(steps.T)
    step = (12 + 0.17) / 255
    torch.testing.assert_close(value(rounded), expected, rtol=0, atol=step / 2 + 0.001)


@pytest.mark.parametrize("broken", [torch.nan, -torch.nan, torch.inf])
def test_what_is_no_number_makes_its_row_so(broken):
    x = torch.ones(3, 32) + torch.arange(32)
    x[1, 7] = broken
    linear = ByteLinear(torch.ones(40, 32), torch.zeros(40))
    norm = torch.ones(40), torch.zeros(40), 1e-5
    added = torch.arange(40.0).repeat(3, 1)
    normed = value(linear.add_norm_(Rounded.of(x), added, norm))
    results = (linear.bfloat16(Rounded.of(x)), value(linear.gelu(Rounded.of(x))), added, normed)
    for result in results:
        assert result.isnan().all(dim=1).tolist() == [False, True, False]
