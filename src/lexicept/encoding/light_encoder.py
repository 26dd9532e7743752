"""A saved encoder without torch: BERT in ONNX Runtime; an SAE with k; and pooling in NumPy."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from tokenizers import Tokenizer

from lexicept.encoding.eight_bits import FILE, EightBitBert
from lexicept.encoding.head_settings import HeadSettings, read_settings
from lexicept.encoding.index_settings import FILE as SETTINGS
from lexicept.encoding.index_settings import IndexSettings
from lexicept.encoding.largest_products import LargestProducts
from lexicept.encoding.onnx_bert import OnnxBert, damage_of, map_safetensors
from lexicept.encoding.pooled import TokenReader
from lexicept.encoding.sources import MINI_FOLDER, checksum
from lexicept.encoding.windows import (
    BORDERS,
    UNLIMITED,
    Cut,
    Window,
    cut_windows,
    prompt_for,
    read_tokenizer,
)
from lexicept.errors import InputError
from lexicept.kernels.compiled import in_order, num_threads
from lexicept.storage.files import read_json
from lexicept.vectors import Floats, Integers, stack_rows

_MODULES = ["lexicept.neural.backbones.backbone.Backbone", "lexicept.neural.heads.sae.SAEHead"]

PART = 16
"""Texts that a thread reads together."""

_BACKBONE = {"dtype": "float32", "bidirectional": True}


class LightEncoder(TokenReader):
    """An ``Encoder`` of a BERT and an SAE with k, equal but for rounding.

    Args:
        states: computes the states of tokens.
        config: the entries of the configurations of backbone, tokenizer and prompts.
    """

    def __init__(
        self, states: OnnxBert, head: LatentHead, tokenizer: Tokenizer, config: Mapping[str, Any]
    ) -> None:
        tokenizer.encode_special_tokens = bool(config.get("split_special_tokens"))
        self._states, self.head, self._tokenizer, self.config = states, head, tokenizer, config
        self.folder: Path | None = None
        """The folder of the saved encoder."""
        self.index_settings = IndexSettings()
        """Weighting of the activations in an index, and limits on a query's cost."""
        limits = (config.get("max_seq_length"), config.get("model_max_length"), UNLIMITED)
        limit = min(limit for limit in limits if limit is not None)
        self._window = min(int(limit), states.positions)
        borders = [token for name in BORDERS if (token := config.get(name)) is not None]
        texts = [token["content"] if isinstance(token, dict) else token for token in borders]
        ids = map(tokenizer.token_to_id, texts)
        special = {token for token in ids if token is not None}
        self._special = None if config.get("special_tokens") else special

    @classmethod
    def load(cls, folder: Path) -> LightEncoder | None:
        """Load a saved encoder; None for a model that only ``Encoder`` can run. Raises InputError
        or IndexFormatError for damaged or missing files."""
        if (head := LatentHead.of(folder)) is None:
            return None
        config: dict[str, Any] = {}
        for name in ("sentence_bert_config", "tokenizer_config", "config_sentence_transformers"):
            config |= read_json(folder / f"{name}.json")
        if any(config.get(name, value) != value for name, value in _BACKBONE.items()):
            return None
        if (path := folder / FILE).exists():
            states: OnnxBert | None = EightBitBert.load_file(
                path, read_json(folder / "config.json")
            )
        else:
            states = OnnxBert.load(folder)
        tokenizer = read_tokenizer(folder / "tokenizer.json")
        # Tokens without an embedding are left to ``Backbone``.
        if states is None or tokenizer.get_vocab_size() > states.tokens:
            return None
        with damage_of(folder / "tokenizer_config.json"):
            encoder = cls(states, head, tokenizer, config)
        encoder.folder = folder
        if (folder / SETTINGS).exists():
            encoder.index_settings = IndexSettings.read(folder)
        return encoder

    def cut(self, query: int | None, document: int | None) -> LightEncoder:
        """Return the encoder with other ``limits``; None keeps one."""
        stated = {"max_query_tokens": query, "max_document_tokens": document}
        encoder = copy(self)
        limits = {name: limit for name, limit in stated.items() if limit is not None}
        encoder.config = {**self.config, **limits}
        return encoder

    @property
    def limits(self) -> dict[str, int | None]:
        """The most tokens of a query and a document; None for no limit."""
        return {task: self.max_tokens(task) for task in ("query", "document")}

    def max_tokens(self, task: str) -> int | None:
        """Return the most tokens of a text of a task; None for no limit."""
        limit: int | None = self.config.get(f"max_{task}_tokens")
        return limit

    def fingerprint(self, task: str) -> str:
        """Return a hash of all that the states of a text depend on."""
        assert self.folder is not None
        return f"{checksum(self.folder / FILE)} {self.max_tokens(task)}"

    def prompt(self, task: str) -> str:
        prompts, default = self.config.get("prompts", {}), self.config.get("default_prompt_name")
        return prompt_for(task, prompts, default)

    def windows(self, texts: Sequence[str], task: str = "document") -> list[Window]:
        # One by one: a batch starts threads, which a server's workers would multiply.
        encodings = [self._tokenizer.encode(text) for text in texts]
        cut = Cut.after(self.max_tokens(task), self._window)
        left = self.config.get("truncation_side") == "left"
        return cut_windows(texts, encodings, cut, special=self._special, left=left)

    def encode_with_means(self, texts: Sequence[str], task: str) -> tuple[sp.csr_array, Floats]:
        # Windows do not depend on others: each part has a thread.
        encode = partial(super().encode_with_means, task=task)
        if len(texts) <= PART or self._states.threads is None:
            return encode(texts)
        parts = (texts[start : start + PART] for start in range(0, len(texts), PART))
        blocks = list(in_order(encode, parts, num_threads()))
        tf = stack_rows((tf for tf, _ in blocks), self.head.size)
        return tf, np.concatenate([means for _, means in blocks])

    def token_states(
        self, windows: Sequence[Window], task: str = "document"
    ) -> Iterator[tuple[list[int], Floats]]:
        return self._states.read(windows)


@cache
def packaged_encoder() -> LightEncoder:
    """Return the packaged encoder. Raises InputError or IndexFormatError for damaged files."""
    encoder = LightEncoder.load(MINI_FOLDER)
    if encoder is None:
        raise InputError(f"{MINI_FOLDER} is damaged: install lexicept again")
    return encoder


class LatentHead:
    """An ``SAEHead`` with k.

    Args:
        weights: by the names of ``SAE``.
    """

    def __init__(
        self, weights: Mapping[str, Floats], centred: bool, settings: HeadSettings
    ) -> None:
        single = {name: np.asarray(weight, np.float32) for name, weight in weights.items()}
        self.settings, self._scale, self._mean = settings, single["scale"], single["mean"]
        self._origin = single["b_dec"] if centred else np.float32(0)
        self.size, self.d_in = single["W_enc"].shape
        shapes = [single[name].shape for name in ("mean", "b_dec", "b_enc")]
        if shapes != [(self.d_in,), (self.d_in,), (self.size,)]:
            raise ValueError("mean, b_dec and b_enc of other sizes than W_enc")
        self.directions = single["W_enc"]
        """Encoder row of each latent, f32 [size, d]."""
        self.terms = None
        self._largest = LargestProducts(single["W_enc"], single["b_enc"])

    @classmethod
    def of(cls, folder: Path) -> LatentHead | None:
        """Load the head of a saved encoder; None for an encoder or a head of another form."""
        with damage_of(folder / "modules.json"):
            entries = json.loads((folder / "modules.json").read_bytes())
            if [entry["type"] for entry in entries] != _MODULES:
                return None
            folder = folder / entries[1]["path"]
        settings, other = read_settings(folder)
        if None in (settings.query_k, settings.document_k) or settings.double_log:
            return None
        if other.get("inner"):
            return None
        weights = map_safetensors(folder / "sae.safetensors")
        if "threshold" in weights or any(weight.dtype.kind != "f" for weight in weights.values()):
            return None
        with damage_of(folder / "sae.json"):
            centred = json.loads((folder / "sae.json").read_bytes())["centred"]
        with damage_of(folder / "sae.safetensors"):
            return cls(weights, centred, settings)

    def largest_acts(self, states: Floats, k: int | None = None) -> tuple[Floats, Integers]:
        """See ``Head.encode``."""
        x = (states - self._mean) / self._scale - self._origin
        products, latents = self._largest.of(x, k or self.settings.document_k or self.size)
        return np.maximum(products, 0) * self._scale, latents

    def largest_addends(self, states: Floats, k: int) -> tuple[Floats, Integers]:
        """See ``Head``."""
        acts, latents = self.largest_acts(states, k)
        return np.log1p(acts) if self.settings.pooling == "sum" else acts, latents

    def token_addends(self, states: Floats, dimensions: Sequence[int], task: str) -> Floats:
        """See ``Head``."""
        addends, latents = self.largest_addends(states, self.settings.k(task) or self.size)
        # A column for each dimension asked for, and one more for all others.
        column = np.full(self.size, len(dimensions))
        column[list(dimensions)] = np.arange(len(dimensions))
        among = np.zeros((len(states), len(dimensions) + 1), np.float32)
        np.put_along_axis(among, column[latents], addends, 1)
        return among[:, :-1]
