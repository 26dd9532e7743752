"""Models of other libraries in every command with a model: opened alike, or refused alike."""

import json
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from hypothesis import example, given
from hypothesis import strategies as st
from sentence_transformers import SparseEncoder
from transformers import AutoTokenizer

import lexicept
from lexicept.encoding.hub import refuse_missing
from lexicept.encoding.light_encoder import LightEncoder
from lexicept.encoding.sources import fetch
from lexicept.errors import InputError, LexiceptWarning
from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.converters.reading import ModelLayout, open_encoder
from lexicept.neural.converters.writing import write_model
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.heads.language import language_head
from lexicept.neural.heads.sae import SAEHead
from lexicept.neural.sae.model import SAE
from lexicept.training.ranking.initial_encoder import load_models
from lexicept.training.ranking.run import train
from support.commands import assert_error
from support.library_models import (
    csr,
    inference_free,
    modules,
    save_library,
    save_masked,
    separate_encoders,
)
from support.runs import configuration
from support.tensors import assert_same
from support.tiny import (
    WITH_LAYER_NORM,
    WORDS,
    decoder_tokenizer,
    save_collection,
    save_decoder,
    tiny_backbone,
)

QUERY = "bade kilo"
TEXTS = [QUERY, " ".join(WORDS * 6), "kilo [SEP] muba", "? kiba"]


def vectors(model: SparseEncoder, texts: list[str]) -> torch.Tensor:
    return model.encode_document(texts, convert_to_sparse_tensor=False)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    save_collection(folder / "beir")
    return folder


def configure(folder: Path, name: str = "config.json", **changes: Any) -> Path:
    """Change entries of a configuration; None removes one."""
    data = {**json.loads((folder / name).read_bytes()), **changes}
    remaining = {key: value for key, value in data.items() if value is not None}
    (folder / name).write_text(json.dumps(remaining))
    return folder


HEADS: list[tuple[str, dict[str, Any]]] = [
    ("RobertaForMaskedLM", {}),
    ("BertForMaskedLM", {"tie_word_embeddings": False}),
    ("ModernBertForMaskedLM", {"tie_word_embeddings": False}),
    ("DebertaV2ForMaskedLM", {}),
    ("BertForPreTraining", {}),
    ("ElectraForMaskedLM", {}),
    ("ElectraForMaskedLM", {"embedding_size": 48}),
    ("ElectraForMaskedLM", {"embedding_size": 32, "tie_word_embeddings": False}),
]


@pytest.mark.parametrize(("name", "changes"), HEADS, ids=str)
def test_heads_are_those_of_the_library(name, changes, tmp_path):
    folder = save_masked(tmp_path / "masked", name, **changes)
    expected = vectors(SparseEncoder(modules=modules(folder)), TEXTS)
    encoder = open_encoder(folder)
    assert_same(vectors(encoder, TEXTS), expected)
    configure(folder, architectures=None)  # recognised by its type and its weights
    assert_same(vectors(open_encoder(folder), TEXTS), expected)
    encoder.save(str(tmp_path / "saved"), create_model_card=False)
    assert_same(vectors(Encoder.load(tmp_path / "saved"), TEXTS), expected)
    assert encoder.head.random(5).d_in == encoder.head.d_in == 32


@pytest.mark.parametrize("architecture", WITH_LAYER_NORM)
def test_decoders_with_any_norm(architecture, tmp_path):
    folder = Path(save_decoder(tmp_path / "model", architecture, tie_word_embeddings=False))
    encoder = open_encoder(folder)
    assert not encoder.backbone.bidirectional
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    ids = torch.tensor(AutoTokenizer.from_pretrained(folder)([QUERY])["input_ids"])
    with torch.no_grad():
        logits = model(ids, attention_mask=torch.ones_like(ids)).logits
    assert_same(vectors(encoder, TEXTS)[0], logits[0].relu().amax(0).log1p())
    configure(folder, architectures=None)
    assert_same(vectors(open_encoder(folder), TEXTS), vectors(encoder, TEXTS))


NO_HEADS = {
    "BertForSequenceClassification": "has no masked or causal language-model head",
    "T5ForConditionalGeneration": "has no masked or causal language-model head",
    "ElectraForPreTraining": "no weights of a language-model head, and embeddings of size 16 for",
    "MobileBertForMaskedLM": "is not one dense layer, activation and norm",
    "AlbertForMaskedLM": "AlbertModel has no list of 2 transformer blocks",
}


@pytest.mark.parametrize("name", NO_HEADS)
def test_models_without_a_head_that_is_read(name, tmp_path):
    folder = save_masked(tmp_path / "model", name)
    with pytest.raises(InputError, match=f"model: .*{NO_HEADS[name]}"):
        open_encoder(folder)


def test_models_without_a_class_or_a_head(tmp_path):
    for name, message in (
        ("T5ForConditionalGeneration", "a t5 has no masked or causal language-model head"),
        ("BertForSequenceClassification", "it has no weights of a language-model head"),
    ):
        folder = configure(save_masked(tmp_path / name, name), architectures=None)
        with pytest.raises(InputError, match=message):
            open_encoder(folder)
    folder = save_decoder(tmp_path / "opt", "OPT", word_embed_proj_dim=16)
    with pytest.raises(InputError, match="its head is not one norm and rows"):
        open_encoder(folder)


# Tokens and embeddings


def retokenized(folder: Path, masked: Path, change: Callable[[Any], Any]) -> Path:
    shutil.copytree(masked, folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    change(tokenizer)
    tokenizer.save_pretrained(folder)
    return folder


OUTSIDE: dict[str, Callable[[Any], Any]] = {
    "padding": lambda t: t.add_special_tokens({"pad_token": "[new]"}),
    "mask": lambda t: t.add_special_tokens({"mask_token": "[new]"}),
    "special": lambda t: t.add_tokens(["[new]"], special_tokens=True),
    "no padding": lambda t: setattr(t, "pad_token", None),
}


@pytest.mark.parametrize("what", OUTSIDE)
def test_special_tokens_without_an_embedding(what, masked, tmp_path):
    folder = retokenized(tmp_path / "model", masked, OUTSIDE[what])
    encoder = open_encoder(folder)
    assert_same(vectors(encoder, TEXTS), vectors(open_encoder(masked), TEXTS))
    # In a text such a token is an unknown token that no vector counts.
    assert vectors(encoder, ["bade [new] kilo", "[new]"]).isfinite().all()
    if what != "no padding":
        windows = encoder.backbone.windows(["bade [new] kilo"])
        assert windows[0].token_ids[2] == encoder.backbone.tokenizer.unk_token_id
        assert windows[0].left_out == [0, 0, 1, 0, 0]
        with pytest.raises(InputError, match="no embedding for a token of the text"):
            lexicept.explain("bade [new]", "kilo", SparseEncoder(modules=modules(folder)))
    index = lexicept.build([*TEXTS, "a [new] kilo"], tmp_path / "index", model=folder)
    assert {hit.id for hit in index.search(QUERY)} >= {"1", "3", "5"}


@pytest.mark.parametrize(
    "change",
    [
        lambda tokenizer: tokenizer.add_tokens(["newword"]),
        lambda tokenizer: tokenizer.add_special_tokens({"cls_token": "[new]"}),
    ],
    ids=["a word", "a token before every text"],
)
def test_a_tokenizer_of_another_model(change, masked, tmp_path):
    folder = retokenized(tmp_path / "model", masked, change)
    for load in (open_encoder, lambda folder: Backbone.from_pretrained(str(folder))):
        with pytest.raises(
            InputError, match=r"tokenizer has 83 tokens, the model embeddings of 82"
        ):
            load(folder)


def test_a_decoder_with_a_padding_token_of_its_own(tmp_path):
    tokenizer = decoder_tokenizer()
    folder = Path(save_decoder(tmp_path / "model", tokenizer=tokenizer))
    expected = vectors(open_encoder(folder), TEXTS)
    tokenizer.add_special_tokens({"pad_token": "[PAD]", "additional_special_tokens": ["x", "y"]})
    tokenizer.save_pretrained(folder)
    assert_same(vectors(open_encoder(folder), [t.replace("x", "") for t in TEXTS]), expected)


def test_the_quick_reader_leaves_such_tokenizers_to_the_encoder(tmp_path):
    encoder = Encoder.of(tiny_backbone(tmp_path / "bert"), SAEHead(SAE(32, 16, 4)))
    encoder.save(str(tmp_path / "model"), create_model_card=False)
    assert LightEncoder.load(tmp_path / "model") is not None
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    tokenizer.add_special_tokens({"pad_token": "[new]"})
    tokenizer.save_pretrained(tmp_path / "model")
    assert LightEncoder.load(tmp_path / "model") is None
    assert vectors(Encoder.load(tmp_path / "model"), ["bade", "[new] kilo lo"]).isfinite().all()


# Commands


PROMPTS = {"query": "kilo ", "document": "ba de "}
MODELS: dict[str, Callable[[Path, Path], Path]] = {
    "sum": lambda folder, masked: save_library(folder, modules(masked, "sum")),
    "two logarithms": lambda f, masked: save_library(f, modules(masked, "max", "log1p_relu")),
    "limited": lambda f, masked: save_library(f, modules(masked), max_active_dims=9),
    "prompts": lambda f, masked: save_library(f, modules(masked), prompts=PROMPTS),
}


@pytest.mark.filterwarnings("ignore:the trained model can't be written")
@pytest.mark.parametrize("name", MODELS)
def test_one_rule_for_all_commands(name, masked, inputs, tmp_path):
    folder = MODELS[name](tmp_path / "model", masked)
    index = lexicept.build(TEXTS, tmp_path / "index", vocabulary="concepts", model=folder)
    scores = {hit.id: hit.score for hit in index.search(QUERY)}
    for i, text in enumerate(TEXTS, 1):
        expected = lexicept.explain(QUERY, text, folder).score
        assert scores.get(str(i), 0) == pytest.approx(expected, rel=1e-4, abs=1e-5)
    config = configuration(inputs, model={"start": str(folder)}, optimizer={"steps": 1})
    trained = Encoder.load(train(config, tmp_path / "run"))
    assert trained.prompts == open_encoder(folder).prompts
    settings, own = trained.head.settings, open_encoder(folder).head.settings
    assert (settings.pooling, settings.double_log) == (own.pooling, own.double_log)
    assert settings.document_max_active_dims == (9 if name == "limited" else None)


REFUSED: dict[str, tuple[str, Callable[[Path, Path], Any]]] = {
    "CSR": ("reads one dense vector of a whole text", csr),
    "table": ("a table of weights encodes its queries", inference_free),
    "router": ("queries and documents have separate encoders", separate_encoders),
    "missing": ("model: no such folder; did you mean .*model2", lambda folder, _: None),
}


@pytest.mark.parametrize("name", REFUSED)
def test_one_rule_of_refusal(name, masked, inputs, tmp_path, run):
    message, make = REFUSED[name]
    folder = tmp_path / "model"
    make(folder, masked)
    (tmp_path / "model2").mkdir()
    config = configuration(inputs, model={"start": str(folder)})
    for call in (
        lambda: lexicept.build(TEXTS, tmp_path / "index", model=folder),
        lambda: lexicept.train(config, tmp_path / "run"),
        lambda: open_encoder(folder),
    ):
        with pytest.raises(InputError, match=message):
            call()
    (tmp_path / "corpus.txt").write_text(QUERY)
    command = ("build", tmp_path / "corpus.txt", "--model", folder, "--out", tmp_path / "new")
    assert_error(run(*command), str(folder))


# Training from parts of a model


def parts(positions: Path, folder: Path, **model: Any) -> Any:
    settings = {"start": None, "backbone": str(folder), "head": "mlm", **model}
    return load_models(configuration(positions, model=settings))


def test_a_backbone_s_head_keeps_its_settings(masked, inputs, tmp_path):
    for name in ("sum", "two logarithms", "limited"):
        folder = MODELS[name](tmp_path / name, masked)
        assert parts(inputs, folder).head.settings == open_encoder(folder).head.settings


def splade(inputs: Path, folder: Path, **model: Any) -> Any:
    settings = {"start": None, "backbone": str(folder), "head": "mlm", "trained": "all", **model}
    loss = {"words": 0.0, "scale_learning_rate": 0}
    return configuration(inputs, model=settings, loss=loss, optimizer={"steps": 2})


def test_a_trained_splade_is_written_for_others(masked, inputs, tmp_path):
    """Without a warning, and with vectors that sentence-transformers gives too."""
    lengths = {"max_query_tokens": 64, "max_document_tokens": 64}
    config = splade(inputs, masked, special_tokens=True, **lengths)
    encoder = Encoder.load(train(config, tmp_path / "run"))
    for layout in (ModelLayout.splade, ModelLayout.sentence_transformers):
        (tmp_path / layout).mkdir()
        write_model(encoder, layout, tmp_path / layout)
        assert_same(vectors(SparseEncoder(str(tmp_path / layout)), TEXTS), vectors(encoder, TEXTS))


def test_a_splade_that_will_not_be_written_is_announced(masked, inputs, tmp_path):
    with pytest.warns(LexiceptWarning) as warned:
        train(splade(inputs, masked, query_k=3), tmp_path / "run")
    assert [str(warning.message) for warning in warned] == [
        f"the trained model can't be written for {layout}: query_k: limits have no place there"
        for layout in (ModelLayout.splade, ModelLayout.sentence_transformers)
    ]
    with pytest.warns(LexiceptWarning, match="written for splade: special tokens are left out"):
        train(splade(inputs, masked), tmp_path / "without")


def test_a_backbone_that_would_lose_a_part_is_refused(masked, inputs, tmp_path):
    prompted = MODELS["prompts"](tmp_path / "prompts", masked)
    opensearch = Path(shutil.copytree(masked, tmp_path / "opensearch"))
    (opensearch / "idf.json").write_text('{"bade": 2.5}')
    cosine = save_library(tmp_path / "cosine", modules(masked), similarity_fn_name="cosine")
    for folder, message in (
        (prompted, "it puts prompts before texts"),
        (opensearch, "a table of weights encodes its queries"),
        (inference_free(tmp_path / "free", masked), "a table of weights encodes its queries"),
        (cosine, "compared by cosine, not by dot products"),
    ):
        with pytest.raises(InputError, match=message):
            parts(inputs, folder)
    with pytest.raises(InputError, match="it puts prompts before texts"):
        lexicept.pretrain(TEXTS, tmp_path / "model", backbone=str(prompted), steps=1)
    assert parts(inputs, opensearch, head="sae").head is None  # its blocks alone


def test_the_prompts_of_a_dense_backbone_are_left_out_aloud(masked, inputs, tmp_path):
    folder = Path(shutil.copytree(masked, tmp_path / "dense"))
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"prompts": PROMPTS}))
    with pytest.warns(LexiceptWarning, match="dense: training leaves its prompts out"):
        parts(inputs, folder, head="sae")


def test_an_sae_has_one_size(inputs, tmp_path):
    folder = save_masked(tmp_path / "electra", "ElectraForMaskedLM")
    with pytest.raises(InputError, match="transforms states of size 32 to 16"):
        parts(inputs, folder, head="sae", sae_input="transformed")
    assert language_head(str(folder)).d_in == 32


# Names


@pytest.fixture
def here(tmp_path, monkeypatch):
    for name in ("models", "models/splade-v3", "run"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("./modls", "models"),
        ("models/splade-v4", "models/splade-v3"),
        ("models/splade-v2/model", "models/splade-v3"),
        ("../nowhere/at/all", ""),
        ("~/no-such-model-of-mine", ""),
        ("/no/such/model", ""),
        ("owner/name/inside", ""),
        ("model.safetensors", ""),
        (r"dir\file", ""),
    ],
)
def test_a_misspelt_path_is_not_looked_up(name, near, here, monkeypatch):
    def request(*_: Any, **__: Any) -> None:
        raise AssertionError("the hub was asked")

    monkeypatch.setattr("huggingface_hub.snapshot_download", request)
    monkeypatch.setattr("huggingface_hub.model_info", request)
    for call in (open_encoder, Backbone.from_pretrained, language_head, Encoder.load, fetch):
        with pytest.raises(InputError) as caught:
            call(name)
        assert str(caught.value) == f"{name}: no such folder" + (
            f"; did you mean {near}?" if near else ""
        )


def test_a_bare_name_is_a_folder_for_a_model(here):
    with pytest.raises(InputError, match=r"^modles: no such folder; did you mean models\?$"):
        open_encoder("modles")


@given(st.text())
@example("~\0")
def test_any_text_is_a_name_a_path_or_refused(name):
    with suppress(InputError):
        refuse_missing(name)


def test_without_a_network_nothing_is_retried(monkeypatch):
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    begun = time.monotonic()
    calls: list[Callable[[], Any]] = [
        lambda: Backbone.from_pretrained("nosuch/model"),
        lambda: language_head("nosuch-model"),
        lambda: open_encoder("nosuch/model"),
        lambda: lexicept.explain("a", "b", "nosuch/model/layer_3"),
        lambda: lexicept.build(["a"], "new", concepts=lexicept.ConceptSettings(sae="nosuch/sae")),
    ]
    for call in calls:
        with pytest.raises(InputError, match="no such folder, and the hub's can't be loaded"):
            call()
    assert time.monotonic() - begun < 5
