"""Graphs of encoders give the encoders' vectors in onnxruntime."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.encoders.onnx_export import DESCRIPTION, Graph, write_onnx
from support.commands import assert_error
from support.heads import make
from support.tiny import WORDS, tiny_backbone

onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra onnx")
pytest.importorskip("onnxscript", reason="needs the extra onnx")

TEXTS = ["bade kilo", "", " ".join(WORDS), "kilo [SEP] muba?", "kiba"]
"""Of different lengths, so that they are padded."""


def vectors(folder: Path, encoder: Encoder, side: str) -> Any:
    """What a graph makes of texts, with no other help than the tokenizer's."""
    described = json.loads((folder / DESCRIPTION).read_text())
    session = onnxruntime.InferenceSession(str(folder / described["graphs"][side]))
    tokens = encoder.backbone.tokenizer(TEXTS, padding=True, return_tensors="np")
    inputs = {name: tokens[name] for name in described["inputs"]}
    text, dimension, weight = session.run(described["outputs"], inputs)
    found = np.zeros((len(TEXTS), described["dimensions"]), np.float32)
    found[text, dimension] = weight
    assert (weight > 0).all()
    return found


@pytest.mark.parametrize(
    ("kind", "special", "settings"),
    [
        ("sae", False, {"query_k": 3, "document_k": 3}),
        ("threshold", True, {"pooling": "sqrt_sum", "document_max_active_dims": 7}),
        ("vocabulary", False, {"pooling": "sum", "query_scale": 0.5, "query_k": 4}),
    ],
)
def test_vectors_are_the_encoders(kind, special, settings, tmp_path):
    backbone = tiny_backbone(tmp_path / "bert")
    backbone.special_tokens = special
    encoder = make(backbone, kind, **settings)
    (tmp_path / "out").mkdir()
    described = write_onnx(encoder, tmp_path / "out")
    assert len(set(described["graphs"].values())) == (1 if kind == "sae" else 2)
    for side, encode in (("document", encoder.encode_document), ("query", encoder.encode_query)):
        expected = encode(TEXTS, convert_to_sparse_tensor=False).numpy()
        assert expected.any()
        found = vectors(tmp_path / "out", encoder, side)
        np.testing.assert_allclose(found, expected, atol=1e-4)


def test_a_model_is_exported_on_the_cpu_and_goes_back(tmp_path, monkeypatch):
    encoder = make(tiny_backbone(tmp_path / "bert"), "sae", query_k=3, document_k=3)
    monkeypatch.setattr(type(encoder.backbone.model), "device", torch.device("meta"))
    moves, move = [], Graph.to
    monkeypatch.setattr(Graph, "to", lambda graph, to: moves.append(str(to)) or move(graph, "cpu"))
    (tmp_path / "out").mkdir()
    write_onnx(encoder, tmp_path / "out")
    assert moves == ["cpu", "meta"]


def test_the_command(tmp_path, run):
    encoder = make(tiny_backbone(tmp_path / "bert"), "sae", query_k=3, document_k=3)
    saved, out = tmp_path / "saved", tmp_path / "out"
    encoder.save(str(saved), create_model_card=False)
    command = ("model", "convert", saved, "--to", "onnx", "--out", out)
    assert run(*command, "--number", "int8", "--json").json["dimensions"] == 60
    assert (out / "tokenizer.json").exists()
    assert json.loads((out / DESCRIPTION).read_text())["number"] == "int8"
    found = vectors(out, encoder, "document")
    expected = encoder.encode_document(TEXTS, convert_to_sparse_tensor=False).numpy()
    cosine = (found * expected).sum() / np.linalg.norm(found) / np.linalg.norm(expected)
    assert 0.8 < cosine < 1
    other = ("model", "convert", saved, "--to", "saelens", "--out", tmp_path / "x")
    assert_error(run(*other, "--number", "int8"), "number is a setting of ONNX graphs")
