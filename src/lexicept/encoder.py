"""The encoder: backbone, head and pooling as a ``SparseEncoder`` of sentence-transformers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
from sentence_transformers import SparseEncoder

from lexicept.backbone import Backbone, Window
from lexicept.errors import InputError
from lexicept.heads import SAEHead
from lexicept.pooling import SparseMaxPooling, max_pool

POOL_CELLS = 2**24
"""Cells of the dense [texts, latents] array that activations are pooled in: 64 MB."""


def make_encoder(
    backbone: Backbone,
    head: SAEHead,
    query_max_active_dims: int | None = None,
    document_max_active_dims: int | None = None,
) -> SparseEncoder:
    """A ``SparseEncoder`` with the library's own ``save``, ``encode_query``, ``encode_document``.

    A saved folder is loaded by ``load_encoder``, or by
    ``SparseEncoder(path, trust_remote_code=True)``.

    Raises:
        InputError: the SAE was made for states of another size.
    """
    d = backbone.get_embedding_dimension()
    if head.sae.d_in != d:
        raise InputError(f"an SAE for states of size {head.sae.d_in} on a backbone of size {d}")
    limits = (query_max_active_dims, document_max_active_dims)
    pooling = SparseMaxPooling(head.num_latents, *limits)
    return SparseEncoder(modules=[backbone, head, pooling], similarity_fn_name="dot").eval()


def load_encoder(path: str | os.PathLike[str]) -> SparseEncoder:
    """Load a folder that such an encoder was saved to, without ``trust_remote_code``.

    Raises:
        InputError: not such a folder.
    """
    folder = str(path)
    if not (Path(folder) / "modules.json").exists():
        raise InputError(f"{folder}: no saved encoder (modules.json is missing)")
    try:
        modules = [
            Backbone.load(folder),
            SAEHead.load(folder, subfolder="1_SAEHead"),
            SparseMaxPooling.load(folder, subfolder="2_SparseMaxPooling"),
        ]
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{folder}: this encoder can't be loaded: {error}") from None
    return SparseEncoder(modules=modules, similarity_fn_name="dot").eval()


def encode_activations(encoder: SparseEncoder, texts: Sequence[str]) -> sp.csr_array:
    """The largest activation of every latent in every text, before log1p: CSR [n, num_latents].

    The same as pooling's input to log1p, without padding in the head and without a dense result.
    """
    head = encoder[1]
    step = max(1, POOL_CELLS // head.num_latents)
    parts = [
        _encode_part(encoder, texts[start : start + step]) for start in range(0, len(texts), step)
    ]
    if not parts:
        return sp.csr_array((0, head.num_latents), dtype=np.float32)
    return sp.csr_array(sp.vstack(parts, format="csr"))


def _encode_part(encoder: SparseEncoder, texts: Sequence[str]) -> sp.csr_array:
    size = encoder[1].num_latents
    pooled = torch.zeros(len(texts), size)
    windows = encoder[0].windows(texts)
    for acts, latents, tokens in token_activations(encoder, windows):
        text = torch.tensor([windows[window].text for window, _ in tokens])
        rows, inverse = torch.unique(text, return_inverse=True)
        pooled[rows] = torch.maximum(
            pooled[rows], max_pool(acts, latents, inverse, len(rows), size)
        )
    return sp.csr_array(pooled.numpy())


def token_activations(
    encoder: SparseEncoder, windows: Sequence[Window]
) -> Iterator[tuple[torch.Tensor, torch.Tensor, list[tuple[int, int]]]]:
    """Active latents of the real tokens of windows, batch by batch, on the CPU.

    Yields:
        Activations [tokens, k], latents [tokens, k], and the window and place of each token.
    """
    for numbers, states in encoder[0].token_states(windows):
        with torch.inference_mode():
            acts, latents = encoder[1].encode(states)
        tokens = [
            (number, place)
            for number in numbers
            for place, special in enumerate(windows[number].special)
            if not special
        ]
        yield acts.cpu(), latents.cpu(), tokens
