"""Pseudo-queries: where they come from, their seed, and known-item nDCG by hand."""

from math import log2

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from lexicept.pseudo_queries import from_texts, from_vectors, known_item_ndcg
from strategies import sparse_matrices

TEXTS = [
    "One two three four five. Too short. Six seven eight nine ten!",
    "",
    "too short",
    " ".join(f"w{i}" for i in range(40)),
    "first line has five words\nsecond line has five words",
    "一 二 三 四 五。 six",
]
SENTENCES = {
    0: {"One two three four five.", "Six seven eight nine ten!"},
    3: {" ".join(f"w{i}" for i in range(30))},
    4: {"first line has five words", "second line has five words"},
    5: {"一 二 三 四 五。"},
}


def test_known_item_ndcg_by_hand() -> None:
    found = [np.array([7, 3]), np.array([3, 7, 1]), np.array([1, 2]), np.array([], int)]
    # Ranks 1 and 2, not found, nothing found.
    assert known_item_ndcg(found, np.array([7, 7, 7, 7])) == pytest.approx((1 + 1 / log2(3)) / 4)


def test_known_item_ndcg_ends_at_rank_10() -> None:
    ranking = np.arange(12)
    assert known_item_ndcg([ranking], np.array([9])) == pytest.approx(1 / log2(11))
    assert known_item_ndcg([ranking], np.array([10])) == 0.0
    assert known_item_ndcg([], np.zeros(0, np.int64)) == 0.0


def test_known_item_ndcg_needs_one_source_per_query() -> None:
    with pytest.raises(ValueError, match="longer"):
        known_item_ndcg([np.array([1])], np.array([1, 2]))


@pytest.mark.parametrize("seed", range(5))
def test_every_query_is_a_sentence_of_its_document(seed: int) -> None:
    sources, queries = from_texts(TEXTS, seed=seed)
    assert sorted(sources.tolist()) == [0, 3, 4, 5]
    for source, query in zip(sources.tolist(), queries, strict=True):
        assert query in SENTENCES[source]


def test_both_sentences_of_a_document_are_drawn() -> None:
    drawn = {from_texts(TEXTS[:1], seed=seed)[1][0] for seed in range(40)}
    assert drawn == SENTENCES[0]


def test_texts_count_and_seed() -> None:
    sources, queries = from_texts(TEXTS, count=2, seed=1)
    assert (len(sources), len(queries)) == (2, 2)
    again = from_texts(TEXTS, count=2, seed=1)
    assert (sources.tolist(), queries) == (again[0].tolist(), again[1])
    assert len({tuple(from_texts(TEXTS, seed=seed)[0].tolist()) for seed in range(10)}) > 1


@pytest.mark.parametrize("texts", [[], ["", "short"]])
def test_no_sentences(texts: list[str]) -> None:
    sources, queries = from_texts(texts)
    assert (sources.tolist(), queries) == ([], [])


@given(sparse_matrices(columns=st.integers(0, 12)), st.integers(1, 10), st.integers(1, 2))
def test_vector_queries_are_of_the_strongest_dimensions(
    documents: sp.csr_array, count: int, num_dims: int
) -> None:
    sources, queries = from_vectors(documents, count, num_dims, seed=3)
    filled = np.flatnonzero(documents.toarray().any(axis=1)) if documents.nnz else np.zeros(0)
    assert queries.shape == (min(count, filled.size), documents.shape[1])
    assert len(set(sources.tolist())) == queries.shape[0]
    assert queries.has_canonical_format
    for source, query in zip(sources, queries.toarray(), strict=True):
        weights = documents.toarray()[source]
        chosen = np.flatnonzero(query)
        assert query[chosen].tolist() == [1.0] * chosen.size
        assert chosen.size == min(num_dims, np.count_nonzero(weights))
        weakest = np.sort(weights)[::-1][: 4 * num_dims].min()
        assert (weights[chosen] >= max(weakest, 1e-9)).all()


def test_vector_queries_of_a_seed() -> None:
    random = np.random.default_rng(0)
    documents = sp.csr_array(random.random((20, 40)))
    sources, queries = from_vectors(documents, 5, 3, seed=1)
    again = from_vectors(documents, 5, 3, seed=1)
    other = from_vectors(documents, 5, 3, seed=2)
    assert sources.tolist() == again[0].tolist() != other[0].tolist()
    assert queries.toarray().tolist() == again[1].toarray().tolist() != other[1].toarray().tolist()


def test_empty_documents_are_passed_over() -> None:
    sources, queries = from_vectors(sp.csr_array([[0.0, 0], [0, 2], [0, 0]]))
    assert sources.tolist() == [1]
    assert queries.toarray().tolist() == [[0, 1]]


def test_vector_queries_draw_from_four_times_as_many_dimensions() -> None:
    weights = np.random.default_rng(0).permutation(50) + 1.0
    documents = sp.csr_array(weights[None])
    drawn = {t for seed in range(60) for t in from_vectors(documents, 1, 2, seed)[1].indices}
    assert drawn == set(np.flatnonzero(weights > 42).tolist())
