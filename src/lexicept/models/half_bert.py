"""Low precision: devices that multiply bfloat16, and BERT in 8 bits on a CPU, twice as fast as in
bfloat16 by autocast."""

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
from lexicept.ops.bfloat16 import softmax_
from lexicept.ops.byte_products import ByteLinear, Rounded
from lexicept.ops.compiled import in_order
from lexicept.ops.quantisation import has_instructions, multiplies_bytes, single_on_cpu

os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")

DTYPES = ("float32", "bfloat16", "float16")
PRECISIONS = ("float32", "low")
"""Types of weights, and precisions of reading documents; see ``Backbone``."""


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


BATCH_TOKENS, SCORES = 1024, 2**20
"""Most tokens of a batch, unless a window has more, and most attention scores at once: 2 MB."""

ROOM, LONG, ROWS, TOGETHER = 8, 64, 64, 4
"""Multiples that texts (from ``LONG`` tokens on twice as many) and batches are padded to, and most
texts of a product. oneDNN makes code for each shape: a tenth of the time, and 250 MB."""

_LINEAR = ("attention.self", "attention.output.dense", "intermediate.dense", "output.dense")
"""Linear layers of a block; those of queries, keys and values are a single one."""


class ByteBert:
    """The blocks of a BERT with linear layers in 8 bits, with little padding; weights by
    transformers' names, without a prefix.

    Each token's numbers and each output's weights have a scale of their own, so that states do not
    depend on the batch. Attention is in bfloat16, sums and norms are in single precision. For
    lexicept-mini's backbone, errors are .0015 of the states' variance, in bfloat16 .00005."""

    def __init__(self, weights: Mapping[str, Tensor], config: Mapping[str, Any]) -> None:
        self._weights = weights
        self._layers = int(config["num_hidden_layers"])
        self._heads = int(config["num_attention_heads"])
        self._eps = float(config["layer_norm_eps"])
        self._linear: dict[str, ByteLinear] = {}
        for layer in (f"encoder.layer.{n}" for n in range(self._layers)):
            for name in _LINEAR:
                inner = (".query", ".key", ".value") if name == "attention.self" else ("",)
                weight, bias = (
                    torch.cat([weights[f"{layer}.{name}{end}.{kind}"] for end in inner])
                    for kind in ("weight", "bias")
                )
                self._linear[f"{layer}.{name}"] = ByteLinear(weight, bias)

    @classmethod
    def of(cls, model: Any) -> ByteBert | None:
        """Convert a model of transformers; None for another kind of model, another device than the
        CPU, training, or a CPU or torch without the instructions."""
        config = model.config.to_dict()
        if not (is_plain(config) and multiplies_bytes()) or model.training:
            return None
        weights = {name: weight.detach() for name, weight in model.state_dict().items()}
        single = all(single_on_cpu(each, each) for each in weights.values() if each.dim() == 2)
        # Adapters give the weights other names.
        plain = "encoder.layer.0.attention.self.query.weight" in weights
        return cls(weights, config) if single and plain else None

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
        rounded = Rounded.of(x)
        attention = torch.zeros_like(x)  # of tokens after the last text
        for layer in (f"encoder.layer.{number}" for number in range(self._layers)):
            projections = self._linear[f"{layer}.attention.self"].bfloat16(rounded)[: sum(sizes)]
            split = (projection.split(sizes) for projection in projections.chunk(3, dim=1))
            torch.cat([*map(self._attended, runs, *split)], out=attention[: sum(sizes)])
            rounded = self._add_norm(Rounded.of(attention), x, f"{layer}.attention.output")
            inner = self._linear[f"{layer}.intermediate.dense"].gelu(rounded)
            rounded = self._add_norm(inner, x, f"{layer}.output")
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
        return whole.transpose(1, 2).reshape(query.shape).float()

    def _add_norm(self, inputs: Rounded, x: Tensor, name: str) -> Rounded:
        """Replace ``x`` by the norm of its sum with a layer's outputs; return that rounded."""
        norm = (*self._norm(name), self._eps)
        return self._linear[f"{name}.dense"].add_norm_(inputs, x, norm)

    def _norm(self, name: str) -> tuple[Tensor, Tensor]:
        return self._weights[f"{name}.LayerNorm.weight"], self._weights[f"{name}.LayerNorm.bias"]
