"""A small index of words and concepts, with hostile documents, and a server of it."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import uvicorn

from lexicept.concepts.describe import describe
from lexicept.corpora import Document
from lexicept.encoding.words import WordVectorizer
from lexicept.index.builder import IndexBuilder
from lexicept.index.impacts import VocabularySettings
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.heads.sae import SAEHead
from lexicept.neural.vectorizers.concepts import ConceptVectorizer
from lexicept.server.app import create_app
from lexicept.server.connections import Connection
from lexicept.training.sae.settings import SAESettings
from lexicept.training.sae.trainer import initial_sae
from lexicept.weighting import BM25
from support.tiny import text, tiny_backbone

HOSTILE = Document(
    "a/../<b>&\"'\u202e",
    "bade kilo <script>document.title = 'owned'</script> <img src=x onerror=alert(1)> 🐱 kilo",
    "<h1 onclick=alert(2)>hostile</h1>",
)
DOCUMENTS = [
    *(
        Document(
            f"d{n}",
            text(*((n + 1) * i + n // 25 * i * i for i in range(1, 9))),
            "",
            {
                "number": n,
                "part": ["all", "odd" if n % 2 else "even"],
                "day": f"2020-01-{n + 1:02}",
            },
        )
        for n in range(30)
    ),
    HOSTILE,
]


def save_index(folder: Path, concepts: bool = True, atlas: bool = True) -> Path:
    """Build it in a folder that has no ``index``.

    Args:
        concepts: whether there are any, besides the words.
        atlas: whether they are described.
    """
    builder = IndexBuilder(folder / "index")
    builder.add_documents(DOCUMENTS, {})
    builder.add_vocabulary(WordVectorizer("en"), VocabularySettings(BM25()))
    if concepts:
        backbone = tiny_backbone(folder / "bert")
        texts = [document.content for document in DOCUMENTS]
        windows = backbone.windows(texts)
        states = torch.cat([actual for _, actual in backbone.token_states(windows)])
        sae = initial_sae(states.clone(), SAESettings(num_latents=64, k=4)).eval()
        vectorizer = ConceptVectorizer(Encoder.of(backbone, SAEHead(sae.requires_grad_(False))))
        vocabulary = builder.add_vocabulary(vectorizer, VocabularySettings(BM25(k3=1.0)))
        if atlas:
            builder.add_atlas(describe(vectorizer.encoder, builder.contents, vocabulary))
    builder.commit()
    return folder / "index"


@contextmanager
def serving(path: Path) -> Iterator[str]:
    """The address of a server that runs until the block ends."""
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(create_app(path), log_level="error", http=Connection, ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()
