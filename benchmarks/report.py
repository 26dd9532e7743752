"""Time and size of the report of a large index: ``python -m benchmarks.report [DOCUMENTS]``.

The collection is made up, words and concepts drawn from Zipf-like distributions; the index is
written by the library as any other, with an atlas, and the model that encodes queries is real.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np
import scipy.sparse as sp

from benchmarks.commands import timed
from benchmarks.common import Table
from lexicept.corpora import Document
from lexicept.encoding.words import WordVectorizer
from lexicept.index.atlas import Findings
from lexicept.index.builder import IndexBuilder
from lexicept.index.impacts import VocabularySettings
from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.heads.sae import SAEHead
from lexicept.neural.sae.model import SAE
from lexicept.neural.vectorizers.concepts import ConceptVectorizer
from lexicept.weighting import BM25

DOCUMENTS = 100_000
WORDS, VOCABULARY = 96, 50_000
"""Words in a document, in sentences of 12, and different ones."""
LATENTS, ACTIVE = 8192, 300
"""Concepts, and at most how many of them in a document."""


class Drawn(ConceptVectorizer):
    """A vectorizer whose document activations are drawn and query activations computed."""

    random = np.random.default_rng(0)
    counts_tokens = False  # no activations of tokens are computed

    def documents(self, texts: Sequence[str]) -> sp.csr_array:
        """CSR [n, LATENTS]."""
        shape = (len(texts), ACTIVE)
        columns = _zipf(self.random, LATENTS, 0.7, shape)
        rows = np.repeat(np.arange(len(texts)), ACTIVE)
        values = self.random.gamma(2, 1, columns.size).astype(np.float32)
        drawn = sp.coo_array((values, (rows, columns.ravel())), shape=(len(texts), LATENTS))
        return sp.csr_array(drawn)


def run(num_documents: int = DOCUMENTS) -> list[Table]:
    """Print wall time, processor time and size of one report."""
    with TemporaryDirectory() as folder:
        index, out = Path(folder, "index"), Path(folder, "report.html")
        # In a process of its own: the command's peak would include that of this one.
        building = get_context("spawn").Process(target=_build, args=(index, num_documents))
        building.start()
        building.join()
        start = perf_counter()
        worked, peak = timed("report", index, "--out", out)
        took, size = perf_counter() - start, out.stat().st_size
    row = [
        f"{num_documents:,} documents, words and {LATENTS:,} concepts",
        f"{took:.0f} s",
        f"{worked:.0f} s",
        f"{peak * 1024**2 / 1e9:.2f} GB",
        f"{size / 1e6:.2f} MB",
    ]
    columns = ["`lexicept report`", "wall time", "processor time", "peak memory", "HTML file"]
    return [Table("report", columns, [row])]


def _build(path: Path, num_documents: int) -> None:
    backbone = Backbone.from_pretrained()
    sae = SAE(backbone.get_embedding_dimension(), LATENTS, 8)
    concepts = Drawn(Encoder.of(backbone, SAEHead(sae)))
    builder = IndexBuilder(path)
    builder.add_documents(_documents(num_documents), {})
    builder.add_vocabulary(WordVectorizer(), VocabularySettings(BM25()))
    builder.add_vocabulary(concepts, VocabularySettings(BM25(k3=1.0)))
    builder.add_atlas(_atlas(num_documents))
    builder.commit()


def _documents(number: int) -> Iterator[Document]:
    random = np.random.default_rng(0)
    for document in range(number):
        words = [f"w{word:x}" for word in _zipf(random, VOCABULARY, 1.0, (WORDS,))]
        sentences = [" ".join(words[start : start + 12]) for start in range(0, WORDS, 12)]
        yield Document(f"d{document}", ". ".join(sentences), f"Title {document}")


def _zipf(
    random: np.random.Generator, number: int, exponent: float, shape: tuple[int, ...]
) -> np.ndarray:
    """Numbers below ``number``; how often n is drawn falls about as n to the power of −exponent."""
    u = random.random(shape)
    if exponent == 1:
        return (np.exp(u * np.log(number)) - 1).astype(np.int64)
    power = 1 / (1 - exponent)
    return np.minimum((u**power * number).astype(np.int64), number - 1)


def _atlas(num_documents: int) -> Findings:
    """Return eight words, examples and neighbours for every concept."""
    random = np.random.default_rng(1)
    rows = np.repeat(np.arange(LATENTS), 8)

    def drawn(width: int) -> sp.csr_array:
        columns = (random.integers(width, size=(LATENTS, 1)) + np.arange(8)) % width
        values = np.tile(np.linspace(9, 2, 8, dtype=np.float32), LATENTS)
        return sp.csr_array((values, (rows, columns.ravel())), shape=(LATENTS, width))

    return Findings(
        labels=[f"concept {n}" for n in range(LATENTS)],
        sources=np.zeros(LATENTS, np.int64),
        tokens=100_000,
        firings=random.integers(1, 1000, LATENTS),
        words=[f"w{word:x}" for word in range(5000)],
        log_odds=drawn(5000),
        examples=drawn(num_documents),
        spans=np.tile([100, 105], (8 * LATENTS, 1)),
        nearest=drawn(LATENTS),
    )


if __name__ == "__main__":
    for table in run(*map(int, sys.argv[1:])):
        print(table.markdown())
