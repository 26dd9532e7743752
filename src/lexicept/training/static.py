"""Static encoders of queries: trained on a model's token states, and fitted to a collection.

A static encoder estimates the states that a backbone computes; see ``models.static``. The package
has an encoder for lexicept-mini's backbone, trained on general texts (``mini.static``); an index
gets a copy, fitted to texts like queries from the documents, without labels.
"""

from __future__ import annotations

import gzip
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load, save
from torch import Tensor, nn

from lexicept.corpora import Document
from lexicept.corpora.pseudo_queries import generate
from lexicept.models.encoder import Encoder
from lexicept.models.half_bert import autocast, has_bfloat16
from lexicept.models.onnx_bert import MATRIX_STEPS, damage_of, rounded
from lexicept.models.sources import MINI_FOLDER, Reference
from lexicept.models.static import EPSILON, FARTHEST, GATES, SHIFTS, num_heads
from lexicept.progress import Progress, silent
from lexicept.storage.arrays import return_memory
from lexicept.storage.files import read_json, replace_file
from lexicept.vectorizers.interface import STATIC
from lexicept.vectors import Floats, Integers

PACKAGED = MINI_FOLDER / f"{STATIC}.gz"
"""The static encoder in the package, of lexicept-mini's backbone."""

PER_DOCUMENT, MOST = 3, 6000
"""Sentences to fit a static encoder to: of each document, and in all."""

NEW_PASSES = 4
"""Passes over the texts to train a new static encoder."""

MOST_NUMBERS = 2**24
"""Largest table: 16 MB."""

BLOCK = 1024
"""Texts whose states are computed together."""

LONGEST = 64
"""Most tokens of a text."""

WARMUP = 30
"""Steps of a rising learning rate."""

SAMPLE = 50_000
"""States whose mean and variance are taken."""

DOUBT, TRUST = 3.0, 0.2
"""Occurrences of a token without an error to set against those in the collection: some, and a share
of the occurrences in earlier texts; chosen on CACM, Vaswani, MedQuAD and SQuAD's training
paragraphs."""

BATCH_TOKENS, READ_TOKENS = 4096, 1024
"""Most tokens of a batch in training and without gradient, padding included."""


class StaticModel(nn.Module):
    """The numbers of a static encoder. A new model returns the table's rows, and a share of their
    mean.

    Args:
        num_tokens: the size of the tokenizer's vocabulary.
        d: the size of a state.
    """

    def __init__(self, num_tokens: int, d: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(num_tokens, d))
        small = torch.randn(d, 6 * d, generator=torch.Generator().manual_seed(0)) / d
        self.near = nn.Parameter(torch.zeros(len(SHIFTS) * d, d))
        self.beside = nn.Parameter(torch.zeros(len(GATES) * d, d))
        self.bag = nn.Parameter(torch.cat([0.3 * torch.eye(d), torch.zeros(d, d)], dim=1))
        # Attention and the last layer need a start other than 0, or an output of 0 with one.
        self.qkv = nn.Parameter(math.sqrt(d) * small[:, : 3 * d])
        self.out = nn.Parameter(torch.zeros(d, d))
        self.up = nn.Parameter(math.sqrt(d) * small[:, 3 * d : 4 * d])
        self.down = nn.Parameter(torch.zeros(d, d))
        self.up_bias, self.down_bias = nn.Parameter(torch.zeros(d)), nn.Parameter(torch.zeros(d))
        self.distances = nn.Parameter(torch.zeros(num_heads(d), 2 * FARTHEST + 1))
        self.norm, self.inner_norm = nn.LayerNorm(d, EPSILON), nn.LayerNorm(d, EPSILON)
        self.counts: Tensor
        self.register_buffer("counts", torch.zeros(num_tokens))

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return the states [counted tokens, d] of token ids [texts, length], where ``mask`` is
        True."""
        d, counted = self.table.shape[1], mask[..., None]
        x = F.embedding(ids, self.table) * counted
        bag = (x.sum(1) / counted.sum(1).clamp(min=1)) @ self.bag
        near = torch.cat([_shift(x, shift) for shift in SHIFTS], dim=-1) @ self.near
        beside = torch.cat([_shift(x, shift) for shift in GATES], dim=-1) @ self.beside
        y = x + bag[:, None, :d] + near
        y = y + x * torch.tanh(bag[:, None, d:] + beside)
        y = y + self._attended(x, mask) @ self.out
        inner = F.gelu(self.inner_norm(y) @ self.up + self.up_bias, approximate="tanh")
        return (y + inner @ self.down + self.down_bias)[mask]

    def _attended(self, x: Tensor, mask: Tensor) -> Tensor:
        texts, length, d = x.shape
        qkv = (self.norm(x) @ self.qkv).view(texts, length, 3, len(self.distances), -1)
        queries, keys, values = qkv.permute(2, 0, 3, 1, 4)
        places = torch.arange(length)
        distances = (places - places[:, None]).clamp(-FARTHEST, FARTHEST) + FARTHEST
        bias = self.distances[:, distances].to(queries.dtype)
        bias = bias.masked_fill(~mask[:, None, None, :], -1e9)
        attended = F.scaled_dot_product_attention(queries, keys, values, bias)
        return attended.transpose(1, 2).reshape(texts, length, d)

    def save(self, path: Path, most: int = 127) -> None:
        """Write the numbers for ``StaticStates``, in 8 bits: the table by rows, from -most to most;
        matrices by columns. A name that ends in .gz compresses the file."""
        content: dict[str, Tensor] = {}
        for name, weight in self.state_dict().items():
            name = name.replace("_bias", ".bias")
            if weight.ndim == 2 and name != "distances":
                is_table = name == "table"
                matrix = weight.numpy() if is_table else weight.numpy().T
                for end, values in rounded(matrix, most if is_table else MATRIX_STEPS).items():
                    values = values if is_table else np.ascontiguousarray(values.T)
                    content[f"{name}{end}"] = torch.from_numpy(values)
            else:
                content[name] = weight.contiguous()
        stored = save(content)
        replace_file(path, gzip.compress(stored, mtime=0) if path.suffix == ".gz" else stored)

    @classmethod
    def load(cls, path: Path) -> StaticModel:
        """Read what ``save`` wrote. Raises InputError for a missing or damaged file."""
        with damage_of(path):
            content = path.read_bytes()
            stored = load(gzip.decompress(content) if path.suffix == ".gz" else content)
            model = cls(len(stored["counts"]), len(stored["norm.weight"]))
            weights = {}
            for name in model.state_dict():
                place = name.replace("_bias", ".bias")
                factors = stored.get(f"{place}.factors", torch.tensor(1.0))
                weights[name] = stored[place] * factors
            model.load_state_dict(weights, assign=True)
        return model


def _shift(values: Tensor, shift: int) -> Tensor:
    """Return for each token the value of the token at a distance, 0 if there is none."""
    width = max(SHIFTS)
    return F.pad(values, (0, 0, width, width))[:, width + shift :][:, : values.shape[1]]


@dataclass(frozen=True)
class TokenTexts:
    """The tokens of texts, and their states."""

    ids: Integers
    """[tokens]"""
    ends: Integers
    """The place after each text's last token [texts]."""
    states: Floats
    """Half precision [tokens, d]."""

    @classmethod
    def read(cls, encoder: Encoder, texts: Sequence[str]) -> TokenTexts:
        """Compute the states of queries with tokens, the first window of each, as a document's."""
        prompt, backbone = encoder.prompt("query"), encoder.backbone
        windows = backbone.windows([prompt + text for text in texts], task="query")
        first = {window.text: window for window in reversed(windows)}.values()
        windows = [window for window in first if not all(window.left_out)]
        pairs = [zip(window.token_ids, window.left_out, strict=True) for window in windows]
        ids = [[token for token, out in tokens if not out][:LONGEST] for tokens in pairs]
        none = np.empty((0, encoder.head.d_in), np.float16)
        states = [none] * len(ids)
        for numbers, batch in backbone.token_states(windows):
            lengths = [windows[number].left_out.count(0) for number in numbers]
            for number, of_window in zip(numbers, batch.split(lengths), strict=True):
                states[number] = of_window[:LONGEST].half().cpu().numpy()
        ends = np.cumsum([len(text_ids) for text_ids in ids], dtype=np.int64)
        return cls(np.fromiter(chain(*ids), np.int64), ends, np.concatenate([none, *states]))

    def batch(self, texts: Integers) -> tuple[Tensor, Tensor, Tensor]:
        """Return ids and mask [texts, length], and the states of the counted tokens [n, d]."""
        starts = np.concatenate([[0], self.ends])[texts]
        lengths = self.ends[texts] - starts
        places = np.arange(lengths.max())
        mask = places < lengths[:, None]
        places = np.where(mask, starts[:, None] + places, 0)
        states = torch.from_numpy(self.states[places[mask]].astype(np.float32))
        return torch.from_numpy(self.ids[places]), torch.from_numpy(mask), states

    def batches(self, tokens: int, random: np.random.Generator) -> Iterator[Integers]:
        """Yield texts in random batches of at most ``tokens``, padding included, of similar
        lengths."""
        order = random.permutation(len(self.ends))
        lengths = np.diff(self.ends, prepend=0)[order]
        order, starts = order[np.argsort(lengths, kind="stable")], [0]
        for place, length in enumerate(np.sort(lengths).tolist()):
            if place > starts[-1] and (place + 1 - starts[-1]) * length > tokens:
                starts.append(place)
        batches = np.split(order, starts[1:]) if len(order) else []
        yield from (batches[number] for number in random.permutation(len(batches)).tolist())


def train_static(
    model: StaticModel,
    texts: TokenTexts,
    passes: int,
    progress: Progress = silent,
    *,
    batch_tokens: int = BATCH_TOKENS,
    learning_rate: float = 2e-3,
) -> None:
    """Train on token states, in place: the squared error relative to the states' variance, and the
    distance 1 - cosine of the texts' mean states, from the mean of all states.

    Adam, with a learning rate that falls to 0; half of it for all but the table.
    """
    sample = torch.from_numpy(texts.states[:: max(1, len(texts.states) // SAMPLE)]).float()
    centre = sample.mean(0)
    variance = max(float((sample - centre).square().sum(1).mean()), 1e-6)
    others = [weight for name, weight in model.named_parameters() if name != "table"]
    groups = [
        {"params": [model.table], "lr": learning_rate},
        {"params": others, "lr": learning_rate / 2},
    ]
    optimizer = torch.optim.Adam(groups, betas=(0.9, 0.99))
    random = np.random.default_rng(0)
    batches = [n for _ in range(passes) for n in texts.batches(batch_tokens, random)]
    steps = len(batches)
    rate = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1, (step + 1) / WARMUP) * (1 - step / steps)
    )
    for step, numbers in enumerate(batches):
        ids, mask, states = texts.batch(numbers)
        with autocast(model.table.device, has_bfloat16(model.table.device)):
            estimates = model(ids, mask).float()
        error = (estimates - states).square().sum() / (variance * len(states))
        means, targets = (_text_means(values, mask) - centre for values in (estimates, states))
        loss = error + (1 - F.cosine_similarity(means, targets)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rate.step()
        progress("query encoder", step + 1, steps, f"FVU {error.item():.3f}")


def _text_means(states: Tensor, mask: Tensor) -> Tensor:
    """Return the mean states [texts, d] of counted tokens [n, d]."""
    texts = torch.nonzero(mask)[:, 0]
    sums = states.new_zeros(len(mask), states.shape[1]).index_add(0, texts, states)
    return sums / mask.sum(1, keepdim=True)


@torch.no_grad()
def add_residuals(model: StaticModel, blocks: Iterable[TokenTexts]) -> None:
    """Add to each token's row the mean error of the token's states, less the fewer there are beside
    those of earlier texts."""
    errors, counts = torch.zeros_like(model.table), torch.zeros_like(model.counts)
    for texts in blocks:
        for numbers in texts.batches(READ_TOKENS, np.random.default_rng(0)):
            ids, mask, states = texts.batch(numbers)
            with autocast(errors.device, has_bfloat16(errors.device)):
                estimates = model(ids, mask).float()
            errors.index_add_(0, ids[mask], states - estimates)
            counts.index_add_(0, ids[mask], torch.ones(len(states)))
    model.table.add_(errors.div_((counts + DOUBT + TRUST * model.counts)[:, None]))
    model.counts += counts


def _like_queries(documents: Iterable[Document]) -> Iterator[str]:
    """Yield sentences of documents, and short documents whole."""
    for document in documents:
        made = [text for _, text in generate([document], "sentence", PER_DOCUMENT)]
        yield from made or [" ".join(document.content.split()[:LONGEST])]


def fit_static(
    encoder: Encoder, documents: Iterable[Document], progress: Progress = silent
) -> StaticModel | None:
    """Fit a static encoder to sentences of the documents. The package's is corrected by
    ``add_residuals`` for the backbone of lexicept-mini; for another backbone a new one is trained.

    Args:
        encoder: a bidirectional encoder with an SAE.
        documents: in random order, as they are read until there are enough sentences.

    Returns:
        None for a tokenizer with too many tokens for a table; for another backbone, also for
        documents without tokens.
    """
    backbone, d = encoder.backbone, encoder.head.d_in
    if len(backbone.tokenizer) * d > MOST_NUMBERS:
        return None
    queries = [*islice(_like_queries(documents), MOST)]
    reference, packaged = backbone.reference, Reference.read(MINI_FOLDER)
    num_layers = read_json(MINI_FOLDER / "config.json")["num_hidden_layers"]
    if (reference, backbone.num_layers) == (packaged, num_layers):
        model = StaticModel.load(PACKAGED)
        add_residuals(model, _read(encoder, queries, progress))
        return model
    texts, model = TokenTexts.read(encoder, queries), StaticModel(len(backbone.tokenizer), d)
    if not texts.ids.size:
        return None
    add_residuals(model, [texts])
    train_static(model, texts, NEW_PASSES, progress)
    return model


def _read(encoder: Encoder, texts: Sequence[str], progress: Progress) -> Iterator[TokenTexts]:
    for start in range(0, len(texts), BLOCK):
        return_memory()
        yield TokenTexts.read(encoder, texts[start : start + BLOCK])
        progress("query encoder", min(start + BLOCK, len(texts)), len(texts))
