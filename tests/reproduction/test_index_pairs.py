"""Tokens and latents of two indexes of the same documents."""

import json

import pytest

from lexicept.errors import InputError
from lexicept.index.reader import IndexReader
from reproduction.index_pairs import index_pairs, main, named_groups
from support.indexes import build

# "cat" and "dag" are each in 8 of the 20 documents with an a.
TEXTS = (
    {f"c{n}": "cat" for n in range(8)}
    | {f"d{n}": "dag" for n in range(8)}
    | {f"r{n}": "zebra" for n in range(4)}
    | {f"o{n}": "owl fox" for n in range(20)}
)


@pytest.fixture
def indexes(tmp_path, _vowels):
    """Words alone, and words and vowels."""
    return build(tmp_path / "words", TEXTS).path, tmp_path / "both"


@pytest.mark.usefixtures("_vowels")
def test_pairs_of_two_indexes(indexes, capsys):
    from lexicept.index.impacts import VocabularySettings
    from lexicept.weighting import Splade

    words, both = indexes
    build(both, dict(reversed(TEXTS.items())), concepts=VocabularySettings(Splade()))
    main([str(words), str(both), "--latent-vocabulary", "concepts"])
    printed = json.loads(capsys.readouterr().out)
    # a is in 20 of 40 documents, 8 of them with "cat": P(l|t) 1, P(t|l) .4; o is where "owl" is.
    (group,) = printed["groups"]
    assert group["name"] == "a"
    assert [member["name"] for member in group["members"]] == ["cat", "dag"]
    assert group["members"][0] == {
        "name": "cat", "P(latent|token)": 1.0, "P(token|latent)": 0.4, "documents": 8, "lift": 2.0,
    }  # fmt: skip
    assert (printed["synonymy"], printed["polysemy"], printed["identity"]) == (2, 0, 2)
    turned = index_pairs(both, words, token_vocabulary="concepts")
    (group,) = named_groups(turned, "senses")
    assert (group["name"], turned.pairs.counts["polysemy"]) == ("a", 2)
    same = index_pairs(both, both, token_vocabulary="words", latent_vocabulary="concepts")
    assert same.pairs.counts == {"synonymy": 2, "polysemy": 0, "identity": 2}


@pytest.mark.usefixtures("_vowels")
def test_refusals(indexes):
    from lexicept.index.impacts import VocabularySettings
    from lexicept.weighting import Splade

    words, both = indexes
    build(both, {"other": "cat"}, concepts=VocabularySettings(Splade()))
    for name, message in (
        (None, "several vocabularies, name one: words, conc"),
        ("concepts", "of different texts"),
        ("colours", "no vocabulary 'colours'"),
    ):
        with pytest.raises(InputError, match=message):
            index_pairs(words, both, latent_vocabulary=name)
    with pytest.raises(InputError, match="no vocabulary 'concepts'"):
        index_pairs(IndexReader.open(words), words, token_vocabulary="concepts")
