"""lexicept index pairs: tokens and latents of two indexes of the same documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from lexicept.errors import InputError
from lexicept.index.reader import IndexReader
from lexicept.pipelines.pairs import index_pairs
from support.commands import Run, assert_error
from support.indexes import build

# "cat" and "dag" are each in 8 of the 20 documents with an a.
TEXTS = (
    {f"c{n}": "cat" for n in range(8)}
    | {f"d{n}": "dag" for n in range(8)}
    | {f"r{n}": "zebra" for n in range(4)}
    | {f"o{n}": "owl fox" for n in range(20)}
)


@pytest.fixture
def indexes(tmp_path: Path, _vowels: None) -> tuple[Path, Path]:
    """Words alone, and words and vowels."""
    words = build(tmp_path / "words", TEXTS)
    return words.path, tmp_path / "both"


@pytest.mark.usefixtures("_vowels")
def test_pairs_of_two_indexes(indexes: tuple[Path, Path], run: Run) -> None:
    from lexicept.index.impacts import VocabularySettings
    from lexicept.weighting import Splade

    words, both = indexes
    build(both, dict(reversed(TEXTS.items())), concepts=VocabularySettings(Splade()))
    arguments = (words, both, "--latent-vocabulary", "concepts", "--json")
    found = run("index", "pairs", *arguments).json
    # a is in 20 of 40 documents, 8 of them with "cat": P(l|t) 1, P(t|l) .4; o is where "owl" is.
    (group,) = found["groups"]
    assert group["name"] == "a"
    assert [member["name"] for member in group["members"]] == ["cat", "dag"]
    assert group["members"][0] == {
        "name": "cat", "P(latent|token)": 1.0, "P(token|latent)": 0.4, "documents": 8, "lift": 2.0,
    }  # fmt: skip
    assert (found["synonymy"], found["polysemy"], found["identity"]) == (2, 0, 2)
    table = run("index", "pairs", *arguments[:-1]).out
    assert "cat, dag" in table
    turned = run("index", "pairs", both, words, "--token-vocabulary", "concepts", "--groups")
    assert turned.code == 2  # --groups needs a value
    senses = run(
        "index", "pairs", both, words, "--token-vocabulary", "concepts", "--groups", "senses",
        "--json",
    ).json  # fmt: skip
    (group,) = senses["groups"]
    assert (group["name"], senses["polysemy"]) == ("a", 2)
    same = index_pairs(both, both, token_vocabulary="words", latent_vocabulary="concepts")
    assert same.pairs.counts == {"synonymy": 2, "polysemy": 0, "identity": 2}


@pytest.mark.usefixtures("_vowels")
def test_what_can_not_be_paired(indexes: tuple[Path, Path], run: Run) -> None:
    from lexicept.index.impacts import VocabularySettings
    from lexicept.weighting import Splade

    words, both = indexes
    build(both, {"other": "cat"}, concepts=VocabularySettings(Splade()))
    assert_error(run("index", "pairs", words, both), "several vocabularies, name one: words, conc")
    arguments = (words, both, "--latent-vocabulary")
    assert_error(run("index", "pairs", *arguments, "concepts"), "of different texts")
    assert_error(run("index", "pairs", *arguments, "colours"), "no vocabulary 'colours'")
    with pytest.raises(InputError, match="no vocabulary 'concepts'"):
        index_pairs(IndexReader.open(words), words, token_vocabulary="concepts")
