"""Kernels for a GPU, in Triton's interpreter: see TRITON_INTERPRET in conftest.py.

The interpreter multiplies float32 and float16 only. Whole numbers make every sum exact, in any
order.
"""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lexicept.ops.triton import usable

if find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)

from lexicept.ops.triton import tokens
from lexicept.ops.triton.texts import maxima_with_winners
from lexicept.ops.triton.tokens import CHUNK, top_activations

DEVICE = "cpu" if os.environ["TRITON_INTERPRET"] == "1" else "cuda"


def whole(*shape, most=3, seed=0, dtype=torch.float32):
    """Whole numbers from −most to most."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-most, most + 1, shape, generator=generator).to(dtype).to(DEVICE)


def operands(n, d, size, dtype=torch.float32, seed=0):
    return [
        whole(*s, seed=seed + i, dtype=dtype) for i, s in enumerate([(n, d), (size, d), (size,)])
    ]


def pre_activations(x, rows, bias):
    return x.double() @ rows.double().T + bias.double()


def assert_top(x, rows, bias, k, threshold=None):
    """What is found are each token's largest activations, of different dimensions."""
    acts, dimensions = top_activations(x, rows, bias, k, threshold)
    width = min(k, len(rows))
    assert acts.shape == dimensions.shape == (len(x), width)
    assert acts.dtype == x.dtype
    fired = torch.relu(pre_activations(x, rows, bias))
    if threshold is not None:
        fired = fired * (fired > threshold)
    expected = fired.topk(width, dim=1).values
    assert torch.equal(acts.double().sort(dim=1, descending=True).values, expected)
    found = torch.zeros_like(fired).scatter_add(1, dimensions, acts.double())
    assert torch.equal(found, fired * (found > 0))  # each once, and where it belongs


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("k", [1, 8, CHUNK + 3])
@pytest.mark.parametrize("thresholds", [False, True])
def test_each_tokens_largest_activations(dtype, k, thresholds):
    """Of 7 chunks, the last of 16 columns; depth 70 is no multiple of a step's."""
    x, rows, bias = operands(70, 70, 400, dtype)
    assert_top(x, rows, bias, k, whole(400, most=60, seed=9).abs() if thresholds else None)


@given(data=st.data())
@settings(max_examples=15)
def test_any_shapes_and_slices(data):
    n, d = data.draw(st.integers(0, 9)), data.draw(st.integers(1, 40))
    size, k = data.draw(st.integers(1, 3 * CHUNK)), data.draw(st.integers(1, 3 * CHUNK))
    x, rows, bias = operands(n, d, size, seed=data.draw(st.integers(0, 99)))
    threshold = whole(size, most=20, seed=5).abs() if data.draw(st.booleans()) else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens, "CELLS", data.draw(st.sampled_from([1, 1000, 2**24])))
        assert_top(x, rows, bias, k, threshold)


@pytest.mark.parametrize("thresholds", [None, torch.zeros(200), torch.full((200,), 50.0)])
def test_where_nothing_fires_all_is_zero(thresholds):
    x, rows, bias = operands(20, 5, 200)
    threshold = None if thresholds is None else thresholds.to(DEVICE)
    acts, dimensions = top_activations(x, rows, bias - 100, 4, threshold)
    assert not acts.any()
    assert bool(((dimensions >= 0) & (dimensions < 200)).all())


def test_dimensions_that_never_fire_stay_in_range():
    """With biases of −∞ they are like the 56 columns that the last chunk lacks."""
    x, rows, bias = operands(5, 5, 200)
    acts, dimensions = top_activations(x, rows, bias - torch.inf, 200)
    assert not acts.any()
    assert int(dimensions.max()) < 200
    assert not maxima_with_winners(x, torch.arange(5, device=DEVICE), 5, rows, bias - torch.inf)[
        0
    ].any()


def test_ties_are_filled_up():
    """All activations are 2, more of them than chunks are looked at: any k dimensions do."""
    x, rows = torch.ones(3, 2, device=DEVICE), torch.ones(600, 2, device=DEVICE)
    acts, dimensions = top_activations(x, rows, torch.zeros(600, device=DEVICE), 5)
    assert acts.tolist() == [[2.0] * 5] * 3
    assert all(len(set(row)) == 5 for row in dimensions.tolist())


def test_a_threshold_outweighs_a_larger_pre_activation():
    x, rows = torch.ones(1, 1, device=DEVICE), torch.arange(200.0, device=DEVICE)[:, None]
    threshold = torch.full((200,), 300.0, device=DEVICE)
    threshold[3], threshold[70], threshold[140] = 2.0, 70.0, 139.0  # 70 is not above 70
    acts, dimensions = top_activations(x, rows, torch.zeros(200, device=DEVICE), 2, threshold)
    assert sorted(zip(acts[0].tolist(), dimensions[0].tolist(), strict=True)) == [
        (3, 3),
        (140, 140),
    ]


def test_any_numbers_to_single_precision():
    generator = torch.Generator().manual_seed(0)
    x, rows = (torch.randn(n, 300, generator=generator).to(DEVICE) for n in (40, 1000))
    bias = torch.randn(1000, generator=generator).to(DEVICE)
    acts, _ = top_activations(x, rows, bias, 8)
    expected = pre_activations(x, rows, bias).topk(8, dim=1).values
    found = acts.double().sort(dim=1, descending=True).values
    assert torch.allclose(found, expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("thresholds", [False, True])
def test_a_state_that_is_no_number_keeps_to_its_token_and_text(thresholds):
    """It is NaN in the chosen dimensions, and in all of its text."""
    x, rows, bias = operands(6, 5, 200)
    x[1, 2] = torch.nan
    threshold = torch.ones(200, device=DEVICE) if thresholds else None
    acts, dimensions = top_activations(x, rows, bias, 3, threshold)
    assert acts.isnan().all(dim=1).tolist() == [False, True, False, False, False, False]
    assert not acts[2:].isnan().any()
    assert all(len(set(row)) == 3 for row in dimensions.tolist())
    text = torch.tensor([0, 0, 0, 1, 1, 1], device=DEVICE)
    pooled, token = maxima_with_winners(x, text, 2, rows, bias)
    assert pooled[0].isnan().all()
    assert (token[0] == 1).all()
    assert not pooled[1].isnan().any()


def test_one_weight_that_is_no_number_is_found():
    x, rows, bias = operands(4, 5, 300)
    rows[150, 0] = torch.nan
    acts, dimensions = top_activations(x, rows, bias, 2)
    assert (dimensions[acts.isnan()] == 150).all()
    assert acts.isnan().sum(dim=1).tolist() == [1, 1, 1, 1]
    pooled, _ = maxima_with_winners(
        x, torch.zeros(4, dtype=torch.long, device=DEVICE), 1, rows, bias
    )
    assert pooled.isnan().nonzero().tolist() == [[0, 150]]


def assert_maxima(x, text, num_texts, rows, bias):
    """Maxima of activations, and the first token that has them."""
    pooled, token = maxima_with_winners(x, text, num_texts, rows, bias)
    assert pooled.shape == token.shape == (num_texts, len(rows))
    assert pooled.dtype == x.dtype
    pre = pre_activations(x, rows, bias)
    for number in range(num_texts):
        own = (text == number).nonzero().ravel()
        if not len(own):
            assert not pooled[number].any()
            continue
        largest, first = pre[own].cpu().max(dim=0)  # the first on a CPU
        assert torch.equal(pooled[number].double().cpu(), largest.relu())
        fires = largest > 0
        assert torch.equal(token[number].cpu()[fires], own.cpu()[first][fires])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_each_texts_largest_activations(dtype):
    """Texts of 1 to 150 tokens over several tiles, texts 0, 3, 4 and 8 without; many ties."""
    lengths = torch.tensor([0, 3, 150, 0, 0, 1, 20, 7, 0])
    text = torch.repeat_interleave(torch.arange(9), lengths).to(DEVICE)
    x, rows, bias = operands(181, 5, 150, dtype)
    assert_maxima(x, text, 9, rows, bias)


@given(data=st.data())
@settings(max_examples=15)
def test_texts_of_any_shapes(data):
    num_texts = data.draw(st.integers(1, 4))
    numbers = data.draw(st.lists(st.integers(0, num_texts - 1), max_size=80))
    text = torch.tensor(numbers, dtype=torch.long, device=DEVICE)  # sorted is only faster
    d, size = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 140))
    x, rows, bias = operands(len(numbers), d, size, seed=data.draw(st.integers(0, 99)))
    assert_maxima(x, text, num_texts, rows, bias)


def test_under_autocast_operands_have_its_precision():
    x, rows, bias = (torch.full((n,), 1.0 + 2**-12, device=DEVICE) for n in (3, 2, 2))
    with torch.autocast(DEVICE, torch.float16):  # 1 in float16; the bias is only added
        acts, _ = top_activations(x[:, None], rows[:, None], bias, 1)
        text = torch.zeros(3, dtype=torch.long, device=DEVICE)
        pooled, token = maxima_with_winners(x[:, None], text, 1, rows[:, None], bias)
    assert acts.dtype == pooled.dtype == torch.float32
    assert acts.ravel().tolist() == [2 + 2**-12] * 3
    assert pooled.tolist() == [[2 + 2**-12] * 2]
    assert token.tolist() == [[0, 0]]


def test_tensors_on_a_cpu_are_left_to_it():
    assert not usable(torch.ones(1), torch.ones(1))


COMPILE = """
import torch, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction
from lexicept.ops.triton.texts import maxima_with_winners
from lexicept.ops.triton.tokens import top_activations

TYPES = {torch.bfloat16: "*bf16", torch.float32: "*fp32", torch.int64: "*i64"}

def compiled(kernel, *values, grid, warmup, **named):
    values = dict(zip(kernel.arg_names, values)) | named
    options = {name: values.pop(name) for name in list(values) if name not in kernel.arg_names}
    constants = {p.name: values[p.name] for p in kernel.params if p.is_constexpr}
    signature = {n: TYPES[v.dtype] if torch.is_tensor(v) else "i32" for n, v in values.items()}
    signature |= dict.fromkeys(constants, "constexpr")
    even = [i for i, n in enumerate(kernel.arg_names) if torch.is_tensor(values[n]) or n == "d"]
    aligned = {(i,): [["tt.divisibility", 16]] for i in even}  # as a launch would find
    source = ASTSource(kernel, signature, constants, aligned)
    done = triton.compile(source, target=GPUTarget("cuda", 80, 32), options=options)
    print(done.metadata.shared)

JITFunction.run = compiled
x, rows, bias = torch.ones(300, 768), torch.ones(9000, 768), torch.ones(9000)
low = x.bfloat16(), rows.bfloat16(), bias.bfloat16()
top_activations(*low, 8)
maxima_with_winners(low[0], torch.zeros(300, dtype=torch.long), 2, *low[1:])
"""


def test_kernels_compile_for_a_gpu(tmp_path):
    """As they are launched, and into the shared memory that small GPUs have: 99 KB."""
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-W", "error", "-c", COMPILE]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    shared = [int(line) for line in done.stdout.split()]
    assert len(shared) == 3
    assert all(0 < size <= 99 * 1024 for size in shared)
