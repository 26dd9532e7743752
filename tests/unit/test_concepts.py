import pytest

from lexicept.encoding.sources import DEFAULT_BACKBONE
from lexicept.errors import InputError
from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.heads.sae import SAEHead
from lexicept.neural.vectorizers.concepts import ConceptVectorizer
from lexicept.training.sae.settings import SAESettings
from lexicept.training.sae.trainer import train_concepts


def test_save_and_load(encoder, texts, tmp_path):
    vectorizer = ConceptVectorizer(encoder, [f"concept {n}" for n in range(256)])
    vectorizer.save(tmp_path)
    loaded = ConceptVectorizer.load(tmp_path)
    assert list(loaded.terms) == list(vectorizer.terms)
    assert (loaded.documents(texts) != vectorizer.documents(texts)).nnz == 0
    assert list(ConceptVectorizer.load(tmp_path / "model").terms)[:2] == ["#0", "#1"]
    with pytest.raises(InputError):
        ConceptVectorizer.load(tmp_path / "nowhere")


def test_train_from_texts(texts):
    settings = SAESettings(num_latents=32, k=4, tokens=1000, batch_size=100)
    trained = train_concepts(texts, Backbone.from_pretrained(layer=1), settings)
    assert trained.size == 32
    assert trained.documents(texts).nnz > 0
    assert isinstance(trained.head, SAEHead)
    assert trained.head.sae.origin == {
        "model": DEFAULT_BACKBONE,
        "hook": "encoder.layer.0",
        "layer": 1,
        "bidirectional": True,
    }
