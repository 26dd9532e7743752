"""Heads, from states of tokens to a vector per text, compared with plain implementations."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from itertools import islice, product
from multiprocessing import get_context
from statistics import median
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from sentence_transformers.sparse_encoder.modules import SpladePooling
from torch import Tensor, nn

from benchmarks.common import Table, interleaved, ratio, reset_peak, resident
from lexicept.neural.heads.vocabulary import VocabularyHead
from lexicept.neural.kernels.pooling import Activations, pool_max

LENGTH = 128
"""Number of tokens of a text, padding included."""

PROCESSES = 5
"""Number of processes whose median is the memory that a call adds."""

SMALL = 1024
"""Number of dimensions of the warm-up call before memory is measured."""


class Case(NamedTuple):
    """Two implementations of the same vectors, lexicept's first, and the inputs of gradients."""

    ways: dict[str, Callable[[], Tensor]]
    inputs: Sequence[Tensor] = ()


def operands(tokens: int, d: int, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Draw states, rows and biases; outputs are of order 1."""
    generator = torch.Generator().manual_seed(0)
    x, weights = (torch.randn(n, d, generator=generator) for n in (tokens, size))
    return x, weights / d**0.5, 0.1 * torch.randn(size, generator=generator)


def plain_pool(
    x: Tensor, text: Tensor, num_texts: int, records: Tensor, bias: Tensor, k: int
) -> Tensor:
    """Compute ``pool_max`` through all activations of all tokens."""
    acts, latents = F.linear(x, records, bias).relu().topk(k, dim=1)
    positions = text[:, None] * len(records) + latents
    pooled = x.new_zeros(num_texts * len(records))
    return pooled.scatter_reduce(0, positions.ravel(), acts.ravel(), "amax").view(num_texts, -1)


def sae_head(
    tokens: int, d: int, size: int, *, training: bool = False, length: int = LENGTH, k: int = 8
) -> Case:
    """Make the case of states to pooled activations of an SAE's latents."""
    inputs = operands(tokens, d, size)
    for tensor in inputs:
        tensor.requires_grad_(training)
    x, weights, bias = inputs
    arguments = (x, torch.arange(tokens) // length, -(-tokens // length), weights, bias, k)
    ways = {
        "lexicept": lambda: pool_max(Activations(*arguments)),
        "PyTorch": lambda: plain_pool(*arguments),
    }
    return Case(_graph(ways, training), inputs)


def splade_head(
    lengths: Sequence[int], firing: float, training: bool, *, size: int = 30_522, d: int = 768
) -> Case:
    """States [texts, LENGTH, d] to SPLADE vectors; the peer's decoder, what an MLM head ends with,
    shares the head's parameters.

    Args:
        lengths: of the texts.
        firing: the share of a text's dimensions that are not 0; 1 leaves the decoder as drawn.
    """
    x, weights, bias = operands(len(lengths) * LENGTH, d, size)
    states = x.view(len(lengths), LENGTH, d)
    mask = torch.arange(LENGTH) < torch.tensor(lengths)[:, None]
    if firing < 1:
        bias -= exceeded_by(firing, states, mask, weights, bias)
    states.requires_grad_(training)
    head = VocabularyHead(weights, bias, [str(term) for term in range(size)], activation=None)
    head.train(training)
    decoder = nn.Linear(d, size, device="meta")
    decoder.weight, decoder.bias = head.weight, head.offset
    pooling = SpladePooling().train(training)
    text, attention = torch.arange(len(lengths)), mask.long()

    def ours() -> Tensor:
        features = {"token_embeddings": states, "token_mask": mask, "window_text": text}
        return cast(Tensor, head(features)["sentence_embedding"])

    def peer() -> Tensor:
        features = {"token_embeddings": decoder(states), "attention_mask": attention}
        return cast(Tensor, pooling(features)["sentence_embedding"])

    ways = _graph({"lexicept": ours, "SpladePooling": peer}, training)
    return Case(ways, (states, head.weight, head.offset))


def exceeded_by(
    share: float, states: Tensor, mask: Tensor, records: Tensor, bias: Tensor
) -> Tensor:
    """Return the value that so many of the texts' largest outputs exceed."""
    texts = (x[real] for x, real in zip(states, mask, strict=True))
    largest = torch.cat([F.linear(x, records, bias).amax(dim=0) for x in texts])
    return largest.kthvalue(int((1 - share) * len(largest))).values


def backward(case: Case) -> dict[str, Callable[[], tuple[Tensor, ...]]]:
    """Make the same case with the gradient of an arbitrary loss."""

    def trained(forward: Callable[[], Tensor]) -> tuple[Tensor, ...]:
        return torch.autograd.grad(forward().square().sum(), case.inputs)

    return {name: partial(trained, forward) for name, forward in case.ways.items()}


def saved_memory(forward: Callable[[], Tensor], inputs: Sequence[Tensor]) -> float:
    """Return the MB that a graph keeps for its backward pass besides its inputs."""
    own = {tensor.untyped_storage().data_ptr() for tensor in inputs}
    sizes: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        graph = forward()  # it keeps what it saved: no address comes twice
    del graph
    return sum(sizes.values()) / 2**20


def _graph(
    ways: Mapping[str, Callable[[], Tensor]], training: bool
) -> dict[str, Callable[[], Tensor]]:
    """Enable or disable gradients."""
    return {name: torch.set_grad_enabled(training)(way) for name, way in ways.items()}


SAE_HEADS: dict[str, Callable[..., Case]] = {
    f"M {size:,}, d {d}, {tokens:,} tokens": partial(sae_head, tokens, d, size=size)
    for size, d, tokens in ((65_536, 768, 1024), (8192, 384, 2048))
}

LENGTHS = {"mixed lengths": (128, 104, 88, 76, 66, 58, 50, 38), "no padding": (LENGTH,) * 8}
FIRING = {"all fire": 1.0, "2 % fire": 0.02}


def added_memory(make: Callable[..., Case], name: str) -> float:
    """Return the MB that a call of one implementation adds to this process at its peak."""
    with suppress(
        ImportError, AttributeError
    ):  # before_after measures a version whose first calls loaded numba
        import_module("lexicept.kernels.compiled").call_kernels()
    make(size=SMALL).ways[name]()
    way = make().ways[name]
    ctypes.CDLL(None).malloc_trim(0)  # what was freed before must not be at hand
    reset_peak()
    before = resident("VmRSS")
    way()
    return resident("VmHWM") - before


def memory_of(cases: Mapping[str, Callable[..., Case]]) -> dict[str, dict[str, float]]:
    """Measure all implementations of all cases, each by the median of several processes, since
    freed memory is often kept for the next call."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.heads"])
    memory: dict[str, dict[str, float]] = {}
    for case, make in cases.items():
        names = list(make(size=SMALL).ways)
        tries = [(make, name) for name in names for _ in range(PROCESSES)]
        with context.Pool(1, maxtasksperchild=1) as pool:
            sizes = iter(pool.starmap(added_memory, tries, chunksize=1))
        memory[case] = {name: median(islice(sizes, PROCESSES)) for name in names}
    return memory


def run(rounds: int = 5) -> list[Table]:
    """Measure an SAE's head, and SPLADE's without and with the backward pass."""
    splade = {
        f"{fire}, {named}": partial(splade_head, lengths, firing)
        for (fire, firing), (named, lengths) in product(FIRING.items(), LENGTHS.items())
    }
    forward_only = {name: partial(make, training=False) for name, make in splade.items()}
    memory = memory_of(SAE_HEADS | forward_only)
    sae = [_row(name, make().ways, memory[name], rounds) for name, make in SAE_HEADS.items()]
    forward, trained = [], []
    for name, make in splade.items():
        ways = make(training=False).ways
        forward.append(_row(f"forward, {name}", ways, memory[name], rounds))
        case = make(training=True)
        saved = {way: saved_memory(work, case.inputs) for way, work in case.ways.items()}
        trained.append(_row(f"with backward, {name}", backward(case), saved, rounds))
    return [
        Table("sae_head", _columns("SAE head, k 8", "PyTorch"), sae),
        Table("splade_head", _columns("SPLADE head", "SpladePooling"), forward + trained),
    ]


def _columns(title: str, peer: str) -> list[str]:
    memory = ["memory", f"{peer}'s", f"memory / {peer}'s"]
    return [title, "lexicept", peer, "time / lexicept's", *memory]


def _row(
    name: str, ways: Mapping[str, Callable[[], object]], memory: Mapping[str, float], rounds: int
) -> list[str]:
    """Return times and memory of both implementations, after checking that they agree."""
    torch.testing.assert_close(*(way() for way in ways.values()), rtol=1e-4, atol=1e-4)
    ours, peer = interleaved(ways, rounds).values()
    held, others = memory.values()
    return [
        name,
        f"{median(ours):.3f} s",
        f"{median(peer):.3f} s",
        f"{ratio(peer, ours):.2f} ×",
        f"{held:,.0f} MB",
        f"{others:,.0f} MB",
        f"{held / others:.2f} ×",
    ]
