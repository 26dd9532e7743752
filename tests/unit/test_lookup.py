"""The inference-free query side."""

import math

import numpy as np
import pytest
import torch
from sentence_transformers import SparseEncoder

from lexicept.errors import InputError
from lexicept.models.backbone import Backbone
from lexicept.models.encoder import Encoder
from lexicept.models.heads.sae import SAEHead
from lexicept.models.language_heads import language_head
from lexicept.models.lookup import Lookup
from lexicept.models.sae.model import SAE
from lexicept.models.word_vocabulary import expanded_words

TEXTS = ["apples and pears", "apples and unbelievability", "Pears!"]


@pytest.fixture(scope="module")
def backbone():
    return Backbone.from_pretrained(layer=1)


@pytest.fixture(scope="module")
def head():
    return language_head("sentence-transformers/all-MiniLM-L6-v2")


def named(vectors, terms):
    return [
        {terms[j]: round(float(row[j]), 4) for j in np.flatnonzero(row)}
        for row in vectors.toarray()
    ]


def test_a_query_has_its_words_and_sub_words(backbone, head):
    lookup = Lookup.for_head(head, backbone.tokenizer)
    with torch.no_grad():
        lookup.weight[backbone.tokenizer.convert_tokens_to_ids("and")] = -3.0
    encoder = Encoder.of(backbone, head, lookup)
    found = np.log1p(encoder.encode_activations(["Apples apples and unbelievability", ""], "query"))
    pieces = backbone.tokenizer.tokenize("apples unbelievability")
    assert len(pieces) > 2
    # A word twice counts once, and no weight is below zero.
    assert named(found, head.terms) == [dict.fromkeys(pieces, 1.0), {}]
    words, pieces = expanded_words(TEXTS, backbone.tokenizer, 10)
    expanded = head.expanded(pieces, words)
    lookup = Lookup.for_head(expanded, backbone.tokenizer)
    encoder = Encoder.of(backbone, expanded, lookup)
    found = np.log1p(encoder.encode_activations(["Unbelievability, pears and plums"], "query"))
    assert named(found, words) == [{"unbelievability": 1.0, "pears": 1.0, "and": 1.0}]


def test_idf_of_a_collection(backbone, head):
    words, pieces = expanded_words(TEXTS, backbone.tokenizer, 10)
    lookup = Lookup.for_head(head.expanded(pieces, words), backbone.tokenizer)
    lookup.set_idf(TEXTS)
    weight = dict(zip(words, lookup.weight.tolist(), strict=True))
    assert weight["apples"] == pytest.approx(math.log(1 + 1.5 / 2.5))
    assert weight["unbelievability"] == pytest.approx(math.log(1 + 2.5 / 1.5))
    with pytest.raises(InputError, match="idf needs documents"):
        lookup.set_idf([])
    lookup = Lookup.for_head(head, backbone.tokenizer)
    lookup.set_idf(TEXTS)
    assert lookup.weight[backbone.tokenizer.all_special_ids].tolist() == [0.0] * 5


def test_weights_learn_where_a_query_names_them(backbone, head):
    lookup = Lookup.for_head(head, backbone.tokenizer)
    vectors = lookup(lookup.preprocess(["apples", "pears"]))["sentence_embedding"]
    vectors.sum().backward()
    assert torch.nonzero(lookup.weight.grad).ravel().tolist() == sorted(
        set(backbone.tokenizer("apples pears", add_special_tokens=False)["input_ids"])
    )


@pytest.mark.parametrize("words", [False, True])
def test_save_and_load(backbone, head, tmp_path, words):
    if words:
        names, pieces = expanded_words(TEXTS, backbone.tokenizer, 10)
        head = head.expanded(pieces, names)
    lookup = Lookup.for_head(head, backbone.tokenizer)
    lookup.set_idf(TEXTS)
    encoder = Encoder.of(backbone, head, lookup)
    encoder.save(str(tmp_path / "model"), create_model_card=False)
    loaded = Encoder.load(tmp_path / "model")
    library = SparseEncoder(str(tmp_path / "model"), trust_remote_code=True)
    for encode in ("encode_query", "encode_document"):
        ours = getattr(encoder, encode)(TEXTS).to_dense()
        assert torch.equal(getattr(loaded, encode)(TEXTS).to_dense(), ours)
        assert torch.equal(getattr(library, encode)(TEXTS).to_dense(), ours)
    assert loaded.lookup is not None
    routes = library[0].sub_modules
    assert [type(module) for module in routes["query"]] == [Lookup]
    assert list(loaded.head.terms) == list(routes["document"][1].terms) == list(head.terms)


def test_documents_go_through_the_backbone(backbone, head):
    plain, routed = (
        Encoder.of(backbone, head, lookup)
        for lookup in (None, Lookup.for_head(head, backbone.tokenizer))
    )
    found = [encoder.encode_activations(TEXTS).toarray() for encoder in (plain, routed)]
    np.testing.assert_array_equal(*found)


def test_lookups_that_do_not_fit(backbone, head):
    with pytest.raises(InputError, match="dimensions that texts name"):
        Lookup.for_head(SAEHead(SAE(384, 8, 2)), backbone.tokenizer)
    lookup = Lookup(backbone.tokenizer, torch.ones(5))
    with pytest.raises(InputError, match="a lookup of 5 for a head of 30522"):
        Encoder.of(backbone, head, lookup)
