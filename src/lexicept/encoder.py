"""The encoder: backbone and head as a ``SparseEncoder`` of sentence-transformers."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
from sentence_transformers import SparseEncoder

from lexicept.backbone import Backbone, Window
from lexicept.errors import InputError
from lexicept.heads import Head, SAEHead, VocabularyHead

POOL_CELLS = 2**24
"""Cells of the dense [texts, vocabulary] array that activations are pooled in: 64 MB."""

_HEADS = {head.__name__: head for head in (SAEHead, VocabularyHead)}


def make_encoder(backbone: Backbone, head: Head) -> SparseEncoder:
    """A ``SparseEncoder`` with the library's own ``save``, ``encode_query``, ``encode_document``.

    A saved folder is loaded by ``load_encoder``, or by
    ``SparseEncoder(path, trust_remote_code=True)``.

    Raises:
        InputError: the head was made for states of another size.
    """
    d = backbone.get_embedding_dimension()
    if head.d_in != d:
        raise InputError(f"a head for states of size {head.d_in} on a backbone of size {d}")
    return SparseEncoder(modules=[backbone, head], similarity_fn_name="dot").eval()


def load_encoder(path: str | os.PathLike[str]) -> SparseEncoder:
    """Load a folder that such an encoder was saved to, without ``trust_remote_code``.

    Raises:
        InputError: not such a folder.
    """
    folder = Path(path)
    if not (folder / "modules.json").exists():
        raise InputError(f"{folder}: no saved encoder (modules.json is missing)")
    try:
        _, entry = json.loads((folder / "modules.json").read_bytes())
        head_type = _HEADS[entry["type"].rpartition(".")[2]]
        backbone = Backbone.load(str(folder))
        head = head_type.read(folder / entry["path"])
    except (OSError, ValueError, TypeError, KeyError, IndexError) as error:
        raise InputError(f"{folder}: this encoder can't be loaded: {error}") from None
    return make_encoder(backbone, head)


def encode_activations(
    encoder: SparseEncoder, texts: Sequence[str], task: str = "document"
) -> sp.csr_array:
    """The pooled activations of texts: CSR [n, size].

    With max pooling these are the values before log1p, with sum pooling the sums after it. The
    head sees no padding, and the result is never dense.
    """
    head = encoder[1]
    step = max(1, POOL_CELLS // head.size)
    parts = [
        _encode_part(encoder, texts[start : start + step], task)
        for start in range(0, len(texts), step)
    ]
    if not parts:
        return sp.csr_array((0, head.size), dtype=np.float32)
    return sp.csr_array(sp.vstack(parts, format="csr"))


def _encode_part(encoder: SparseEncoder, texts: Sequence[str], task: str) -> sp.csr_array:
    head = encoder[1]
    pooled = torch.zeros(len(texts), head.size)
    windows = encoder[0].windows(texts)
    for numbers, states in encoder[0].token_states(windows):
        text = torch.tensor(
            [windows[i].text for i in numbers for special in windows[i].special if not special]
        )
        rows, inverse = torch.unique(text, return_inverse=True)
        with torch.inference_mode():
            found = head.pool(states, inverse.to(states.device), len(rows), task).cpu()
        if head.settings.pooling == "max":
            pooled[rows] = torch.maximum(pooled[rows], found)
        else:
            pooled[rows] += found
    return sp.csr_array(pooled.numpy())


def token_activations(
    encoder: SparseEncoder, windows: Sequence[Window]
) -> Iterator[tuple[torch.Tensor, torch.Tensor, list[tuple[int, int]]]]:
    """The most active dimensions of the real tokens of windows, batch by batch, on the CPU.

    Yields:
        Activations [tokens, k], dimensions [tokens, k], and the window and place of each token.
    """
    for numbers, states in encoder[0].token_states(windows):
        with torch.inference_mode():
            acts, dimensions = encoder[1].encode(states)
        tokens = [
            (number, place)
            for number in numbers
            for place, special in enumerate(windows[number].special)
            if not special
        ]
        yield acts.cpu(), dimensions.cpu(), tokens
