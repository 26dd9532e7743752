"""The static encoder of queries: estimates of token states, without a network."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import lexicept
from lexicept.corpora import Document
from lexicept.errors import IndexFormatError, InputError
from lexicept.index.reader import IndexReader
from lexicept.models.encoder import Encoder
from lexicept.models.heads.sae import SAEHead
from lexicept.models.heads.settings import HeadSettings
from lexicept.models.light_encoder import LightEncoder
from lexicept.models.onnx_bert import map_safetensors, rounded
from lexicept.models.sae.model import SAE
from lexicept.models.static import PackedRows, StaticStates, packed
from lexicept.models.window_tensors import pad_windows
from lexicept.models.windows import Window
from lexicept.storage.files import write_json
from lexicept.training import static
from lexicept.training.static import (
    StaticModel,
    TokenTexts,
    static_of,
    train_static,
    write_static,
)
from lexicept.vectorizers.interface import STATIC
from support.collections import write_beir
from support.commands import assert_error
from support.processes import MAIN, loaded_after
from support.served import DOCUMENTS, save_index
from support.tiny import text, tiny_backbone

MODELS = {"torch", "transformers", "sentence_transformers", "safetensors"}


@pytest.fixture(scope="module")
def deep(tmp_path_factory):
    return tiny_backbone(tmp_path_factory.mktemp("bert"), blocks=3, inner=160)


@pytest.fixture(scope="module")
def model(deep):
    """A student whose weights are not those of the start."""
    torch.manual_seed(0)
    model = StaticModel(deep)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    return model


def config_of(model):
    return model.bert.config.to_dict()


@pytest.fixture(scope="module")
def stored(tmp_path_factory, model):
    path = tmp_path_factory.mktemp("static") / STATIC
    write_static(path, model.stored())
    return path


def windows_of(queries):
    """Windows whose first and last tokens are left out."""
    return [
        Window(n, ids, [1, *[0] * (len(ids) - 2), 1], [None] * len(ids), [(0, 0)] * len(ids))
        for n, ids in enumerate(queries)
    ]


def estimates_of(states, windows):
    found = {number: estimates for (number,), estimates in states.read(windows)}
    return np.concatenate([found[number] for number in range(len(windows))])


@given(st.lists(st.lists(st.integers(0, 49), min_size=3, max_size=9), min_size=1, max_size=4))
@settings(max_examples=30)
def test_both_runtimes_agree_and_padding_changes_nothing(model, stored, queries):
    """To 1e-4 with exact weights, and up to the products of 8 bits."""
    windows = windows_of(queries)
    expected = model(pad_windows(windows, 7)).detach().numpy()
    write_json(stored.with_name("config.json"), config_of(model))
    states = StaticStates.load_file(stored, stored.with_name("config.json"))
    error = np.linalg.norm(estimates_of(states, windows) - expected)
    assert error <= 0.1 * np.linalg.norm(expected)
    weights = {name: weight.numpy() for name, weight in model.bert.state_dict().items()}
    unrounded = map_safetensors(stored).items()
    weights |= {name: weight for name, weight in unrounded if "word" in name}
    exact = estimates_of(StaticStates(weights, config_of(model)), windows)
    np.testing.assert_allclose(exact, expected, rtol=0, atol=1e-4)


def test_rows_are_packed_into_4_bits():
    """A step is .335 of the root of the mean square, and numbers are half steps from 0."""
    rows = np.array([[1.0, -1, 1, -1], [0, 0, 0, 0], [100, 0.1, -0.1, 0.1]], np.float32)
    weights = packed("rows", rows)
    assert weights["rows.weight"].shape == (3, 2)
    unpacked = PackedRows(weights, "rows")[np.array([0, 1, 2])]
    expected = [[2.5, -2.5, 2.5, -2.5], [0, 0, 0, 0], [275, 25, -25, 25]]
    np.testing.assert_allclose(unpacked, 0.335 * np.array(expected), rtol=1e-4)
    np.testing.assert_allclose(
        static._rounded(torch.from_numpy(rows)).numpy(), unpacked, 1e-5, 1e-9
    )


def test_matrices_are_rounded_by_rows():
    numbers = rounded("x", np.array([[63.0, 1, -2], [0, 0, 0], [0.4, -1, 0]], np.float32))
    assert numbers["x.weight"].T.tolist() == [[63, 1, -2], [0, 0, 0], [25, -63, 0]]
    assert numbers["x.weight.factors"].tolist() == [1.0, 1.0, pytest.approx(1 / 63)]


@pytest.mark.parametrize("numbers", [(0, 2), (0, 1, 2)])
def test_a_student_starts_with_the_strongest_units_of_some_blocks(deep, numbers):
    student, blocks = StaticModel(deep, len(numbers)).bert, deep.model.encoder.layer
    assert student.config.num_hidden_layers == len(numbers)
    for block, source in zip(student.encoder.layer, map(blocks.__getitem__, numbers), strict=True):
        up, down = source.intermediate.dense.weight, source.output.dense.weight
        strength = (up.norm(dim=1) * down.norm(dim=0)).detach().numpy()
        units = np.sort(np.argsort(-strength)[:96])
        assert torch.equal(block.intermediate.dense.weight, up[units])
        assert torch.equal(block.intermediate.dense.bias, source.intermediate.dense.bias[units])
        assert torch.equal(block.output.dense.weight, down[:, units])
        assert torch.equal(block.attention.self.query.weight, source.attention.self.query.weight)


def test_a_backbone_of_one_block_has_a_student_of_one(tmp_path):
    student = StaticModel(tiny_backbone(tmp_path, blocks=1))
    assert student.bert.config.num_hidden_layers == 1
    states = StaticStates(student.stored(), config_of(student))
    assert states.states(np.zeros((1, 4), np.int64), np.ones((1, 4), bool)).shape == (4, states.d)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=30), st.integers(1, 40))
@settings(max_examples=50)
def test_batches_hold_every_text_once(lengths, tokens):
    windows = windows_of([[number] * (length + 2) for number, length in enumerate(lengths)])
    states = [torch.full((length, 1), number) for number, length in enumerate(lengths)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(static, "BATCH_TOKENS", tokens)
        batches = [*TokenTexts(windows, states).batches(2)]
    texts = [n for batch in batches for n in batch.windows["input_ids"][:, 0].tolist()]
    assert sorted(texts) == sorted([*range(len(lengths))] * 2)
    for windows, targets in batches:
        assert torch.equal(windows["input_ids"][windows["token_mask"]], targets[:, 0].long())


def test_training_lowers_the_error_and_is_deterministic(deep):
    encoder = Encoder.of(deep, SAEHead(SAE(deep.model.config.hidden_size, 8, k=2)))
    texts = TokenTexts.read(encoder, [text(n, n + 3, 2 * n) for n in range(20)])
    states = torch.cat(texts.states).float()
    errors = []
    for steps in (1, 60, 60):
        model = StaticModel(deep)
        train_static(model, texts.batches(60), steps, states, learning_rate=5e-3)
        (batch,) = texts.batches(1)
        error = (model(batch.windows) - batch.states).square().sum().item()
        errors.append(error / (states - states.mean(0)).square().sum().item())
    assert errors[0] > 0.5 > 0.3 > errors[1] == errors[2]


@pytest.mark.parametrize("content", [b"", b"\x08\0\0\0\0\0\0\0{}      ", "half", "other"])
def test_a_damaged_file_is_one_error(tmp_path, model, stored, content):
    path = tmp_path / STATIC
    whole = stored.read_bytes()
    if content == "half":
        content = whole[: len(whole) // 2]
    elif content == "other":
        content = whole.replace(b"layer.1.output", b"layer.1.outptu")
    path.write_bytes(content)
    write_json(tmp_path / "config.json", config_of(model))
    with pytest.raises(InputError, match=f"{STATIC}: damaged or missing"):
        StaticStates.load_file(path, tmp_path / "config.json")


@pytest.mark.parametrize(
    "changes",
    [{"num_attention_heads": None}, {"num_attention_heads": 0}, {"hidden_size": 33}, {"": 1}],
)
def test_a_damaged_configuration_names_itself(tmp_path, model, stored, changes):
    content = config_of(model) | changes if changes != {"": 1} else {}
    write_json(tmp_path / "config.json", content)
    with pytest.raises(InputError, match=rf"{STATIC}: damaged or missing, or \S+config\.json is: "):
        StaticStates.load_file(stored, tmp_path / "config.json")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return save_index(tmp_path_factory.mktemp("served"))


def test_scores_of_static_queries_are_explained(built):
    index = lexicept.open(built)
    query = f"{DOCUMENTS[3].text} unknownword"
    hits = index.search(query, 5, query_encoder="static", explain=True)
    kinds = set()
    for hit in hits:
        assert hit.explanation is not None
        assert hit.explanation.score == pytest.approx(hit.score, rel=1e-5)
        kinds |= {part.vocabulary for part in hit.explanation.contributions}
        assert hit.explanation == index.explain(query, hit.id, query_encoder="static")
        assert all(part.query_spans for part in hit.explanation.contributions)
    assert kinds == {"words", "concepts"}
    (many,) = index.search_many([query, "kilo"], 5, query_encoder="static")[:1]
    assert [hit.id for hit in many] == [hit.id for hit in hits]
    assert [hit.score for hit in many] == pytest.approx([hit.score for hit in hits], rel=1e-5)
    alone = index.search(query, 5, vocabulary="words")
    assert index.search(query, 5, vocabulary="words", query_encoder="static") == alone
    assert index.search(query, 5) != hits
    assert index.search("", query_encoder="static") == []


def test_an_index_keeps_its_static_encoder(tmp_path):
    path = save_index(tmp_path, atlas=False)
    index = lexicept.open(path)
    content = (index.reader.folder / "concepts" / STATIC).read_bytes()
    index.add([{"id": "new", "text": text(3)}])
    index.delete(["new"])
    index.reweight(alpha=1.25)
    copied = index.reweight(alpha=1.0, out=tmp_path / "copy")
    for changed in (index, copied):
        assert (changed.reader.folder / "concepts" / STATIC).read_bytes() == content
        assert changed.verify().problems == []
        assert changed.search("baba", query_encoder="static")
    name = f"{index.reader.folder.name}/concepts/{STATIC}"
    assert name in index.reader.manifest["files"]
    (path / name).write_bytes(content[:-9])
    with pytest.raises(IndexFormatError, match=STATIC):
        IndexReader.open(path)


def test_words_alone_need_no_static_encoder(tmp_path, built):
    words = lexicept.open(save_index(tmp_path, concepts=False))
    assert words.search("kilo", query_encoder="static") == words.search("kilo")
    with pytest.raises(InputError, match="model or static, not 'both'"):
        lexicept.open(built).search("cat", query_encoder="both")


@pytest.mark.parametrize("k", [2, None])
def test_a_build_trains_one_where_the_head_has_k(bert, tmp_path, run, monkeypatch, k):
    monkeypatch.setattr(static, "PASSES", 25)
    sae = SAE(bert.model.config.hidden_size, 64, k=4)
    head = SAEHead(sae, HeadSettings(query_k=k, document_k=k))
    encoder = Encoder.of(bert, head)
    encoder.save(str(tmp_path / "model"), create_model_card=False)
    texts = [document.text for document in DOCUMENTS]
    index = lexicept.build(
        texts, tmp_path / "index", vocabulary="concepts", model=tmp_path / "model"
    )
    if k is None:
        assert_error(
            run("search", index.path, "kilo", "--query-encoder", "static"),
            "has no static encoder of queries: only concepts that are latents of an SAE with k",
        )
        return
    read = TokenTexts.read(encoder, ["", *texts[:2]])
    assert len(read.windows) == len(read.states) == 2  # a text without tokens has no mean
    again = static_of(encoder, [Document(str(n + 1), t) for n, t in enumerate(texts)])
    write_static(tmp_path / STATIC, again)
    stored = map_safetensors(index.reader.folder / "concepts" / STATIC)
    words = "embeddings.word_embeddings"
    first, second = (PackedRows(weights, words)[:] for weights in (stored, again))
    np.testing.assert_allclose(first, second, rtol=0, atol=np.abs(first).max() / 7)
    light = LightEncoder.load(tmp_path / "model", tmp_path / STATIC)
    assert light is not None
    estimates, states = (e.encode_with_means(texts, "query")[1] for e in (light, encoder))
    error = np.square(estimates - states).mean() / np.square(states - states.mean(0)).mean()
    assert error < 1


def test_static_queries_need_no_model(tmp_path, built):
    documents, judged = {"d3": DOCUMENTS[3].text}, {"test": "q 0 d3 1\n"}
    write_beir(tmp_path, documents, {"q": "baba deki"}, judged)
    option = ["--query-encoder", "static"]
    for arguments in (
        ["search", built, "baba deki", "--explain", *option],
        ["explain", built, "baba deki", "d3", *option],
        ["evaluate", built, tmp_path, *option],
    ):
        loaded = loaded_after(MAIN, *arguments)
        assert "tokenizers" in loaded
        assert not loaded & MODELS


SERVE = """
import sys
from fastapi.testclient import TestClient
from lexicept.server.app import create_app

app = create_app(sys.argv[1], host="0.0.0.0", query_encoder="static")
with TestClient(app) as client:
    results = client.get("/search", params={"query": "baba deki"}).json()["results"]
    assert results
    parameters = {"query": "baba deki"}
    assert client.get("/query", params=parameters).status_code == 200
    parameters["document_id"] = results[0]["id"]
    assert client.get("/explain", params=parameters).status_code == 200
"""


def test_serving_static_queries_needs_no_model(built):
    pytest.importorskip("fastapi")
    loaded = loaded_after(SERVE, built)
    assert "tokenizers" in loaded
    assert not loaded & MODELS


def test_short_documents_are_read_whole():
    sentences = ["One two three four five.", "Six seven eight nine ten."]
    documents = [Document("1", "two words"), Document("2", ""), Document("3", " ".join(sentences))]
    found = [*static._like_queries(documents)]
    assert found[:2] == ["two words", ""]
    assert sorted(found[2:]) == sentences
