"""What results share with a query, and the words of their texts behind it."""

import pytest

from lexicept.corpora import Document
from lexicept.encoding.words import WordVectorizer
from lexicept.index.builder import IndexBuilder
from lexicept.index.impacts import VocabularySettings
from lexicept.index.matches import matches_of, snippet_bounds
from lexicept.index.reader import IndexReader
from lexicept.weighting import BM25


def test_a_match_has_a_word_of_text_or_title_and_the_snippet_is_there(tmp_path):
    filler = "word " * 100
    documents = [
        Document("a", f"{filler}Fallback plans. Falling cats and a Cat fall. {filler}", "Kittens"),
        Document("b", "Nothing\n\n of that.", "A falls"),
        Document("c", f"First words. {filler * 25}", "Owls"),  # longer than what is searched
    ]
    builder = IndexBuilder(tmp_path / "index")
    builder.add_documents(documents, {})
    builder.add_vocabulary(WordVectorizer("en"), VocabularySettings(BM25()))
    builder.commit()
    index = IndexReader.open(tmp_path / "index")
    query = index.weigh(["fall cats owls"])
    hits = index.rank(query, 10)[0]
    described = zip(hits, matches_of(index, query, hits), strict=True)
    found = {
        hit.id: ({m.contribution.term: m.word for m in matches}, snippet)
        for hit, (matches, snippet) in described
    }
    words, snippet = found["a"]
    assert words == {"fall": "Falling", "cat": "cats"}
    assert snippet.startswith("…word")
    assert snippet.endswith("word…")
    assert "Falling cats and a Cat fall." in snippet
    assert found["b"] == ({"fall": "falls"}, "Nothing of that.")
    assert found["c"][1].startswith("First words.")


LONG = "word " * 100 + "owl " + "word " * 100 + "cat and owl " + "word " * 100


def marks(text: str, **worth: float) -> list[tuple[int, str, float]]:
    return [
        (start, word, value)
        for word, value in worth.items()
        for start in range(len(text))
        if text.startswith(word, start)
    ]


@pytest.mark.parametrize(
    ("worth", "inside"),
    [({"owl": 2.0}, 500), ({"owl": 2.0, "cat": 1.0}, 1004), ({"owl": 0.0}, 0), ({}, 0)],
)
def test_a_snippet_has_the_marks_that_are_worth_most(worth, inside):
    start, end = snippet_bounds(LONG, marks(LONG, **worth))
    assert start <= inside < end <= start + 240
    # No word is cut.
    assert start == 0 or LONG[start - 1] == " "
    assert LONG[end] == " "


def test_marks_of_one_reason_count_once():
    text = "owl owl owl " + "word " * 100 + "cat cat" + "word " * 100
    start, end = snippet_bounds(text, marks(text, owl=1.0, cat=1.5))
    assert "cat cat" in text[start:end]


def test_a_text_without_blanks_and_a_short_one():
    assert snippet_bounds("x" * 1000, [(500, "x", 1.0)]) == (440, 680)
    assert snippet_bounds("short", []) == (0, 5)
