"""Terms of several languages as literal values, the vocabulary, and saving it."""

import pickle
from collections import Counter
from itertools import pairwise
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lexicept
from lexicept.encoding import words
from lexicept.encoding.words import BIGRAM_LANGUAGES, LANGUAGES, STEMMERS, Tokenizer, WordVectorizer
from lexicept.errors import InputError, LexiceptWarning


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


def test_every_language_is_read_and_a_missing_stemmer_said_once(tmp_path):
    assert len(LANGUAGES) == 183
    assert {*STEMMERS, *BIGRAM_LANGUAGES} <= LANGUAGES
    for language in LANGUAGES:
        assert len(Tokenizer(language)("Kilo 42 ქართული")) == 3
    assert Tokenizer("vi")("Ở Việt Nam") == ["việt", "nam"]
    assert Tokenizer("nb")("og husene") == Tokenizer("no")("og husene") == ["hus"]
    for language, missing in (("vi", "no stemmer and no stop words"), ("pl", "no stop words")):
        out = tmp_path / language
        with pytest.warns(LexiceptWarning) as caught:
            lexicept.build(["Việt Nam"], out, vocabulary="words", language=language).close()
        assert [str(w.message) for w in caught] == [f"{missing} for the language {language!r}"]
    with pytest.raises(InputError, match=r"no language 'xx': a code of ISO 639-1, such as 'en'"):
        Tokenizer("xx")
    with pytest.raises(InputError, match=r"no language 'German': .*; the nearest is 'de'"):
        Tokenizer("German")


def test_function_words_of_questions_are_dropped_from_queries(tmp_path):
    vectorizer = WordVectorizer("en", ["how", "do", "mous"], "en_plus")
    texts = ["How does a mouse do?", "how do you do", "DOES it", "the"]
    assert vectorizer.documents(texts[:1]).toarray().tolist() == [[1, 1, 1, 1]]
    assert vectorizer.terms == ["how", "do", "mous", "doe"]
    # Without anything else the question is the query.
    expected = [[0, 0, 1, 0], [1, 2, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0]]
    assert vectorizer.queries(texts).toarray().tolist() == expected
    vectors = vectorizer.encode_query(texts[0])
    assert vectors.stop_words == ("how", "does", "a", "do")
    assert vectors.sources([0, 2]) == {0: ((), ()), 2: (((11, 16),), (1.0,))}
    assert vectorizer.encode_query(texts[1]).stop_words == ()
    documents = [{"id": "a", "text": "how do you do"}, {"id": "b", "text": "a mouse"}]
    lexicept.build(documents, tmp_path / "i", vocabulary="words").close()
    index = lexicept.open(tmp_path / "i")
    index.add([{"id": "c", "text": "How mice sleep"}])
    for query, ids in {
        "how do I catch a mouse": "b",
        "how do you do": "ac",
        '"how do"': "a",
        "mice -how": "",
        "mouse -how": "b",
        '"how" mice': "c",
    }.items():
        assert "".join(hit.id for hit in index.search(query)) == ids, query
    hits = index.search("what do zebras and a mouse do", explain=True)
    assert hits.unmatched_words == ("zebras",)
    assert hits[0].explanation.note == "not searched as words: what, do, and, a"


FORMAT = "\u00ad\u200e\u200f\ufeff"


@pytest.mark.parametrize(
    ("language", "spellings", "term"),
    [
        ("en", "café cafe\u0301 CAFÉ CAFE\u0301", "café"),
        ("vi", "Việt Viê\u0323t Vie\u0302\u0323t Vie\u0323\u0302t", "việt"),
        ("en", "oﬃce o\ufb03ce OFFICE", "offic"),
        ("en", "ＰＤＦ pdf 𝒫𝒟ℱ ⓅⒹⒻ", "pdf"),
        ("en", "x² x2 x₂", "x2"),
        ("en", "wind\u00admill wind\u2060mill \ufeffwindmill wi\u200dn\u200cdmill", "windmil"),
        ("en", "windmill\u00ad windmill\ufe0f w\u034findmill \u200ewindmill\u200f", "windmil"),
        ("en", "Å A\u030a \u212b", None),  # single letters, as a and b are
        ("en", "ß", None),
        ("en", "Straße STRASSE STRAẞE", "strass"),
        ("de", "Straße Strasse STRASSE STRAẞE Straßen", "strass"),
        ("de", "daß dass DASS", None),
        ("el", "ΟΔΟΣ οδός οδοσ ΟΔΟ\u03a3", "οδ"),
        ("tr", "İzmir izmir İZMİR I\u0307zmir", "izmir"),
        ("tr", "ISPARTA Isparta ısparta", "ıspar"),
        ("az", "QIZIL qızıl", "qızıl"),
        ("en", "İzmir izmir IZMIR", "izmir"),
        ("lt", "Jìs ji\u0307\u0300s JÌS", "jìs"),
        # Optional vowel points, accents and tatweel; digits.
        ("he", "שָׁלוֹם שָׁל\u05d5\u05b9ם שלום ש\u05c1לום \ufb2aלום", "שלום"),
        ("yi", "אַלע אלע", "אלע"),
        ("ar", "مُحَمَّد محمد محـــمد ﻣﺤﻤﺪ", "محمد"),
        ("ur", "مُحَمَّد محمد محـــمد ﻣﺤﻤﺪ", "محمد"),
        ("fa", "۲۰۲۰ ٢٠٢٠ 2020 ２０２０", "2020"),
        ("hi", "२०२० 2020", "2020"),
        ("th", "๒๐๒๐ 2020", "2020"),
        ("en", "ܫܠܵܡܵܐ ܫܠܡܐ", "ܫܠܡܐ"),
        ("dv", "ދިވެހި", "ދިވެހި"),  # vowels that are not optional
        ("bn", "বাংলা ব\u09beংলা", "বাংলা"),
        ("bn", "ক\u09cb ক\u09c7\u09be", "ক\u09cb"),
        ("fa", "می\u200cروم میروم", "میروم"),
        ("si", "ශ්\u200dරී ශ්රී", "ශ්රී"),
        ("ml", "മലയാളം മലയാള\u0d02", "മലയാളം"),
        ("ko", "가 \u1100\u1161", "가"),
        ("ja", "ｶﾞ ガ カ\u3099", "ガ"),
        ("zh", "\u2f00 一", "一"),
        ("zh", "\U00020000 \U00020000", "\U00020000"),
    ],
)  # fmt: skip
def test_spellings_of_one_word(language, spellings, term):
    tokenizer = Tokenizer(language)
    for spelling in spellings.split():
        assert tokenizer(spelling) == ([] if term is None else [term])
        positions = [spelling[start:end] for _, (start, end) in tokenizer.spans(spelling)]
        assert positions == ([] if term is None else [spelling.strip(FORMAT)])


@pytest.mark.parametrize(
    ("language", "spellings", "term"),
    [
        ("uk", "здоров'я здоров’я здоровʼя здоров＇я", "здоров"),
        ("en", "Hawai'i Hawai’i Hawaiʻi Hawai‘i", "hawai"),
        ("he", "ג׳ירפה ג'ירפה", "ירפה"),
        ("uz", "O'zbek O‘zbek Oʻzbek", "zbek"),
    ],
)
def test_an_apostrophe_ends_a_word_however_it_is_typed(language, spellings, term):
    tokenizer = Tokenizer(language)
    for spelling in spellings.split():
        assert tokenizer(spelling) == [term]
        assert [spelling[start:end].lower() for _, (start, end) in tokenizer.spans(spelling)] == [
            term
        ]


def test_equivalent_spellings_meet_everywhere(tmp_path):
    cafe, fields = "The café of Zoë", {"type": "Gar\u00e7on", "größe": 1}
    documents = [
        {"id": "c", "text": cafe, **fields},
        {
            "id": "d",
            "text": normalize("NFD", cafe),
            **{normalize("NFD", k): v for k, v in fields.items()},
        },
        {"id": "e", "text": "A ca\u00adfé", "type": "Garc\u0327on"},
        {"id": "f", "text": "हिन्दी बिल्ली", "type": "ＰＤＦ", "größe": 2},
        {"id": "g", "text": "हिन्दी", "type": "PDF"},
    ]
    index = lexicept.build(documents, tmp_path / "index", vocabulary="words")
    for query, expected in {
        "café": "cde",
        "zoë": "cd",
        '"café of zoë"': "cd",
        "café -zoë": "e",
        '"of café"': "",
        "type:garçon": "",  # the case of values counts
        "type:Garçon": "cde",
        "größe:1": "cd",
        "type:PDF": "fg",
        "हिन्दी -बिल्ली": "g",
    }.items():
        for form in ("NFC", "NFD"):
            hits = index.search(normalize(form, query))
            assert sorted(hit.id for hit in hits) == [*expected], query
    for form in ("NFC", "NFD"):
        allowed = normalize(form, 'type in ["Garçon", "ＰＤＦ"] and größe > 0')
        assert [hit.id for hit in index.search("café हिन्दी", filter=allowed)] == ["f", "c", "d"]
        (facet,) = index.facets([normalize(form, "größe")]).values()
        assert facet == [(1, 2), (2, 1)]
    assert index.facets(["type"]) == {"type": [("Garçon", 3), ("PDF", 2)]}
    assert index.document("e").fields["type"] == "Garc\u0327on"  # as it was written
    assert index.document("d").fields["größe"] == 1
    index.verify()
    spans = {
        hit.id: hit.explanation.contributions[0].document_spans
        for hit in index.search("cafe\u0301", explain=True)
    }
    assert spans == {"c": ((4, 8),), "d": ((4, 9),), "e": ((2, 7),)}
    index.add([{"id": "h", "text": "x", "type": "Ga\u00adrçon"}])
    index.merge()
    index.verify()
    assert [hit.id for hit in index.search("type:Garçon")] == ["c", "d", "e", "h"]


def test_words_that_stay_two():
    tokenizer = Tokenizer("en")
    assert tokenizer("wind\u200bmill") == ["wind", "mill"]  # a zero-width space separates
    assert tokenizer("2½ 21⁄2") == ["2½", "21"]
    assert tokenizer("resume résumé") == ["resum", "résumé"]
    assert Tokenizer("tr")("kış kis") == ["kış", "kis"]


@pytest.mark.parametrize(
    ("language", "text", "terms"),
    [
        ("zh", "我爱Python编程 a,3 中", ["我爱", "python", "编程", "a", "3", "中"]),
        ("ja", "東京でPython3を学ぶ", ["東京", "京で", "python3", "を学", "学ぶ"]),
        ("ko", "한국어 text", ["한국", "국어", "text"]),
        ("ja", "人々と〇一", ["人々", "々と", "と〇", "〇一"]),
        ("ja", "ﾊﾟｿｺﾝのコーヒー", ["パソ", "ソコ", "コン", "ンの", "のコ", "コー", "ーヒ", "ヒー"]),
        ("zh", "\U0002070e\U00030000\ufa0e", ["\U0002070e\U00030000", "\U00030000\ufa0e"]),
        ("zh", "第３章Ａ", ["第", "3", "章", "a"]),
        ("th", "ผมใช้ Python", ["ผม", "มใ", "ใช", "ช้", "python"]),
    ],
)
def test_bigrams_with_embedded_latin_words(language, text, terms):
    assert Tokenizer(language)(text) == terms


@pytest.mark.parametrize(
    ("language", "text", "spelled"),
    [
        ("en", "The Cats, cat-like", ["Cats", "cat", "like"]),
        ("tr", "İstanbul, İzmir", ["İstanbul", "İzmir"]),
        ("en", "the o\ufb03ce, wind\u00admills\u00ad!", ["o\ufb03ce", "wind\u00admills"]),
        ("zh", "Ｐ我\u00ad爱㎏", ["Ｐ", "我\u00ad爱", "㎏"]),
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


TEXTS = st.text() | st.text(
    "aAfiİIıßΣσς é\u0301\u0323\u0307์ช東々京가ﾊﾟ\u1100\u1161ﬃ㎏½\u00ad\u200b\u200d\ufeff "
)


@given(st.sampled_from(["en", "de", "el", "lt", "tr", "hi", "ja", "ko", "th"]), TEXTS)
def test_equivalent_texts_have_the_same_words(language, text):
    tokenizer = Tokenizer(language)
    for changed in (normalize("NFC", text), normalize("NFD", text)):
        assert tokenizer(changed) == tokenizer(text)
        assert tokenizer.sequence(changed) == tokenizer.sequence(text)
    within = text.replace("é", "e\u00ad\u0301").replace("a", "a\u2060")
    assert tokenizer(within) == tokenizer(text)


@given(st.sampled_from([*STEMMERS, *BIGRAM_LANGUAGES]), TEXTS)
def test_terms_with_and_without_characters_are_the_same(language, text):
    tokenizer = Tokenizer(language)
    spans = list(tokenizer.spans(text))
    terms = tokenizer(text)
    assert [term for term, _ in spans] == terms
    assert list(tokenizer.counts(text).items()) == list(Counter(terms).items())
    assert all(term and "".join(term.split()) == term for term, _ in spans)
    starts = [span.start for _, span in spans]
    assert starts == sorted(starts)
    assert all(0 <= span.start < span.end <= len(text) for _, span in spans)
    if not tokenizer.bigrams:
        assert all(a.end <= b.start or a == b for (_, a), (_, b) in pairwise(spans))


def test_occurrences_of_dimensions():
    vectorizer = WordVectorizer("en", ["cat", "dog", "owl"])
    text = "Cats, a dog and the cat; zebras"
    expected = {0: (((0, 4), (20, 23)), (0.5, 0.5)), 2: ((), ())}
    assert vectorizer.encode_query(text).sources([0, 2]) == expected
    explanation = vectorizer.document_sources([text, "dog"], [[0, 2], [1]])
    assert explanation == [expected, {1: (((0, 3),), (1.0,))}]


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
    vectorizer = WordVectorizer("de", (), "it")
    counts = vectorizer.documents(texts)
    vectorizer.save(tmp_path)
    loaded = WordVectorizer.load(tmp_path)
    assert (loaded.tokenizer.language, loaded.query_stop_words) == ("de", "it")
    assert loaded.terms == vectorizer.terms
    assert loaded.queries(texts).toarray().tolist() == counts.toarray().tolist()


def test_stems_are_forgotten_and_found_again(monkeypatch):
    monkeypatch.setattr(words, "REMEMBERED", 2)
    tokenizer = words.Tokenizer("en")
    text = "running the cats and running dogs, cats and the dogs"
    assert tokenizer(text) == ["run", "cat", "run", "dog", "cat", "dog"]
    assert len(tokenizer._stems) <= 2


@pytest.mark.parametrize("letter", ["a", "ж", "𐐨"])
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
        own, actual = here.documents(block), joined.join(count(block))
        for name in ("data", "indices", "indptr"):
            assert getattr(actual, name).tolist() == getattr(own, name).tolist()
            assert getattr(actual, name).dtype == getattr(own, name).dtype
        assert actual.shape == own.shape
    assert joined.terms == here.terms
