"""The encoder: backbone and head as a ``SparseEncoder`` of sentence-transformers."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Router

from lexicept.errors import InputError
from lexicept.models.backbone import Backbone
from lexicept.models.heads.base import Head
from lexicept.models.heads.sae import SAEHead
from lexicept.models.heads.vocabulary import VocabularyHead
from lexicept.models.hub import model_folder
from lexicept.models.lookup import Lookup
from lexicept.models.windows import Window

POOL_CELLS = 2**24
"""Cells of dense [texts, vocabulary] or [tokens, vocabulary] arrays that exist at once: 64 MB."""

_MODULES = {
    f"{kind.__module__}.{kind.__name__}": kind
    for kind in (Backbone, SAEHead, VocabularyHead, Lookup)
}


class Parts(NamedTuple):
    """What an encoder is made of."""

    backbone: Backbone
    head: Head
    lookup: Lookup | None
    """The query side, where that needs no inference."""


def make_encoder(backbone: Backbone, head: Head, lookup: Lookup | None = None) -> SparseEncoder:
    """A ``SparseEncoder`` with the library's own ``save``, ``encode_query``, ``encode_document``.

    A saved folder is loaded by ``load_encoder``, or by
    ``SparseEncoder(path, trust_remote_code=True)``.

    Args:
        lookup: encodes queries instead of backbone and head.

    Raises:
        InputError: head, backbone and lookup were made for different sizes.
    """
    d = backbone.get_embedding_dimension()
    if head.d_in != d:
        raise InputError(f"a head for states of size {head.d_in} on a backbone of size {d}")
    if lookup is not None and lookup.num_dimensions != head.size:
        raise InputError(f"a lookup of {lookup.num_dimensions} for a head of {head.size}")
    return with_lookup([backbone, head], lookup).eval()


def parts(encoder: SparseEncoder) -> Parts:
    """Backbone, head and lookup of an encoder that ``make_encoder`` made."""
    lookup, modules = routes(encoder)
    backbone, head = modules
    return Parts(backbone, head, lookup)


def routes(encoder: SparseEncoder) -> tuple[Lookup | None, list[Any]]:
    """A lookup for queries, if there is one, and the modules that texts go through."""
    if isinstance(encoder[0], Router):
        found = encoder[0].sub_modules
        return found["query"][0], list(found["document"])
    return None, list(encoder)


def with_lookup(modules: Sequence[Any], lookup: Lookup | None) -> SparseEncoder:
    """Modules as an encoder, or as the documents' side of one."""
    if lookup is not None:
        modules = [Router.for_query_document([lookup], list(modules))]
    return SparseEncoder(modules=list(modules), similarity_fn_name="dot")


def load_encoder(path: str | os.PathLike[str], revision: str | None = None) -> SparseEncoder:
    """Load a folder that such an encoder was saved to, without ``trust_remote_code``.

    Args:
        path: a folder, or the hub's name of a model, owner/name.
        revision: a branch, tag or commit of the hub's.

    Raises:
        InputError: not such a folder, and no such model on the hub or in its cache.
    """
    folder = model_folder(path, revision)
    if not (folder / "modules.json").exists():
        raise InputError(f"{folder}: no saved encoder (modules.json is missing)")
    try:
        entries = json.loads((folder / "modules.json").read_bytes())
        if len(entries) == 1:
            router = Router.load(str(folder), entries[0]["path"], module_classes=_MODULES)
            sides = router.sub_modules
            (lookup,), (backbone, head) = sides["query"], sides["document"]
        else:
            lookup, head_type = None, _MODULES[entries[1]["type"]]
            backbone = Backbone.load(str(folder))
            head = head_type.load(str(folder), subfolder=entries[1]["path"])
        return make_encoder(backbone, head, lookup)
    except Exception as error:  # the libraries that read its modules raise many kinds
        reason = " ".join(str(error).split())
        raise InputError(f"{folder}: this encoder can't be loaded: {reason}") from None


def encode_activations(
    encoder: SparseEncoder, texts: Sequence[str], task: str = "document"
) -> sp.csr_array:
    """The pooled activations of texts: CSR [n, size].

    With max pooling these are the values before log1p, with sum pooling the sums after it. The
    head sees no padding, and the result is never dense.
    """
    backbone, head, lookup = parts(encoder)
    step = max(1, POOL_CELLS // head.size)
    found = [sp.csr_array((0, head.size), dtype=np.float32)]
    for start in range(0, len(texts), step):
        some = texts[start : start + step]
        if task == "query" and lookup is not None:
            found.append(look_up(lookup, some, head))
        else:
            found.append(_encode_part(backbone, head, some, task))
    return sp.csr_array(sp.vstack(found, format="csr"))


def look_up(lookup: Lookup, texts: Sequence[str], head: Head) -> sp.csr_array:
    """A lookup's queries in the units of a head's pooled activations: CSR [n, size]."""
    with torch.inference_mode():
        weights = lookup(lookup.preprocess(list(texts)))["sentence_embedding"]
    found = sp.csr_array(weights.cpu().numpy())
    if head.settings.pooling == "max":  # what log1p makes the weights of
        found.data = np.expm1(found.data)
    return found


def _encode_part(backbone: Backbone, head: Head, texts: Sequence[str], task: str) -> sp.csr_array:
    windows = backbone.windows(texts)
    places, values = [np.empty(0, np.int64)], [np.empty(0, np.float32)]
    for numbers, states in backbone.token_states(windows, task):
        tokens = [windows[i].text for i in numbers for special in windows[i].special if not special]
        rows, inverse = torch.unique(torch.tensor(tokens, dtype=torch.long), return_inverse=True)
        with torch.inference_mode():
            pooled = head.pool(states, inverse.to(states.device), len(rows), task).cpu()
        row, dimension = torch.nonzero(pooled, as_tuple=True)
        places.append((rows[row] * head.size + dimension).numpy())
        values.append(pooled[row, dimension].numpy())
    # A text's windows may have been in several batches.
    place, value = np.concatenate(places), np.concatenate(values)
    order = np.argsort(place, kind="stable")
    place, first = np.unique(place[order], return_index=True)
    combine = np.maximum if head.settings.pooling == "max" else np.add
    data = combine.reduceat(value[order], first) if len(first) else value
    ends = np.searchsorted(place, head.size * np.arange(len(texts) + 1))
    return sp.csr_array((data, place % head.size, ends), shape=(len(texts), head.size))


def token_activations(
    encoder: SparseEncoder, windows: Sequence[Window]
) -> Iterator[tuple[torch.Tensor, torch.Tensor, list[tuple[int, int]]]]:
    """The most active dimensions of the real tokens of windows, some windows at a time, on the CPU.

    Yields:
        Activations [tokens, k], dimensions [tokens, k], and the window and place of each token.
    """
    backbone, head, _ = parts(encoder)
    limit = POOL_CELLS // head.size  # a head without k may find every dimension active
    for numbers, states in backbone.token_states(windows):
        start = 0
        tokens: list[tuple[int, int]] = []
        for number in numbers:
            special = windows[number].special
            if tokens and len(tokens) + len(special) > limit:
                yield _encode_tokens(head, states[start : start + len(tokens)], tokens)
                start += len(tokens)
                tokens = []
            tokens += [(number, place) for place, one in enumerate(special) if not one]
        yield _encode_tokens(head, states[start:], tokens)


def _encode_tokens(
    head: Head, states: torch.Tensor, tokens: list[tuple[int, int]]
) -> tuple[torch.Tensor, torch.Tensor, list[tuple[int, int]]]:
    with torch.inference_mode():
        acts, dimensions = head.encode(states)
    return acts.cpu(), dimensions.cpu(), tokens


def strongest_tokens(
    encoder: SparseEncoder, text: str, dimensions: Sequence[int], task: str
) -> dict[int, tuple[Window, int]]:
    """The token of a text that each dimension is most active on: its window and its place in it.

    That is the one which max pooling takes, and with sum pooling the largest share. Dimensions that
    are not active are left out.
    """
    backbone, head, _ = parts(encoder)
    windows = backbone.windows([text])
    wanted = torch.tensor(dimensions, dtype=torch.long, device=head.rows.device)
    best: dict[int, tuple[float, Window, int]] = {}
    for numbers, states in backbone.token_states(windows, task):
        if not len(states):
            continue
        tokens = [
            (windows[number], place)
            for number in numbers
            for place, special in enumerate(windows[number].special)
            if not special
        ]
        with torch.inference_mode():
            acts, rows = head.activations(states, wanted, task).max(dim=0)
        for dimension, act, row in zip(dimensions, acts.tolist(), rows.tolist(), strict=True):
            if act > 0 and (dimension not in best or act > best[dimension][0]):
                best[dimension] = (act, *tokens[row])
    return {dimension: (window, place) for dimension, (_, window, place) in best.items()}
