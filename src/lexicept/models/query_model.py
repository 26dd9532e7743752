"""The concepts of a query from a saved encoder, with few imports.

Importing sentence-transformers and transformers takes several times as long as importing torch, and
a command for a single query needs neither.
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
from lexicept.models.windows import BORDERS, Window, pack_windows, prompt_for
from lexicept.ops.compiled import calls_kernels
from lexicept.ops.linear_topk import takes_rounded
from lexicept.ops.pooling import root_of_sums
from lexicept.ops.quantisation import Quantised, quantised
from lexicept.storage.files import read_json
from lexicept.vectors import stack_columns

MOST_TEXTS = 64
"""Most queries in a call: for more, an ``Encoder`` on a GPU pays."""

BATCH_TOKENS = 1024
"""Most tokens of a batch, unless a single query has more."""

_MODULES = ["lexicept.models.backbone.Backbone", "lexicept.models.heads.sae.SAEHead"]

_BACKBONE = {"dtype": "float32", "bidirectional": True, "special_tokens": False}


class LatentHead:
    """The query encoder of an ``SAEHead`` with k."""

    def __init__(self, sae: SAE, settings: HeadSettings) -> None:
        self.sae = sae
        self.settings = settings
        self.size = sae.num_latents
        self._rounded: Quantised | None = None

    def encode(self, states: Tensor, k: int | None = None) -> tuple[Tensor, Tensor]:
        """Return each token's activations and latents; see ``SAE.encode``."""
        W_enc, threshold = self.sae.W_enc.detach(), self.sae.threshold
        # A process's first queries load no kernels.
        if self._rounded is None and calls_kernels() and takes_rounded(W_enc, k, threshold):
            self._rounded = quantised(W_enc)
        return self.sae.encode(states, k, self._rounded)

    def finish(self, pooled: Tensor) -> Tensor:
        """Return the pooled activations of whole texts; see ``Head.finish``."""
        return root_of_sums(pooled) if self.settings.pooling == "sqrt_sum" else pooled


class BertQueryModel:
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
    ) -> BertQueryModel | None:
        """Load a saved ``Encoder``; None for models that only ``Encoder`` can run.

        Args:
            exemplars: for the texts vocabulary.
            precision: float32, or bfloat16 on processors that multiply bfloat16 faster.

        Raises:
            OSError, ValueError, KeyError, TypeError, RuntimeError, InputError: damaged files.
        """
        entries = json.loads((folder / "modules.json").read_bytes())
        config = read_json(folder / "sentence_bert_config.json")
        if [entry["type"] for entry in entries] != _MODULES:
            return None
        if any(config.get(name, value) != value for name, value in _BACKBONE.items()):
            return None
        settings, other = read_settings(folder / entries[1]["path"])
        if settings.query_k is None or settings.double_log or other.get("inner"):
            return None
        bert = _kind(precision).load(folder)
        if bert is None:
            return None
        head = LatentHead(SAE.load(folder / entries[1]["path"]), settings)
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        if tokenizer.get_vocab_size() > bert.tokens:
            return None
        names = read_json(folder / "tokenizer_config.json")
        limits = [config.get(name) for name in ("max_seq_length", "max_query_tokens")]
        limits.append(names["model_max_length"])
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
        """Return the queries' pooled activations followed by weights of exemplars, CSR [n, size],
        and the places of queries longer than the backbone's window, with empty rows; None for too
        many queries."""
        if len(texts) > MOST_TEXTS:
            return None
        encoded = [self._tokenizer.encode(self._prompt + text) for text in texts]
        windows = [self._cut(number, encoding) for number, encoding in enumerate(encoded)]
        # Texts of equal length are neighbours.
        order = sorted(range(len(texts)), key=lambda number: len(windows[number].token_ids))
        fit = [number for number in order if len(windows[number].token_ids) <= self._window]
        read = TokenStates(windows, self._states(windows, fit))
        left = sorted(set(order) - set(fit))
        if self._exemplars is None:
            return pooled_activations(self._head, read, len(texts), "query"), left
        means = MeanStates(len(texts), self._exemplars.d)
        activations = pooled_activations(self._head, read, len(texts), "query", means=means)
        return stack_columns([activations, self._exemplars.vectors(means.result(), "query")]), left

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
    """Return the class of a backbone in a precision."""
    if precision == "bfloat16" and has_bfloat16(torch.device("cpu")) and has_onednn():
        return HalfBert
    return Bert


def _batches(numbers: Sequence[int], lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield batches of numbers in order, of at most ``BATCH_TOKENS`` tokens or a single number."""
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
    """Return the ids of the tokens at the start and end of texts."""
    borders = [token for name in BORDERS if (token := names.get(name)) is not None]
    texts = [token["content"] if isinstance(token, dict) else token for token in borders]
    return {token for text in texts if (token := tokenizer.token_to_id(text)) is not None}
