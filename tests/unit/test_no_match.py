"""Queries without a good match in an index."""

import numpy as np
import pytest

import lexicept
from lexicept.index import results
from lexicept.index.reader import IndexReader
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
    monkeypatch.setattr(results, "LEAST", least)  # more than any sum, or less
    hits = lexicept.Index(index).search(query, vocabulary=vocabulary)
    assert hits.weak is weak
    assert hits.note.startswith("nothing matches well") is weak
    agent = AgentTools(lexicept.Index(index)).search(query, vocabulary=vocabulary)
    assert ("nothing matches well" in agent) is weak


def sum_of(index: IndexReader, query: ParsedQuery) -> float:
    """The best cosine and share of words, by the weights of each of the best passages."""
    weighted = index.weigh([query])
    (hits,) = index.rank(weighted, results.JUDGED, [query])
    passages = [hit.number for hit in hits]
    similarities = index.vectors.similarities(weighted.text_vectors[0], np.array(passages))
    terms = {term for term, _ in index.word_vectorizer().query_tokenizer("").spans(query.text)}
    known = [n for term in terms if (n := index.word_vectorizer().dimension(term)) is not None]
    dimensions = np.array(known, np.int64) + index.span("words").start
    idf = np.log1p((len(index) - (df := index.engine.df[dimensions]) + 0.5) / (df + 0.5))
    unknown = (len(terms) - len(known)) * np.log1p((len(index) + 0.5) / 0.5)
    weights = [index.engine.document_weights(passage, dimensions) for passage in passages]
    share = max(idf[of_passage > 0].sum() for of_passage in weights) / (idf.sum() + unknown)
    return float(similarities.max() / SIMILARITY + 0.2 * share)


@pytest.mark.parametrize("vocabulary", [None, "concepts"])
@pytest.mark.parametrize("text", ["mu ba delo", "zzaxqv", "-ba mu"])
def test_the_judgement_is_that_of_the_ten_best(index, text, vocabulary, monkeypatch):
    """Of all vocabularies, whatever was searched and however many results were asked for."""
    opened = lexicept.Index(index)
    judged = sum_of(index, index.parse(text))
    for difference, weak in ((1e-5, True), (-1e-5, False)):
        monkeypatch.setattr(results, "LEAST", judged + difference)
        for top_k in (1, 10, 40):
            for rescore in (True, False):
                hits = opened.search(text, top_k, vocabulary=vocabulary, rescore=rescore)
                assert hits.weak is weak


def test_ten_results_are_judged_without_another_search(index, monkeypatch):
    found = {top_k: lexicept.Index(index).search("mu ba delo", top_k) for top_k in (3, 10, 100)}
    monkeypatch.setattr(IndexReader, "search", None)
    assert [hits.weak_searches for hits in found.values()] == [True, False, False]
    assert [hits.weak for hits in found.values() if not hits.weak_searches] == [False, False]
    assert len(found[100]) < 100
