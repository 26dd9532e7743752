"""Concepts are named by words that fire them in two texts; names are tested on held-out texts."""

import math

import numpy as np
import pytest

from lexicept.concepts.word_labels import Firings, Namer, Tallies
from lexicept.encoding.words import Tokenizer

WORDS = ["the", "of", ",", "1999", "heart", "hearts", "cell", "json", "schema", "map", "also"]


def namer(size, fired, texts=None, held=None):
    """Fired: (concept, word, activation, held-out firings, in two texts)."""
    token_id = {word: position for position, word in enumerate(WORDS)}
    fired = sorted((c << 32 | token_id[w], act, held, two) for c, w, act, held, two in fired)
    tallies = Tallies(
        np.array([key for key, *_ in fired], np.int64),
        np.array([[act, held, held] for _, act, held, _ in fired], float).reshape(-1, 3),
        np.array([two for *_, two in fired], bool),
    )
    occurrences = np.array([(held or {}).get(word, 0) for word in WORDS], float)
    counts = np.array([(texts or {}).get(word, 2) for word in WORDS], float)
    return Namer(Firings(WORDS, tallies, counts, 100, occurrences), size, Tokenizer("en"))


def labels(*args, **options):
    return [(name.label, name.source) for name in namer(*args, **options).names()]


def test_words_with_the_largest_activation_times_idf():
    fired = [(0, "heart", 2.0, 0, True), (0, "hearts", 3.0, 0, True), (0, "cell", 4.0, 0, True)]
    # Words of one stem count together, spelled as the word with the largest activation.
    assert labels(1, fired) == [("hearts, cell", "words")]
    # cell: 4/9 ln(1 + .5 / 100.5) is below .3 of the first.
    assert labels(1, fired, texts={"cell": 100}) == [("hearts", "words")]
    assert labels(1, [(0, "heart", 3.0, 0, True), (0, "cell", 2.0, 0, True)]) == [
        ("heart", "words")  # has .6 of the activations
    ]


def test_names_of_the_same_words_are_one_name():
    fired = [(c, w, act, 0, True) for c, w, act in ((0, "cell", 4.0), (0, "heart", 3.0))]
    fired += [(1, "cell", 3.0, 0, True), (1, "heart", 4.0, 0, True), (2, "heart", 1.0, 0, True)]
    assert [label for label, _ in labels(3, fired)] == ["cell, heart", "cell, heart", "heart"]


def test_a_name_is_spelled_as_the_common_word_with_much_of_the_activation():
    fired = [(0, "hearts", 3.0, 0, True), (0, "heart", 1.0, 0, True)]
    assert labels(1, fired, texts={"heart": 3}) == [("heart", "words")]
    fired[1] = (0, "heart", 0.5, 0, True)  # a sixth of the largest
    assert labels(1, fired, texts={"heart": 3}) == [("hearts", "words")]


@pytest.mark.parametrize(
    ("fired", "expected"),
    [
        ([(0, "heart", 1.0, 0, False)], "one text: heart"),
        ([(0, "heart", 3.0, 0, True), (0, "cell", 4.0, 0, False)], "words: heart"),
        ([(0, "heart", 1.0, 0, True), (0, "cell", 4.0, 0, False)], "one text: cell"),  # a fifth
        ([(0, "heart", 0.5, 0, True), (0, "the", 0.6, 0, True)], "function words: the"),
        ([(0, ",", 3.0, 0, True), (0, "of", 1.0, 0, True)], "punctuation: ,"),
        ([(0, "1999", 3.0, 0, True)], "numbers: 1999"),
        ([(0, w, 0.4, 0, True) for w in (",", "the", "cell")], "topic: cell"),
        (
            [(0, ",", 0.4, 0, True), *((0, w, 0.2, 0, True) for w in ("the", "also", "cell"))],
            "topic: cell",
        ),
        (
            [(0, w, 0.4, 0, True) for w in (",", "the", "map")],
            "function words and punctuation: the",
        ),
        ([(0, "map", 2.0, 0, True), (0, "json", 8.0, 0, True)], "various words: map"),
        ([], "none: "),
    ],
)
def test_sources_of_names(fired, expected):
    source, words = expected.split(": ")
    label = words if source in ("words", "one text", "none") else expected
    # map is two fifths of the held-out words, too many for a topic.
    texts, held = {"map": 20, "json": 100}, {"map": 40, "json": 50, "the": 10}
    source = source.removesuffix(" and punctuation")
    assert labels(1, fired, texts=texts, held=held) == [(label, source)]


def test_detection_is_the_balanced_accuracy_on_held_out_words():
    fired = [(0, "heart", 3.0, 2, True), (0, "of", 1.0, 1, True), (1, "cell", 1.0, 0, True)]
    heart, cell = namer(2, fired, held={"heart": 3, "of": 10, "the": 7}).names()
    # 2 of 3 firings are on the word; 1 of 17 words without a firing is the word.
    assert heart.detection == pytest.approx((2 / 3 + 16 / 17) / 2)
    assert math.isnan(cell.detection)


def test_languages_of_bigrams_are_named_by_words():
    tallies = Tallies(np.array([0]), np.array([[1.0, 0, 0]]), np.array([True]))
    firings = Firings(["東京都"], tallies, np.array([2.0]), 9, np.zeros(1))
    assert Namer(firings, 1, Tokenizer("ja")).names()[0].label == "東京都"
