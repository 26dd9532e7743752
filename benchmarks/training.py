"""Tokens per second of SAE training: lexicept, textbook autograd, EleutherAI's sparsify."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import cycle
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.common import Table, interleaved, ratio
from lexicept.training.sae.settings import SAESettings
from lexicept.training.sae.trainer import SAELoop, initial_sae, remove_parallel_gradient

Step = Callable[[Tensor], object]


def synthetic_states(tokens: int, d: int, num_features: int = 4096, active: int = 8) -> Tensor:
    """Draw sums of a few of many directions, and noise: an SAE's model of states."""
    generator = torch.Generator().manual_seed(0)
    features = F.normalize(torch.randn(num_features, d, generator=generator), dim=1)
    # The square makes some features far more frequent than others.
    uniform = torch.rand(tokens, active, generator=generator)
    columns = (uniform.square() * num_features).long()
    strengths = 0.5 + torch.rand(tokens, active, generator=generator)
    states = F.embedding_bag(columns, features, mode="sum", per_sample_weights=strengths)
    return states + 0.02 * torch.randn(tokens, d, generator=generator)


def lexicept_step(states: Tensor, num_latents: int, k: int, **settings: Any) -> Step:
    """Return lexicept's training step."""
    sae_settings = SAESettings(num_latents=num_latents, k=k, batch_size=len(states), **settings)
    return SAELoop(initial_sae(states, sae_settings), sae_settings).step


def textbook_step(states: Tensor, num_latents: int, k: int) -> Step:
    """Return a step of the same model by autograd through dense activations."""
    d = states.shape[1]
    W_dec = nn.Parameter(F.normalize(torch.randn(num_latents, d), dim=1))
    W_enc = W_dec.detach().clone().requires_grad_()
    b_enc = torch.zeros(num_latents, requires_grad=True)
    b_dec = states.mean(dim=0).requires_grad_()
    optimizer = torch.optim.AdamW([W_enc, b_enc, W_dec, b_dec], lr=1e-3)

    def step(x: Tensor) -> None:
        pre = F.relu((x - b_dec) @ W_enc.T + b_enc)
        values, latents = pre.topk(k, dim=1)
        acts = torch.zeros_like(pre).scatter(1, latents, values)
        loss = (acts @ W_dec + b_dec - x).square().sum(dim=1).mean()
        optimizer.zero_grad()
        loss.backward()
        remove_parallel_gradient(W_dec)
        optimizer.step()
        with torch.no_grad():
            W_dec.copy_(F.normalize(W_dec, dim=1))

    return step


def sparsify_step(states: Tensor, num_latents: int, k: int) -> Step:
    """Return sparsify's step with its defaults: schedule-free signum, no AuxK loss."""
    # Its Triton kernels need a GPU and would be chosen wherever Triton is installed.
    os.environ["SPARSIFY_DISABLE_TRITON"] = "1"
    from schedulefree import ScheduleFreeWrapper
    from sparsify import SparseCoder, SparseCoderConfig
    from sparsify.sign_sgd import SignSGD

    coder = SparseCoder(states.shape[1], SparseCoderConfig(num_latents=num_latents, k=k))
    rate = 5e-3 / (num_latents / 2**14) ** 0.5
    optimizer = ScheduleFreeWrapper(SignSGD(coder.parameters(), lr=rate), momentum=0.95)
    optimizer.train()

    def step(x: Tensor) -> None:
        coder.set_decoder_norm_to_unit_norm()
        coder(x).fvu.backward()
        coder.remove_gradient_parallel_to_decoder_directions()
        optimizer.step()
        optimizer.zero_grad()

    return step


def repeated(step: Step, states: Sequence[Tensor], steps: int) -> Callable[[], None]:
    """Return a function that takes so many steps, with the next states every time."""
    batches = cycle(states)

    def work() -> None:
        for _ in range(steps):
            step(next(batches))

    return work


def run(
    d: int = 384, k: int = 8, batch: int = 2048, rounds: int = 5, peers: bool = True
) -> list[Table]:
    """Time some steps of every trainer per round, more of the small model's.

    Args:
        peers: False leaves out other implementations.
    """
    torch.manual_seed(0)
    states = synthetic_states(4 * batch, d).split(batch)
    first, small, large = states[0], 8192, 65_536
    trainers = {
        "lexicept": lexicept_step(first, small, k),
        # Whatever misses a single batch counts as dead: far more than in any real training.
        "lexicept, most costly auxiliary loss": lexicept_step(first, small, k, dead_tokens=batch),
    }
    if peers:
        trainers["textbook autograd"] = textbook_step(first, small, k)
        trainers["sparsify"] = sparsify_step(first, small, k)
    records = _rows(f"M {small:,}", trainers, states, 4, rounds)
    del trainers
    trainers = {"lexicept": lexicept_step(first, large, k)}
    if peers:
        trainers["textbook autograd"] = textbook_step(first, large, k)
    records += _rows(f"M {large:,}", trainers, states, 1, rounds)
    return [Table("training", ["SAE training", "", "tokens/s", "time / lexicept's"], records)]


def _rows(
    size: str, trainers: dict[str, Step], states: Sequence[Tensor], steps: int, rounds: int
) -> list[list[str]]:
    times = interleaved(
        {name: repeated(step, states, steps) for name, step in trainers.items()}, rounds
    )
    tokens = steps * len(states[0])
    return [
        [size, name, f"{tokens / median(took):,.0f}", f"{ratio(took, times['lexicept']):.2f} ×"]
        for name, took in times.items()
    ]
