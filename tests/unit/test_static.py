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
from lexicept.models.onnx_bert import rounded
from lexicept.models.sae.model import SAE
from lexicept.models.static import StaticStates, num_heads
from lexicept.training import static
from lexicept.training.static import (
    StaticModel,
    TokenTexts,
    add_residuals,
    fit_static,
    train_static,
)
from lexicept.vectorizers.interface import STATIC
from support.collections import write_beir
from support.commands import assert_error
from support.processes import MAIN, loaded_after
from support.served import DOCUMENTS, save_index
from support.tiny import text

MODELS = {"torch", "transformers", "sentence_transformers", "safetensors"}


def random_model(d=48, tokens=50):
    torch.manual_seed(0)
    model = StaticModel(tokens, d)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn_like(weight) * 0.2)
    return model


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    path = tmp_path_factory.mktemp("static") / STATIC
    random_model().save(path)
    return path


@given(st.lists(st.lists(st.integers(0, 49), min_size=1, max_size=9), min_size=1, max_size=4))
@settings(max_examples=30)
def test_both_runtimes_agree_and_padding_changes_nothing(stored, queries):
    """Up to products of 8 bits, about 1 %; any layer left out changes 3 % or more."""
    model, states = StaticModel.load(stored), StaticStates.load(stored)
    length = max(map(len, queries)) + 2
    ids = torch.tensor([query + [7] * (length - len(query)) for query in queries])
    mask = torch.tensor([[place < len(query) for place in range(length)] for query in queries])
    expected = model(ids, mask).detach().numpy()
    estimates = np.concatenate([states.states_of(np.array(query)) for query in queries])
    assert np.linalg.norm(estimates - expected) <= 0.02 * np.linalg.norm(expected)


def test_a_new_model_is_the_table_and_a_share_of_the_mean(tmp_path):
    model = StaticModel(3, 4)
    with torch.no_grad():
        model.table.copy_(torch.tensor([[1.0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 127, 1]]))
    model.save(tmp_path / STATIC)
    states = StaticStates.load(tmp_path / STATIC)
    assert states.states_of(np.array([0, 1])) == pytest.approx(
        np.array([[1.15, 0.15, 0, 0], [0.15, 1.15, 0, 0]]), abs=1e-3
    )
    assert states.states_of(np.array([2])) == pytest.approx(
        np.array([[0, 0, 165.1, 1.3]]), rel=3e-3
    )
    assert states.states_of(np.array([], np.int64)).shape == (0, 4)


def test_matrices_are_rounded_by_rows():
    numbers = rounded(np.array([[127.0, 1, -2], [0, 0, 0], [0.5, -1, 0]], np.float32))
    assert numbers[""].tolist() == [[127, 1, -2], [0, 0, 0], [64, -127, 0]]
    assert numbers[".factors"].tolist() == [[1.0], [1.0], [pytest.approx(1 / 127)]]


@pytest.mark.parametrize(("d", "heads"), [(384, 6), (768, 12), (32, 1), (130, 2), (129, 1)])
def test_heads_divide_a_state(d, heads):
    assert num_heads(d) == heads


def token_texts(rows, ids, ends):
    return TokenTexts(np.array(ids), np.array(ends), rows[ids].astype(np.float16))


def test_residuals_fill_the_table():
    rows = np.arange(24, dtype=np.float32).reshape(6, 4)
    texts = token_texts(rows, [0, 1, 1, 5, 2, 2, 2], [2, 4, 7])
    model = StaticModel(6, 4)
    with torch.no_grad():
        model.bag.zero_()
    add_residuals(model, [texts])
    for token, count in {0: 1, 1: 2, 2: 3, 3: 0, 4: 0, 5: 1}.items():
        expected = rows[token] * count / (count + 3)
        assert model.table[token].tolist() == pytest.approx(expected.tolist(), rel=1e-2)


@given(st.lists(st.integers(1, 9), max_size=30), st.integers(1, 40))
@settings(max_examples=50)
def test_batches_hold_every_text_once_and_few_tokens(lengths, tokens):
    ends = np.cumsum(lengths, dtype=np.int64)
    texts = TokenTexts(np.zeros(sum(lengths), np.int64), ends, np.zeros((0, 4), np.float16))
    batches = [*texts.batches(tokens, np.random.default_rng(0))]
    assert sorted(n for batch in batches for n in batch.tolist()) == [*range(len(lengths))]
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[n] for n in batch) <= tokens


def test_training_learns_from_neighbours_and_is_deterministic():
    """The state of a token is the row of the token before: the table alone can't tell."""
    random = np.random.default_rng(3)
    rows, ids = random.normal(size=(12, 8)), random.integers(0, 12, 600)
    before = np.where(np.arange(600) % 6 == 0, ids, np.roll(ids, 1))
    states = rows[before].astype(np.float16)
    texts = TokenTexts(ids, np.arange(6, 601, 6), states)
    errors = []
    for passes in (1, 200, 200):
        model = StaticModel(12, 8)
        add_residuals(model, [texts])
        train_static(model, texts, passes, batch_tokens=300, learning_rate=2e-2)
        estimates = model(*texts.batch(np.arange(100))[:2]).detach().numpy()
        errors.append(np.square(estimates - states).mean() / states.var())
    assert errors[0] > 0.5 > 0.1 > errors[1] == errors[2]


@pytest.mark.parametrize("content", [b"", b"\x08\0\0\0\0\0\0\0{}      ", "half", "other"])
def test_a_damaged_file_is_one_error(tmp_path, stored, content):
    path = tmp_path / STATIC
    whole = stored.read_bytes()
    if content == "half":
        content = whole[: len(whole) // 2]
    elif content == "other":
        content = whole.replace(b'"qkv"', b'"kvq"')
    path.write_bytes(content)
    for load in (StaticStates.load, StaticModel.load):
        with pytest.raises(InputError, match=f"{STATIC}: damaged or missing"):
            load(path)


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
def test_a_build_fits_one_where_the_head_has_k(bert, tmp_path, run, k):
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
    assert np.diff(read.ends, prepend=0).all()  # a text without tokens has no mean
    assert len(read.ends) == 2
    again = fit_static(encoder, [Document(str(n + 1), t) for n, t in enumerate(texts)])
    again.save(tmp_path / STATIC)
    files = (tmp_path / STATIC, index.reader.folder / "concepts" / STATIC)
    first, second = (StaticModel.load(file).table.detach() for file in files)
    torch.testing.assert_close(first, second, rtol=0, atol=float(first.abs().max()) / 50)
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
