"""Pooling: the activations of a text's tokens → one vector."""

from __future__ import annotations

from typing import Any

import torch
from sentence_transformers.base.modules import Module
from sentence_transformers.util import select_max_active_dims
from torch import Tensor


def max_pool(
    acts: Tensor, dimensions: Tensor, token_text: Tensor, num_texts: int, size: int
) -> Tensor:
    """The largest activation of every dimension in every text.

    Args:
        acts: [tokens, k], at least 0.
        dimensions: where each activation belongs [tokens, k].
        token_text: the text of every token [tokens].
        num_texts, size: shape of the result.

    Returns:
        [num_texts, size]; zero where nothing fires, and for a text without tokens.
    """
    pooled = acts.new_zeros(num_texts * size)
    places = token_text[:, None] * size + dimensions
    pooled = pooled.scatter_reduce(0, places.ravel(), acts.ravel(), "amax")
    return pooled.view(num_texts, size)


class SparseMaxPooling(Module):  # type: ignore[misc]
    """``log(1 + max over tokens)`` (SPLADE v2), pruned to the largest weights.

    A module of sentence-transformers, after a head that names each token's active dimensions.

    Args:
        embedding_dimension: size of the vocabulary.
        query_max_active_dims: dimensions left by ``encode_query``; None keeps all.
        document_max_active_dims: the same for ``encode_document``.
    """

    config_keys = [  # noqa: RUF012
        "embedding_dimension",
        "query_max_active_dims",
        "document_max_active_dims",
    ]
    forward_kwargs = {"task", "max_active_dims"}  # noqa: RUF012

    def __init__(
        self,
        embedding_dimension: int,
        query_max_active_dims: int | None = None,
        document_max_active_dims: int | None = None,
    ) -> None:
        super().__init__()
        self.embedding_dimension = embedding_dimension
        self.query_max_active_dims = query_max_active_dims
        self.document_max_active_dims = document_max_active_dims

    def forward(
        self,
        features: dict[str, Any],
        task: str | None = None,
        max_active_dims: int | None = None,
        **_: Any,
    ) -> dict[str, Any]:
        """Add ``sentence_embedding`` [texts, embedding_dimension]."""
        # In training the collator loses plain numbers; every text has at least one window.
        num_texts = int(features["window_text"].max()) + 1
        pooled = max_pool(
            features["latent_acts"],
            features["latents"],
            features["token_text"],
            num_texts,
            self.embedding_dimension,
        )
        embedding = torch.log1p(pooled)
        limits = {"query": self.query_max_active_dims, "document": self.document_max_active_dims}
        limit = limits.get(task or "") if max_active_dims is None else max_active_dims
        if limit is not None and limit < self.embedding_dimension:
            embedding = select_max_active_dims(embedding, limit)
        features["sentence_embedding"] = embedding
        return features

    def get_embedding_dimension(self) -> int:
        """Size of the vocabulary."""
        return self.embedding_dimension

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Write the configuration into a module folder."""
        self.save_config(output_path)
