from dataclasses import asdict

import numpy as np
import pytest
import torch
from sentence_transformers import SparseEncoder

from lexicept.encoding.head_settings import HeadSettings
from lexicept.errors import InputError
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.heads.sae import SAEHead
from lexicept.neural.heads.vocabulary import VocabularyHead
from lexicept.neural.sae.model import SAE
from support.heads import KINDS, make, make_head, vocabulary_head
from support.tiny import text

TEXTS = [text(1, 2, 3), text(7, 7, 7, 7, 9), "", text(*range(100)), text(4), text(20, 3)]


def transformed(head, h):
    """The docstring's equation for one state [d]."""
    inner = torch.relu(head.dense.weight @ h + head.dense.bias)
    centred = inner - inner.mean()
    x = centred / torch.sqrt(centred.square().mean() + 1e-5)
    return x * head.norm.weight + head.norm.bias


def activations(head, h):
    """The docstrings' equations for one state [d], before the k largest are taken."""
    if not isinstance(head, SAEHead):
        return torch.relu(head.weight @ transformed(head, h) + head.offset)
    sae = head.sae
    x = ((h if head.inner is None else transformed(head.inner, h)) - sae.mean) / sae.scale
    if sae.threshold is None:
        return torch.relu(sae.W_enc @ (x - sae.b_dec) + sae.b_enc) * sae.scale
    p = sae.W_enc @ x + sae.b_enc
    return p * (p > sae.threshold) * sae.scale


def plain(encoder, query, k=None, pooling="max"):
    """A text's vector, token by token."""
    backbone, head = encoder[0], encoder[1]
    pooled = torch.zeros(head.size)
    for window in backbone.windows([query]):
        ids = torch.tensor([window.token_ids])
        states = backbone.states(ids, torch.ones_like(ids))[0]
        for state, left_out in zip(states, window.left_out, strict=True):
            if left_out:
                continue
            acts = activations(head, state)
            if k is not None:
                acts = torch.where(acts >= acts.topk(k).values[-1], acts, 0.0)
            if pooling == "max":
                pooled = torch.maximum(pooled, acts)
            else:
                pooled = pooled + (acts.log1p() if pooling == "sum" else acts)
    return {"max": torch.log1p, "sum": torch.clone, "sqrt_sum": torch.sqrt}[pooling](pooled)


@KINDS
@pytest.mark.parametrize("pooling", ["max", "sum", "sqrt_sum"])
@pytest.mark.parametrize("k", [None, 3])
def test_vectors_are_the_equations(bert, head_type, pooling, k):
    encoder = make(bert, head_type, pooling=pooling, document_k=k)
    with torch.no_grad():
        expected = torch.stack([plain(encoder, sample, k, pooling) for sample in TEXTS])
    vectors = encoder.encode_document(TEXTS).to_dense()
    assert torch.allclose(vectors, expected, atol=1e-4, rtol=1e-4)
    assert not vectors[2].any()  # the empty text
    assert (vectors > 0).any(dim=1).sum() == 5
    activated = encoder.encode_activations(TEXTS).toarray()
    np.testing.assert_allclose(
        np.log1p(activated) if pooling == "max" else activated, expected, atol=1e-4, rtol=1e-4
    )


@KINDS
def test_encode_gives_the_largest_activations_of_each_token(head_type):
    head = make_head(head_type)
    states = torch.randn(6, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = torch.stack([activations(head, state) for state in states])
        acts, dimensions = head.encode(states, 4)
        everything, where = head.encode(states)
    assert torch.allclose(acts.sort().values, expected.topk(4).values.flip(1), atol=1e-4)
    assert torch.allclose(expected.gather(1, dimensions), acts, atol=1e-4)
    actual = torch.zeros(6, head.size).scatter_add(1, where, everything)
    assert torch.allclose(actual, expected, atol=1e-4)
    assert everything.shape == (6, int((expected > 0).sum(dim=1).max()))
    head.configure(document_k=2)
    assert head.encode(states)[0].shape == (6, 2)


def test_each_side_has_its_own_k(bert):
    encoder = make(bert, "sae", query_k=1, document_k=3)
    one = [text(5)]
    query, document = (
        (encode(one).to_dense() > 0).sum()
        for encode in (encoder.encode_query, encoder.encode_document)
    )
    assert (query, document) == (1, 3)


def test_each_side_has_its_own_max_active_dims(bert):
    encoder = make(bert, "vocabulary", query_max_active_dims=2, document_max_active_dims=5)
    whole = make(bert, "vocabulary").encode_document(TEXTS).to_dense()
    for encode, limit in ((encoder.encode_query, 2), (encoder.encode_document, 5)):
        vectors = encode(TEXTS).to_dense()
        largest = whole.topk(limit)
        expected = torch.zeros_like(whole).scatter(1, largest.indices, largest.values)
        assert torch.allclose(vectors, expected, atol=1e-4)
    assert (encoder.encode(TEXTS).to_dense() > 0).sum(dim=1).max() > 5  # a text of neither side
    assert (encoder.encode_query(TEXTS, max_active_dims=7).to_dense() > 0).sum(dim=1).max() == 7


def test_only_queries_are_scaled(bert):
    before, after = make(bert, "sae"), make(bert, "sae", query_scale=2.5)
    queries = before.encode_query(TEXTS).to_dense()
    assert torch.allclose(after.encode_query(TEXTS).to_dense(), 2.5 * queries)
    assert torch.equal(after.encode_document(TEXTS).to_dense(), queries)
    # Activations are what a weighting starts from, which scales by itself.
    activated = [e.encode_activations(TEXTS, "query").toarray() for e in (before, after)]
    np.testing.assert_array_equal(*activated)


@KINDS
@pytest.mark.parametrize("pooling", ["max", "sum", "sqrt_sum"])
def test_gradients_reach_all_that_makes_a_vector(bert, head_type, pooling):
    encoder = make(bert, head_type, pooling=pooling)
    encoder.requires_grad_(True)
    encoder(encoder.preprocess(TEXTS), task="document")["sentence_embedding"].sum().backward()
    without = {n for n, p in encoder.named_parameters() if p.grad is None or not p.grad.any()}
    # The decoder of an SAE is kept for people.
    unused = {"sae": {"W_dec"}, "inner": {"W_dec"}, "threshold": {"W_dec", "b_dec"}}
    left_out = {"1.inner.weight", "1.inner.offset"} if head_type == "inner" else set()
    assert without == {f"1.sae.{name}" for name in unused.get(head_type, ())} | left_out
    if head_type != "vocabulary":
        encoder[1].freeze_unused(decoder=True)
        frozen = {n for n, p in encoder.named_parameters() if not p.requires_grad}
        assert frozen == without
    encoder.zero_grad()
    encoder.requires_grad_(False)


@KINDS
def test_saved_and_loaded_it_is_the_same(bert, head_type, tmp_path):
    settings = {
        "pooling": "sqrt_sum",
        "query_k": 6,
        "document_max_active_dims": 9,
        "query_scale": 1.5,
    }
    encoder = make(bert, head_type, **settings)
    encoder.save(str(tmp_path / "model"), create_model_card=False)
    for loaded in (
        Encoder.load(tmp_path / "model"),
        SparseEncoder(str(tmp_path / "model"), trust_remote_code=True),
    ):
        assert type(loaded[1]) is type(encoder[1])
        assert asdict(loaded[1].settings) == asdict(HeadSettings(**settings))
        for name in ("encode_query", "encode_document"):
            expected = getattr(encoder, name)(TEXTS).to_dense()
            assert torch.equal(getattr(loaded, name)(TEXTS).to_dense(), expected)
        for name, tensor in encoder[1].state_dict().items():
            assert torch.equal(loaded[1].state_dict()[name], tensor), name
    loaded = Encoder.load(tmp_path / "model")
    if head_type == "vocabulary":
        assert list(loaded[1].terms) == [f"term {n}" for n in range(40)]
        assert (loaded[1].activation, loaded[1].norm.eps) == ("relu", 1e-5)
    else:
        assert loaded[1].terms is None
        assert loaded[1].sae.k == (None if head_type == "threshold" else 5)
        assert loaded[1].sae.centred == (head_type != "threshold")
        assert loaded[1].size == 60


def test_an_sae_s_own_k_is_the_default_of_both_sides():
    settings = SAEHead(SAE(4, 8, 3)).settings
    assert (settings.query_k, settings.document_k) == (3, 3)
    settings = SAEHead(SAE(4, 8, None)).settings
    assert (settings.query_k, settings.document_k) == (None, None)


def test_parts_of_a_head_that_do_not_fit():
    with pytest.raises(InputError, match="states of size 16 on a head of size 32"):
        SAEHead(SAE(16, 8, 2), inner=vocabulary_head())
    weights, bias = torch.zeros(3, 2), torch.zeros(3)
    with pytest.raises(InputError, match="3 rows, 3 biases and 2 terms"):
        VocabularyHead(weights, bias, ["a", "b"])
    with pytest.raises(InputError, match="no activation function 'magic'"):
        VocabularyHead(weights, bias, ["a", "b", "c"], activation="magic")
    with pytest.raises(InputError, match="layer or rms, not 'batch'"):
        VocabularyHead(weights, bias, ["a", "b", "c"], final_norm="batch")


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ("[]", "config.json: not a JSON object"),
        ("3", "config.json: not a JSON object"),
        ('{"pooling": "mean"}', "pooling must be 'max', 'sum' or"),
        ('{"query_k": "3"}', "query_k must be a whole number, not"),
        ('{"document_k": 0}', "document_k must be at least 1, not 0"),
        ('{"activation": "magic"}', "no activation function 'magic'"),
        ('{"magic": 1}', "not a saved head"),
    ],
)
def test_configurations_of_no_head(tmp_path, payload, message):
    vocabulary_head().save(str(tmp_path))
    (tmp_path / "config.json").write_text(payload)
    with pytest.raises(InputError, match=message):
        VocabularyHead.read(tmp_path)


def test_folders_without_a_head_of_their_own(tmp_path):
    with pytest.raises(InputError, match=r"config\.json: "):
        VocabularyHead.load(str(tmp_path))
    vocabulary_head().save(str(tmp_path))
    VocabularyHead(torch.zeros(3, 32), torch.zeros(3), list("abc")).save(str(tmp_path / "other"))
    for name in ("terms.bin", "terms.offsets.npy"):
        (tmp_path / name).write_bytes((tmp_path / "other" / name).read_bytes())
    with pytest.raises(InputError, match="40 rows, 40 biases and 3 terms"):
        VocabularyHead.read(tmp_path)


@pytest.mark.parametrize("active", [1, 9])
def test_a_calibrated_head_begins_with_so_many_dimensions(active):
    torch.manual_seed(0)
    head = VocabularyHead(torch.randn(10, 6), torch.randn(10), ["x"] * 10)
    states, before = torch.randn(40, 6), head.offset.detach().clone()
    head.calibrate(states, active)
    shift = head.offset.detach() - before
    assert torch.allclose(shift, shift[0].expand(10), atol=1e-6)
    pre = torch.addmm(head.bias, head.transform(states), head.rows.T)
    assert int((pre > 1e-6).sum()) == active * 40
    head.calibrate(states, active)  # it has no more to do
    assert torch.allclose(head.offset.detach() - before, shift, atol=1e-5)


def test_a_head_without_biases_gets_them_where_it_is_calibrated(tmp_path):
    torch.manual_seed(0)
    head = VocabularyHead(torch.randn(10, 6), None, ["x"] * 10, None, final_norm="rms")
    states = torch.randn(40, 6)
    head.calibrate(states, 3)
    pre = head.transform(states) @ head.rows.T + head.bias
    assert int((pre > 1e-6).sum()) == 3 * 40
    assert "offset" in dict(head.named_parameters())
    head.save(str(tmp_path))
    assert torch.equal(VocabularyHead.load(str(tmp_path)).bias, head.bias)


def test_what_can_not_be_calibrated():
    head = VocabularyHead(torch.randn(10, 6), torch.randn(10), ["x"] * 10)
    with pytest.raises(InputError, match="10 active dimensions: the number must be above 0"):
        head.calibrate(torch.randn(4, 6), 10)
    with pytest.raises(InputError, match="the texts have no tokens"):
        head.calibrate(torch.randn(0, 6), 2)
    with pytest.raises(InputError, match="without thresholds"):
        SAEHead(SAE(6, 10, None)).calibrate(torch.randn(4, 6), 2)
