"""RRA's α without judgements: known items by hand, and what beats 1 beyond chance."""

from math import log2

import numpy as np
import pytest
import scipy.sparse as sp

import lexicept
from lexicept.corpora import Document
from lexicept.engines import ExactEngine
from lexicept.errors import InputError
from lexicept.index.impacts import Derived, RRASettings
from lexicept.index.reader import IndexReader
from lexicept.index.updates import reweight
from lexicept.pipelines.alpha import (
    ALPHAS,
    KnownItems,
    choose_alpha,
    choose_index_alpha,
    known_item_ndcg,
)
from support.indexes import build

DOCUMENTS = sp.csr_array([[3.0, 1.0, 0.0], [2.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
NO_OFFSET = np.zeros(1)


def items(source: int, query: list[float], missed: list[bool] | None = None) -> KnownItems:
    mask = None if missed is None else np.array(missed)
    return KnownItems(np.array([source]), sp.csr_array([query]), mask)


@pytest.mark.parametrize(
    ("source", "query", "missed", "rank"),
    [
        (0, [1.0, 1.0, 0.0], None, 1),  # 4 before 2 and 2
        (0, [1.0, 1.0, 0.0], [True, False], 3),  # 1 of its own; the others keep their 2 and 2
        (1, [1.0, 1.0, 0.0], [False, True], 2),  # a dimension that it has not changes nothing
        (2, [1.0, 1.0, 0.0], None, 2),  # ties with document 1: nothing ranks above but 4
    ],
)
def test_known_items_by_hand(source, query, missed, rank):
    found = known_item_ndcg(ExactEngine.build(DOCUMENTS), items(source, query, missed), NO_OFFSET)
    assert found.tolist() == pytest.approx([1 / log2(1 + rank)])


def test_gains_of_items_that_are_missed_or_have_offsets():
    engine = ExactEngine.build(DOCUMENTS)
    assert known_item_ndcg(engine, items(1, [0.0, 0.0, 1.0]), NO_OFFSET).tolist() == [0.0]
    missed = items(0, [1.0, 1.0, 0.0], [True, True])
    assert known_item_ndcg(engine, missed, NO_OFFSET).tolist() == [0.0]
    engine = ExactEngine.build(DOCUMENTS, [0.0, 5.0, 0.0])
    (gain,) = known_item_ndcg(engine, items(1, [1.0, 0.0, 0.0]), np.ones(1))
    assert gain == 1.0  # 2 + 5 before 3 and 1
    weights = sp.csr_array(np.arange(12.0, 0.0, -1.0)[:, None])
    engine = ExactEngine.build(weights)
    assert known_item_ndcg(engine, items(9, [1.0]), NO_OFFSET)[0] == pytest.approx(1 / log2(11))
    assert known_item_ndcg(engine, items(10, [1.0]), NO_OFFSET)[0] == 0.0


def choices(best: float, count: int, missed: bool) -> float:
    """Return the α chosen where one has ``count`` of 40 queries right that others have second."""
    queries = sp.csr_array(np.eye(40))
    mask = np.zeros(40, bool) if missed else None
    known = KnownItems(np.arange(40), queries, mask)

    def derive(settings: RRASettings | None) -> Derived:
        right = count if settings is not None and settings.alpha == best else 0
        own = np.where(np.arange(40) < right, 2.0, 0.5)
        documents = sp.csr_array(np.vstack([np.diag(own), np.eye(40)]))
        return Derived.reweighted(documents, None)

    return choose_alpha(derive, known).alpha


def test_an_alpha_is_chosen_beyond_chance():
    assert choices(0.25, 2, missed=True) == 1.0  # p .16 for 2 of 40
    assert choices(0.25, 20, missed=True) == 0.25
    assert choices(1.0, 20, missed=True) == 1.0
    assert choices(0.25, 2, missed=False) == 0.25
    assert choices(1.0, 0, missed=False) == 1.0  # all are equal


def test_mismatch_is_40_percent_and_seeded():
    queries = sp.csr_array(np.ones((100, 100)))
    one, again, other = (
        KnownItems.mismatched(np.arange(100), queries, seed).missed for seed in (0, 0, 1)
    )
    assert one is not None
    assert other is not None
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)
    assert one.mean() == pytest.approx(0.4, abs=0.02)


def test_the_choice_is_deterministic_and_ignores_earlier_weights(tmp_path):
    words = ["river", "stone", "lake", "moss", "fern", "owl", "peak", "sand"]
    random = np.random.default_rng(3)
    texts = {f"d{i}": f"{' '.join(random.choice(words, 8))}. Short one." for i in range(15)}
    choice = choose_index_alpha(build(tmp_path / "index", texts))
    assert sorted(choice.tried) == sorted(ALPHAS)
    assert 0 < min(choice.tried.values()) <= max(choice.tried.values()) <= 1
    assert choose_index_alpha(IndexReader.open(tmp_path / "index")) == choice
    out = reweight(tmp_path / "index", tmp_path / "out", RRASettings(3.0))
    assert choose_index_alpha(out) == choice


def test_documents_without_sentences(tmp_path):
    choice = choose_index_alpha(build(tmp_path / "index", {"a": "cat", "b": "dog", "c": ""}))
    assert choice.alpha == 1.0
    assert len(set(choice.tried.values())) == 1
    nothing = choose_index_alpha(build(tmp_path / "empty", {"a": "", "b": "the"}))
    assert (nothing.alpha, set(nothing.tried.values()), nothing.without) == (1.0, {0.0}, 0.0)


def test_a_model_writes_the_queries(tmp_path, monkeypatch):
    from lexicept.training.candidates import query_generation

    asked: list[list[Document]] = []

    def written(model, documents, out, progress):
        asked.append(documents)
        out.write_text("".join(f'{{"document_id": "{d.id}", "query": "owl"}}\n' for d in documents))
        return [(document.id, "owl") for document in documents]

    monkeypatch.setattr(query_generation, "generate_queries", written)
    build(tmp_path / "index", {"a": "cat owl", "b": "dog yak", "c": "owl"})
    index = lexicept.open(tmp_path / "index")
    first = index.choose_alpha(generator="writer")
    # "a" and "c" have the word, "b" has not: ranks 2, 1 and none, whatever α is.
    assert first.without == pytest.approx((1 / log2(3) + 1) / 3)
    assert sorted(document.id for document in asked[0]) == ["a", "b", "c"]
    assert index.choose_alpha(generator="writer") == first
    assert len(asked) == 1  # the queries of the same model and documents are read again
    with pytest.raises(InputError, match="iterations must be at least 1"):
        index.choose_alpha(generator="writer", iterations=0)
    assert len(asked) == 1
