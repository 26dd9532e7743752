"""An index of words and of a tiny model's concepts and vectors of whole texts."""

from collections.abc import Sequence
from pathlib import Path

import torch

from lexicept.corpora import Document
from lexicept.encoding.head_settings import HeadSettings
from lexicept.encoding.text_vectors import ConceptsAndVectors
from lexicept.encoding.words import WordVectorizer
from lexicept.index.builder import IndexBuilder
from lexicept.index.impacts import RRASettings, VocabularySettings
from lexicept.index.reader import IndexReader
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.heads.sae import SAEHead
from lexicept.neural.vectorizers.concepts import ConceptVectorizer
from lexicept.training.sae.settings import SAESettings
from lexicept.training.sae.trainer import initial_sae
from lexicept.weighting import BM25
from support.tiny import text, tiny_backbone

DOCUMENTS = [
    Document(f"d{n}", text(*(n * i + i * i for i in range(1, 3 + n % 9)))) for n in range(40)
]
DOCUMENTS[7] = Document("d7", "")
DOCUMENTS[9] = DOCUMENTS[8]._replace(id="d9")
DOCUMENTS[11] = Document("d11", " ".join(text(*range(k, k + 9)) for k in range(20)))

QUERIES = ["bade kilo", "mu ba delo", "", "lomu " * 90]


def tiny_concepts(folder: Path) -> ConceptsAndVectors:
    """Concepts of a random autoencoder, and vectors of 32 components."""
    backbone = tiny_backbone(folder / "bert")
    texts = [document.content for document in DOCUMENTS]
    states = [states for _, states in backbone.token_states(backbone.windows(texts))]
    sae = initial_sae(torch.cat(states).clone(), SAESettings(num_latents=64, k=4)).eval()
    head = SAEHead(sae.requires_grad_(False), HeadSettings(query_k=3, document_k=2))
    return ConceptsAndVectors(ConceptVectorizer(Encoder.of(backbone, head)))


def build(
    path: Path,
    documents: Sequence[Document],
    concepts: ConceptsAndVectors,
    rra: RRASettings | None = None,
) -> IndexReader:
    """Index documents by words, concepts and vectors."""
    with IndexBuilder(path) as builder:
        builder.add_documents(documents, {})
        builder.add_vocabulary(WordVectorizer("en"), VocabularySettings(BM25()))
        builder.add_vocabulary(concepts, VocabularySettings(BM25(k3=1.0)), vector_size=concepts.d)
        return builder.commit(rra)
