"""Queries that nothing in an index matches well."""

from __future__ import annotations

import numpy as np
import pytest

import lexicept
from lexicept.index import no_match
from lexicept.integrations.agents import AgentTools
from support.similar_texts import DOCUMENTS, build, tiny_concepts


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("index")
    return build(folder / "index", DOCUMENTS, tiny_concepts(folder))


@pytest.mark.parametrize(
    ("query", "chance", "vocabulary", "weak"),
    [
        ("zzaxqv", 1.0, None, True),
        ("zzaxqv", -1.0, None, False),
        ("zzaxqv", 1.0, "concepts", True),
        ("zzaxqv", 1.0, "words", False),  # no results
        ("bade", 1.0, None, False),
        ("bade aa bb cc dd ee ff gg hh ii", 1.0, None, True),  # a tenth of the words
        ("", 1.0, None, False),
    ],
)
def test_nothing_matches_well(index, query, chance, vocabulary, weak):
    no_match._Sample.of(index).chance = chance  # what no text exceeds, or any
    hits = lexicept.Index(index).search(query, vocabulary=vocabulary)
    assert hits.weak is weak
    assert hits.note.startswith("nothing matches well") is weak
    agent = AgentTools(lexicept.Index(index)).search(query, vocabulary=vocabulary)
    assert ("nothing matches well" in agent) is weak


def test_a_match_by_chance(index):
    sample = no_match._Sample(index)
    vectors = index.weigh([DOCUMENTS[3].content, ""]).text_vectors
    likeness = sample.similarities(vectors)
    assert likeness == pytest.approx([1, 0], abs=1e-2)  # a document of the sample, and no tokens
    texts = no_match._random_texts()
    assert len(texts) == 8 * 16
    largest = sample.similarities(index.weigh(texts).text_vectors).max()
    assert sample.chance == pytest.approx(largest, abs=1e-5)
    no_match._Sample.of(index).chance = 0.5
    assert not no_match.is_by_chance(index, DOCUMENTS[3].content)  # 1 against 1.15 times chance
    no_match._Sample.of(index).chance = 0.9
    assert no_match.is_by_chance(index, DOCUMENTS[3].content)
    assert np.isfinite(sample.chance)
