"""Texts encoded by a ``SparseEncoder`` of sentence-transformers, with the words behind each weight.

The model runs in sentence-transformers. The recorded inputs of the last modules suffice to divide
each weight among the tokens, for any language model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property, partial
from typing import Any, NamedTuple, cast

import torch
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules.transformer import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from sentence_transformers.sparse_encoder.modules import (
    SparseAutoEncoder,
    SparseStaticEmbedding,
    SpladePooling,
)
from torch import Tensor

from lexicept.encoding.vectorizer import WeightedText
from lexicept.encoding.windows import prompt_for
from lexicept.encoding.word_spans import split_words, whole_words
from lexicept.errors import InputError
from lexicept.explanation.contributions import Sources, unnamed, whole
from lexicept.neural.heads.language import readable_terms

_LAST = (SpladePooling, SparseStaticEmbedding, SparseAutoEncoder)
"""Modules that make weights of dimensions."""

_READERS = (Transformer, SparseStaticEmbedding)
"""Modules that turn texts into tokens."""

SIMILARITIES = ("dot", "cosine")
"""Similarities as sums over dimensions."""


class _Call(NamedTuple):
    """A module and the input."""

    module: Any
    features: dict[str, Any]


class LibraryModel:
    """A ``SparseEncoder``: text → weights, each divided among words.

    The words of a weight are the words of the tokens behind the weight: with SPLADE's max pooling
    the token of the largest logit, with sum pooling every token; with a table of weights the tokens
    that name the dimension. An autoencoder after mean pooling (CSR) is linear up to the ReLU: each
    token adds or subtracts a share, and the biases have the remainder. After different pooling a
    dimension reads one vector of the whole text, without words. Raises InputError for an unknown
    last module, a similarity that is not a sum over dimensions, or a tokenizer without offsets.
    """

    def __init__(self, model: SparseEncoder) -> None:
        last = [module for module in model.modules() if isinstance(module, _LAST)]
        if not last:
            names = ", ".join(type(module).__name__ for module in model)
            raise InputError(f"{names}: not a model of sparse vectors that can be explained")
        if model.similarity_fn_name not in SIMILARITIES:
            raise InputError(
                f"similarity {model.similarity_fn_name}: a score is explained where it is a sum "
                f"over dimensions, with {' or '.join(SIMILARITIES)}"
            )
        self._model = model
        latents = any(isinstance(module, SparseAutoEncoder) for module in last)
        self.kind = "concepts" if latents else "sub-words"
        """Kind of the dimensions: an autoencoder's are concepts."""

    @cached_property
    def _terms(self) -> list[str]:
        """The sub-words; none for concepts."""
        readers = [module for module in self._model.modules() if isinstance(module, _READERS)]
        if self.kind == "concepts" or not readers:
            return []
        tokenizer = readers[0].tokenizer
        return readable_terms(tokenizer, len(tokenizer))

    def term(self, dimension: int) -> str:
        """Return the sub-word of a dimension, or the number."""
        has_term = dimension < len(self._terms)
        return self._terms[dimension] if has_term else unnamed(dimension)

    def weigh(self, text: str, task: str) -> WeightedText:
        """Encode a text for a task, query or document, as the model does."""
        model = self._model
        encode = model.encode_query if task == "query" else model.encode_document
        with _recorded(model) as calls:
            try:
                vector = encode(text, convert_to_sparse_tensor=False).double().cpu()
            except IndexError:
                raise InputError(
                    "the model has no embedding for a token of the text: its tokenizer has more"
                ) from None
        if model.similarity_fn_name == "cosine":
            vector = vector / vector.norm().clamp_min(1e-12)
        prompt = prompt_for(task, model.prompts, model.default_prompt_name)
        active = torch.nonzero(vector).ravel().tolist()
        weights = {dimension: float(vector[dimension]) for dimension in active}
        return WeightedText(weights, partial(self._sources, calls, prompt, text))

    def _sources(
        self, calls: Sequence[_Call], prompt: str, text: str, dimensions: Sequence[int]
    ) -> dict[int, Sources]:
        """Return the sources of each dimension in the text, less the prompt."""
        shares = _shares(calls, dimensions)
        if shares is None or not dimensions:
            return {dimension: Sources() for dimension in dimensions}
        features, token_shares = shares
        attended = features["attention_mask"][0].cpu() != 0
        ids = features["input_ids"][0].cpu()[attended].tolist()
        reader = next(call.module for call in calls if isinstance(call.module, _READERS))
        spans = _spans(reader, prompt + text, ids)
        before = len(prompt)
        return {
            dimension: Sources.of(
                (whole(text, max(0, start - before), end - before), share)
                for (start, end), share in zip(spans, column, strict=True)
                if share and end > max(start, before)
            )
            for dimension, column in zip(dimensions, token_shares[attended].T.tolist(), strict=True)
        }


@contextmanager
def _recorded(model: SparseEncoder) -> Iterator[list[_Call]]:
    """Record the calls of modules that pool or make weights, in order."""
    calls: list[_Call] = []

    def record(module: Any, args: tuple[Any, ...]) -> None:
        calls.append(_Call(module, dict(args[0])))

    with ExitStack() as hooks:
        for module in model.modules():
            if isinstance(module, (*_LAST, *_READERS, Pooling)):
                hooks.callback(module.register_forward_pre_hook(record).remove)
        yield calls


def _shares(
    calls: Sequence[_Call], dimensions: Sequence[int]
) -> tuple[Mapping[str, Any], Tensor] | None:
    """Return the features with the tokens, and each token's share in the weight of each dimension
    [tokens, dimensions]; None if weights are not shared among tokens."""
    module, features = calls[-1]
    columns = torch.tensor(list(dimensions), dtype=torch.long)
    if isinstance(module, SparseStaticEmbedding):
        names = features["input_ids"][0].cpu()[:, None] == columns
        names &= features["attention_mask"][0].cpu()[:, None] != 0
        return features, names / names.sum(0).clamp_min(1)
    if isinstance(module, SpladePooling):
        return features, _pooled_shares(module, features, columns)
    tokens = next((call.features for call in calls if isinstance(call.module, Pooling)), None)
    if tokens is None:
        return None
    shares = _linear_shares(module, tokens, features["sentence_embedding"][0], columns)
    return None if shares is None else (tokens, shares)


def _pooled_shares(module: Any, features: Mapping[str, Any], columns: Tensor) -> Tensor:
    """Return the shares of tokens in weights by SPLADE's pooling of logits."""
    mask = features["attention_mask"][0].double().cpu()
    logits = features["token_embeddings"][0][:, columns.to(features["token_embeddings"].device)]
    activations = torch.log1p(torch.relu(logits.double().cpu() * mask[:, None]))
    if module.activation_function == "log1p_relu":
        activations = torch.log1p(activations)
    if module.pooling_strategy == "max":
        largest = activations.argmax(0, keepdim=True)
        return torch.zeros_like(activations).scatter(0, largest, 1.0)
    return activations / activations.sum(0).clamp_min(torch.finfo(activations.dtype).tiny)


def _linear_shares(
    module: Any, features: Mapping[str, Any], read: Tensor, columns: Tensor
) -> Tensor | None:
    """Return the shares of tokens in latents of an autoencoder that reads a factor times the mean
    of token states ``h_i``: ``factor · w · h_i / n`` of ``w · (x − b_pre) + b``.

    ``features`` are the input of the pooling, ``read`` is the input of the autoencoder [d]. Returns
    [tokens, dimensions]; None for a different input.
    """
    states, mask = features["token_embeddings"][0].double().cpu(), features["attention_mask"][0]
    read = read.double().cpu()
    states = states * (mask.double().cpu() / mask.sum().cpu())[:, None]
    # The autoencoder may read the mean at another length, such as at unit length: the same factor
    # for all tokens. Anything else is not linear in the tokens.
    mean = states.sum(0)
    if mean.shape != read.shape or not float(mean.norm()):
        return None
    states = states * (read.norm() / mean.norm())
    if not torch.allclose(states.sum(0), read, rtol=1e-4, atol=1e-5):
        return None
    encoder_matrix = module.encoder.weight.detach().double().cpu()[columns]
    offset = module.latent_bias.detach().double().cpu()[columns]
    if module.normalize:
        centred = read - read.mean()
        deviation = centred.std() + 1e-5
        states = (states - states.mean(1, keepdim=True)) / deviation
        read = centred / deviation
    active = encoder_matrix @ (read - module.pre_bias.detach().double().cpu()) + offset
    return cast(Tensor, states @ encoder_matrix.T / active)


def _spans(reader: Any, text: str, ids: Sequence[int]) -> list[tuple[int, int]]:
    """Return start and end of each token's word, in characters of a text, or for a table of tokens
    of the token; special tokens have empty spans.

    Raises InputError if the tokenizer of ``reader`` has no offsets, or returns other tokens than
    ``ids``.
    """
    tokenizer, table = reader.tokenizer, isinstance(reader, SparseStaticEmbedding)
    if not getattr(tokenizer, "is_fast", False):
        raise InputError("the model's tokenizer has no offsets (not a fast one)")
    read = text.lower() if getattr(reader, "do_lower_case", False) else text
    encoded = tokenizer(
        read,
        add_special_tokens=not table,
        truncation=True,
        max_length=max(1, len(ids)),
        return_offsets_mapping=True,
        verbose=False,
    )
    if list(encoded["input_ids"]) != list(ids) or len(read) != len(text):
        raise InputError("the model's tokens can't be traced to characters of the text")
    offsets = encoded["offset_mapping"]
    return (
        offsets if table else whole_words(split_words(read, encoded.word_ids(), offsets), offsets)
    )
