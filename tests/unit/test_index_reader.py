"""Searching and explaining an opened index, and refusing anything else."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import lexicept.encoding.vectorizer
from lexicept.corpora import Document
from lexicept.errors import IndexFormatError, InputError
from lexicept.explanation.contributions import Contribution
from lexicept.explanation.explanation import Explanation
from lexicept.index.impacts import RRASettings, VocabularySettings
from lexicept.index.manifest import VERSION
from lexicept.index.reader import IndexReader
from lexicept.index.verification import verify
from lexicept.queries.syntax import ParsedQuery
from lexicept.weighting import BM25, Splade
from support.indexes import build, edit_manifest, scores_of
from support.vowels import PLACE

pytestmark = pytest.mark.usefixtures("_no_leaks")

ANIMALS = {"a": "cat", "b": "cat dog", "c": "dog dog", "d": ""}


def test_ranking_and_scores_of_words(tmp_path):
    index = build(tmp_path / "index", {k: ANIMALS[k] for k in "abc"})
    # idf = ln(1 + 1.5 / 2.5); lengths 1, 2, 2; a: 1 / (1 + 1.5 (0.25 + 0.75 · 3 / 5)).
    idf = np.log(1.6)
    assert [(hit.rank, hit.id, hit.score) for hit in index.search(["cat"])[0]] == [
        (1, "a", pytest.approx(idf / 2.05, rel=1e-6)),
        (2, "b", pytest.approx(idf / 2.725, rel=1e-6)),
    ]
    assert [hit.id for hit in index.search(["dogs"])[0]] == ["c", "b"]
    assert [hit.id for hit in index.search(["cat"], top_k=1)[0]] == ["a"]


def test_ties_come_in_document_order_and_top_k_may_exceed_them(tmp_path):
    index = build(tmp_path / "index", {"z": "cat", "m": "cat", "a": "cat"})
    assert [hit.id for hit in index.search(["cat"], top_k=2)[0]] == ["z", "m"]
    assert [hit.id for hit in index.search(["cat"], top_k=10**30)[0]] == ["z", "m", "a"]
    with pytest.raises(InputError, match="top_k must be at least 1, not 0"):
        index.search(["cat"], top_k=0)[0]


def test_open_gives_what_was_built(tmp_path):
    built = build(tmp_path / "index", ANIMALS, rra=RRASettings(1.5))
    opened = IndexReader.open(tmp_path / "index", checksums=True)
    assert opened.search(["cat dog"])[0] == built.search(["cat dog"])[0] != []
    assert opened.rra == RRASettings(1.5)
    assert list(opened.documents()) == [Document(name, text) for name, text in ANIMALS.items()]
    assert opened.document("b") == Document("b", "cat dog")
    assert len(opened) == 4
    assert not (tmp_path / "index.partial").exists()


def test_titles_and_long_documents_are_searched(tmp_path):
    index = build(tmp_path / "index", [Document("x", "purrs", "The Cat"), Document("y", "barks")])
    assert [hit.id for hit in index.search(["cats"])[0]] == ["x"]
    assert index.document("x") == Document("x", "purrs", "The Cat")
    text = "cat " * 250_000 + "yak"
    index = build(tmp_path / "index2", {"big": text, "small": "cat"})
    assert index.document("big").text == text
    assert [hit.id for hit in index.search(["yak"])[0]] == ["big"]


def test_query_weights_are_counts_of_known_words(tmp_path):
    index = build(tmp_path / "index", ANIMALS)
    query = "cat dog dogs of zebra"
    vectors = index.query_vectors([query])
    terms = index.vocabularies[0].terms
    assert terms is not None
    counts = {terms[int(i)]: float(w) for i, w in zip(vectors.indices, vectors.data, strict=True)}
    assert counts == Counter({"dog": 2, "cat": 1})
    for query in ("", "zebra", "the", "\0 ?!", "d"):
        assert index.search([query])[0] == []
    assert index.search([]) == []
    assert index.search(["zebra", "cat"])[0] == []


def test_empty_documents_are_kept_and_never_found(tmp_path):
    for i, rra in enumerate((None, RRASettings(1.0))):
        index = build(tmp_path / f"index{i}", ANIMALS, rra=rra)
        assert index.document("d").text == ""
        assert index.document_vectors().weights[[3]].nnz == 0
        assert set(scores_of(index, "cat dog")) == {"a", "b", "c"}
    nothing = build(tmp_path / "nothing", {"x": "", "y": "the"})
    assert len(nothing) == 2
    assert nothing.search(["the cat"])[0] == []
    assert IndexReader.open(tmp_path / "nothing", checksums=True).document("y").text == "the"


@pytest.mark.usefixtures("_vowels")
def test_two_vocabularies_add_up(tmp_path):
    texts = {**ANIMALS, "e": "ibex", "f": "cat ibex ibex"}
    built = build(tmp_path / "index", texts, concepts=VocabularySettings(BM25(k3=1.0)))
    for index in (built, IndexReader.open(tmp_path / "index")):
        query = "cats ibex"
        words = scores_of(index, query, "words")
        concepts = scores_of(index, query, "concepts")
        assert set(words) == {"a", "b", "e", "f"}  # "ibex" is stemmed alike on both sides
        assert set(concepts) == {"a", "b", "e", "f"}  # a, i, e
        both = {name: words.get(name, 0) + concepts.get(name, 0) for name in {*words, *concepts}}
        assert scores_of(index, query) == pytest.approx(both, rel=1e-5)
    only = build(tmp_path / "only", texts)
    assert scores_of(only, "cats ibex") == pytest.approx(words, rel=1e-6)
    with pytest.raises(InputError, match="no vocabulary 'colours'"):
        built.search(["cat"], vocabulary="colours")[0]


STEERED: dict[tuple[str, int], float] = {("words", 0): 2.5, ("concepts", 0): 4, ("concepts", 2): 0}
"""Of the query "cat ibex": more of the word cat and the vowel a, and no i."""


@pytest.mark.usefixtures("_vowels")
@pytest.mark.parametrize("steering", [{}, STEERED])
@pytest.mark.parametrize("rra", [None, RRASettings(1.25), RRASettings(0.5, 2)])
def test_explanations_add_up_to_the_score(tmp_path, rra, steering):
    texts = {**ANIMALS, "e": "ibex", "f": "cat ibex ibex"}
    index = build(tmp_path / "index", texts, concepts=VocabularySettings(Splade()), rra=rra)
    priors, query = 0, ParsedQuery("cat ibex", steering=steering)
    for vocabulary in ("words", "concepts", None):
        (found,) = index.search([query], 10, vocabulary)
        hits = {hit.id: hit.score for hit in found}
        assert len(hits) >= 4
        for name in texts:
            found = index.explain(query, name, vocabulary)
            assert found.score == pytest.approx(hits.get(name, 0), rel=1e-6)
            scores = [contribution.score for contribution in found.contributions]
            assert scores == sorted(scores, reverse=True)
            assert all(score > 0 for score in scores)
            for contribution in found.contributions:
                assert (
                    contribution.score == contribution.query_weight * contribution.document_weight
                )
            vocabularies = {contribution.vocabulary for contribution in found.contributions}
            assert vocabularies <= ({"words", "concepts"} if vocabulary is None else {vocabulary})
            priors += found.prior > 0
    assert (priors > 0) == (rra is not None)
    nothing = index.explain(ParsedQuery("zebra", steering=steering), "a", "words")
    assert (nothing.contributions, nothing.prior) == ((), 0)  # as a search has no results


def test_an_explanation_in_words(tmp_path):
    index = build(tmp_path / "index", {k: ANIMALS[k] for k in "abc"})
    weight = pytest.approx(np.log(1.6) / 2.725, rel=1e-6)
    twice = pytest.approx(2 * np.log(1.6) / 2.725, rel=1e-6)
    twice_asked = ((5, 9), (10, 14)), (0.5, 0.5)
    cat_spans, dog_spans = (*twice_asked, ((0, 3),), (1.0,)), (((0, 4),), (1.0,), ((4, 7),), (1.0,))
    cats = Contribution("words", 0, "cat", twice, 2, weight, *cat_spans, "cat")
    dog = Contribution("words", 1, "dog", weight, 1, weight, *dog_spans, "dog")
    expected = Explanation("dogs cats cats", "b", "cat dog", (cats, dog), 0.0)
    assert index.explain("dogs cats cats", "b") == expected
    none = ("query_spans", "query_shares", "document_spans", "document_shares")
    bare = [c._replace(**dict.fromkeys(none, ())) for c in expected.contributions]
    assert [*index.explain("dogs cats cats", "b", spans=False).contributions] == bare
    assert index.explain("zebra", "b").contributions == ()
    with pytest.raises(InputError, match="no document 'zz'"):
        index.explain("cat", "zz")


@pytest.mark.usefixtures("_vowels")
def test_steering_changes_the_weights_that_a_query_has(tmp_path):
    texts = {"x": "cat aaaa", "y": "ibex eee", "z": "oou"}
    limited = VocabularySettings(Splade(), query_max_active_dims=2)
    index = build(tmp_path / "index", texts, concepts=limited)
    query = "cat ibex eee"  # a is the vowel that is pruned

    def weights(steering):
        result = index.query_terms(ParsedQuery(query, steering=steering), "concepts")
        assert [term.weight for term in result] == sorted((t.weight for t in result), reverse=True)
        return {term.term: term.weight for term in result}

    whole = weights({})
    assert whole == {"e": pytest.approx(np.log(5)), "a": pytest.approx(np.log(2))}
    assert weights({("concepts", 0): 0.5}) == {**whole, "a": pytest.approx(np.log(2) / 2)}
    # What is taken out gives no place to what was pruned, and what is not there can't be raised.
    assert weights({("concepts", 1): 0, ("concepts", 2): 9, ("words", 0): 0}) == {"a": whole["a"]}
    assert [hit.id for hit in index.search([query], 9)[0]] == ["y", "x"]
    raised = ParsedQuery(query, steering={("words", 0): 1e6})
    assert [hit.id for hit in index.search([raised], 9)[0]] == ["x", "y"]
    removed = {(v.name, d): 0.0 for v in index.vocabularies for d in range(v.size)}
    assert index.search([ParsedQuery(query, steering=removed)], 9) == [[]]
    term = index.query_terms("an ibex", "concepts")[0]
    assert (term.vocabulary, term.dimension, term.spans) == ("concepts", 0, ((0, 1),))


@pytest.mark.usefixtures("_vowels")
def test_words_are_searched_where_concepts_can_not_be(tmp_path, monkeypatch):
    build(tmp_path / "index", ANIMALS, concepts=VocabularySettings(Splade()))
    monkeypatch.setitem(
        lexicept.encoding.vectorizer.KINDS, "concepts", PLACE._replace(module="not_installed")
    )
    index = IndexReader.open(tmp_path / "index")
    assert index.search(["cat"], 1, "words")[0][0].id == "a"
    with pytest.raises(InputError, match=r"not_installed missing: pip install 'lexicept\[train"):
        index.search(["cat"])[0]


@pytest.mark.usefixtures("_vowels")
@pytest.mark.parametrize(("pruning", "kept"), [("weight", 4), ("impact", 0)])
def test_max_active_dims(tmp_path, pruning, kept):
    texts = {"x": "aaaaee", "y": "eeeia", "z": "oou"}
    settings = VocabularySettings(Splade(), 1, 2, pruning=pruning)
    index = build(tmp_path / "index", texts, concepts=settings)
    vectors = index.document_vectors().select("concepts").weights.toarray()
    log2, log3, log4, log5 = np.log([2, 3, 4, 5])
    # Of the equal "a" and "i" in y the first stays.
    expected = [[log5, log3, 0, 0, 0], [log2, log4, 0, 0, 0], [0, 0, 0, log3, log2]]
    np.testing.assert_allclose(vectors, expected, rtol=1e-6)
    # By weight a ln 3 < u ln 4; by impact a ln 3 · ln 5 > u ln 4 · ln 2.
    weights = index.query_vectors(["aa uuu"], "concepts").toarray()[0, -5:]
    expected_query = np.zeros(5)
    expected_query[kept] = [log3, 0, 0, 0, log4][kept]
    np.testing.assert_allclose(weights, expected_query, rtol=1e-6)
    assert index.query_vectors(["aa uuu eee"]).nnz == 1
    # The words of the same query are not pruned.
    assert index.query_vectors(["aaaaee oou i"], "words").nnz == 2
    assert set(scores_of(index, "aa uuu", "concepts")) == {0: {"x", "y"}, 4: {"z"}}[kept]
    assert IndexReader.open(index.path).settings["concepts"].pruning == pruning


@pytest.mark.usefixtures("_vowels")
@pytest.mark.parametrize(("pruning", "expected"), [("weight", "ei"), ("impact", "eo")])
def test_what_a_query_may_cost(tmp_path, pruning, expected):
    texts = {"x": "aaaaee", "y": "eeei", "z": "oou", "w": "ea"}
    settings = VocabularySettings(Splade(), query_max_qd_flops=1.0, pruning=pruning)
    index = build(tmp_path / "index", texts, concepts=settings)

    def kept(query):
        terms = index.query_terms(query, "concepts")
        return "".join(sorted(str(term.term) for term in terms))

    # e is in 3 of 4 texts, a in 2, and i, o and u in one each.
    assert kept("aeiou") == "aio"  # a leaves no room for e
    # By weight i comes before o, by impact after: its largest weight is ln 2, that of o ln 3.
    assert kept("eeeeeaiou") == expected
    assert IndexReader.open(index.path).settings["concepts"] == settings


# What is not an index.


def test_no_index(tmp_path):
    file = tmp_path / "file"
    file.write_text("x")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "manifest.json").write_text('{"name": "a web app"}')
    empty = tmp_path / "empty"
    empty.mkdir()
    for path, message in [
        (file, "no index here"),
        (tmp_path / "missing", "no index here"),
        (empty, "never finished"),
        (folder, "not a lexicept index"),
    ]:
        with pytest.raises(IndexFormatError, match=message):
            IndexReader.open(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 99}, f"index version 99; this lexicept reads version {VERSION}: a newer one"),
        ({"version": 1}, f"index version 1; this lexicept reads version {VERSION}: build it again"),
        ({"version": None}, "version"),
        ({"format": "zip"}, "not a lexicept index"),
        ({"generation": "generation-000009"}, "generation-000009"),
        ({"files": {"generation-000001/ids.bin": {}}}, "damaged"),
        ({"documents": 3}, "different numbers of documents"),
        ({"vocabularies": []}, "differ in dimensions"),
    ],
)
def test_a_manifest_of_another_kind(tmp_path, changes, message):
    path = tmp_path / "index"
    build(path, ANIMALS)
    edit_manifest(path, lambda manifest: manifest.update(changes))
    with pytest.raises(IndexFormatError, match=message):
        IndexReader.open(path)


def files_below(path: Path) -> list[Path]:
    return sorted(p for p in path.rglob("*") if p.is_file() and p.name != "manifest.json")


@pytest.mark.usefixtures("_vowels")
def test_every_truncated_or_missing_file_is_refused(tmp_path):
    path = tmp_path / "index"
    build(path, ANIMALS, concepts=VocabularySettings(BM25()), rra=RRASettings())
    files = files_below(path)
    assert len(files) >= 20
    for file in files:
        data = file.read_bytes()
        if data:
            file.write_bytes(data[:-1])
            with pytest.raises(IndexFormatError, match=file.name):
                IndexReader.open(path)
        file.write_bytes(data + b"x")
        with pytest.raises(IndexFormatError, match=file.name):
            IndexReader.open(path)
        file.unlink()
        with pytest.raises(IndexFormatError, match=file.name):
            IndexReader.open(path)
        file.write_bytes(data)
    (path / "manifest.json").rename(path / "kept")
    with pytest.raises(IndexFormatError, match="no manifest"):
        IndexReader.open(path)
    (path / "kept").rename(path / "manifest.json")
    assert IndexReader.open(path, checksums=True).search(["cat"])[0]


@pytest.mark.usefixtures("_vowels")
def test_truncated_arrays_are_refused_although_the_manifest_agrees(tmp_path):
    path = tmp_path / "index"
    build(path, ANIMALS, concepts=VocabularySettings(BM25()))
    manifest = json.loads((path / "manifest.json").read_text())
    for name, record in manifest["files"].items():
        data = (path / name).read_bytes()
        if not name.endswith(".npy"):
            continue
        (path / name).write_bytes(data[:-1])
        smaller = {name: {**record, "size": record["size"] - 1}}
        edit_manifest(path, lambda m, smaller=smaller: m["files"].update(smaller))
        if "/statistics." in name or name.endswith("/sizes.npy"):  # what only changes read
            (message,) = verify(path).problems
            assert Path(name).name in message
        else:
            with pytest.raises(IndexFormatError):
                IndexReader.open(path).tf()
        (path / name).write_bytes(data)
        edit_manifest(path, lambda m, name=name, item=record: m["files"].update({name: item}))
