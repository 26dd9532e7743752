"""Heads and SAE training on a GPU: ``python -m benchmarks.gpu``, in less than ten minutes.

It prints its tables and writes nothing. Memory is what a call adds to what its operands take.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.util import find_spec
from statistics import median
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.common import Table, interleaved, ratio
from benchmarks.training import lexicept_step, repeated, sparsify_step, synthetic_states
from lexicept.neural.kernels.linear_outputs import largest_outputs, top_activations
from lexicept.neural.kernels.pooling import Activations, pool_max

TOKENS, LENGTH, K = 8192, 128, 8
CHECKED = 64
"""Number of tokens or texts that are compared with double precision."""


def cases() -> Iterator[Callable[[], Table]]:
    """Yield every table as a function."""
    for d in (768, 4096):
        for size in (65_536, 131_072):
            yield partial(top_k, d, size)
    for size in (30_522, 250_000):
        yield partial(vocabulary, size)
        yield partial(vocabulary_training, size)
    if find_spec("sparsify"):
        yield sae_training
    else:
        print("SAE training is left out: eai-sparsify is not installed\n")


def top_k(d: int, size: int, device: str = "cuda") -> Table:
    """Time each token's largest activations, in bfloat16."""
    x, weights, bias = operands(TOKENS, d, size, device)
    values = top_activations(x[:CHECKED], weights, bias, K)[0].sort(descending=True)[0]
    exact = torch.cat([double(x[:CHECKED], *gradient) for gradient in parts(weights, bias)], dim=1)
    wrong = relative(values, exact.topk(K, dim=1).values)
    del values, exact
    work = {
        "bare GEMM": lambda: x @ weights.T,
        "GEMM and `torch.topk`": lambda: torch.addmm(bias, x, weights.T).topk(K, dim=1),
        "`top_activations`": lambda: top_activations(x, weights, bias, K),
    }
    title = f"top {K} of M {size:,}, d {d:,}, {TOKENS:,} tokens; relative error {wrong:.1e}"
    return table(title, work, "bare GEMM")


def vocabulary(size: int, d: int = 768, device: str = "cuda") -> Table:
    """Time a text's largest activations, in bfloat16."""
    x, weights, bias = operands(TOKENS, d, size, device)
    num_texts, checked = TOKENS // LENGTH, CHECKED // 16 * LENGTH
    text = torch.arange(TOKENS, device=device) // LENGTH
    few = checked // LENGTH
    values, token = largest_outputs(x[:checked], text[:checked], few, weights, bias)
    exact = torch.cat(
        [
            double(x[:checked], *gradient).view(few, LENGTH, -1).amax(dim=1).relu()
            for gradient in parts(weights, bias)
        ],
        dim=1,
    )
    wrong = relative(values, exact)
    assert bool((text[token] == text[:checked:LENGTH, None])[values > 0].all())
    del values, token, exact
    work = {
        "bare GEMM": lambda: x @ weights.T,
        "GEMM, ReLU and maximum": lambda: (
            torch.addmm(bias, x, weights.T).relu().view(num_texts, LENGTH, -1).amax(dim=1)
        ),
        "`largest_outputs`": lambda: largest_outputs(x, text, num_texts, weights, bias),
    }
    title = f"V {size:,}, d {d}, {num_texts} texts of {LENGTH}; relative error {wrong:.1e}"
    return table(title, work, "bare GEMM")


def vocabulary_training(size: int, d: int = 768, device: str = "cuda") -> Table:
    """Time forward and backward of a head in single precision, under autocast."""
    x, weights, bias = (
        tensor.float().requires_grad_() for tensor in operands(TOKENS, d, size, device)
    )
    num_texts = TOKENS // LENGTH
    text = torch.arange(TOKENS, device=device) // LENGTH
    along = torch.ones(num_texts, size, device=device)
    tokens = Activations(x, text, num_texts, weights, bias, None)

    def naive() -> Tensor:
        return F.linear(x, weights, bias).relu().view(num_texts, LENGTH, -1).amax(dim=1)

    def trained(pool: Callable[[], Tensor]) -> None:
        with torch.autocast(device, torch.bfloat16):
            pooled = pool()
        torch.autograd.grad((pooled.float() * along).sum(), (x, weights, bias))

    work = {
        "autograd": lambda: trained(naive),
        "`pool_max`": lambda: trained(lambda: pool_max(tokens)),
    }
    return table(f"V {size:,}, forward and backward", work, "autograd")


def sae_training(
    d: int = 768, num_latents: int = 65_536, batch: int = 4096, steps: int = 4, device: str = "cuda"
) -> Table:
    """Time steps of lexicept and of sparsify with its Triton kernels; both with TF32."""
    import sparsify  # before SPARSIFY_DISABLE_TRITON is set, which it reads only once

    states = synthetic_states(4 * batch, d).to(device).split(batch)
    coder = partial(sparsify.SparseCoder, device=device)
    with patch.object(sparsify, "SparseCoder", coder):
        peer = sparsify_step(states[0], num_latents, K)
    trainers = {"sparsify": peer, "lexicept": lexicept_step(states[0], num_latents, K)}

    work = {name: repeated(step, states, steps) for name, step in trainers.items()}
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        title = f"{steps} training steps of {batch:,} tokens, d {d}, M {num_latents:,}"
        return table(title, work, "sparsify")
    finally:
        torch.set_float32_matmul_precision(precision)


def operands(n: int, d: int, size: int, device: str) -> tuple[Tensor, Tensor, Tensor]:
    """Draw tokens, rows and biases in bfloat16; activations are of order 1."""
    torch.manual_seed(0)
    x, weights = (torch.randn(m, d, device=device, dtype=torch.bfloat16) for m in (n, size))
    return x, weights.div_(d**0.5), 0.1 * torch.randn(size, device=device, dtype=torch.bfloat16)


def parts(records: Tensor, bias: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield some of the rows and biases at a time."""
    return zip(records.split(8192), bias.split(8192), strict=True)


def double(x: Tensor, records: Tensor, bias: Tensor) -> Tensor:
    """Return pre-activations of the same operands in double precision."""
    return torch.addmm(bias.double(), x.double(), records.double().T)


def relative(values: Tensor, exact: Tensor) -> float:
    """Return ‖v − e‖ / ‖e‖."""
    return float((values.double() - exact).norm() / exact.norm())


def table(
    title: str, work: Mapping[str, Callable[[], object]], base: str, rounds: int = 10
) -> Table:
    """Make a table of median times, their ratios to that of ``base``, and memory."""

    def finished(one: Callable[[], object]) -> None:
        one()
        torch.cuda.synchronize()

    times = interleaved({name: partial(finished, one) for name, one in work.items()}, rounds)
    lines = [
        [
            name,
            f"{1000 * median(took):.2f} ms",
            f"{ratio(took, times[base]):.2f} ×",
            f"{extra_memory(work[name]) / 2**20:,.0f} MB",
        ]
        for name, took in times.items()
    ]
    return Table("gpu", [title, "time", f"time / {base}", "memory"], lines)


def extra_memory(work: Callable[[], object]) -> int:
    """Return the bytes that a call allocates at its peak."""
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    work()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def main() -> None:
    """Print every table; an error of one is printed in its place."""
    if not torch.cuda.is_available():
        sys.exit("python -m benchmarks.gpu needs an NVIDIA GPU and torch for CUDA")
    start = time.monotonic()
    print(f"{torch.cuda.get_device_name()}\n", flush=True)
    failed = False
    for case in cases():
        try:
            print(case().markdown(), flush=True)
        except Exception as error:  # also out of memory
            failed = True
            print(f"{case}: {type(error).__name__}: {' '.join(str(error).split())}", flush=True)
        torch.cuda.empty_cache()
        print(f"\nafter {time.monotonic() - start:.0f} s\n", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
