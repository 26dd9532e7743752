"""Static encoders of queries: students of a backbone.

A static encoder estimates the states that a backbone computes; see ``models.static``. The package
has a student of lexicept-mini's backbone, trained on general texts (``mini.static``). A student of
another backbone is trained on texts like queries from the documents, without labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import save
from torch import Tensor, nn
from transformers import BertModel

from lexicept.corpora import Document
from lexicept.corpora.pseudo_queries import generate
from lexicept.models.backbone import Backbone
from lexicept.models.encoder import Encoder
from lexicept.models.half_bert import autocast, has_bfloat16
from lexicept.models.onnx_bert import is_plain, map_safetensors, rounded
from lexicept.models.sources import MINI_FOLDER, Reference
from lexicept.models.static import STEP, packed
from lexicept.models.window_tensors import pad_windows
from lexicept.models.windows import Window, group_windows
from lexicept.progress import Progress, silent
from lexicept.storage.files import read_json, replace_file
from lexicept.vectorizers.interface import STATIC

PACKAGED = MINI_FOLDER / STATIC
"""The student in the package, of lexicept-mini's backbone."""

PER_DOCUMENT, MOST = 3, 6000
"""Sentences to train a student on: of each document, and in all."""

PASSES, LEARNING_RATE = 2, 2e-3
"""Passes over the sentences, and the highest learning rate, to train a student of two blocks."""

MOST_NUMBERS = 2**24
"""Largest table of word embeddings: 8 MB."""

BLOCKS, WIDTH = 2, 3
"""Blocks of a student, and units of the feed-forward layers for each number of a state; BERT has
four."""

LONGEST, BATCH_TOKENS = 64, 4096
"""Most tokens of a text, and of a batch in training, padding included."""

WARMUP = 200
"""Steps of a rising learning rate, a fifth of few steps."""

SAMPLE = 2000
"""Texts whose states' mean and variance are taken."""

_LAYER = "encoder.layer."


class Batch(NamedTuple):
    """Texts to train on."""

    windows: dict[str, Tensor]
    """See ``pad_windows``."""
    states: Tensor
    """States of the counted tokens, window by window [n, d]."""


class StaticModel(nn.Module):
    """A student of a plain BERT, which starts from the word embeddings, rounded to 4 bits, and from
    some blocks, the first and the last among them, with ``WIDTH * d`` units of the feed-forward
    layers."""

    def __init__(self, backbone: Backbone, num_blocks: int = BLOCKS) -> None:
        super().__init__()
        teacher: Any = backbone.model
        config, blocks = deepcopy(teacher.config), teacher.encoder.layer
        numbers = np.unique(np.linspace(0, len(blocks) - 1, num_blocks).astype(int)).tolist()
        sources = [blocks[number] for number in numbers]
        inner = min(config.intermediate_size, WIDTH * config.hidden_size)
        config.num_hidden_layers, config.intermediate_size = len(sources), inner
        self.bert = BertModel(config, add_pooling_layer=False).eval().to(teacher.device)
        self.bert.embeddings.load_state_dict(teacher.embeddings.state_dict())
        for block, source in zip(self.bert.encoder.layer, sources, strict=True):
            weights = source.state_dict()
            up, down = weights["intermediate.dense.weight"], weights["output.dense.weight"]
            # The units that can change the output most.
            units = (up.norm(dim=1) * down.norm(dim=0)).topk(inner).indices.sort().values
            weights["intermediate.dense.weight"] = up[units]
            weights["intermediate.dense.bias"] = weights["intermediate.dense.bias"][units]
            block.load_state_dict(weights | {"output.dense.weight": down[:, units]})

    def forward(self, windows: Mapping[str, Tensor]) -> Tensor:
        """Return the states [n, d] of the counted tokens of ``pad_windows``."""
        rows = F.embedding(windows["input_ids"], self.bert.get_input_embeddings().weight)
        # Rounding passes gradients on unchanged.
        rows = rows + (_rounded(rows) - rows).detach()
        output = self.bert(inputs_embeds=rows, attention_mask=windows["attention_mask"])
        states: Tensor = output.last_hidden_state[windows["token_mask"]]
        return states

    def stored(self) -> dict[str, Any]:
        """Return the weights for ``StaticStates``."""
        content: dict[str, Any] = {}
        for name, weight in self.bert.state_dict().items():
            values, table = weight.float().cpu().numpy(), name.removesuffix(".weight")
            if name.startswith(_LAYER) and values.ndim == 2:
                content |= rounded(table, values)
            elif "word_embeddings" in name:
                content |= packed(table, values)
            else:
                content[name] = values.astype(np.float16) if "position" in name else values
        return content


def _rounded(rows: Tensor) -> Tensor:
    """Return rows as ``models.static.packed`` rounds them."""
    factors = STEP * rows.square().mean(-1, keepdim=True).sqrt().clamp(min=1e-12)
    return (torch.floor(rows / factors).clamp(-8, 7) + 0.5) * factors


@dataclass(frozen=True)
class TokenTexts:
    """Texts of a window each, and the states of their tokens."""

    windows: list[Window]
    states: list[Tensor]
    """Half precision, of the counted tokens of each window [n, d]."""

    @classmethod
    def read(cls, encoder: Encoder, texts: Sequence[str]) -> TokenTexts:
        """Compute the states of queries with tokens, which are cut after ``LONGEST`` tokens."""
        prompt, backbone = encoder.prompt("query"), encoder.backbone
        longest = min(LONGEST, backbone.max_tokens("query") or LONGEST)
        windows = backbone.windows([prompt + text for text in texts], longest)
        windows = [window for window in windows if not all(window.left_out)]
        states = [torch.empty(0)] * len(windows)
        for numbers, batch in backbone.token_states(windows):
            lengths = [windows[number].left_out.count(0) for number in numbers]
            for number, of_window in zip(numbers, batch.split(lengths), strict=True):
                states[number] = of_window.half().cpu()
        return cls(windows, states)

    def batches(self, passes: int) -> Iterator[Batch]:
        """Yield all texts so many times, in random batches of similar lengths."""
        random = np.random.default_rng(0)
        for _ in range(passes):
            order = random.permutation(len(self.windows)).tolist()
            groups = [*group_windows([self.windows[n] for n in order], BATCH_TOKENS)]
            for group in random.permutation(len(groups)).tolist():
                numbers = [order[place] for place in groups[group]]
                states = torch.cat([self.states[number] for number in numbers])
                yield Batch(pad_windows([self.windows[n] for n in numbers], 0), states.float())


def train_static(
    model: StaticModel,
    batches: Iterable[Batch],
    steps: int,
    sample: Tensor,
    *,
    learning_rate: float = LEARNING_RATE,
    progress: Progress = silent,
) -> None:
    """Train a student in place: the squared error relative to the states' variance, and the
    distance 1 - cosine of the texts' mean states, from the mean of all states.

    Adam, with a learning rate that rises and falls to 0; half of it for the word embeddings.

    Args:
        sample: states whose mean and variance are taken [n, d].
    """
    device = model.bert.device
    table, warmup = model.bert.get_input_embeddings().weight, min(WARMUP, 1 + steps // 5)
    others = [weight for weight in model.parameters() if weight is not table]
    groups: list[dict[str, Any]] = [
        {"params": [table], "lr": learning_rate / 2},
        {"params": others},
    ]
    optimizer = torch.optim.Adam(groups, lr=learning_rate, betas=(0.9, 0.98))
    rate = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1, (step + 1) / warmup) * (1 - step / steps)
    )
    centre = sample.float().mean(0).to(device)
    variance = max(float(sample.float().var(0, correction=0).sum()), 1e-6)
    for step, batch in enumerate(islice(batches, steps)):
        windows = {name: values.to(device) for name, values in batch.windows.items()}
        states, mask = batch.states.to(device), windows["token_mask"]
        with autocast(device, has_bfloat16(device)):
            estimates = model(windows).float()
        error = (estimates - states).square().sum() / (variance * len(states))
        means, targets = (_text_means(values, mask) - centre for values in (estimates, states))
        loss = error + (1 - F.cosine_similarity(means, targets)).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rate.step()
        progress("query encoder", step + 1, steps, f"FVU {error.item():.3f}")


def _text_means(states: Tensor, mask: Tensor) -> Tensor:
    """Return the mean states [texts, d] of counted tokens [n, d]."""
    texts = torch.nonzero(mask)[:, 0]
    sums = states.new_zeros(len(mask), states.shape[1]).index_add(0, texts, states)
    return sums / mask.sum(1, keepdim=True)


def _like_queries(documents: Iterable[Document]) -> Iterator[str]:
    """Yield sentences of documents, and short documents whole."""
    for document in documents:
        made = [text for _, text in generate([document], "sentence", PER_DOCUMENT)]
        yield from made or [" ".join(document.content.split()[:LONGEST])]


def static_of(
    encoder: Encoder, documents: Iterable[Document], progress: Progress = silent
) -> Mapping[str, Any] | None:
    """Return the package's student of lexicept-mini's backbone, for another plain BERT a student
    that is trained on sentences of the documents.

    Args:
        encoder: a bidirectional encoder with an SAE.
        documents: in random order, as they are read until there are enough sentences.

    Returns:
        Weights for ``StaticStates``. None for another backbone than BERT, or a tokenizer with too
        many tokens for a table; for another backbone than lexicept-mini's, also for documents
        without tokens.
    """
    backbone, config = encoder.backbone, encoder.backbone.model.config.to_dict()
    if not is_plain(config) or config["vocab_size"] * config["hidden_size"] > MOST_NUMBERS:
        return None
    reference, packaged = backbone.reference, Reference.read(MINI_FOLDER)
    num_layers = read_json(MINI_FOLDER / "config.json")["num_hidden_layers"]
    if (reference, backbone.num_layers) == (packaged, num_layers):
        return map_safetensors(PACKAGED)
    texts = TokenTexts.read(encoder, [*islice(_like_queries(documents), MOST)])
    if not texts.windows:
        return None
    model = StaticModel(backbone)
    steps = PASSES * len([*group_windows(texts.windows, BATCH_TOKENS)])
    sample = torch.cat(texts.states[:: 1 + len(texts.states) // SAMPLE])
    train_static(model, texts.batches(PASSES), steps, sample, progress=progress)
    return model.stored()


def write_static(path: Path, weights: Mapping[str, Any]) -> None:
    """Write weights for ``StaticStates``."""
    replace_file(path, save({name: np.ascontiguousarray(w) for name, w in weights.items()}))
