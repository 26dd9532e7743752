"""Dimension pairs against literal counts, SciPy's binomial test and brute force."""

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from lexicept.errors import InputError
from lexicept.vectors import SparseVectors, Vocabulary
from reproduction import pairs
from reproduction.pairs import Pair, dimension_pairs, senses, synonyms


def vectors(dense: np.ndarray, ids: list[str] | None = None) -> SparseVectors:
    names = [str(i) for i in range(len(dense))] if ids is None else ids
    matrix = sp.csr_array(np.asarray(dense, np.float32))
    return SparseVectors(matrix, names, [Vocabulary("v", matrix.shape[1])])


def column(*runs: tuple[int, int]) -> np.ndarray:
    """40 documents; 0.5 in the documents of the runs."""
    actual = np.zeros(40)
    for start, end in runs:
        actual[start:end] = 0.5
    return actual


TOKENS = np.stack([column((0, 10)), column((20, 28)), column((20, 40)), column((36, 40))], axis=1)
LATENTS = np.stack([column((0, 9)), column((20, 40)), column((20, 28)), column()], axis=1)


def test_the_three_relations_by_hand():
    actual = dimension_pairs(vectors(TOKENS), vectors(LATENTS))
    assert list(actual) == [
        Pair(0, 0, 10, 9, 9, "identity", 40),
        Pair(1, 1, 8, 20, 8, "synonymy", 40),
        Pair(1, 2, 8, 8, 8, "identity", 40),
        Pair(2, 1, 20, 20, 20, "identity", 40),
        Pair(2, 2, 20, 8, 8, "polysemy", 40),
    ]
    assert actual.counts == {"synonymy": 1, "polysemy": 1, "identity": 3}
    assert actual.associated == len(actual) == 5
    synonym = actual[1]
    assert (synonym.latent_given_token, synonym.token_given_latent, synonym.lift) == (1, 0.4, 2)


def test_groups_are_those_of_tables_8_and_9():
    """Latent 0 covers tokens 0 and 1; token 2 has latents 1 and 2."""
    tokens = np.stack([column((0, 8)), column((8, 16)), column((20, 40))], axis=1)
    latents = np.stack([column((0, 20)), column((20, 28)), column((28, 36))], axis=1)
    actual = dimension_pairs(vectors(tokens), vectors(latents))
    (covering,) = synonyms(actual)
    assert covering.dimension == 0
    assert [pair.token for pair in covering.pairs] == [0, 1]
    (several,) = senses(actual)
    assert several.dimension == 2
    assert [(pair.latent, pair.token_given_latent) for pair in several.pairs] == [(1, 1), (2, 1)]


def test_rare_and_common_dimensions():
    token, latent = (np.arange(200)[:, None] < count for count in (70, 7))
    actual = dimension_pairs(vectors(token), vectors(latent))
    assert list(actual) == [Pair(0, 0, 70, 7, 7, "polysemy", 200)]
    everywhere = np.ones((40, 1))
    assert len(dimension_pairs(vectors(TOKENS), vectors(everywhere))) == 0
    assert dimension_pairs(vectors(everywhere), vectors(everywhere)).associated == 0


def test_documents_are_matched_by_id():
    ids = [str(i) for i in range(40)]
    turned = vectors(LATENTS[::-1], ids[::-1])
    assert list(dimension_pairs(vectors(TOKENS), turned)) == list(
        dimension_pairs(vectors(TOKENS), vectors(LATENTS))
    )
    with pytest.raises(InputError, match="'0' is not in all"):
        dimension_pairs(vectors(TOKENS), vectors(LATENTS, ["x", *ids[1:]]))


@given(st.integers(1, 12), st.floats(0, 1), st.integers(0, 12))
def test_the_tail_is_scipys_binomial_test(k, p, more):
    ours = pairs.tail(np.array([k]), np.array([k + more]), np.array([p]))[0]
    expected = binomtest(k, k + more, p, alternative="greater").pvalue
    assert ours == pytest.approx(expected, rel=1e-9, abs=1e-300)


@st.composite
def related(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and latents [N, ·], some equal to others with a few documents changed."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    N = draw(st.sampled_from([0, 1, 7, 30, 60]))
    tokens = random.random((N, draw(st.integers(0, 5)))) < random.choice([0.1, 0.3, 0.9])
    copies = tokens[:, random.integers(0, tokens.shape[1], 4)] if tokens.shape[1] else tokens
    latents = copies ^ (random.random(copies.shape) < random.choice([0.0, 0.05, 0.3], copies.shape))
    return tokens, latents


@given(related(), st.sampled_from([1, 7, 2**22]))
def test_any_chunks_agree_with_brute_force(collections, cells):
    T, L = collections
    expected, associated = [], 0
    for t, l in product(range(T.shape[1]), range(L.shape[1])):  # noqa: E741
        n_t, n_l, k = int(T[:, t].sum()), int(L[:, l].sum()), int((T[:, t] & L[:, l]).sum())
        if min(n_t, n_l) < 5 or min(k / n_t, k / n_l) < 0.1:
            continue
        chance = binomtest(k, n_t, n_l / len(T), alternative="greater").pvalue
        reverse = binomtest(k, n_l, n_t / len(T), alternative="greater").pvalue
        if max(chance, reverse) > 0.05 + 1e-15:
            continue
        associated += 1
        p_l, p_t = k / n_t, k / n_l
        for relation, holds in (
            ("synonymy", p_t <= 0.4 and p_l >= 0.6),
            ("polysemy", p_l <= 0.4 and p_t >= 0.6),
            ("identity", p_l >= 0.6 and p_t >= 0.6),
        ):
            if holds:
                expected.append(Pair(t, l, n_t, n_l, k, relation, len(T)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairs, "CELLS", cells)
        actual = dimension_pairs(vectors(T), vectors(L))
    assert list(actual) == expected
    assert actual.associated == associated
