"""Cost of encoding documents, compared with the bare backbone and a dense encoder."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import torch
from sentence_transformers import SentenceTransformer

from benchmarks.common import Table, interleaved, ratio
from lexicept.corpora import read_documents
from lexicept.encoding.sources import DEFAULT_BACKBONE, resolve
from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.heads.sae import SAEHead
from lexicept.training.sae.settings import SAESettings
from lexicept.training.sae.trainer import initial_sae

DENSE = "`SentenceTransformer.encode`"
OURS = "lexicept `encode_activations`"


def sample(folder: Path, backbone: Backbone, count: int) -> tuple[str, list[str]]:
    """Return a collection's name and some of its texts, each cut to one window, so that both
    encoders read the same tokens: SciFact, or Python's documentation if that is missing."""
    present = (folder / "scifact").is_dir()
    if not present:
        print(f"there is no {folder / 'scifact'}: encoding Python's documentation instead")
    documents = list(read_documents(folder / "scifact" if present else "python-docs"))
    texts = [document.content for document in random.Random(0).sample(documents, count)]
    ends = [0] * count
    for window in reversed(backbone.windows(texts)):  # a text's first window comes last
        ends[window.text] = max(end for _, end in window.offsets)
    cut = [text[:end] for text, end in zip(texts, ends, strict=True)]
    return "SciFact" if present else "Python's documentation", cut


def run(data: Path, count: int = 40, num_latents: int = 8192, rounds: int = 5) -> list[Table]:
    """Encode a sample of the documents of a collection on one thread: processor time would count
    threads that wait for others."""
    torch.set_num_threads(1)
    backbone = Backbone.from_pretrained()
    collection, texts = sample(data, backbone, count)
    # An untrained SAE costs the same as a trained one: k latents are active either way.
    states = [states for _, states in backbone.token_states(backbone.windows(texts[:20]))]
    sae = initial_sae(torch.cat(states).clone(), SAESettings(num_latents=num_latents, k=8))
    encoder = Encoder.of(backbone, SAEHead(sae.eval().requires_grad_(False)))
    dense = SentenceTransformer(resolve(DEFAULT_BACKBONE), device="cpu")
    dense.max_seq_length = backbone.window
    windows = backbone.windows(texts)
    tokens = sum(len(window.token_ids) for window in windows)
    read = dense.tokenizer(texts, truncation=True, max_length=backbone.window)["input_ids"]
    assert [window.token_ids for window in windows] == read

    def bare() -> None:
        for _ in backbone.token_states(backbone.windows(texts)):
            pass

    cases: dict[str, Callable[[], object]] = {
        DENSE: partial(dense.encode, texts, show_progress_bar=False),
        "bare backbone": bare,
        OURS: partial(encoder.encode_activations, texts),
    }
    times = interleaved(cases, rounds, time.process_time)
    lines = [
        [
            name,
            f"{median(took):.2f} s",
            f"{tokens / median(took):,.0f}",
            f"{ratio(took, times[DENSE]):.2f} ×",
        ]
        for name, took in times.items()
    ]
    title = f"{len(texts)} texts of {collection}, {tokens:,} tokens"
    columns = [title, "processor time", "tokens/s", "time / dense"]
    return [Table("encoding", columns, lines)]
