"""Adapters as folders: the same encoder as the merged weights, wherever the base is."""

import json

import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SparseEncoder

from lexicept.errors import InputError
from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.backbones.lora import add_adapters, has_adapters, merge_adapters
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.heads.vocabulary import VocabularyHead
from support.tiny import save_bert, text

TEXTS = [text(1, 2, 3), text(4), text(5, 6)]


def adapted(encoder, seed=0):
    """Adapters of random weights on the encoder's backbone."""
    backbone = encoder.backbone
    torch.manual_seed(seed)
    backbone.model = add_adapters(backbone.model, backbone.source, rank=3)
    with torch.no_grad():
        for name, value in backbone.model.named_parameters():
            if "lora_B" in name:
                value.normal_(std=0.1)
    return encoder


def make(backbone):
    torch.manual_seed(3)
    size = len(backbone.tokenizer)
    head = VocabularyHead(torch.randn(size, 32) * 0.3, torch.zeros(size), ["w"] * size)
    return Encoder.of(backbone, head)


def vectors(encoder):
    return torch.stack([*encoder.encode_query(TEXTS), *encoder.encode_document(TEXTS)]).to_dense()


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return save_bert(tmp_path_factory.mktemp("bert"))


@pytest.mark.parametrize("layer", [1, None])
def test_adapters_and_merged_weights_are_the_same_encoder(bert, tmp_path, layer):
    encoder = adapted(make(Backbone.from_pretrained(bert, layer)))
    expected = vectors(encoder)
    encoder.save(str(tmp_path / "adapter"), create_model_card=False)
    backbone = encoder.backbone
    backbone.model = merge_adapters(backbone.model)
    encoder.save(str(tmp_path / "merged"), create_model_card=False)
    for name in ("adapter", "merged"):
        ours = Encoder.load(tmp_path / name)
        theirs = SparseEncoder(str(tmp_path / name), trust_remote_code=True)
        for loaded in (ours, theirs):
            torch.testing.assert_close(vectors(loaded), expected, atol=1e-5, rtol=0)
        assert ours.backbone.num_layers == (layer or 2)
        assert not has_adapters(ours.backbone.model)
    assert (vectors(make(Backbone.from_pretrained(bert, layer))) - expected).abs().max() > 0.01


def test_a_folder_of_adapters_holds_nothing_of_the_base(bert, tmp_path):
    adapted(make(Backbone.from_pretrained(bert))).save(str(tmp_path), create_model_card=False)
    names = set(load_file(tmp_path / "adapter_model.safetensors"))
    assert all(".lora_A." in name or ".lora_B." in name for name in names)
    assert len(names) == 2 * 2 * 6  # two matrices for each of two blocks' six
    assert not (tmp_path / "model.safetensors").exists()
    settings = json.loads((tmp_path / "adapter_config.json").read_bytes())
    assert settings["base_model_name_or_path"] == bert
    assert (settings["r"], settings["lora_alpha"]) == (3, 6)


def test_adapters_upon_adapters(bert, tmp_path):
    """A base may be a folder of adapters, or a module's folder inside an encoder's."""
    first = adapted(make(Backbone.from_pretrained(bert)))
    first.save(str(tmp_path / "first"), create_model_card=False)
    second = adapted(Encoder.load(tmp_path / "first"), seed=1)
    second.save(str(tmp_path / "second"), create_model_card=False)
    actual = vectors(Encoder.load(tmp_path / "second"))
    torch.testing.assert_close(actual, vectors(second), atol=1e-5, rtol=0)
    assert (actual - vectors(first)).abs().max() > 0.01


def test_a_base_that_is_gone(bert, tmp_path):
    adapted(make(Backbone.from_pretrained(bert))).save(str(tmp_path), create_model_card=False)
    path = tmp_path / "adapter_config.json"
    settings = json.loads(path.read_bytes())
    path.write_text(json.dumps({**settings, "base_model_name_or_path": "/nowhere/model"}))
    with pytest.raises(InputError, match=r"can't be loaded: .*/nowhere/model"):
        Encoder.load(tmp_path)


def test_pickled_adapters_are_not_read(bert, tmp_path):
    adapted(make(Backbone.from_pretrained(bert))).save(str(tmp_path), create_model_card=False)
    weights = tmp_path / "adapter_model.safetensors"
    torch.save(load_file(weights), tmp_path / "adapter_model.bin")
    weights.unlink()
    with pytest.raises(InputError, match="pickled adapters are not read"):
        Encoder.load(tmp_path)
