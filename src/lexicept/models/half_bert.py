"""bfloat16: devices that multiply it, and BERT in it on a CPU, 1.4 times as fast as autocast."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from itertools import groupby
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lexicept.models.onnx_bert import is_plain
from lexicept.models.window_tensors import attended
from lexicept.models.windows import Window, group_windows
from lexicept.ops.bfloat16 import add_norm_, softmax_
from lexicept.ops.compiled import in_order
from lexicept.ops.quantisation import has_instructions

os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")

DTYPES = ("float32", "bfloat16", "float16")
"""Types of weights."""

PRECISIONS = ("float32", "bfloat16")
"""Types of matrix products."""


@cache
def multiplies_bfloat16() -> bool:
    """Return whether this CPU has instructions that multiply bfloat16."""
    return has_instructions("avx512_bf16", "amx_bf16")


def has_bfloat16(device: torch.device) -> bool:
    """Return whether a device multiplies bfloat16; emulation on a CPU is five times slower than
    single precision."""
    return multiplies_bfloat16() if device.type == "cpu" else torch.cuda.is_bf16_supported(False)


def autocast(device: torch.device, low: bool = True) -> AbstractContextManager[object]:
    """Multiply matrices in bfloat16, if ``low`` is true and the device multiplies bfloat16."""
    if not (low and has_bfloat16(device)):
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16)


BATCH_TOKENS = 1024
"""Most tokens of a batch, unless a single window has more."""

SCORES = 2**20
"""Most attention scores in memory at once: 2 MB."""

ROOM, LONG, ROWS, TOGETHER = 8, 64, 64, 4
"""Multiples that texts (from ``LONG`` tokens on twice as many) and batches are padded to, and most
texts of a product. oneDNN makes code for each shape: a tenth of the time, and 250 MB."""

_LINEAR = {
    "attention.self": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attention.output.dense": ("attention.output.dense",),
    "intermediate.dense": ("intermediate.dense",),
    "output.dense": ("output.dense",),
}
"""Linear layers of a block that are computed as a single product, by the product's name."""


class HalfBert:
    """The blocks of a BERT with matrix products in bfloat16, with little padding; weights by
    transformers' names, without a prefix.

    As under autocast, sums and norms are in single precision. Unlike under autocast, weights are
    converted once, into oneDNN's fastest layout, GELU is fused with the product before, and
    queries, keys and values are a single product."""

    def __init__(self, weights: Mapping[str, Tensor], config: Mapping[str, Any]) -> None:
        self._weights = weights
        self._layers = int(config["num_hidden_layers"])
        self._heads = int(config["num_attention_heads"])
        self._eps = float(config["layer_norm_eps"])
        self._halves: dict[str, tuple[Tensor, Tensor]] = {}
        for layer in (f"encoder.layer.{n}" for n in range(self._layers)):
            for name, linear in _LINEAR.items():
                weight, bias = (
                    torch.cat([weights[f"{layer}.{inner}.{kind}"] for inner in linear]).bfloat16()
                    for kind in ("weight", "bias")
                )
                packed = torch.ops.mkldnn._reorder_linear_weight(weight)
                self._halves[f"{layer}.{name}"] = (packed, bias)

    @classmethod
    def of(cls, model: Any) -> HalfBert | None:
        """Convert a model of transformers; None for another kind of model, another device than the
        CPU, training, or torch without oneDNN's bfloat16."""
        config = model.config.to_dict()
        if not is_plain(config) or model.training or not has_onednn():
            return None
        weights = {name: weight.detach() for name, weight in model.state_dict().items()}
        blocks = range(config["num_hidden_layers"])
        linear = [name for names in _LINEAR.values() for name in names]
        names = [f"encoder.layer.{n}.{name}.weight" for n in blocks for name in linear]
        names.append("embeddings.word_embeddings.weight")
        fits = (
            weight is not None and weight.device.type == "cpu" and weight.dtype == torch.float32
            for weight in map(weights.get, names)
        )
        return cls(weights, config) if all(fits) else None

    def read(self, windows: Sequence[Window], padding: int) -> Iterator[tuple[list[int], Tensor]]:
        """Yield batches as ``Backbone.token_states`` does; ``padding`` is the token of empty
        windows. Each thread computes a batch of its own: threads that share one wait a fifth of the
        time."""

        def run(batch: list[int]) -> tuple[list[int], Tensor]:
            ids, token_mask, lengths = self._pack([windows[i] for i in batch], padding)
            with torch.inference_mode():
                return batch, self.states(ids, lengths)[token_mask]

        batches, threads = [*group_windows(windows, BATCH_TOKENS)], torch.get_num_threads()
        if threads == 1 or len(batches) == 1:
            yield from map(run, batches)
            return
        try:
            # Meanwhile this thread computes alone too, as the others are busy.
            torch.set_num_threads(1)
            yield from in_order(run, batches, threads, partial(torch.set_num_threads, 1))
        finally:
            torch.set_num_threads(threads)

    def _pack(self, windows: Sequence[Window], padding: int) -> tuple[Tensor, Tensor, list[int]]:
        """Return padded windows one after another, a window without tokens as a token ``padding``:
        tokens [n]; a mask [n], False for padding and tokens left out; and lengths."""
        runs = [attended(window, padding) for window in windows]
        ids, marks = [], []
        for token_ids, left_out in runs:
            empty = self._room(len(token_ids)) - len(token_ids)
            ids += token_ids + [padding] * empty
            marks += left_out + [1] * empty
        after = -len(ids) % ROWS
        token_mask = torch.tensor(marks + [1] * after) == 0
        return torch.tensor(ids + [padding] * after), token_mask, [len(run[0]) for run in runs]

    def _room(self, length: int) -> int:
        """Return the length of a text with padding."""
        unit = ROOM if length < LONG else 2 * ROOM
        most = len(self._weights["embeddings.position_embeddings.weight"])
        return max(length, min(most, -(-length // unit) * unit))

    def states(self, ids: Tensor, lengths: Sequence[int]) -> Tensor:
        """Return the output of the last block [n, d] for padded texts, one after another, of these
        lengths without padding. Neighbours of a padded length share products of attention."""
        runs = [[*run] for _, run in groupby(lengths, self._room)]
        sizes = [self._room(run[0]) * len(run) for run in runs]
        x = self._embedded(ids, runs)
        half = x.bfloat16()
        attention = torch.zeros_like(half)  # of tokens after the last text
        for layer in (f"encoder.layer.{number}" for number in range(self._layers)):
            projections = self._product(half, f"{layer}.attention.self")[: sum(sizes)]
            split = (projection.split(sizes) for projection in projections.chunk(3, dim=1))
            torch.cat([*map(self._attended, runs, *split)], out=attention[: sum(sizes)])
            half = self._product(attention, f"{layer}.attention.output.dense")
            self._add_norm(x, half, f"{layer}.attention.output")
            inner = self._product(half, f"{layer}.intermediate.dense", "gelu")
            half = self._product(inner, f"{layer}.output.dense")
            self._add_norm(x, half, f"{layer}.output")
        return x

    def _embedded(self, ids: Tensor, runs: Sequence[Sequence[int]]) -> Tensor:
        """Return the input of the first block [n, d]."""
        places = torch.cat([torch.arange(self._room(run[0])).repeat(len(run)) for run in runs])
        places = F.pad(places, (0, len(ids) - len(places)))
        tables = ("word_embeddings", "token_type_embeddings", "position_embeddings")
        words, types, positions = (self._weights[f"embeddings.{name}.weight"] for name in tables)
        x = F.embedding(ids, words) + F.embedding(torch.zeros_like(ids), types)
        weight, bias = self._norm("embeddings")
        x = x + F.embedding(places, positions)
        return F.layer_norm(x, weight.shape, weight, bias, self._eps)

    def _attended(self, lengths: list[int], query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Return the attention's output for texts of these lengths, padded to one [n, d]."""
        size, room = query.shape[1] // self._heads, self._room(lengths[0])
        shape = (-1, room, self._heads, size)
        # So few texts together that the scores stay in the cache.
        step = self._heads * min(TOGETHER, max(1, SCORES // (self._heads * room**2)))
        queries, keys, values = (
            matrix.view(shape).transpose(1, 2).reshape(-1, room, size).split(step)
            for matrix in (query, key, value)
        )
        counted = torch.tensor(lengths).repeat_interleave(self._heads).split(step)
        nothing = query.new_zeros(())
        read = []
        for q, k, v, tokens in zip(queries, keys, values, counted, strict=True):
            scores = torch.baddbmm(nothing, q, k.transpose(1, 2), beta=0, alpha=size**-0.5)
            softmax_(scores, tokens)
            read.append(torch.bmm(scores, v))
        whole = torch.cat(read).view(-1, self._heads, room, size)
        return whole.transpose(1, 2).reshape(query.shape)

    def _product(self, half: Tensor, name: str, then: str = "none") -> Tensor:
        weight, bias = self._halves[name]
        product: Tensor = torch.ops.mkldnn._linear_pointwise(half, weight, bias, then, [], "none")
        return product

    def _add_norm(self, x: Tensor, half: Tensor, name: str) -> None:
        weight, bias = self._norm(name)
        add_norm_(x, half, weight, bias, self._eps)

    def _norm(self, name: str) -> tuple[Tensor, Tensor]:
        return self._weights[f"{name}.LayerNorm.weight"], self._weights[f"{name}.LayerNorm.bias"]


def has_onednn() -> bool:
    """Return whether torch's oneDNN multiplies bfloat16 here."""
    return torch.backends.mkldnn.is_available() and bool(
        torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )
