"""The syntax of queries: phrases, words to leave out, conditions on fields, boosts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lexicept
from lexicept.errors import InputError
from lexicept.fields.filters import All, Condition, Not
from lexicept.fields.values import FieldType
from lexicept.index.impacts import VocabularySettings
from lexicept.queries.syntax import ParsedQuery, parse
from lexicept.weighting import Splade
from support.indexes import build, build_of
from support.vowels import Vowels

KINDS = {
    "year": FieldType("number"),
    "tag": FieldType("keyword", True),
    "seen": FieldType("date"),
    "my field": FieldType("keyword"),
}
PETS = [
    {"id": "a", "text": "A cat sleeps at the state of the art.", "year": 2019, "tag": ["bio"]},
    {"id": "b", "text": "Sleeping cats, sleepy dogs.", "year": 2021, "tag": ["bio", "vet"]},
    {"id": "c", "title": "Deep", "text": "sleep of dogs: state-art vitamin C", "year": 2022},
    {"id": "d", "text": "Deep sleep, vitamin A and dogs", "tag": ["vet"]},
]


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    path = tmp_path_factory.mktemp("pets") / "index"
    return lexicept.build(PETS, path, vocabulary="words")


PLAIN = [
    "how do cats sleep?",
    "  spaces   stay \n",
    "",
    'a 5" disk',
    'an unclosed "quote',
    'x"inside a"word',
    '""',
    '"?!"',
    "a - b -5 -40°C --force -x e-mail well-known -",
    "title:cats http://example.org note: 10:30 year: :2019",
    'other:"not a field"',
    '--"not excluded" e-"mail me" -(cats dogs)',
    "‘single’ 'marks' 5“ disk ",
    "cats OR dogs",
    "“unclosed",
    "year",
]
"""Queries without syntax."""


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ('the "deep sleep" of cats', ParsedQuery("the deep sleep of cats", ("deep sleep",))),
        ("“deep sleep”", ParsedQuery("deep sleep", ("deep sleep",))),
        ('sleep -dogs -"big cats"', ParsedQuery("sleep", (), ("dogs", "big cats"))),
        ("-well-known", ParsedQuery("", (), ("well-known",))),
        ("a year:2019", ParsedQuery("a", condition=Condition("year", "=", (2019,)))),
        ("year:>=1.5", ParsedQuery("", condition=Condition("year", ">=", (1.5,)))),
        ("-tag:bio", ParsedQuery("", condition=Not(Condition("tag", "=", ("bio",))))),
        ('tag:"a b" x', ParsedQuery("x", condition=Condition("tag", "=", ("a b",)))),
        ("tag:>=x", ParsedQuery("", condition=Condition("tag", "=", (">=x",)))),
        ("`my field`:x", ParsedQuery("", condition=Condition("my field", "=", ("x",)))),
        ("seen:2024-02", ParsedQuery("", condition=Condition("seen", "=", ("2024-02",)))),
        ("year:2019..", ParsedQuery("", condition=Condition("year", ">=", (2019,)))),
        (
            "year:2019..2021 seen:<2020",
            ParsedQuery(
                "",
                condition=All(
                    (Condition("year", "..", (2019, 2021)), Condition("seen", "<", ("2020",)))
                ),
            ),
        ),
        *((plain, ParsedQuery(plain)) for plain in PLAIN),
    ],
)
def test_syntax(query, expected):
    assert parse(query, KINDS) == expected


DEEP = ParsedQuery("deep sleep", ("deep sleep",))


@pytest.mark.parametrize(
    "query",
    [
        *(
            '("deep sleep")',
            '["deep sleep"]',
            '+"deep sleep"',
            '[(+"deep sleep")],',
            '?"deep sleep"!',
        ),
        *("“deep sleep”", "„deep sleep“", "„deep sleep”", "”deep sleep”", "«deep sleep»"),
        *("»deep sleep«", "‹deep sleep›", "「deep sleep」", "『deep sleep』", "〝deep sleep〟"),
        *("＂deep sleep＂", "｢deep sleep｣", "(«deep sleep»)", "﹁deep sleep﹂"),
    ],
)
def test_marks_of_phrases(query):
    assert parse(query, KINDS) == DEEP
    assert parse(f"-{query}".replace("-?", "-").replace("+", ""), KINDS).without == ("deep sleep",)
    assert parse(f"tag:{query.strip('+[(?)],!')}", KINDS).condition == Condition(
        "tag", "=", ("deep sleep",)
    )


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ('“a 5" b”', ParsedQuery('a 5" b', ('a 5" b',))),
        ('("a b")("c d")', ParsedQuery("a b c d", ("a b", "c d"))),
        ("猫「深い眠り」の", ParsedQuery("猫 深い眠り の", ("深い眠り",))),
        ('(-"a b")', ParsedQuery("", (), ("a b",))),
        ("(tag:bio)", ParsedQuery("", condition=Condition("tag", "=", ("bio",)))),
        ("-(tag:bio)", ParsedQuery("", condition=Not(Condition("tag", "=", ("bio",))))),
        ("+tag:a(b)", ParsedQuery("", condition=Condition("tag", "=", ("a(b)",)))),
    ],
)
def test_brackets_and_signs_before_phrases(query, expected):
    assert parse(query, KINDS) == expected


@pytest.mark.parametrize(
    "query",
    ['("a b" OR "c d")', '"a b" OR cats', 'cats OR "a b"', "(tag:bio OR tag:vet)", '-"a" OR "b c"'],
)
def test_or_beside_a_condition_is_refused(query):
    with pytest.raises(InputError, match="OR beside a phrase or a condition, of which all must"):
        parse(query, KINDS)


def test_a_minus_before_brackets_leaves_out_one_phrase():
    with pytest.raises(InputError, match="leaves out a single phrase or value"):
        parse('-("a b" "c d")', KINDS)
    with pytest.raises(InputError, match="more than 32 phrases and excluded words"):
        parse("cats" + ' -dogs "a b"' * 17, KINDS)


@given(st.text(alphabet='ab "“”„«»「」()+-:`\\.<>=1year', max_size=60))
def test_any_text_is_a_query(query):
    try:
        parsed = parse(query, KINDS)
    except InputError:  # of a minus before brackets
        return
    if not any(parsed.conditions):
        assert parsed.text == query
    # Nothing of what was written is lost but the signs of the syntax.
    text = parsed.text + "".join(parsed.phrases) + "".join(parsed.without)
    assert set(text) - {" "} <= set(query)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("sleep", ["b", "a", "d", "c"]),
        ('"sleeping cats"', ["b"]),
        ('"cat sleep"', ["a"]),
        ('"sleepy dog"', ["b"]),
        ('"deep sleep"', ["d"]),  # not across title and text
        ('"state of the art"', ["a"]),
        ('"state art"', ["c"]),
        ('"vitamin c"', ["c"]),
        ('"vitamin"', ["c", "d"]),
        ('"vitamin unheard"', []),
        ("sleep -dogs", ["a"]),
        ('sleep -"deep sleep" -cat', ["c"]),
        ("sleep year:2021", ["b"]),
        ("sleep year:2019..2021 -tag:vet", ["a"]),
        ("sleep tag:vet -deep", ["b"]),
        ("year:2019..2022 -tag:vet", ["a", "c"]),
        ("-cats", ["c", "d"]),
        ("-unheard", ["a", "b", "c", "d"]),
    ],
)
def test_results_meet_the_conditions(index, query, expected):
    hits = index.search(query)
    assert sorted(hit.id for hit in hits) == sorted(expected)
    (batch,) = index.search_many([query])
    assert [hit.id for hit in batch] == [hit.id for hit in hits]
    assert [hit.id for hit in index.search(query, explain=True)] == [hit.id for hit in hits]
    counted = index.facets(["tag"], query=query)["tag"]
    tags = [tag for pet in PETS if pet["id"] in expected for tag in pet.get("tag", [])]
    assert {facet.value: facet.documents for facet in counted} == {t: tags.count(t) for t in tags}


def test_scores_and_parsed_queries_are_those_of_the_words(index):
    plain = {hit.id: hit.score for hit in index.search("deep sleep vitamin")}
    (hit,) = index.search('"deep sleep" vitamin -cats')
    assert hit.score == plain["d"]
    for text in ("what do sleepy dogs do?", 'a 5" disk'):
        assert index.search(text) == index.search(ParsedQuery(text))
    assert [hit.id for hit in index.search(ParsedQuery("cats -dogs"))] != []
    assert index.search(ParsedQuery("cats -dogs")) == index.search("cats dogs")
    assert index.parse("cats -dogs") == ParsedQuery("cats", without=("dogs",))


def test_conditions_alone_list_documents(index):
    hits = index.search("tag:vet", top_k=1)
    assert [(hit.id, hit.score, hit.rank) for hit in hits] == [("b", 0.0, 1)]
    assert hits.note == ""
    assert index.explain("tag:vet", "b").score == 0
    batch = index.search_many(["tag:vet", "cats", "tag:bio", "cats tag:vet"])
    assert [[hit.id for hit in hits] for hits in batch] == [
        ["b", "d"],
        ["a", "b"],
        ["a", "b"],
        ["b"],
    ]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ('"to be or not"', "the phrase 'to be or not' has no word that is searched"),
        ("cats -the", "the phrase 'the' has no word that is searched"),
        ("year:soon", "the field 'year' is a number, not a text such as 'soon'"),
        ("year:1e999", "the field 'year' is a number, not a text such as '1e999'"),
        ("cats \ud800 -x", "the query is not valid UTF-8"),
    ],
)
def test_what_can_not_be_looked_up(index, query, message):
    with pytest.raises(InputError) as refused:
        index.search(query)
    assert message in str(refused.value)


@pytest.mark.usefixtures("_vowels")
def test_phrases_need_words(tmp_path):
    concepts = Vowels(), VocabularySettings(Splade())
    index = lexicept.Index(build_of(tmp_path / "index", {"1": "cat"}, concepts))
    assert [hit.id for hit in index.search("a")] == ["1"]
    with pytest.raises(
        InputError, match="exact phrases and excluded words need an index with words"
    ):
        index.search('"cat"')


@pytest.fixture
def both(tmp_path, _vowels):
    """Words, and vowels as concepts."""
    texts = {"1": "cat aaa", "2": "cat cat", "3": "dog a"}
    return lexicept.Index(build(tmp_path / "both", texts, concepts=VocabularySettings(Splade())))


def test_boosts_multiply_a_vocabulary(both):
    words = {hit.id: hit.score for hit in both.search("cat", vocabulary="words")}
    concepts = {hit.id: hit.score for hit in both.search("cat", vocabulary="concepts")}
    boosted = {
        hit.id: hit.score for hit in both.search("cat", boosts={"words": 2, "concepts": 0.5})
    }
    assert boosted == {
        name: pytest.approx(2 * words.get(name, 0) + concepts.get(name, 0) / 2) for name in concepts
    }
    assert both.search("cat", boosts={"concepts": 0}) == both.search("cat", vocabulary="words")
    explained = both.explain("cat", "1", boosts={"words": 2, "concepts": 0.5})
    assert explained.score == pytest.approx(boosted["1"])


@pytest.mark.parametrize(
    "boosts", [{"words": -1}, {"words": float("nan")}, {"x": 1}, [1], {"words": "a"}]
)
def test_boosts_out_of_range(both, boosts):
    with pytest.raises(InputError):
        both.search("cat", boosts=boosts)


def test_the_command_line(both, run):
    plain = run("search", str(both.path), '"cat cat" -dog', "--json")
    assert [hit["id"] for hit in plain.json["results"]] == ["2"]
    boosted = run("search", str(both.path), "cat", "--boost", "words=0, concepts=.5", "--json")
    expected = both.search("cat", boosts={"words": 0, "concepts": 0.5})
    assert [hit["score"] for hit in boosted.json["results"]] == [hit.score for hit in expected]
