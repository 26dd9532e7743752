"""Wacky weights: what excuses a weight, and AUC against brute force."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu

from lexicept.analysis.wacky import Wacky, WackyFinder
from lexicept.errors import InputError

# Half of the documents are about pets, half about ships; each group has a word of its own.
PETS, SHIPS = np.repeat([1, 0], 10), np.repeat([0, 1], 10)
WORDS = sp.csr_array(np.stack([PETS, SHIPS], axis=1).astype(np.float32))
EVEN = (np.arange(20) % 2 == 0).astype(np.float32)


def finder(*columns: np.ndarray, labels: np.ndarray | None = None) -> WackyFinder:
    documents = np.stack(columns, axis=1).astype(np.float32)
    stand_for = np.zeros((len(columns), 2)) if labels is None else labels
    return WackyFinder(sp.csr_array(documents), WORDS, sp.csr_array(stand_for))


def test_bad_company_is_wacky_and_good_company_is_not() -> None:
    # Dimension 0 is with pets and in document 10, a ship's; 1 is in every other document, which
    # are as much like any text as those between them.
    pets = PETS + 2.0 * (np.arange(20) == 10)
    found = finder(pets, EVEN).in_documents(range(20))
    # Of the 9 other ships none has dimension 0, of the 10 pets all: company at its worst.
    assert Wacky(10, 0, 2.0, 2 / 3, 0.0, 10) in found
    assert {wacky.row for wacky in found if wacky.dimension == 0} == {10}
    assert {wacky.row for wacky in found if wacky.dimension == 1} == set(range(0, 20, 2))
    assert [w.share for w in found] == sorted((w.share for w in found), reverse=True)


def test_a_word_of_the_label_in_the_text_is_an_excuse() -> None:
    excused = finder(EVEN, labels=np.array([[1.0, 0]])).in_documents(range(20))
    assert {wacky.row for wacky in excused} == {10, 12, 14, 16, 18}


def test_ties_do_not_make_company_worse() -> None:
    # Of the other 99 documents 4 share a word with the first: 3 of 19 with the dimension, 1 of 80
    # without. AUC is .573; with ties its standard error is .025, without them it would be .074.
    words = sp.csr_array((np.arange(100) < 5).astype(float)[:, None])
    having = sp.csr_array((np.isin(np.arange(100), [*range(4), *range(20, 36)]))[:, None] * 1.0)
    assert WackyFinder(having, words, sp.csr_array((1, 1))).in_documents([0]) == []


def test_queries() -> None:
    collection = finder(PETS, SHIPS)
    queries = sp.csr_array([[1.0, 3], [0, 0]])
    words = sp.csr_array([[2.0, 0], [1, 0]])
    assert collection.in_queries(queries, words) == [Wacky(0, 1, 3.0, 0.75, 0.0, 10)]


def test_the_company_of_few_or_of_all_says_nothing() -> None:
    few = (np.arange(20) < 5).astype(np.float32)
    assert finder(few, np.ones(20)).in_documents(range(20)) == []


@given(st.integers(0, 2**32), st.integers(6, 12))
def test_company_is_the_share_of_pairs_in_order(seed: int, N: int) -> None:
    random = np.random.default_rng(seed)
    words = random.integers(0, 3, (N, 3)) * (random.random((N, 3)) < 0.7)
    documents = random.random((N, 4)) < 0.6
    collection = WackyFinder(
        sp.csr_array(documents.astype(float)),
        sp.csr_array(words.astype(float)),
        sp.csr_array((4, 3)),
    )
    lengths = np.linalg.norm(words, axis=1)
    unit = words / np.where(lengths > 0, lengths, 1)[:, None]
    for wacky in collection.in_documents(range(N)):
        others = np.arange(N) != wacky.row
        alike = np.round(unit @ unit[wacky.row], 9)
        with_it = alike[others & documents[:, wacky.dimension]]
        without = alike[others & ~documents[:, wacky.dimension]]
        pairs = np.sign(with_it[:, None] - without[None, :]) / 2 + 0.5
        assert wacky.documents == with_it.size
        assert wacky.company == pytest.approx(pairs.mean())
        if np.unique(alike[others]).size > 1:
            test = {"alternative": "greater", "method": "asymptotic", "use_continuity": False}
            assert mannwhitneyu(with_it, without, **test).pvalue > 0.0499


def test_matrices_that_do_not_fit() -> None:
    with pytest.raises(InputError, match="do not fit"):
        WackyFinder(sp.csr_array((20, 3)), WORDS, sp.csr_array((2, 2)))
    with pytest.raises(InputError, match="do not fit"):
        finder(PETS).in_queries(sp.csr_array((1, 1)), sp.csr_array((2, 2)))
