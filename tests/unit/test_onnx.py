"""Graphs of encoders give the encoders' vectors in onnxruntime."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from lexicept.neural.encoders import onnx_export
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
    """Vectors by a graph, with no other help than the tokenizer's."""
    described = json.loads((folder / DESCRIPTION).read_text())
    session = onnxruntime.InferenceSession(str(folder / described["graphs"][side]))
    tokens = encoder.backbone.tokenizer(TEXTS, padding=True, return_tensors="np")
    inputs = {name: tokens[name] for name in described["inputs"]}
    text, dimension, weight = session.run(described["outputs"], inputs)
    actual = np.zeros((len(TEXTS), described["dimensions"]), np.float32)
    actual[text, dimension] = weight
    assert (weight > 0).all()
    return actual


def expected(encoder: Encoder, side: str) -> Any:
    encode = encoder.encode_document if side == "document" else encoder.encode_query
    return encode(TEXTS, convert_to_sparse_tensor=False).numpy()


def latents(folder: Path) -> Encoder:
    return make(tiny_backbone(folder / "bert"), "sae", query_k=3, document_k=3)


@pytest.fixture(scope="module")
def one_graph(tmp_path_factory):
    """An encoder that reads queries as documents, and its graph."""
    root = tmp_path_factory.mktemp("graph")
    (root / "out").mkdir()
    encoder = latents(root)
    tokenizer = encoder.backbone.tokenizer
    tokenizer.padding_side = "left"
    assert set(write_onnx(encoder, root / "out")["graphs"].values()) == {"model.onnx"}
    assert tokenizer.padding_side == "left"
    tokenizer.padding_side = AutoTokenizer.from_pretrained(root / "out").padding_side
    return encoder, root / "out"


def test_one_graph_gives_the_vectors_of_both_sides(one_graph):
    encoder, folder = one_graph
    for side in ("document", "query"):
        actual = vectors(folder, encoder, side)
        np.testing.assert_allclose(actual, expected(encoder, side), atol=1e-4)


@pytest.mark.parametrize("side", ["document", "query"])
@pytest.mark.parametrize(
    ("head_type", "special", "settings"),
    [
        ("threshold", True, {"pooling": "sqrt_sum", "document_max_active_dims": 7}),
        ("vocabulary", False, {"pooling": "sum", "query_scale": 0.5, "query_k": 4}),
    ],
)
def test_the_module_of_a_graph_gives_the_vectors_too(head_type, special, settings, side, tmp_path):
    """Before the export, which takes long."""
    backbone = tiny_backbone(tmp_path)
    backbone.special_tokens = special
    encoder = make(backbone, head_type, **settings)
    graph = Graph(backbone, encoder.head, side)
    tokens = backbone.tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        text, dimension, weight = graph(tokens["input_ids"], tokens["attention_mask"])
    graph.close()
    actual = torch.zeros(len(TEXTS), encoder.head.size)
    actual[text, dimension] = weight
    assert actual.any()
    np.testing.assert_allclose(actual, expected(encoder, side), atol=1e-4)


def test_a_model_is_exported_on_the_cpu_and_goes_back(tmp_path, monkeypatch):
    encoder = latents(tmp_path)
    encoder.head.configure(query_k=2)
    monkeypatch.setattr(type(encoder.backbone.model), "device", torch.device("meta"))
    moves, move = [], Graph.to
    monkeypatch.setattr(Graph, "to", lambda graph, *to: moves.append(to) or move(graph, "cpu"))
    exported = SimpleNamespace(save=lambda path, **_: path.write_bytes(b"graph"))
    monkeypatch.setattr(torch.onnx, "export", lambda *_, **__: exported)
    sides = {"document": "document.onnx", "query": "query.onnx"}
    assert write_onnx(encoder, tmp_path)["graphs"] == sides
    assert moves == [("cpu", torch.float32), (torch.device("meta"),)] * 2


def test_the_command(one_graph, tmp_path, run, monkeypatch):
    encoder, folder = one_graph
    monkeypatch.setattr(
        onnx_export, "_export", lambda *arguments: shutil.copy(folder / "model.onnx", arguments[-1])
    )
    saved, out = tmp_path / "saved", tmp_path / "out"
    encoder.save(str(saved), create_model_card=False)
    command = ("model", "convert", saved, "--to", "onnx", "--out", out)
    assert run(*command, "--number", "int8", "--json").json["dimensions"] == 60
    assert (out / "tokenizer.json").exists()
    assert json.loads((out / DESCRIPTION).read_text())["number"] == "int8"
    actual, exact = vectors(out, encoder, "document"), expected(encoder, "document")
    cosine = (actual * exact).sum() / np.linalg.norm(actual) / np.linalg.norm(exact)
    assert 0.8 < cosine < 1
    other = ("model", "convert", saved, "--to", "saelens", "--out", tmp_path / "x")
    assert_error(run(*other, "--number", "int8"), "number is a setting of ONNX graphs")
