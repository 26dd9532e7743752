"""Words of a query that no document contains."""

import pytest

import lexicept
from lexicept.index.impacts import VocabularySettings
from lexicept.weighting import Splade
from support.indexes import build

ONLY = "results are by meaning only"


@pytest.fixture
def index(tmp_path, _vowels):
    """Words, and vowels as concepts."""
    texts = {"1": "Cats sleep.", "2": "Dogs bark."}
    return lexicept.Index(build(tmp_path / "index", texts, concepts=VocabularySettings(Splade())))


@pytest.mark.parametrize(
    ("query", "unmatched", "note"),
    [
        ("sleeping cats", (), ""),
        ("Aspirin for cats, ASPIRIN or aspirin", ("Aspirin", "ASPIRIN", "aspirin"), None),
        ("cats zzzxqv", ("zzzxqv",), "no document contains: zzzxqv"),
        ("zzaxqv", ("zzaxqv",), f"no document contains: zzaxqv; {ONLY}"),
        ("zzzxqv", ("zzzxqv",), "no document contains: zzzxqv"),  # no vowel: no results
        ("日本語 とa", ("日本語", "とa"), f"no document contains: 日本語, とa; {ONLY}"),
        ("the", (), f"no word matched; {ONLY}"),
        ("", (), ""),
        ("?!", (), ""),
    ],
)
def test_unmatched_words(index, query, unmatched, note):
    note = f"no document contains: {', '.join(unmatched)}" if note is None else note
    (batch,) = index.search_many([query])
    for hits in (index.search(query), index.search(query, explain=True), batch):
        assert hits.unmatched_words == unmatched
        assert hits.note == note
    words = index.search(query, vocabulary="words")
    assert words.unmatched_words == unmatched
    assert ONLY not in words.note
    concepts = index.search(query, vocabulary="concepts")
    assert (concepts.unmatched_words, concepts.note) == ((), "")


def test_words_that_no_document_has(index, tmp_path):
    hits = index.search("cats zzz")
    assert hits == list(hits)
    assert [hit.id for hit in hits[:1]] == ["1"]
    hits = index.search("zzaxqv", feedback=["1"])
    assert hits[0].id == "1"
    assert hits.note == "no document contains: zzaxqv"
    japanese = lexicept.build(["日本語"], tmp_path / "ja", vocabulary="words", language="ja")
    assert japanese.search("日本人").unmatched_words == ("本人",)
    assert index.search("dogs").note == ""
    index.delete(["2"])
    assert index.search("dogs").unmatched_words == ("dogs",)


def test_the_command_says_so(index, run):
    path = index.path
    assert run("search", path, "zzaxqv").err == f"no document contains: zzaxqv; {ONLY}\n"
    assert run("search", path, "cats").err == ""
    assert "\x1b" not in run("search", path, "ca\x1bts zz\x9bq").err
