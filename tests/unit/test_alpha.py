"""RRA's α without judgements: known items by hand, and choices beyond chance."""

from math import log2

import numpy as np
import pytest
import scipy.sparse as sp

from lexicept.engines import ExactEngine
from lexicept.index.impacts import Derived, RRASettings
from reproduction.alpha import KnownItems, choose_alpha, known_item_ndcg

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
    scores = known_item_ndcg(ExactEngine.build(DOCUMENTS), items(source, query, missed), NO_OFFSET)
    assert scores.tolist() == pytest.approx([1 / log2(1 + rank)])


def test_gains_of_items_that_are_missed_or_have_offsets():
    engine = ExactEngine.build(DOCUMENTS)
    assert known_item_ndcg(engine, items(1, [0.0, 0.0, 1.0]), NO_OFFSET).tolist() == [0.0]
    missed = items(0, [1.0, 1.0, 0.0], [True, True])
    assert known_item_ndcg(engine, missed, NO_OFFSET).tolist() == [0.0]
    engine = ExactEngine.build(DOCUMENTS, [0.0, 5.0, 0.0])
    (gain,) = known_item_ndcg(engine, items(1, [1.0, 0.0, 0.0]), np.ones(1))
    assert gain == 1.0  # 2 + 5 before 3 and 1
    engine = ExactEngine.build(sp.csr_array(np.arange(12.0, 0.0, -1.0)[:, None]))
    assert known_item_ndcg(engine, items(9, [1.0]), NO_OFFSET)[0] == pytest.approx(1 / log2(11))
    assert known_item_ndcg(engine, items(10, [1.0]), NO_OFFSET)[0] == 0.0


def choices(best: float, count: int, missed: bool) -> float:
    """Return the α chosen if ``count`` of 40 queries are right with it and second without."""
    queries = sp.csr_array(np.eye(40))
    mask = np.zeros(40, bool) if missed else None
    items_known = KnownItems(np.arange(40), queries, mask)

    def derive(settings: RRASettings | None) -> Derived:
        right = count if settings is not None and settings.alpha == best else 0
        weights = np.where(np.arange(40) < right, 2.0, 0.5)
        return Derived.reweighted(sp.csr_array(np.vstack([np.diag(weights), np.eye(40)])), None)

    return choose_alpha(derive, items_known).alpha


def test_an_alpha_is_chosen_beyond_chance():
    assert choices(0.25, 2, missed=True) == 1.0  # p .16 for 2 of 40
    assert choices(0.25, 20, missed=True) == 0.25
    assert choices(1.0, 20, missed=True) == 1.0
    assert choices(0.25, 2, missed=False) == 0.25
    assert choices(1.0, 0, missed=False) == 1.0  # all are equal


def test_mismatch_is_40_percent_and_seeded():
    queries = sp.csr_array(np.ones((100, 100)))
    missed, again, other = (
        KnownItems.mismatched(np.arange(100), queries, seed).missed for seed in (0, 0, 1)
    )
    assert missed is not None
    assert other is not None
    assert np.array_equal(missed, again)
    assert not np.array_equal(missed, other)
    assert missed.mean() == pytest.approx(0.4, abs=0.02)
