"""What results share with a query, and the words of their texts behind it."""

from lexicept.corpora import Document
from lexicept.index.builder import IndexBuilder
from lexicept.index.impacts import VocabularySettings
from lexicept.index.matches import matches_of
from lexicept.index.reader import IndexReader
from lexicept.vectorizers.words import WordVectorizer
from lexicept.weighting import BM25


def test_a_match_has_a_word_of_text_or_title_and_the_snippet_is_there(tmp_path):
    filler = "word " * 100
    documents = [
        Document("a", f"{filler}Fallback plans. Falling cats and a Cat fall. {filler}", "Kittens"),
        Document("b", "Nothing\n\n of that.", "A falls"),
    ]
    builder = IndexBuilder(tmp_path / "index")
    builder.add_documents(documents, {})
    builder.add_vocabulary(WordVectorizer("en"), VocabularySettings(BM25()))
    builder.commit()
    index = IndexReader.open(tmp_path / "index")
    query = index.weigh(["fall cats"])
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
