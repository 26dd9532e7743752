"""Which words become a concept's name."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
import scipy.sparse as sp

from lexicept.interpretation import word_labels
from lexicept.interpretation.word_labels import Firing, Namer, document_terms
from lexicept.vectorizers.words import Tokenizer

OTHERS = ["old trees grow in a quiet forest", "the rain fell on grey roofs"] * 12
"""Documents without the concept."""


@pytest.fixture(autouse=True)
def _few(monkeypatch):
    """Two or three documents are enough to name a concept."""
    monkeypatch.setattr(word_labels, "FEWEST_DOCUMENTS", 1)


def name(
    having: Sequence[str],
    fired: Mapping[str, float],
    near: Sequence[str] = (),
    weights: Sequence[float] = (),
    significant: bool = True,
) -> str:
    """The name of a concept that some documents have, which fires on words, where those named
    together are near each other."""
    texts, tokenizer = [*having, *OTHERS], Tokenizer("en")
    terms = document_terms(texts, tokenizer)
    words = sorted({word for text in texts for word in text.split()} | fired.keys())
    counts = sp.csr_array([[fired.get(word, 0.0) for word in words]])
    log_odds = sp.csr_array(counts * (2.0 if significant else 1.0) / (counts.data.max(initial=1)))
    log_odds.data[:] = 2.0 if significant else 1.0
    groups = [group.split() for group in near]
    vectors = np.eye(len(words) + len(groups))[: len(words)]
    for place, group in enumerate(groups):
        for word in group:
            vectors[words.index(word), len(words) + place] = 1.0
    stem_of = np.array([terms.stem(word, tokenizer) for word in words])
    firing = Firing.of(counts, log_odds, words, vectors, stem_of, len(terms.stems))
    tf = np.zeros((len(texts), 1))
    tf[: len(having), 0] = weights or 1.0
    (label,) = Namer(sp.csr_array(tf), terms, firing).labels()
    return label


MARROW = ["cells of the bone marrow grow", "a bone marrow graft", "how bone marrow heals"]
CANCER = ["cancer of the breast", "a cancer drug", "cancers of skin", "lung cancer risk"]
ACIDS = ["albicans here", "aldehyde there", "aleppo then", "alsace now", "almond last"]
RARE = [text.split()[0] for text in ACIDS]
CARS = ["cars drive fast", "a car stops", "the lorry waits", "many lorries park", "buses and cars"]


@pytest.mark.parametrize(
    ("having", "fired", "near", "expected"),
    [
        # A word that the documents share and the concept fires on, as it is spelled there.
        (CANCER, {"cancer": 3, "cancers": 1}, (), "cancer"),
        (CANCER, {"cancer": 1, "cancers": 3}, (), "cancers"),
        # A pair that takes the place of its word.
        (MARROW, {"marrow": 4}, (), "bone marrow"),
        ([*MARROW[:1], "marrow fat", "marrow bones"], {"marrow": 4}, (), "marrow"),
        # A concept that fires on what says nothing is named by what its documents are about.
        (CANCER, {"the": 3, ",": 4}, (), "cancer"),
        (CANCER, {}, (), "cancer"),
        # One that fires on words is named by them alone.
        (CANCER, {"drug": 2, "skin": 2, "risk": 2}, (), ""),
        # Pieces of rare words: no word speaks for enough.
        (ACIDS, dict.fromkeys(RARE, 1), (" ".join(RARE),), ""),
        # Words with a common meaning speak together; those without do not.
        (CARS, {"cars": 2, "lorry": 2}, ("cars car lorry lorries",), "cars lorry"),
        (["one lorry here", "a cat there", "some jam"], {"lorry": 1, "cat": 1, "jam": 1}, (), ""),
        # Generic words, stop words and numbers are no names, however often they fire.
        (["which one", "which two", "which three"], {"which": 9}, (), ""),
        (["in 1984 then", "by 1984 here", "1984 again"], {"1984": 9}, (), ""),
        # A second word that it fires on, with a common meaning.
        (["packet protocol", "a protocol for packets", "protocols", "the protocol"],
         {"packet": 3, "protocol": 4}, ("packet protocol packets",), "protocol packet"),
        ([], {"cats": 1}, (), ""),
    ],
)  # fmt: skip
def test_names(having, fired, near, expected):
    assert name(having, fired, near) == expected


def test_names_need_evidence(monkeypatch):
    assert name(["cat naps"], {"cat": 1}, significant=True) == "cat"
    assert name(["cat naps"], {"cat": 1}, significant=False) == ""
    texts = ["apple pie", "pear tart", "pear cake", "pear jam"]
    assert name(texts, {}, weights=[6, 1, 1, 1]) == ""
    assert name(texts, {}, weights=[1, 9, 9, 9]) == "pear"
    monkeypatch.setattr(word_labels, "FEWEST_DOCUMENTS", 4)
    assert name(CANCER, {"cancer": 1}) == "cancer"
    assert name(CANCER[:3], {"cancer": 1}) == ""


def test_terms_of_documents():
    texts = ["Linear programming of p53 in 1984.", "linear programs", "Linear Programming", ""]
    terms = document_terms([*texts, "linear programming"], Tokenizer("en"))
    assert terms.spelled == ["linear", "programming", "p53", "linear programming"]
    assert terms.contained.toarray().tolist() == [
        [1, 1, 1, 1],
        [1, 1, 0, 1],
        [1, 1, 0, 1],
        [0, 0, 0, 0],
        [1, 1, 0, 1],
    ]
    assert terms.pairs.tolist() == [[0, 1]]
    assert terms.frequencies == pytest.approx([0.8, 0.8, 0.2, 0.8])
    assert terms.stem("programs", Tokenizer("en")) == 1
    assert terms.stem("the", Tokenizer("en")) == terms.stem("1984", Tokenizer("en")) == -1


def test_terms_of_no_documents_and_without_spaces():
    terms = document_terms([], Tokenizer("en"))
    assert terms.spelled == []
    assert terms.contained.shape == (0, 0)
    terms = document_terms(["東京都 is here", "東京"], Tokenizer("ja"))
    assert terms.spelled[:2] == ["東京", "京都"]
    assert terms.pairs.size == 0
