import numpy as np
import pytest

from lexicept.concepts.describe import describe
from lexicept.corpora import Document
from lexicept.encoding.sources import DEFAULT_BACKBONE
from lexicept.encoding.words import WordVectorizer
from lexicept.errors import InputError
from lexicept.index.builder import IndexBuilder
from lexicept.index.impacts import VocabularySettings
from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.heads.sae import SAEHead
from lexicept.neural.vectorizers.concepts import ConceptVectorizer
from lexicept.training.sae.settings import SAESettings
from lexicept.training.sae.trainer import train_concepts
from lexicept.weighting import BM25


def test_save_and_load(encoder, texts, tmp_path):
    vectorizer = ConceptVectorizer(encoder, [f"concept {n}" for n in range(256)])
    vectorizer.save(tmp_path)
    loaded = ConceptVectorizer.load(tmp_path)
    assert list(loaded.terms) == list(vectorizer.terms)
    assert (loaded.documents(texts) != vectorizer.documents(texts)).nnz == 0
    alone = ConceptVectorizer.load(tmp_path / "model")
    assert list(alone.terms)[:2] == ["#0", "#1"]
    with pytest.raises(InputError):
        ConceptVectorizer.load(tmp_path / "nowhere")


@pytest.fixture(scope="module")
def index(encoder, texts, tmp_path_factory):
    path = tmp_path_factory.mktemp("index") / "both"
    builder = IndexBuilder(path)
    builder.add_documents([Document(f"d{i}", text) for i, text in enumerate(texts)], {})
    builder.add_vocabulary(WordVectorizer(), VocabularySettings(BM25()))
    concepts = ConceptVectorizer(encoder)
    vocabulary = builder.add_vocabulary(concepts, VocabularySettings(BM25(k3=1.0), 6, 20))
    builder.add_atlas(describe(encoder, builder.contents, vocabulary))
    return builder.commit()


def test_results_show_the_labels_of_the_atlas(index):
    assert list(index.vocabularies[1].terms) == list(index.atlas.labels)
    contributions = index.explain("money in the bank", "d4", "concepts", spans=False).contributions
    assert contributions
    for contribution in contributions:
        concept = index.atlas[contribution.dimension]
        assert contribution.term == concept.label
        assert concept.documents >= 1
        assert concept.examples


def test_limits_of_concepts(index):
    lengths = np.diff(index.document_vectors().select("concepts").weights.indptr)
    assert lengths.max() == 20
    query = index.query_vectors(["money in the bank of a river in spring"], "concepts")
    assert query.nnz == 6


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
