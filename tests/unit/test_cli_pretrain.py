"""Pretraining on the command line: a model for the other commands, and refusals."""

import json
from pathlib import Path

import pytest
import torch

from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.backbones.lora import has_adapters
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.heads.language import language_head
from lexicept.neural.heads.vocabulary import VocabularyHead
from support.commands import assert_error
from support.language_models import VOCABULARY, save
from support.tiny import save_decoder

DOCUMENTS = ["the lovely cat sat on a mat", "a dog ran away from the cats", "the dog and it"]
WORDS = {"the", "lovely", "cat", "sat", "on", "a", "mat", "dog", "ran", "away", "from", "cats"}


@pytest.fixture
def bert(tmp_path):
    save(tmp_path / "bert", "Bert")
    return tmp_path / "bert"


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.jsonl"
    lines = [json.dumps({"_id": str(n), "text": text}) for n, text in enumerate(DOCUMENTS)]
    path.write_text("\n".join(lines))
    return path


@pytest.fixture
def go(run, corpus, bert, tmp_path):
    """Pretrains into ``tmp_path / "model"``, in few steps."""

    def call(*arguments):
        settings = ("--backbone", bert, "--steps", 3, "--batch-size", 2)
        return run("model", "pretrain", corpus, "--out", tmp_path / "model", *settings, *arguments)

    return call


def head_of(folder: Path) -> VocabularyHead:
    head: VocabularyHead = Encoder.load(folder)[1]
    return head


def test_the_backbone_s_own_head(go, bert, tmp_path):
    report = go("--json").json
    size = len(VOCABULARY)
    assert report == {"model": str(tmp_path / "model"), "dimensions": size, "steps": 3}
    encoder, before = Encoder.load(tmp_path / "model"), language_head(str(bert))
    assert list(encoder[1].terms) == VOCABULARY
    moved = (encoder[1].rows - before.rows).abs().max()
    assert 0 < float(moved.detach()) < 0.1
    weights = encoder[0].model.state_dict()
    frozen = Backbone.from_pretrained(str(bert)).model.state_dict()
    assert all(torch.equal(value, weights[name]) for name, value in frozen.items())
    assert not (tmp_path / "model.partial").exists()


def test_an_expanded_head_that_build_takes(go, run, corpus, bert, tmp_path):
    arguments = ("--head", "expanded", "--trained", "all", "--layer", 1, "--bf16", "--seed", 4)
    assert go(*arguments, "--json").json["dimensions"] == len(WORDS) + 2
    encoder = Encoder.load(tmp_path / "model")
    assert encoder[0].num_layers == 1
    assert set(encoder[1].terms) == WORDS | {"and", "it"}
    assert encoder[1].terms[0] == "the"
    index = tmp_path / "index"
    options = ("--vocabulary", "concepts", "--model", tmp_path / "model")
    built = run("build", corpus, "--out", index, *options, "--json").json
    assert built["vocabularies"][0]["size"] == len(WORDS) + 2
    best = run("search", index, "lovely", "--explain", "--json").json["results"][0]
    assert {contribution["term"] for contribution in best["contributions"]} <= WORDS | {"and", "it"}


def test_words_of_other_texts(go, tmp_path):
    """ESPLADE, 3.1.3: the words of the training's texts, pretraining on a larger corpus."""
    training = tmp_path / "training.jsonl"
    texts = ["the mat ran from the mat", "a mat, the cats"]
    training.write_text(
        "\n".join(json.dumps({"_id": str(n), "text": t}) for n, t in enumerate(texts))
    )
    assert go("--head", "expanded", "--size", 3, "--json").json["dimensions"] == 3
    assert list(head_of(tmp_path / "model").terms) == ["the", "a", "dog"]
    words = ("--head", "expanded", "--overwrite", "--vocabulary", training)
    assert go(*words, "--json").json["dimensions"] == 6
    assert list(head_of(tmp_path / "model").terms) == ["mat", "the", "a", "cats", "from", "ran"]
    assert_error(go("--vocabulary", training, "--overwrite"), "requires masking words, not subw")
    training.write_text("")
    assert_error(go(*words), "the vocabulary has no documents")


def test_unfinished_work_on_other_texts_is_refused_and_discarded_by_restart(
    go, corpus, tmp_path, monkeypatch
):
    def killed(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("lexicept.neural.encoders.encoder.Encoder.save", killed)
        assert go().code == 130
    assert not (tmp_path / "model").exists()
    assert (tmp_path / "model.partial" / "training" / "checkpoint.pt").exists()
    assert_error(go("--seed", 1), "seed was 0 and is now 1", "--restart")
    corpus.write_text(corpus.read_text().replace("lovely", "running"))
    assert_error(go(), "texts.bin was", "--restart")
    assert go("--restart").code == 0


def test_a_decoder_that_learns_to_attend_in_both_directions(run, corpus, tmp_path):
    decoder, out = save_decoder(tmp_path / "llama"), tmp_path / "model"
    options = ("--masking", "mntp", "--trained", "lora", "--lora-rank", 2, "--steps", 1)
    report = run(
        "model", "pretrain", corpus, "--out", out, "--backbone", decoder, *options, "--json"
    ).json
    before = Backbone.from_pretrained(decoder)
    assert report["dimensions"] == before.model.config.vocab_size
    after = Backbone.from_pretrained(str(out))
    assert after.bidirectional
    assert not has_adapters(after.model)
    pairs = zip(before.model.layers.parameters(), after.model.layers.parameters(), strict=True)
    assert any(not torch.equal(old, new) for old, new in pairs)
    # It is cut and gets another head later, or keeps its own.
    assert torch.equal(language_head(str(out)).rows, language_head(decoder).rows)
    assert Backbone.from_pretrained(str(out), 1).num_layers == 1


def test_what_is_refused(go, corpus, tmp_path):
    assert_error(go("--head", "expanded", "--size", 0), "--size must be at least 1, not 0")
    assert_error(go("--backbone", tmp_path / "none"), "none: no such folder")
    assert_error(go("--layer", 3), "layer 3: ")
    corpus.write_text('{"_id": "d", "text": "? !"}')
    assert_error(go("--head", "expanded"), "the texts have no words")
    corpus.write_text("")
    assert_error(go(), "corpus")
    assert not list(tmp_path.glob("model*"))
