"""Anisotropy of token states: how alike the states of a layer are (SAE-SPLADE, Table 2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lexicept.errors import InputError
from lexicept.neural.backbones.backbone import Backbone

SAMPLE_TOKENS = 50_000
"""Least number of tokens sampled, text by text."""

SAMPLE_TEXTS = 64
"""Texts drawn together."""


@torch.no_grad()
def anisotropy(
    backbone: Backbone,
    texts: Sequence[str],
    tokens: int = SAMPLE_TOKENS,
    transform: Callable[[Tensor], Tensor] | None = None,
) -> tuple[float, ...]:
    """Return each layer's anisotropy: the mean cosine of two tokens' states (SAE-SPLADE, Table 2).

    The mean over all pairs of different tokens of a sample is ``(‖Σ_u u‖² − n) / (n (n − 1))``, for
    states u of length 1. States after the last block are transformed, if ``transform`` is given.

    Raises InputError for texts with fewer than two tokens.
    """
    sums: list[Tensor | float] = [0.0] * backbone.num_layers
    count = 0
    for features in _sample(backbone, texts, tokens):
        mask = features["token_mask"]
        count += int(mask.sum())

        def add(output: Tensor, layer: int, mask: Tensor = mask) -> None:
            states = output[mask]
            if transform is not None and layer == backbone.num_layers - 1:
                states = transform(states.float())
            sums[layer] = sums[layer] + F.normalize(states.double(), dim=1).sum(dim=0)

        with ExitStack() as hooks:
            for layer in range(backbone.num_layers):
                hooks.enter_context(backbone.hooked(layer + 1, partial(add, layer=layer)))
            backbone.states(features["input_ids"], features["attention_mask"])
    if count < 2:
        raise InputError("anisotropy needs two tokens: the texts have none or one")
    squared = [float(torch.as_tensor(total).square().sum()) for total in sums]
    return tuple((value - count) / (count * (count - 1)) for value in squared)


def _sample(backbone: Backbone, texts: Sequence[str], tokens: int) -> Iterator[dict[str, Tensor]]:
    """Yield batches of texts in a fixed random order, up to a number of tokens."""
    order = np.random.default_rng(0).permutation(len(texts))
    count = 0
    for start in range(0, len(order), SAMPLE_TEXTS):
        some = [texts[int(number)] for number in order[start : start + SAMPLE_TEXTS]]
        for _, features in backbone.batches(backbone.windows(some)):
            count += int(features["token_mask"].sum())
            yield features
        if count >= tokens:
            return
