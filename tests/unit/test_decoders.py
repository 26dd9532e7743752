"""Decoders as backbones: attention in both directions, cut, padded, saved; their tokenizers."""

import copy

import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModel, ByT5Tokenizer
from transformers.masking_utils import create_causal_mask

from lexicept.encoding.word_spans import split_words
from lexicept.errors import InputError
from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.backbones.loading import quiet_transformers
from lexicept.neural.backbones.window_tensors import pad_windows
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.heads.sae import SAEHead
from lexicept.neural.sae.model import SAE
from lexicept.neural.vectorizers.concepts import BackboneSettings, ConceptVectorizer
from lexicept.training.sae.settings import SAESettings
from lexicept.training.sae.trainer import train_concepts
from support.tiny import DECODERS, decoder_tokenizer, save_bert, save_decoder, text

LONG = text(*range(8))
"""With the token before it 9 tokens."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A tiny model of every architecture."""
    root = tmp_path_factory.mktemp("decoders")
    return {name: save_decoder(root / name, name) for name in DECODERS}


@pytest.fixture(params=DECODERS)
def folder(folders, request):
    return folders[request.param]


def inputs(backbone: Backbone, *texts: str) -> tuple[torch.Tensor, torch.Tensor]:
    features = pad_windows(backbone.windows(texts), backbone.tokenizer.pad_token_id or 0)
    return features["input_ids"], features["attention_mask"]


def states(backbone: Backbone, *texts: str) -> torch.Tensor:
    with torch.no_grad():
        return backbone.states(*inputs(backbone, *texts))


def changed(backbone: Backbone, path: int, padding: int = 0) -> list[int]:
    """Positions of ``LONG`` with states that change with the token at a position."""
    ids, mask = inputs(backbone, LONG)
    ids, mask = ids.repeat(2, 1), mask.repeat(2, 1)
    ids[1, path] = 7
    ids, mask = (torch.nn.functional.pad(tensor, (0, padding)) for tensor in (ids, mask))
    with torch.no_grad():
        first, second = backbone.states(ids, mask)
    difference = (first - second).abs().amax(dim=1)[: len(mask[0]) - padding]
    assert difference[path] > 0.1
    return torch.nonzero(difference > 1e-4).ravel().tolist()


@pytest.mark.parametrize(("layer", "padding"), [(3, 2), (None, 0)])
def test_a_later_token_changes_earlier_states_only_in_both_directions(folder, layer, padding):
    everywhere = list(range(9))
    both = Backbone.from_pretrained(folder, layer)
    assert both.bidirectional
    assert changed(both, 8, padding) == changed(both, 0, padding) == everywhere
    causal = Backbone.from_pretrained(folder, layer, bidirectional=False)
    assert changed(causal, 8, padding) == [8]
    assert changed(causal, 4, padding) == [4, 5, 6, 7, 8]


@pytest.mark.parametrize("architecture", ["Gemma2", "Gemma3", "Mistral"])
def test_a_sliding_window_has_as_many_tokens_on_both_sides(folders, architecture):
    backbone = Backbone.from_pretrained(folders[architecture], 1)  # which slides
    assert changed(backbone, 8) == [4, 5, 6, 7, 8]
    assert changed(backbone, 0) == [0, 1, 2, 3, 4]
    causal = Backbone.from_pretrained(folders[architecture], 1, bidirectional=False)
    assert changed(causal, 0) == [0, 1, 2, 3]  # where the window counts the token itself


def test_attention_that_a_model_does_not_have(folders, tmp_path, monkeypatch):
    with pytest.raises(InputError, match="BertModel has no causal attention"):
        Backbone.from_pretrained(save_bert(tmp_path), bidirectional=False)

    def deaf(config, **arguments):
        config = copy.copy(config)
        config.is_causal = True
        return create_causal_mask(config=config, **arguments)

    # Where a model does not hear the switch only padding shows it: its mask is made elsewhere.
    monkeypatch.setattr(transformers.models.llama.modeling_llama, "create_causal_mask", deaf)
    with pytest.raises(InputError, match="LlamaModel has no bidirectional attention"):
        Backbone.from_pretrained(folders["Llama"])


def test_cut_is_the_whole_model_s_state(folder):
    with quiet_transformers():
        whole = AutoModel.from_pretrained(folder).eval()
    whole.config.is_causal = False
    cut, full = Backbone.from_pretrained(folder, 2), Backbone.from_pretrained(folder)
    assert (cut.num_layers, full.num_layers) == (2, 4)
    blocks = sum(p.numel() for p in whole.layers[2:].parameters())
    assert cut.model.num_parameters() == whole.num_parameters() - blocks
    ids, mask = inputs(cut, LONG)
    with torch.no_grad():
        every = whole(ids, attention_mask=mask, output_hidden_states=True).hidden_states
        last = whole.norm(full.states(ids, mask))
    assert torch.allclose(states(cut, LONG), every[2], atol=1e-5)
    # The library's last entry is after the final norm.
    assert torch.allclose(last, every[4], atol=1e-5)


def test_saved_and_loaded(folder, tmp_path):
    for bidirectional in (True, False):
        backbone = Backbone.from_pretrained(folder, 3, bidirectional=bidirectional)
        backbone.save(str(tmp_path))
        for loaded in (Backbone.load(str(tmp_path)), Backbone.from_pretrained(str(tmp_path))):
            assert (loaded.bidirectional, loaded.num_layers) == (bidirectional, 3)
            assert torch.equal(states(loaded, LONG), states(backbone, LONG))
        other = Backbone.from_pretrained(str(tmp_path), bidirectional=not bidirectional)
        expected = Backbone.from_pretrained(folder, 3, bidirectional=not bidirectional)
        assert torch.equal(states(other, LONG), states(expected, LONG))


@pytest.mark.parametrize("architecture", [*DECODERS, "Bert"])
def test_padding_and_neighbours_change_nothing(folders, tmp_path, architecture):
    path = save_bert(tmp_path) if architecture == "Bert" else folders[architecture]
    backbone = Backbone.from_pretrained(path)
    texts = [text(1, 2), LONG, text(3)]
    right, mask = inputs(backbone, *texts)
    left, left_mask = right.clone(), mask.flip(1)
    for i, size in enumerate(mask.sum(dim=1).tolist()):
        left[i] = right[i].roll(len(mask[0]) - size)
    with torch.no_grad():
        on_left, on_right = backbone.states(left, left_mask), backbone.states(right, mask)
    assert torch.equal(on_left[left_mask.bool()], on_right[mask.bool()])
    alone = torch.cat([states(backbone, sample)[0] for sample in texts])
    assert torch.allclose(on_right[mask.bool()], alone, atol=1e-4)


def test_weights_are_in_single_precision_unless_it_is_said(tmp_path):
    save_decoder(tmp_path / "single")
    with quiet_transformers():
        model = AutoModel.from_pretrained(tmp_path / "single").to(torch.bfloat16)
        model.save_pretrained(tmp_path / "half")
    decoder_tokenizer().save_pretrained(tmp_path / "half")
    backbone = Backbone.from_pretrained(str(tmp_path / "half"))
    assert backbone.dtype == "float32"
    half = Backbone.from_pretrained(str(tmp_path / "half"), dtype="bfloat16")
    half.save(str(tmp_path / "saved"))
    assert half.dtype == Backbone.load(str(tmp_path / "saved")).dtype == "bfloat16"
    assert states(half, LONG).dtype == torch.float32
    assert not torch.equal(states(half, LONG), states(backbone, LONG))
    with pytest.raises(InputError, match="float32, bfloat16, float16, not 'int8'"):
        Backbone.from_pretrained(str(tmp_path / "half"), dtype="int8")


# Tokens


def test_borders_are_special_even_where_a_text_spells_them(folders):
    backbone = Backbone.from_pretrained(folders["Llama"])
    (window,) = backbone.windows(["bade</s> baki<s>"])
    assert window.token_ids[2::2] == [2, 1]
    assert window.left_out == [1, 0, 1, 0, 1]
    features = backbone.preprocess(["bade</s> baki<s>"])
    assert features["token_mask"].tolist() == [[False, True, False, True, False]]


def test_texts_without_any_token(tmp_path):
    """A tokenizer without special tokens, such as Qwen's."""
    backbone = Backbone.from_pretrained(save_decoder(tmp_path, "Qwen3", decoder_tokenizer(False)))
    assert backbone.windows([""])[0].token_ids == []
    encoder = Encoder.of(backbone, SAEHead(SAE(32, 8, 2)))
    vectors = encoder.encode_activations(["", text(1, 2), ""])
    assert vectors.toarray()[0].tolist() == vectors.toarray()[2].tolist() == [0.0] * 8
    assert encoder.encode_activations([""]).nnz == 0
    for texts in (["", text(1, 2, 3)], [""]):
        backbone.zero_grad()
        features = backbone(backbone.preprocess(texts))
        features["token_embeddings"][features["token_mask"]].sum().backward()
        gradients = [p.grad for p in backbone.parameters() if p.grad is not None]
        assert gradients
        assert all(gradient.isfinite().all() for gradient in gradients)


@given(st.lists(st.sampled_from(["bade", "ki", "lomu", "x", " ", "  ", "\n"]), max_size=12))
@pytest.mark.parametrize("whole", [True, False])
def test_words_are_what_spaces_set_apart(whole, fragments):
    """Also where a tokenizer takes a whole text for one word."""
    content = "".join(fragments)
    encoded = decoder_tokenizer(whole=whole)(content, return_offsets_mapping=True)
    words = split_words(content, encoded.word_ids(), encoded["offset_mapping"])
    spelled: dict[int, str] = {}
    for word, (start, end) in zip(words, encoded["offset_mapping"], strict=True):
        if word is not None:
            spelled[word] = spelled.get(word, "") + content[start:end]
    assert [word.strip() for word in spelled.values() if word.strip()] == content.split()


def test_windows_are_no_longer_than_is_sensible(tmp_path):
    tokenizer = decoder_tokenizer()
    tokenizer.model_max_length = 10**30
    folder = save_decoder(tmp_path / "long", tokenizer=tokenizer, max_position_embeddings=131072)
    backbone = Backbone.from_pretrained(folder)
    assert backbone.window == 512
    backbone.max_seq_length = 700
    backbone.save(str(tmp_path / "saved"))
    assert Backbone.load(str(tmp_path / "saved")).window == 700


def test_tokenizers_that_do_not_say_what_tokens_stand_for(tmp_path):
    folder = save_decoder(tmp_path, tokenizer=ByT5Tokenizer())
    with pytest.raises(InputError, match=r"tokenizer\.json: this model's file is missing"):
        Backbone.from_pretrained(folder)


def test_backbones_of_bert_s_kind(tmp_path, monkeypatch):
    assert Backbone.from_pretrained(save_bert(tmp_path), as_trained=True).bidirectional
    # An SAE is trained before there is an encoder that would move it.
    save_bert(tmp_path / "bert")
    monkeypatch.setattr("lexicept.neural.backbones.backbone.get_device_name", lambda: "meta")
    assert Backbone.from_pretrained(str(tmp_path / "bert")).model.device.type == "meta"


@pytest.mark.parametrize(
    ("recorded", "required", "expected"),
    [
        ({}, None, False),
        ({"bidirectional": True}, None, True),
        ({"bidirectional": True}, False, False),
    ],
)
def test_pretrained_saes_read_states_as_in_their_training(
    recorded, required, expected,
    folders, tmp_path
):  # fmt: skip
    sae = SAE(32, 8, 2)
    sae.origin = {"layer": 2, **recorded}
    sae.save(tmp_path)
    settings = BackboneSettings(folders["Llama"], bidirectional=required)
    concepts = ConceptVectorizer.pretrained(str(tmp_path), settings)
    assert concepts.encoder.backbone.bidirectional is expected
    model = AutoModel.from_pretrained(folders["Llama"]).eval()
    ids, mask = inputs(concepts.encoder.backbone, LONG)
    with torch.no_grad():
        causal = model(ids, attention_mask=mask, output_hidden_states=True).hidden_states[2]
        vectors = concepts.encoder.backbone.states(ids, mask)
    assert bool(torch.isclose(vectors, causal, atol=1e-5).all(dim=-1).all()) is not expected


@pytest.mark.parametrize("both", [True, False])
def test_an_sae_that_is_trained_here_records_attention(both, folders, tmp_path):
    backbone = Backbone.from_pretrained(folders["Llama"], 2, bidirectional=both)
    settings = SAESettings(num_latents=8, k=2, tokens=64)
    train_concepts([LONG] * 4, backbone, settings).save(tmp_path / "trained")
    head = next((tmp_path / "trained" / "model").glob("*_SAEHead"))
    again = ConceptVectorizer.pretrained(str(head), BackboneSettings(folders["Llama"], 2))
    assert again.encoder.backbone.bidirectional is both
