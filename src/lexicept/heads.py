"""Heads: hidden states → activations over a vocabulary, one token at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sentence_transformers.base.modules import Module
from torch import Tensor

from lexicept.errors import InputError
from lexicept.sae.model import TopKSAE


class SAEHead(Module):  # type: ignore[misc]
    """The encoder of a sparse autoencoder as a head: k active latents per token.

    A module of sentence-transformers. ``forward`` turns ``token_embeddings`` [windows, length, d]
    into ``latent_acts`` and ``latents``, both [tokens, k], and ``token_text`` [tokens], the text
    of each token; padding and special tokens are left out before the head, and nothing of the
    size tokens × latents outlives it.
    """

    def __init__(self, sae: TopKSAE) -> None:
        super().__init__()
        self.sae = sae

    @property
    def num_latents(self) -> int:
        """Dimensions of the vocabulary."""
        return self.sae.num_latents

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Add ``latent_acts``, ``latents`` and ``token_text``.

        Raises:
            InputError: the module before it was not a ``Backbone``.
        """
        if "token_mask" not in features:
            raise InputError("SAEHead needs the token_mask of lexicept.backbone.Backbone before it")
        mask = features["token_mask"]
        acts, latents = self.encode(features["token_embeddings"][mask])
        window_text = features["window_text"][:, None].expand(mask.shape)
        return features | {
            "latent_acts": acts,
            "latents": latents,
            "token_text": window_text[mask],
        }

    def encode(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Activations and latents, both [tokens, k], of token states [tokens, d]."""
        acts, latents = self.sae.encode(states)
        return acts, latents

    def get_config_dict(self) -> dict[str, Any]:
        return {"d_in": self.sae.d_in, "num_latents": self.num_latents, "k": self.sae.k}

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Write the SAE into a module folder."""
        self.sae.save(Path(output_path))

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **kwargs: Any) -> SAEHead:
        """Read a module folder, of a local model or a hub's.

        Raises:
            InputError: no SAE there.
        """
        hub = {
            name: kwargs[name]
            for name in ("token", "cache_folder", "revision", "local_files_only")
            if name in kwargs
        }
        folder = cls.load_dir_path(model_name_or_path, subfolder=subfolder, **hub)
        if folder is None:
            raise InputError(f"{model_name_or_path}: no SAE in {subfolder!r}")
        return cls(TopKSAE.load(Path(folder)))
