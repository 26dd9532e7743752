"""One query, from its text to the best ten of 100,000 documents, beside the backbone alone."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import torch
from sentence_transformers import SentenceTransformer

from benchmarks.common import Table, interleaved, ratio
from benchmarks.drawn import LATENTS, Drawn
from benchmarks.encoding import DENSE
from lexicept.corpora import Document, read_documents
from lexicept.encoding.sources import DEFAULT_BACKBONE, resolve
from lexicept.index.builder import IndexBuilder
from lexicept.index.impacts import VocabularySettings
from lexicept.index.reader import IndexReader
from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.heads.sae import SAEHead
from lexicept.training.sae.settings import SAESettings
from lexicept.training.sae.trainer import initial_sae
from lexicept.weighting import BM25

WORDS = 8
"""Number of words of a query."""


def build(path: Path, backbone: Backbone, texts: list[str], num_documents: int) -> IndexReader:
    """An index of concepts that are drawn for documents; those of queries are computed, by an
    untrained SAE that starts from states of these texts."""
    states = [states for _, states in backbone.token_states(backbone.windows(texts))]
    sae = initial_sae(torch.cat(states).clone(), SAESettings(num_latents=LATENTS))
    builder = IndexBuilder(path)
    builder.add_documents((Document(f"d{n}", "text") for n in range(num_documents)), {})
    concepts = Drawn(Encoder.of(backbone, SAEHead(sae.eval().requires_grad_(False))))
    builder.add_vocabulary(concepts, VocabularySettings(BM25(k3=1.0)))
    return builder.commit()


def run(num_documents: int = 100_000, num_queries: int = 150) -> list[Table]:
    """Time a different query each round, the first words of a text of Python's documentation."""
    texts = [document.content.split() for document in read_documents("python-docs")]
    long = (words for words in texts if len(words) >= WORDS)
    queries = [" ".join(words[:WORDS]) for words in islice(long, num_queries)]
    backbone = Backbone.from_pretrained()
    dense = SentenceTransformer(resolve(DEFAULT_BACKBONE), device=str(backbone.model.device))
    ready = {query: backbone.preprocess([query]) for query in queries}

    @torch.inference_mode()
    def forward(query: str) -> None:
        backbone.states(ready[query]["input_ids"], ready[query]["attention_mask"])

    def in_turn(work: Callable[[str], object]) -> Callable[[], object]:
        # The call that is not counted has the last one.
        following = cycle([queries[-1], *queries[:-1]])
        return lambda: work(next(following))

    with TemporaryDirectory() as folder:
        index = build(Path(folder, "index"), backbone, queries, num_documents)
        ways = {
            "the backbone's forward": forward,
            DENSE: dense.encode,
            "`IndexReader.search`, text → top 10": index.search,
        }
        cases = {name: in_turn(work) for name, work in ways.items()}
        times = interleaved(cases, num_queries)
        weights = index.query_vectors(queries)
    base = times["the backbone's forward"]
    lines = [
        [name, f"{1000 * median(took):.2f} ms", f"{ratio(took, base):.2f} ×"]
        for name, took in times.items()
    ]
    tokens = sum(features["input_ids"].shape[1] for features in ready.values())
    mean = f"{tokens / len(ready):.0f} tokens, {weights.nnz / len(queries):.0f} concepts"
    return [Table("query", [f"One query: {mean}", "time", "time / forward"], lines)]
