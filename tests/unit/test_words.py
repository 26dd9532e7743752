"""Terms of several languages as literal values, the vocabulary, and saving it."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexicept.errors import InputError
from lexicept.vectorizers import words
from lexicept.vectorizers.words import BIGRAM_LANGUAGES, STEMMERS, Tokenizer, WordVectorizer


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("The Cats are running to the cat-like houses", "cat run cat like hous"),
        ("a I x I'll", "ll"),  # one letter is no word, and what an apostrophe cuts off is one
        ("Retrieval retrieves; RETRIEVED!", "retriev retriev retriev"),
        ("over_all 42 a1 3", "over_al 42 a1"),
        ("", ""),
        ("the of and", ""),
    ],
)
def test_english(text, terms):
    assert Tokenizer("en")(text) == terms.split()


def test_languages_have_their_own_words_stems_and_marks():
    assert Tokenizer("en")("the und") == ["und"]
    assert Tokenizer("de")("the und") == ["the"]
    assert Tokenizer("en")("houses häuser") == ["hous", "häuser"]
    assert Tokenizer("de")("häuser haus") == ["haus", "haus"]
    assert Tokenizer("hi")("हिन्दी") == ["हिन्द"]  # the stemmer takes the last vowel sign only
    assert Tokenizer("hi")("किताब") == ["किताब"]
    # The same word with and without vowel signs: the stemmer removes them.
    assert Tokenizer("ar")("كِتَاب") == Tokenizer("ar")("كتاب") == ["كتاب"]
    with pytest.raises(InputError, match=r"no language 'xx', only: ar, ca, .*en, .*zh"):
        Tokenizer("xx")


@pytest.mark.parametrize(
    ("language", "text", "terms"),
    [
        ("zh", "我爱Python编程 a,3 中", ["我爱", "python", "编程", "a", "3", "中"]),
        ("ja", "東京でPython3を学ぶ", ["東京", "京で", "python3", "を学", "学ぶ"]),
        ("ko", "한국어 text", ["한국", "국어", "text"]),
        ("th", "ผมใช้ Python", ["ผม", "มใ", "ใช", "ช้", "python"]),
    ],
)
def test_bigrams_with_embedded_latin_words(language, text, terms):
    assert Tokenizer(language)(text) == terms


@given(st.sampled_from([*STEMMERS, *BIGRAM_LANGUAGES]), st.text())
def test_any_text_in_any_language_makes_non_empty_terms(language, text):
    tokenizer = Tokenizer(language)
    terms = tokenizer(text)
    assert terms == tokenizer(text)
    assert all(terms)
    assert not any(character.isspace() for term in terms for character in term)


@pytest.mark.parametrize(
    ("language", "text", "spelled"),
    [
        ("en", "The Cats, cat-like", ["Cats", "cat", "like"]),
        ("tr", "İstanbul, İzmir", ["stanbul", "zmir"]),  # İ in lower case is i and a dot
        ("en", "cafe\u0301 😀naïve", ["cafe\u0301", "naïve"]),  # the accent belongs to the word
        ("zh", "我爱Python编程!", ["我爱", "Python", "编程"]),
        ("ja", "東京でABC", ["東京", "京で", "ABC"]),
        ("th", "ใช้", ["ใช้", "ช้"]),
        ("hi", "हिन्दी किताब", ["हिन्दी", "किताब"]),
        ("ar", "كِتَاب", ["كِتَاب"]),
    ],
)
def test_characters_of_terms(language, text, spelled):
    spans = [span for _, span in Tokenizer(language).spans(text)]
    assert [text[start:end] for start, end in spans] == spelled


@given(st.sampled_from([*STEMMERS, *BIGRAM_LANGUAGES]), st.text() | st.text("aİΣ é\u0301์ช東京가 "))
def test_terms_with_and_without_characters_are_the_same(language, text):
    tokenizer = Tokenizer(language)
    found = list(tokenizer.spans(text))
    assert [term for term, _ in found] == tokenizer(text)
    starts = [span.start for _, span in found]
    assert starts == sorted(starts)
    assert all(0 <= span.start < span.end <= len(text) for _, span in found)


def test_occurrences_of_dimensions():
    vectorizer = WordVectorizer("en", ["cat", "dog", "owl"])
    text = "Cats, a dog and the cat; zebras"
    expected = {0: (((0, 4), (20, 23)), (0.5, 0.5)), 2: ((), ())}
    assert vectorizer.encode_query(text).sources([0, 2]) == expected
    found = vectorizer.document_sources([text, "dog"], [[0, 2], [1]])
    assert found == [expected, {1: (((0, 3),), (1.0,))}]


def test_known_and_new_words_are_counted():
    vectorizer = WordVectorizer("en")
    counts = vectorizer.documents(["", "cats and dogs and a cat", "dog"])
    assert vectorizer.terms == ["cat", "dog"]
    assert counts.toarray().tolist() == [[0, 0], [2, 1], [0, 1]]
    assert counts.has_canonical_format
    vectorizer = WordVectorizer("en")
    vectorizer.documents(["cats dogs"])
    assert vectorizer.queries(["dog zebra dog", "zebra", ""]).toarray().tolist() == [
        [0, 2],
        [0, 0],
        [0, 0],
    ]
    assert vectorizer.terms == ["cat", "dog"]
    vectorizer = WordVectorizer("en", ["zebra"])
    vectorizer.documents(["dog cat"])
    assert vectorizer.terms == ["zebra", "dog", "cat"]
    assert vectorizer.documents(["bird cat zebra"]).toarray().tolist() == [[1, 0, 1, 1]]
    assert vectorizer.terms == ["zebra", "dog", "cat", "bird"]
    assert vectorizer.size == 4
    assert WordVectorizer("en").documents([]).shape == (0, 0)


@pytest.mark.parametrize("texts", [[], ["Straßen und Häuser", "naïve Häuser"]])
def test_saved_words_come_back(tmp_path, texts):
    vectorizer = WordVectorizer("de")
    counts = vectorizer.documents(texts)
    vectorizer.save(tmp_path)
    loaded = WordVectorizer.load(tmp_path)
    assert loaded.tokenizer.language == "de"
    assert loaded.terms == vectorizer.terms
    assert loaded.queries(texts).toarray().tolist() == counts.toarray().tolist()


def test_stems_are_forgotten_and_found_again(monkeypatch):
    monkeypatch.setattr(words, "REMEMBERED", 2)
    tokenizer = words.Tokenizer("en")
    text = "running the cats and running dogs, cats and the dogs"
    assert tokenizer(text) == ["run", "cat", "run", "dog", "cat", "dog"]
    assert len(tokenizer._stems) <= 2


@pytest.mark.parametrize("letter", ["a", "ж", "𝒳"])
def test_long_words_are_not_remembered(letter):
    tokenizer = words.Tokenizer("en")
    longest = letter * words.LONGEST_REMEMBERED
    assert tokenizer(f"{longest} {longest}{letter} kilo") == [longest, longest + letter, "kilo"]
    assert set(tokenizer._stems) == {longest, "kilo"}
    assert tokenizer._stemmer.maxCacheSize == 0  # which would keep them


@given(
    st.sampled_from(["en", "ja"]),
    st.lists(st.lists(st.text("aber 東京 ", max_size=12), max_size=3), max_size=4),
)
def test_parts_that_are_counted_elsewhere_join(language, blocks):
    here, joined = WordVectorizer(language, ["ab"]), WordVectorizer(language, ["ab"])
    count = pickle.loads(pickle.dumps(joined.part_counter()))
    for block in blocks:
        own, found = here.documents(block), joined.join(count(block))
        for name in ("data", "indices", "indptr"):
            assert getattr(found, name).tolist() == getattr(own, name).tolist()
            assert getattr(found, name).dtype == getattr(own, name).dtype
        assert found.shape == own.shape
    assert joined.terms == here.terms
