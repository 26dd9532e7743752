"""Relevance feedback, similar documents, spelling suggestions, totals, queries from a file."""

import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import lexicept
from lexicept.errors import InputError
from lexicept.index.feedback import centroid, like, rocchio
from lexicept.index.impacts import VocabularySettings
from lexicept.index.spelling import nearest
from lexicept.weighting import Splade
from support.commands import assert_error
from support.indexes import build

TEXTS = {
    "1": "feline purring whiskers",
    "2": "feline purring milk",
    "3": "whiskers and milk",
    "4": "canine barking at whiskers",
    "5": "weather forecast",
}


@pytest.fixture
def index(tmp_path, _vowels):
    """Words, and vowels as concepts."""
    return lexicept.Index(build(tmp_path / "index", TEXTS, concepts=VocabularySettings(Splade())))


def test_the_centroid_counts_documents_alike():
    documents = sp.csr_array(np.array([[3.0, 4.0, 0, 0], [0, 0, 0, 100.0], [0, 0, 0, 0]]))
    assert centroid(documents, 4).toarray() == pytest.approx(np.array([[0.2, 4 / 15, 0, 1 / 3]]))
    assert centroid(documents, 1).toarray() == pytest.approx(np.array([[0, 0, 0, 1 / 3]]))


def test_what_is_added_is_as_long_as_asked():
    query = sp.csr_array(np.array([[3.0, 4.0, 0, 0]]))
    documents = sp.csr_array(np.array([[0.0, 1, 2, 0], [0, 1, 0, 7]]))
    added = rocchio(query, documents, dimensions=2, strength=0.4)
    assert np.linalg.norm(added.data) == pytest.approx(2.0)
    assert added.nnz == 2
    assert rocchio(sp.csr_array((1, 4)), documents, strength=0.5).nnz == 3  # of length 1 for none
    assert rocchio(query, sp.csr_array((2, 4))).nnz == 0
    with pytest.raises(InputError, match="strength must be above 0, not -1"):
        rocchio(query, documents, strength=-1)
    with pytest.raises(InputError, match="dimensions must be at least 1"):
        rocchio(query, documents, dimensions=0)


def test_marked_documents_lead_to_others_like_them(index):
    assert [hit.id for hit in index.search("feline", vocabulary="words")] == ["1", "2"]
    hits = index.search("feline", vocabulary="words", feedback=["1"])
    assert [hit.id for hit in hits][:2] == ["1", "2"]
    assert {hit.id for hit in hits} == {"1", "2", "3", "4"}
    assert {term.term for term in hits.added} == {"feline", "purring", "whiskers"}
    assert hits.total == 4
    explained = index.explain(hits.query, "3", vocabulary="words")
    (contribution,) = explained.contributions
    assert (contribution.term, contribution.query_spans) == ("whisker", ())
    assert explained.score == pytest.approx({hit.id: hit.score for hit in hits}["3"])


def test_a_number_takes_the_first_results(index):
    top = [hit.id for hit in index.search("whiskers milk", 2)]
    taken = index.search("whiskers milk", feedback=2)
    assert taken == index.search("whiskers milk", feedback=top)
    assert taken.added
    assert {term.vocabulary for term in taken.added} == {"words", "concepts"}
    nothing = index.search("zzz", vocabulary="words", feedback=3)
    assert (list(nothing), nothing.added) == ([], [])


def test_an_added_dimension_can_be_removed(index):
    hits = index.search("feline", vocabulary="words", feedback=["1"])
    (term,) = (hit for hit in hits.added if hit.term == "whiskers")
    steering = {("words", term.dimension): 0.0}
    left = index.search(hits.query, vocabulary="words", steering=steering)
    assert [hit.id for hit in left] == ["1", "2"]
    assert left.total == 2


def test_documents_like_one(index):
    hits = index.search(index.like("1"), vocabulary="words")
    assert [hit.id for hit in hits] == ["2", "3", "4"]
    assert hits.total == 3
    (best, *_) = index.search(index.like("1"), explain=True)
    assert best.explanation is not None
    assert best.explanation.score == pytest.approx(best.score)
    assert [hit.id for hit in index.search(index.like("1", "-milk"), vocabulary="words")] == ["4"]
    index.add([{"id": "empty", "text": ""}])
    assert index.search(index.like("empty")) == []
    alone = index.like("1").added
    key = next(iter(alone))
    query = replace(index.reader.parse("feline"), added={key: 2.0, ("words", 0): 0.5})
    both = like(index.reader, "1", query).added
    expected = {**alone, key: alone[key] + 2.0}
    expected["words", 0] = alone.get(("words", 0), 0.0) + 0.5
    assert both == pytest.approx(expected)


@pytest.mark.parametrize(
    ("feedback", "message"),
    [
        (["x"], "no document 'x'"),
        (0, "top_k must be at least 1, not 0"),
        ("1", "feedback is a number of results or a list of ids, not '1'"),
    ],
)
def test_feedback_of_nothing(index, feedback, message):
    with pytest.raises(InputError, match=message):
        index.search("feline", feedback=feedback)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no document 'x'"):
        index.like("x")


@pytest.mark.parametrize(
    ("query", "meant"),
    [
        ("felin purring", ""),  # the same stem
        ("felnie", "feline"),
        ("wheather and Mikl", "weather and milk"),
        ('"purrng" -barking', '"purring" -barking'),
        ("felnie -felnie cat-felnie", "feline -felnie cat-feline"),
        ("whiskers", ""),
        ("zzzzzz", ""),
        ("1234", ""),
        ("weaxyzr", ""),
        ("", ""),
    ],
)
def test_spelling(index, query, meant):
    assert index.search(query).did_you_mean == meant
    assert index.search_many(iter([query]))[0].did_you_mean == meant


def test_suggestions_are_words_of_documents(index):
    assert index.suggestions("whiskrs") == [("whiskers", 3, 1)]
    assert index.suggestions("whiskers") == []
    index.delete(["5"])
    assert index.suggestions("wether") == []
    japanese = lexicept.build(
        ["日本語"], index.path.parent / "ja", vocabulary="words", language="ja"
    )
    assert japanese.search("日本人").did_you_mean == ""


def test_the_nearest_terms():
    terms = ["cat", "cart", "dog", "act", "cut", "gone"]
    df = np.array([1, 5, 9, 2, 7, 0])
    assert nearest("cat", terms, df, 3, 1) == [0, 4, 1]
    assert nearest("goen", terms, df, 3, 1) == []
    assert nearest("cat", [], df[:0], 3, 1) == []


@given(st.text(max_size=20))
def test_any_word_may_be_misspelled(word):
    assert nearest(word, ["cat", word], np.array([1, 1]), 1, 2)[0] in (0, 1)


def test_several_queries_from_a_file(index, run, tmp_path):
    lines, objects = tmp_path / "queries.txt", tmp_path / "queries.jsonl"
    lines.write_text("feline -milk\n\nweather\n")
    objects.write_text('{"_id": "q1", "text": "feline -milk"}\n{"_id": "q2", "text": "weather"}\n')
    for path, names in ((lines, ["1", "3"]), (objects, ["q1", "q2"])):
        options = ["--vocabulary", "words", "--json"]
        hits = run("search", str(index.path), "--queries", str(path), *options)
        assert hits.code == 0, hits.err
        answers = [json.loads(line) for line in hits.out.splitlines()]
        assert [answer["id"] for answer in answers] == names
        ids = [[hit["id"] for hit in answer["results"]] for answer in answers]
        assert ids == [["1"], ["5"]]
    assert "3: weather" in run("search", str(index.path), "--queries", str(lines)).out


def test_feedback_on_the_command_line(index, run):
    path, words = str(index.path), ["--vocabulary", "words"]
    marked = run("search", path, "felnie feline", "--relevant", "1", *words, "--json").json
    expected = index.search("felnie feline", vocabulary="words", feedback=["1"])
    assert [hit["id"] for hit in marked["results"]] == [hit.id for hit in expected]
    assert marked["did_you_mean"] == "feline feline"
    assert len(marked["added"]) == 3
    assert "did you mean: feline" in run("search", path, "felnie", "--feedback", "2", *words).err
    assert "documents like 1" in run("search", path, "--like", "1", *words).out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["x", "--queries", "y"], "--queries can't be combined"),
        (["x", "--relevant", "1", "--feedback", "1"], "can't be combined"),
        (["--queries", "y", "--explain"], "--explain can't be combined with --queries"),
        (["--queries", "none.txt"], "none.txt: no file with queries"),
        ([], "a query, --like or --queries is needed"),
        (["x", "--boost", "words=1,words=2"], "--boost 'words=2': not one NAME=NUMBER for a name"),
        (["x", "--boost", "words"], "--boost 'words': not one NAME=NUMBER for a name"),
        (["x", "--steer", "word:milk=x"], "--steer 'word:milk=x': not one NAME=NUMBER for a name"),
        (
            ["x", "--steer", "word:milk=1", "--steer", "words:milk=2"],
            "--steer: 'words:milk' is there twice",
        ),
    ],
)
def test_arguments_that_are_refused(index, run, arguments, message):
    assert_error(run("search", index.path, *arguments), message)
