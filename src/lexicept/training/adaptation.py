"""Adaptation of a concept model to one collection, from its documents alone.

The model's SAE is trained further to reconstruct token states, now those of the collection. The
backbone does not change, so that the states, which are kept on disk, serve for training and for
encoding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lexicept.errors import InputError
from lexicept.models.backbone import Backbone
from lexicept.models.cached_states import CachedStates, cached_reader
from lexicept.models.encoder import Encoder
from lexicept.models.exemplars import Exemplars
from lexicept.models.heads.sae import SAEHead
from lexicept.models.heads.settings import HeadSettings
from lexicept.models.index_settings import IndexSettings
from lexicept.models.pooled import MeanStates
from lexicept.models.sae.states import READ
from lexicept.progress import Progress, silent
from lexicept.training.sae.settings import SAESettings
from lexicept.training.sae.trainer import train_on_states
from lexicept.vectors import Floats

SAMPLE_TOKENS = 1_000_000
"""Most tokens of the sample of a collection: .8 GB on disk, while the index is built."""

DESCRIBED_TOKENS = 200_000
"""Most tokens of the sample that concepts which are not adapted are described from."""

FEWEST_TOKENS = 50_000
"""Tokens of a collection below which the model is not adapted: on 100 answers of MedQuAD, 31,000
tokens, adaptation gained nothing; on 300 a little."""

PASSES = 6
"""Times that the sample is read, up to ``MOST_TOKENS`` in all; 3 were nearly as good, but costlier
to search."""

MOST_TOKENS = 1_000_000
"""Most tokens that are trained on: half a minute to a minute on two cores."""

TRAINED_K = 8
"""Active latents per token in lexicept-mini's training; its ``HEAD`` uses fewer."""

BUFFER_TOKENS = 2**17
"""States that are shuffled together: 200 MB of memory."""

SEED = 0

EXEMPLARS = 4096
"""Most texts of the sample that whole texts are compared with."""

HEAD = HeadSettings(
    "sqrt_sum",
    query_k=2,
    document_k=2,
    query_max_active_dims=32,
    document_max_active_dims=160,
    query_scale=2.5,
    pruning="impact",
)
"""Settings of an adapted lexicept-mini's head; chosen on CACM, Vaswani and MedQuAD."""

INDEX = IndexSettings("bm25", k1=2.0, b=0.4, k3=16.0, query_max_qd_flops=1.5)
"""Its weighting in an index, and the limit on a query's cost; chosen on the same collections:
values of b from .3 to .4, and budgets of 1.5 and more, differ by less than .003 nDCG@10. With whole
texts, which take up to .4, a query stays below 2 QD-FLOPs."""


@dataclass(frozen=True)
class Effort:
    """Size of an adaptation."""

    tokens: int
    """Tokens of the sample that it learned from."""
    steps: int
    """Optimiser steps."""


class Adaptation(NamedTuple):
    """Size of an adaptation, and the documents that it read."""

    effort: Effort | None
    """None where the collection is too small, and the encoder was left as it was."""
    documents: list[int]
    """Numbers of the documents of its sample, whose states ``Backbone.known`` has."""
    exemplars: Exemplars | None = None
    """Exemplars made of the first of these documents; None for a model that was not adapted or that
    keeps its own settings."""


class Sample(NamedTuple):
    """Distinct texts of a collection."""

    documents: list[int]
    """Their numbers."""
    texts: list[str]
    tokens: int
    """The number of their tokens."""


def check_adaptable(encoder: Encoder) -> None:
    """Raise InputError for an encoder whose concepts can't be adapted."""
    if not isinstance(encoder.head, SAEHead) or encoder.head.sae.k is None:
        raise InputError("only the concepts of an SAE with k can be adapted")
    if encoder.lookup is not None:
        raise InputError("concepts that queries look up can't be adapted: the table would not fit")


def adapt(
    encoder: Encoder,
    texts: Sequence[str],
    folder: Path,
    progress: Progress = silent,
    *,
    configure: bool,
) -> Adaptation:
    """Adapt an encoder to a collection, in place; an adapted one has no names. ``Backbone.known``
    gets the states of a sample. A collection of fewer than ``FEWEST_TOKENS`` tokens adapts nothing.

    Calling it again with the same arguments resumes an interrupted adaptation, and ends with the
    same weights.

    Args:
        texts: the collection's documents.
        folder: keeps the states and the checkpoint.
        configure: whether the encoder gets the settings ``HEAD`` and ``INDEX``, which suit
            lexicept-mini, instead of keeping its own.

    Returns:
        The size of the adaptation, and the sample that it read.
    """
    head, backbone = encoder.head, encoder.backbone
    assert isinstance(head, SAEHead)
    chosen = sample(backbone, texts, SAMPLE_TOKENS, encoder.prompt("document"))
    states = CachedStates.build(folder / "states", backbone, chosen.texts, progress)
    backbone.known = states
    if chosen.tokens < FEWEST_TOKENS:
        return Adaptation(None, chosen.documents)
    settings = SAESettings(
        num_latents=head.sae.num_latents,
        k=TRAINED_K if configure else head.settings.document_k or head.sae.k or 1,
        tokens=min(PASSES * chosen.tokens, MOST_TOKENS),
        buffer_tokens=BUFFER_TOKENS,
        seed=SEED,
    )
    transform = None if head.inner is None else head.inner.transform
    device = backbone.model.device
    reader = cached_reader([states], device, transform)
    to = (settings, folder / "training", progress)
    sae = train_on_states(reader, len(states), *to, start=head.sae, device=device)
    sae.decoder = False  # an index needs the encoder alone
    encoder[1] = SAEHead(sae, HEAD if configure else head.settings, head.inner)
    if configure:
        encoder.index_settings = INDEX
    encoder.names = None
    exemplars = Exemplars.of(_means(states), EXEMPLARS) if configure else None
    return Adaptation(Effort(chosen.tokens, settings.steps), chosen.documents, exemplars)


def _means(states: CachedStates) -> Floats:
    """Return the mean states of all texts [n, d]."""
    parts = []
    for start in range(0, len(states), READ):
        numbers = range(start, min(start + READ, len(states)))
        own, text = states.read(numbers)
        means = MeanStates(len(numbers), own.shape[1])
        means.add(text, own)
        parts.append(means.result())
    return np.concatenate(parts)


def read_to_describe(
    encoder: Encoder, texts: Sequence[str], folder: Path, progress: Progress = silent
) -> list[int]:
    """Give ``Backbone.known`` the states of a sample of a collection, so that describing the
    concepts does not compute them again; return the numbers of the sample's documents.

    Args:
        folder: keeps the states.
    """
    chosen = sample(encoder.backbone, texts, DESCRIBED_TOKENS, encoder.prompt("document"))
    known = CachedStates.build(folder / "states", encoder.backbone, chosen.texts, progress)
    encoder.backbone.known = known
    return chosen.documents


def sample(backbone: Backbone, texts: Sequence[str], most: int, prompt: str = "") -> Sample:
    """Draw distinct texts at random until they have ``most`` tokens.

    Args:
        prompt: put before every text.
    """
    order = np.random.default_rng(SEED).choice(len(texts), min(len(texts), most), replace=False)
    chosen: dict[str, int] = {}
    tokens = 0
    for start in range(0, len(order), READ):
        numbers = order[start : start + READ].tolist()
        block = [prompt + texts[number] for number in numbers]
        counts = np.zeros(len(block), np.int64)
        for window in backbone.windows(block):
            counts[window.text] += window.left_out.count(0)
        for number, text, count in zip(numbers, block, counts.tolist(), strict=True):
            if tokens < most and text not in chosen:
                chosen[text] = number
                tokens += count
        if tokens >= most:
            break
    return Sample(list(chosen.values()), list(chosen), tokens)
