"""Inference-free queries: a table with one weight per sub-word or word, instead of a network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from lexicept.errors import InputError
from lexicept.models.heads.base import Head
from lexicept.models.windows import keep_whole, longest_input

_UNKNOWN = "[UNK]"
BATCH = 1024
"""Texts tokenised together."""


class Lookup(SparseStaticEmbedding):  # type: ignore[misc]
    """Query weights ``w_j = ReLU(weight_j)`` for the dimensions j in a query (Geng et al. 2024),
    cut after ``max_query_tokens``, by default the tokenizer's limit.

    A module of sentence-transformers, for the query route of a ``Router``. The ids of its tokenizer
    are dimensions; higher ids are unknown words without weight."""

    config_keys = ["frozen", "size", "max_query_tokens"]  # noqa: RUF012

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        weight: Tensor | None = None,
        frozen: bool = False,
        size: int | None = None,
        max_query_tokens: int | None = None,
    ) -> None:
        super().__init__(tokenizer, torch.ones(size or 0) if weight is None else weight, frozen)
        keep_whole(tokenizer)
        self.size = self.num_dimensions
        self.max_query_tokens = max_query_tokens

    def preprocess(
        self, inputs: Sequence[str], prompt: str | None = None, **_: Any
    ) -> dict[str, Tensor]:
        """Tokenize texts: ``input_ids`` and ``attention_mask`` [texts, length]."""
        texts = self._prepend_prompt(list(inputs), prompt) if prompt else list(inputs)
        tokenized = self._tokenize(texts)["input_ids"]
        token_ids = [torch.tensor(ids, dtype=torch.long) for ids in tokenized]
        mask = pad_sequence([torch.ones_like(ids) for ids in token_ids], batch_first=True)
        return {"input_ids": pad_sequence(token_ids, batch_first=True), "attention_mask": mask}

    @property
    def longest_query(self) -> int:
        """Most tokens of a query."""
        limit = longest_input(self.tokenizer)
        return limit if self.max_query_tokens is None else min(limit, self.max_query_tokens)

    def _tokenize(self, texts: list[str], **options: bool) -> dict[str, list[Any]]:
        """Return the tokenizer's lists, each text cut at the shorter limit."""
        encoded = self.tokenizer(texts, add_special_tokens=False, verbose=False, **options)
        limit = self.longest_query
        cut = slice(-limit, None) if self.tokenizer.truncation_side == "left" else slice(limit)
        return {name: [text[cut] for text in texts] for name, texts in encoded.items()}

    def forward(self, features: dict[str, Tensor], **_: Any) -> dict[str, Tensor]:
        """Add ``sentence_embedding`` [texts, size]."""
        ids, mask = features["input_ids"], features["attention_mask"]
        size = self.num_dimensions
        # Padding and unknown words mark one more column, which is dropped.
        present = torch.zeros(len(ids), size + 1, device=ids.device)
        places = ids.clamp(max=size).masked_fill(mask == 0, size)
        present = present.scatter(1, places, 1.0)[:, :size]
        features["sentence_embedding"] = present * F.relu(self.weight)
        return features

    def places(self, text: str) -> dict[int, list[tuple[int, int]]]:
        """Return start and end of the tokens of each dimension of a text, in characters."""
        encoded = self._tokenize([text], return_offsets_mapping=True)
        (ids,), (offsets,) = encoded["input_ids"], encoded["offset_mapping"]
        places: dict[int, list[tuple[int, int]]] = {}
        for number, place in zip(ids, offsets, strict=True):
            places.setdefault(number, []).append(place)
        return places

    @classmethod
    def for_head(cls, head: Head, tokenizer: PreTrainedTokenizerBase) -> Lookup:
        """Make a lookup over a head's sub-words or words, with weights of 1, for the backbone's
        tokenizer. Raises InputError for other dimensions."""
        if head.terms is None:
            raise InputError("an inference-free query side needs dimensions that texts name")
        if head.size == len(tokenizer):
            return cls(tokenizer, torch.ones(head.size))
        return cls(word_tokenizer(list(head.terms), tokenizer), torch.ones(head.size))

    def set_idf(self, texts: Iterable[str]) -> None:
        """Set weights to the idf over a collection, ``ln(1 + (N − df + ½) / (df + ½))``; special
        tokens get 0. Raises InputError without texts."""
        df, count = np.zeros(self.num_dimensions + 1, np.int64), 0
        stream = iter(texts)
        while batch := list(islice(stream, BATCH)):
            encoded = self.tokenizer(batch, add_special_tokens=False, verbose=False)["input_ids"]
            for ids in encoded:
                df[np.unique(np.minimum(ids, self.num_dimensions)).astype(np.int64)] += 1
            count += len(batch)
        if not count:
            raise InputError("idf needs documents")
        df = df[: self.num_dimensions]
        weight = np.log1p((count - df + 0.5) / (df + 0.5))
        weight[[i for i in self.tokenizer.all_special_ids if i < len(weight)]] = 0
        with torch.no_grad():
            self.weight.copy_(torch.from_numpy(weight))


def word_tokenizer(words: list[str], tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerFast:
    """Make a tokenizer with another's splitting of texts, and the positions of words as ids."""
    inner = tokenizer.backend_tokenizer
    vocabulary = {word: place for place, word in enumerate(words)}
    whole = Tokenizer(WordLevel(vocabulary | {_UNKNOWN: len(words)}, unk_token=_UNKNOWN))
    if inner.normalizer is not None:
        whole.normalizer = inner.normalizer
    if inner.pre_tokenizer is not None:
        whole.pre_tokenizer = inner.pre_tokenizer
    return PreTrainedTokenizerFast(
        tokenizer_object=whole,
        unk_token=_UNKNOWN,
        pad_token=_UNKNOWN,
        model_max_length=tokenizer.model_max_length,
    )
