"""Adaptation of a concept model to one collection, from the documents alone.

The model's SAE is trained further, on the collection's token states. The backbone does not change,
so that the cached states serve for training and for encoding.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lexicept.encoding.head_settings import HeadSettings
from lexicept.encoding.index_settings import IndexSettings
from lexicept.encoding.light_encoder import LightEncoder
from lexicept.encoding.windows import READ
from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.heads.sae import SAEHead
from lexicept.neural.kernels.linear_outputs import top_activations
from lexicept.neural.kernels.sparse_linear import sum_by_group, sum_chosen
from lexicept.neural.sae.cached_states import CachedStates, cached_reader
from lexicept.neural.sae.model import SAE
from lexicept.neural.sae.states import Reader
from lexicept.progress import Progress, silent
from lexicept.storage.arrays import return_memory
from lexicept.training.sae.settings import SAESettings
from lexicept.training.sae.trainer import train_on_states

SAMPLE_TOKENS = 1_000_000
"""Most tokens of the sample of a collection: .8 GB on disk, while the index is built."""

FEWEST_TOKENS = 50_000
"""Smallest collection to adapt to, in tokens: on 100 answers of MedQuAD, 31,000 tokens, adaptation
gained nothing; on 300 a little."""

PASSES = 3
"""Passes over the sample, up to ``MOST_TOKENS`` in all: about the backbone's time; 6 were little
better, and cheaper to search."""

MOST_TOKENS = 1_000_000
"""Most training tokens."""

LEARNING_RATE = 1e-3
"""Learning rate, low for latents that are trained already."""

WARMUP_STEPS = 10
"""Steps of warm-up: few, as there are few steps in all."""

TRAINED_K = 8
"""Active latents per token in lexicept-mini's training; its ``HEAD`` uses fewer."""

AUXILIARY_EVERY = 4
"""Distance of the tokens that dead latents learn from: all would be a third of the steps' time."""

BUFFER_TOKENS = 2**16
"""States to shuffle together: 50 MB of memory in half precision."""

FITTED_TOKENS = 2**15
"""Approximate number of tokens that the first decoder is fitted to."""

CACHED = 32
"""Texts whose cached states are read together."""

SEED = 0

HEAD_FOLDER = "1_SAEHead"
"""Folder of lexicept-mini's head."""

HEAD = HeadSettings(
    "sqrt_sum",
    query_k=2,
    document_k=2,
    query_max_active_dims=32,
    document_max_active_dims=160,
    query_scale=0.25,
    pruning="impact",
)
"""Settings of a head that is learned from a collection alone: lexicept-mini's, with half the weight
of concepts, of which fewer are good."""

INDEX = IndexSettings("bm25", k1=2.0, b=0.4, k3=16.0, query_max_qd_flops=1.5)
"""Its weighting in an index, and the limit on a query's cost; chosen on the same collections:
values of b from .3 to .4, and budgets of 1.5 and more, differ by less than .003 nDCG@10."""

MINI_SPREAD = 6.0
"""Mean distance of lexicept-mini's token states from their mean. Those of another backbone are
brought to this length for training, and k1 and k3 of ``INDEX`` to the units of its activations."""


@dataclass(frozen=True)
class Effort:
    """Size of an adaptation."""

    tokens: int
    """Tokens of the sample."""
    steps: int
    """Optimiser steps."""


class TextSample(NamedTuple):
    """Distinct texts of a collection."""

    documents: list[int]
    """Numbers of the documents."""
    texts: list[str]
    tokens: int
    """Number of tokens."""


def adapt(
    encoder: LightEncoder, texts: Sequence[str], folder: Path, progress: Progress = silent
) -> tuple[LightEncoder, Effort | None]:
    """Adapt lexicept-mini to a collection; return the adapted encoder, saved in ``folder``, and the
    size of the adaptation. A collection of fewer than ``FEWEST_TOKENS`` tokens changes nothing:
    None.

    Calling it again with the same arguments resumes an interrupted adaptation, to the same weights.
    """
    assert encoder.folder is not None
    drawn = sample(encoder, texts, SAMPLE_TOKENS)
    if drawn.tokens < FEWEST_TOKENS:
        return encoder, None
    states = CachedStates.build(folder / "states", encoder, drawn.texts, progress)
    head = SAEHead.load(str(encoder.folder), subfolder=HEAD_FOLDER)
    settings = _training(head.sae.num_latents, TRAINED_K, drawn.tokens)
    reader = cached_reader([states], torch.device("cpu"), None, np.float16)
    sae = _trained_further(head.sae, settings, reader, states, folder, progress)
    model = folder / "model"
    shutil.rmtree(model, ignore_errors=True)
    shutil.copytree(encoder.folder, model)
    SAEHead(sae, head.settings).save(str(model / HEAD_FOLDER))
    adapted = LightEncoder.load(model)
    assert adapted is not None
    return adapted.cut(**encoder.limits), Effort(drawn.tokens, settings.steps)


def _trained_further(
    sae: SAE,
    settings: SAESettings,
    reader: Reader,
    states: CachedStates,
    folder: Path,
    progress: Progress,
) -> SAE:
    """Return an SAE for encoding, trained further on the states of a collection."""
    share = min(1.0, FITTED_TOKENS / max(1, states.num_tokens))
    fitted = reader(range(math.ceil(len(states) * share))).float()
    trained = train_on_states(
        reader,
        len(states),
        settings,
        folder / "training",
        progress,
        documents=CACHED,
        start=with_initial_decoder(sae, fitted, settings.k),
        device=fitted.device,
    )
    trained.decoder = False  # an index needs the encoder alone
    return_memory()
    return trained


def learn(
    backbone: Backbone,
    prompts: dict[str, str],
    texts: Sequence[str],
    folder: Path,
    progress: Progress = silent,
) -> tuple[Encoder, Effort, list[int]]:
    """Learn concepts of a backbone from a collection alone, of any size; return the encoder, the
    effort, and the sampled documents' numbers, whose states are in ``Backbone.known``.

    Calling it again with the same arguments resumes an interrupted call, to the same weights.

    Args:
        prompts: the texts before queries and documents, by task.
    """
    drawn = sample(backbone, texts, SAMPLE_TOKENS, prompts["document"])
    states = CachedStates.build(folder / "states", backbone, drawn.texts, progress)
    backbone.known = states
    settings = _training(SAESettings().num_latents, TRAINED_K, drawn.tokens)
    device = backbone.model.device
    count = min(len(states), math.ceil(len(states) * FITTED_TOKENS / max(drawn.tokens, 1)))
    unit = spread(cached_reader([states], device)(range(count))) / MINI_SPREAD
    sae = train_on_states(
        cached_reader([states], device, lambda read: read / unit),
        len(states),
        settings,
        folder / "training",
        progress,
        documents=CACHED,
        device=device,
    )
    sae.decoder = False
    sae.scale.mul_(unit)
    index = replace(INDEX, k1=INDEX.k1 * math.sqrt(unit), k3=INDEX.k3 * unit)
    encoder = Encoder.of(backbone, SAEHead(sae, HEAD), index_settings=index)
    encoder.prompts = prompts
    return encoder, Effort(drawn.tokens, settings.steps), drawn.documents


def spread(states: Tensor) -> float:
    """Return the mean distance of token states [n, d] from their mean; 1 for equal states."""
    return float((states - states.mean(dim=0)).norm(dim=1).mean()) or 1.0


def _training(num_latents: int, k: int, tokens: int) -> SAESettings:
    """Return the settings of training on a sample of ``tokens``."""
    return SAESettings(
        num_latents=num_latents,
        k=k,
        tokens=min(PASSES * tokens, MOST_TOKENS),
        auxiliary_every=AUXILIARY_EVERY,
        buffer_tokens=BUFFER_TOKENS,
        learning_rate=LEARNING_RATE,
        warmup_steps=WARMUP_STEPS,
        seed=SEED,
    )


@torch.no_grad()
def with_initial_decoder(sae: SAE, states: Tensor, k: int) -> SAE:
    """Return a copy of an SAE with a decoder for states [n, d]: rows trained for ranking rebuild no
    state.

    A decoder row is the direction of the sum of a latent's states, weighted by activation, from the
    mean state. The k latents stay; one factor on all activations minimises the error.
    """
    sae = deepcopy(sae)
    x = sae.normalise(states)
    acts, latents = top_activations(sae.centre(x), sae.W_enc, sae.b_enc, k)
    mean = x.mean(dim=0)
    if sae.centred:
        sae.b_enc.add_(sae.W_enc @ (mean - sae.b_dec))
    sae.b_dec.copy_(mean)
    x -= mean
    tokens = torch.arange(len(x), device=x.device).repeat_interleave(k)
    sums = sum_by_group(acts.ravel(), latents.ravel(), tokens, x, sae.num_latents)
    fired = sums.norm(dim=1) > 0
    sae.W_dec[fired] = F.normalize(sums[fired], dim=1)
    x_hat = sum_chosen(acts, latents, sae.W_dec).ravel()
    factor = torch.dot(x_hat, x.ravel()) / torch.dot(x_hat, x_hat)
    if 0 < factor < torch.inf:
        sae.W_enc.mul_(factor)
        sae.b_enc.mul_(factor)
    return sae


def sample(
    backbone: Backbone | LightEncoder, texts: Sequence[str], most: int, prompt: str = ""
) -> TextSample:
    """Draw distinct texts at random, up to ``most`` tokens."""
    order = np.random.default_rng(SEED).choice(len(texts), min(len(texts), most), replace=False)
    index_of: dict[str, int] = {}
    tokens = 0
    # Blocks of texts are tokenised together; the sample ends within a block.
    for start in range(0, len(order), READ):
        indices = order[start : start + READ].tolist()
        block = [prompt + texts[index] for index in indices]
        counts = np.zeros(len(block), np.int64)
        for window in backbone.windows(block):
            counts[window.text] += window.left_out.count(0)
        for index, text, count in zip(indices, block, counts.tolist(), strict=True):
            if tokens < most and text not in index_of:
                index_of[text] = index
                tokens += count
        if tokens >= most:
            break
    return TextSample(list(index_of.values()), list(index_of), tokens)
