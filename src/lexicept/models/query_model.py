"""The concepts of a query from a saved encoder, with few imports.

Importing sentence-transformers and transformers takes several times as long as importing torch, and
a command that answers one query needs neither.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import scipy.sparse as sp
import torch
from tokenizers import Encoding, Tokenizer
from torch import Tensor

from lexicept.models.bert import Bert
from lexicept.models.exemplars import Exemplars
from lexicept.models.half_bert import HalfBert, has_bfloat16, has_onednn
from lexicept.models.heads.settings import HeadSettings, read_settings
from lexicept.models.pooled import MeanStates, TokenStates, pooled_activations
from lexicept.models.sae.model import SAE
from lexicept.models.windows import Window, pack_windows, prompt_for
from lexicept.ops.compiled import calls_kernels
from lexicept.ops.linear_topk import takes_rounded
from lexicept.ops.pooling import root_of_sums
from lexicept.ops.quantisation import Quantised, quantised
from lexicept.storage.files import read_json
from lexicept.vectors import stack_columns

MOST_TEXTS = 64
"""Most queries in a call: with more it pays to load an ``Encoder``, which may use a GPU."""

BATCH_TOKENS = 1024
"""Most tokens that go through the backbone together, unless one query has more."""

_MODULES = ["lexicept.models.backbone.Backbone", "lexicept.models.heads.sae.SAEHead"]

_BACKBONE = {"dtype": "float32", "bidirectional": True, "special_tokens": False}

_BORDERS = ("bos_token", "eos_token", "cls_token", "sep_token")


class LatentHead:
    """The part of an ``SAEHead`` with k that encodes queries."""

    def __init__(self, sae: SAE, settings: HeadSettings) -> None:
        self.sae = sae
        self.settings = settings
        self.size = sae.num_latents
        self._rounded: Quantised | None = None

    def encode(self, states: Tensor, k: int | None = None) -> tuple[Tensor, Tensor]:
        """Return each token's activations and latents; see ``SAE.encode``."""
        rows = self.sae.W_enc.detach()
        # A process's first queries load no kernels.
        if self._rounded is None and calls_kernels() and takes_rounded(rows, k, self.sae.threshold):
            self._rounded = quantised(rows)
        return self.sae.encode(states, k, self._rounded)

    def finish(self, pooled: Tensor) -> Tensor:
        """Return the pooled activations of whole texts; see ``Head.finish``."""
        return root_of_sums(pooled) if self.settings.pooling == "sqrt_sum" else pooled


class QueryModel:
    """A BERT and an SAE with k: short queries → pooled activations, equal to an ``Encoder``'s.

    Args:
        borders: ids of tokens that are special wherever they are.
        window: the most tokens that the backbone reads at once, special ones included.
    """

    def __init__(
        self,
        bert: Bert,
        head: LatentHead,
        tokenizer: Tokenizer,
        borders: set[int],
        window: int,
        prompt: str,
        exemplars: Exemplars | None,
    ) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._bert, self._head, self._tokenizer = bert, head, tokenizer
        self._borders, self._window, self._prompt = borders, window, prompt
        self._exemplars = exemplars

    @classmethod
    def load(
        cls, folder: Path, exemplars: Exemplars | None = None, precision: str = "float32"
    ) -> QueryModel | None:
        """Load a saved ``Encoder``; None for one that only ``Encoder`` can run.

        Args:
            exemplars: what queries are compared with, too.
            precision: float32, or bfloat16 for a backbone that multiplies it where the processor
                does so faster.

        Raises:
            OSError, ValueError, KeyError, TypeError, RuntimeError, InputError: it is damaged.
        """
        entries = json.loads((folder / "modules.json").read_bytes())
        own = read_json(folder / "sentence_bert_config.json")
        if [entry["type"] for entry in entries] != _MODULES:
            return None
        if any(own.get(name, value) != value for name, value in _BACKBONE.items()):
            return None
        settings, other = read_settings(folder / entries[1]["path"])
        if settings.query_k is None or settings.double_log or other.get("inner"):
            return None
        bert = _kind(precision).load(folder)
        if bert is None:
            return None
        head = LatentHead(SAE.load(folder / entries[1]["path"]), settings)
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        names = read_json(folder / "tokenizer_config.json")
        limits = (own.get("max_seq_length"), own.get("max_query_tokens"), names["model_max_length"])
        texts = read_json(folder / "config_sentence_transformers.json")
        prompt = prompt_for("query", texts.get("prompts", {}), texts.get("default_prompt_name"))
        window = min(bert.positions, *(limit for limit in limits if limit is not None))
        borders = _borders(tokenizer, names)
        return cls(bert, head, tokenizer, borders, window, prompt, exemplars)

    @property
    def size(self) -> int:
        """Number of latents, and of exemplars."""
        return self._head.size + (0 if self._exemplars is None else len(self._exemplars))

    def queries(self, texts: Sequence[str]) -> tuple[sp.csr_array, list[int]] | None:
        """Return the pooled activations of queries and, after them, their weights of exemplars, CSR
        [n, size], and the places of those that do not fit the backbone's window, whose rows are
        empty; None for too many queries."""
        if len(texts) > MOST_TEXTS:
            return None
        encoded = [self._tokenizer.encode(self._prompt + text) for text in texts]
        windows = [self._cut(number, one) for number, one in enumerate(encoded)]
        # Texts of equal length are neighbours.
        order = sorted(range(len(texts)), key=lambda number: len(windows[number].token_ids))
        fit = [number for number in order if len(windows[number].token_ids) <= self._window]
        read = TokenStates(windows, self._states(windows, fit))
        left = sorted(set(order) - set(fit))
        if self._exemplars is None:
            return pooled_activations(self._head, read, len(texts), "query"), left
        means = MeanStates(len(texts), self._exemplars.d)
        found = pooled_activations(self._head, read, len(texts), "query", means=means)
        return stack_columns([found, self._exemplars.vectors(means.result(), "query")]), left

    def _cut(self, number: int, encoded: Encoding) -> Window:
        pairs = zip(encoded.special_tokens_mask, encoded.ids, strict=True)
        left_out = [int(added or token in self._borders) for added, token in pairs]
        return Window(number, encoded.ids, left_out, encoded.word_ids, encoded.offsets)

    def _states(
        self, windows: Sequence[Window], numbers: Sequence[int]
    ) -> Iterator[tuple[list[int], Tensor]]:
        """Yield the states of windows in batches of about ``BATCH_TOKENS``, without padding."""
        for batch in _batches(numbers, [len(windows[number].token_ids) for number in numbers]):
            ids, token_mask, lengths = pack_windows([windows[number] for number in batch], 0)
            with torch.inference_mode():
                states = self._bert.states(ids, lengths)[token_mask]
            yield batch, states


def _kind(precision: str) -> type[Bert]:
    """Return what multiplies in this precision."""
    if precision == "bfloat16" and has_bfloat16(torch.device("cpu")) and has_onednn():
        return HalfBert
    return Bert


def _batches(numbers: Sequence[int], lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield numbers in order, as many at a time as have ``BATCH_TOKENS`` tokens, or one."""
    batch: list[int] = []
    tokens = 0
    for number, length in zip(numbers, lengths, strict=True):
        if batch and tokens + length > BATCH_TOKENS:
            yield batch
            batch, tokens = [], 0
        batch.append(number)
        tokens += length
    if batch:
        yield batch


def _borders(tokenizer: Tokenizer, names: dict[str, Any]) -> set[int]:
    """Return the ids of the tokens that begin and end texts."""
    found = (names.get(name) for name in _BORDERS)
    texts = [one["content"] if isinstance(one, dict) else one for one in found if one is not None]
    return {token for text in texts if (token := tokenizer.token_to_id(text)) is not None}
