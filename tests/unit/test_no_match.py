"""Queries without a good match in an index."""

from __future__ import annotations

import numpy as np
import pytest

import lexicept
from lexicept.index import no_match
from lexicept.index.text_vectors import SIMILARITY
from lexicept.integrations.agents import AgentTools
from lexicept.queries.syntax import ParsedQuery
from support.similar_texts import DOCUMENTS, build, tiny_concepts


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("index")
    return build(folder / "index", DOCUMENTS, tiny_concepts(folder))


@pytest.mark.parametrize(
    ("query", "least", "vocabulary", "weak"),
    [
        ("zzaxqv", 2.0, None, True),
        ("zzaxqv", -1.0, None, False),
        ("zzaxqv", 2.0, "concepts", True),
        ("zzaxqv", 2.0, "words", False),  # no results
        ("", 2.0, None, False),
    ],
)
def test_nothing_matches_well(index, query, least, vocabulary, weak, monkeypatch):
    monkeypatch.setattr(no_match, "LEAST", least)  # more than any sum, or less
    hits = lexicept.Index(index).search(query, vocabulary=vocabulary)
    assert hits.weak is weak
    assert hits.note.startswith("nothing matches well") is weak
    agent = AgentTools(lexicept.Index(index)).search(query, vocabulary=vocabulary)
    assert ("nothing matches well" in agent) is weak


def test_a_match_is_judged_by_the_best_cosine_and_the_share_of_words(index, monkeypatch):
    query = ParsedQuery("bade zzaxqv")
    (hits,) = index.search([query], no_match.JUDGED, explain=True)
    cosine = max(hit.explanation.similarity for hit in hits) / SIMILARITY
    share = no_match.coverage(index, query.text, [hit.number for hit in hits])
    df = index.engine.df[index.word_vectorizer().dimension("bade") + index.span("words").start]
    idf = np.log1p((len(index) - df + 0.5) / (df + 0.5))
    assert share == pytest.approx(idf / (idf + np.log1p((len(index) + 0.5) / 0.5)))
    for difference, weak in ((1e-4, True), (-1e-4, False)):
        monkeypatch.setattr(no_match, "LEAST", cosine + 0.2 * share + difference)
        assert no_match.matches_badly(index, query) is weak


def test_the_judgement_does_not_depend_on_the_number_of_results(index, monkeypatch):
    for query in ("mu ba delo", "bade kilo", "zzaxqv"):
        for least in (0.3, 0.6, 0.9):
            monkeypatch.setattr(no_match, "LEAST", least)
            opened = lexicept.Index(index)
            assert len({opened.search(query, top_k).weak for top_k in (1, 3, 40)}) == 1
