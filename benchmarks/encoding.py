"""What the concept head and pooling cost on top of the bare backbone."""

from __future__ import annotations

import random
from statistics import median

import torch
from sentence_transformers import SentenceTransformer

from benchmarks.common import Table, interleaved, ratio
from lexicept.backbone import DEFAULT_BACKBONE, Backbone, resolve
from lexicept.corpora import read_documents
from lexicept.encoder import encode_activations, make_encoder
from lexicept.heads import SAEHead
from lexicept.sae import SAESettings
from lexicept.sae.training import initial_sae


def run(num_texts: int = 200, num_latents: int = 8192, k: int = 8, rounds: int = 5) -> list[Table]:
    """Encode a sample of Python's documentation."""
    documents = list(read_documents("python-docs"))
    texts = [document.content for document in random.Random(0).sample(documents, num_texts)]
    backbone = Backbone.from_pretrained()
    # An untrained SAE costs the same as a trained one: k latents are active either way.
    sample = [states for _, states in backbone.token_states(backbone.windows(texts[:20]))]
    sae = initial_sae(torch.cat(sample).clone(), SAESettings(num_latents=num_latents, k=k))
    encoder = make_encoder(backbone, SAEHead(sae.eval().requires_grad_(False)))
    dense = SentenceTransformer(resolve(DEFAULT_BACKBONE), device=str(backbone.model.device))

    def bare() -> None:
        for _ in backbone.token_states(backbone.windows(texts)):
            pass

    times = interleaved(
        {
            "bare backbone, same windows": bare,
            "lexicept `encode_activations`": lambda: encode_activations(encoder, texts),
            "`SentenceTransformer.encode`": lambda: dense.encode(texts),
        },
        rounds,
    )
    reference = times["bare backbone, same windows"]
    # It reads a text's first window and no more, so that its tokens are fewer.
    tokens = dict.fromkeys(times, sum(len(w.token_ids) for w in backbone.windows(texts)))
    lengths = [len(ids) for ids in dense.tokenizer(texts, truncation=True)["input_ids"]]
    limit = dense.max_seq_length or max(lengths)
    tokens["`SentenceTransformer.encode`"] = sum(min(length, limit) for length in lengths)
    rows = [
        [
            name,
            f"{median(took):.2f} s",
            f"{tokens[name]:,}",
            f"{tokens[name] / median(took):,.0f}",
            f"{ratio(took, reference):.2f} ×",
        ]
        for name, took in times.items()
    ]
    columns = [f"Encoding {num_texts} texts", "time", "tokens", "tokens/s", "time / bare"]
    return [Table("encoding", columns, rows)]
