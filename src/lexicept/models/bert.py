"""BERT with torch alone: equal to transformers', without seconds of importing transformers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from lexicept.models.sources import Reference, resolve
from lexicept.storage.files import read_json

_EXPECTED = {
    "model_type": "bert",
    "hidden_act": "gelu",
    "is_decoder": False,
    "position_embedding_type": "absolute",
}

_ADAPTERS = {
    "peft_type": "LORA",
    "fan_in_fan_out": False,
    "use_dora": False,
    "use_rslora": False,
    "alpha_pattern": {},
    "rank_pattern": {},
}

_LORA = re.compile(r"base_model\.model\.(.*)\.lora_A\.weight")


class Bert:
    """The blocks of a BERT in single precision, without padding.

    Operations and their order equal transformers' with default attention, so that the states of a
    single text are equal bit for bit. States of several texts differ in rounding: matrix products
    of different sizes add in different orders.

    Args:
        weights: by transformers' names, without a prefix.
    """

    def __init__(self, weights: Mapping[str, Tensor], config: Mapping[str, Any]) -> None:
        self._weights = weights
        self._layers = int(config["num_hidden_layers"])
        self._heads = int(config["num_attention_heads"])
        self._eps = float(config["layer_norm_eps"])
        self.positions = len(weights["embeddings.position_embeddings.weight"])
        """Most tokens of a text."""
        self.tokens = len(weights["embeddings.word_embeddings.weight"])
        """Number of tokens with an embedding."""

    @classmethod
    def load(cls, folder: Path) -> Bert | None:
        """Load a saved model, or adapters and base; None for another kind of model or absent
        weights.

        Raises:
            OSError, ValueError, KeyError, RuntimeError, InputError: the files are damaged.
        """
        config = read_json(folder / "config.json")
        if not is_plain(config):
            return None
        adapters, reference = folder / "adapter_config.json", Reference.read(folder)
        source = folder if reference is None else reference.find()
        if adapters.exists():
            settings = read_json(adapters)
            if any(settings.get(name, value) != value for name, value in _ADAPTERS.items()):
                return None
            if reference is None:
                source = Path(resolve(settings["base_model_name_or_path"]))
        if not (source / "model.safetensors").exists():
            return None
        weights = _without_prefix(load_file(source / "model.safetensors"))
        if adapters.exists():
            added = load_file(folder / "adapter_model.safetensors")
            _add(weights, added, settings["lora_alpha"] / settings["r"])
        if any(weight.dtype != torch.float32 for weight in weights.values()):
            return None
        return cls(weights, config)

    def states(self, ids: Tensor, lengths: Sequence[int]) -> Tensor:
        """Return the output of the last block [n, d] for the tokens of texts, one after another.

        Args:
            ids: the tokens [n].
            lengths: number of tokens of each text; the sum is n. Neighbouring texts of equal length
                share a product of attention.
        """
        runs = equal_lengths(lengths)
        x = self._embedded(ids, lengths)
        for layer in (f"encoder.layer.{number}" for number in range(self._layers)):
            names = (f"{layer}.attention.self.{name}" for name in ("query", "key", "value"))
            attention = self._attention(runs, [self._linear(x, name) for name in names])
            read = self._linear(attention, f"{layer}.attention.output.dense")
            x = self._normalised(read + x, f"{layer}.attention.output")
            inner = F.gelu(self._linear(x, f"{layer}.intermediate.dense"))
            outer = self._linear(inner, f"{layer}.output.dense")
            x = self._normalised(outer + x, f"{layer}.output")
        return x

    def _embedded(self, ids: Tensor, lengths: Sequence[int]) -> Tensor:
        """Return the input of the first block [n, d]."""
        places = torch.cat([torch.arange(length) for length in lengths])
        tables = ("word_embeddings", "token_type_embeddings", "position_embeddings")
        words, types, positions = (self._weights[f"embeddings.{name}.weight"] for name in tables)
        x = F.embedding(ids, words) + F.embedding(torch.zeros_like(ids), types)
        return self._normalised(x + F.embedding(places, positions), "embeddings")

    def _attention(self, runs: Sequence[tuple[int, int]], projections: Sequence[Tensor]) -> Tensor:
        """Return the attention's output for all tokens [n, d].

        Args:
            projections: queries, keys and values, all [n, d].
        """
        sizes = [length * count for length, count in runs]
        queries, keys, values = (projection.split(sizes) for projection in projections)
        split = zip(runs, queries, keys, values, strict=True)
        return torch.cat([self._attended(length, q, k, v) for (length, _), q, k, v in split])

    def _attended(self, length: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Return the attention's output for texts of equal length [n, d]."""
        shape = (-1, length, self._heads, query.shape[1] // self._heads)
        q, k, v = (part.view(shape).transpose(1, 2) for part in (query, key, value))
        read = F.scaled_dot_product_attention(q, k, v, scale=shape[-1] ** -0.5)
        return read.transpose(1, 2).reshape(query.shape)

    def _linear(self, x: Tensor, name: str) -> Tensor:
        return F.linear(x, self._weights[f"{name}.weight"], self._weights[f"{name}.bias"])

    def _normalised(self, x: Tensor, name: str) -> Tensor:
        weight, bias = self._norm(name)
        return F.layer_norm(x, weight.shape, weight, bias, self._eps)

    def _norm(self, name: str) -> tuple[Tensor, Tensor]:
        return self._weights[f"{name}.LayerNorm.weight"], self._weights[f"{name}.LayerNorm.bias"]


def equal_lengths(lengths: Sequence[int]) -> list[tuple[int, int]]:
    """Return runs of neighbouring texts of equal length: the length and the number of texts."""
    return [(length, len(list(texts))) for length, texts in groupby(lengths)]


def is_plain(config: Mapping[str, Any]) -> bool:
    """Return whether ``Bert`` computes the model of a configuration."""
    return all(config.get(name, value) == value for name, value in _EXPECTED.items())


def _without_prefix(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of the blocks and the embeddings."""
    names = {name: name.removeprefix("bert.") for name in weights}
    return {
        plain: weights[name]
        for name, plain in names.items()
        if plain.startswith(("embeddings.", "encoder.")) and weights[name].is_floating_point()
    }


def _add(weights: dict[str, Tensor], adapters: Mapping[str, Tensor], factor: float) -> None:
    """Add low-rank adapters, ``factor * B A``, to the adapted weights."""
    for name, down in adapters.items():
        if match := _LORA.fullmatch(name):
            up, adapted = adapters[name.replace("lora_A", "lora_B")], f"{match[1]}.weight"
            weights[adapted] = weights[adapted] + up @ down * factor
