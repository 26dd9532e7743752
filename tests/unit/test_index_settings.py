import json

import pytest
from sentence_transformers import SparseEncoder

from lexicept.encoding.index_settings import IndexSettings
from lexicept.errors import InputError
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.vectorizers.concepts import ConceptVectorizer
from lexicept.weighting import BM25, Splade, Unchanged


@pytest.mark.parametrize(
    ("settings", "pooling", "scale", "expected"),
    [
        (IndexSettings(), "max", 1.0, BM25(1.5, 0.75, k3=1.0)),
        (IndexSettings(k1=0.9, b=0.4), "sum", 0.5, BM25(0.9, 0.4, k3=1.0, query_scale=0.5)),
        (IndexSettings("splade"), "max", 2.0, Splade(2.0)),
        (IndexSettings("splade"), "sum", 2.0, Unchanged(2.0)),
        (IndexSettings(k1=2.0, k3=16.0), "sqrt_sum", 2.5, BM25(2.0, 0.75, 16.0, 2.0, 2.5)),
        (IndexSettings("splade"), "sqrt_sum", 2.0, Unchanged(2.0)),
    ],
)
def test_weightings(settings, pooling, scale, expected):
    assert settings.weigh(pooling, scale) == expected


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"weighting": "tf"}, "weighting must be 'bm25' or 'splade', not 'tf'"),
        ({"k1": "1"}, "k1 must be a number, not '1'"),
        ({"b": True}, "b must be a number, not True"),
        ({"b": 2}, "b must be at most 1, not 2"),
        ({"query_max_qd_flops": 0}, "query_max_qd_flops must be above 0, not 0"),
        ({"query_max_qd_flops": "1"}, "query_max_qd_flops must be a number, not '1'"),
    ],
)
def test_values_out_of_range(values, message):
    with pytest.raises(InputError, match=message):
        IndexSettings(**values)


def test_an_encoder_keeps_them_in_a_file(encoder, tmp_path):
    settings = IndexSettings("splade", 0.9, 0.4, 16.0, 1.5)
    model = Encoder.of(encoder.backbone, encoder.head, index_settings=settings)
    model.save(str(tmp_path / "model"), create_model_card=False)
    data = {"weighting": "splade", "k1": 0.9, "b": 0.4, "k3": 16.0, "query_max_qd_flops": 1.5}
    assert json.loads((tmp_path / "model" / "lexicept.json").read_bytes()) == data
    loaded = Encoder.load(tmp_path / "model")
    assert loaded.index_settings == settings
    assert loaded.weighting == Splade(1.0)
    assert ConceptVectorizer.load(tmp_path / "model").encoder.index_settings == settings


def test_folders_without_them_or_with_others(encoder, tmp_path):
    folder = tmp_path / "model"
    encoder.save(str(folder), create_model_card=False)
    for data, message in (
        ("[]", "not a JSON object"),
        ('{"weighting": "tf"}', "weighting must be 'bm25' or"),
        ('{"weightin": 1}', "no setting 'weightin'; perhaps weighting?"),
    ):
        (folder / "lexicept.json").write_text(data)
        with pytest.raises(InputError, match=message):
            Encoder.load(folder)
    (folder / "lexicept.json").unlink()
    with pytest.raises(InputError, match=r"lexicept\.json is missing"):
        Encoder.load(folder)
    assert SparseEncoder(str(folder), trust_remote_code=True).get_embedding_dimension() == 256


def test_settings_of_another_kind_in_a_head(encoder, tmp_path):
    encoder.head.save(str(tmp_path))
    config = json.loads((tmp_path / "config.json").read_bytes())
    (tmp_path / "config.json").write_text(json.dumps({**config, "k1": 0.9}))
    with pytest.raises(InputError, match="no settings of an SAE head: k1"):
        type(encoder.head).load(str(tmp_path))
