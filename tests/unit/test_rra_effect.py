"""RRA's effect: the paper's 'and', literal ranks and shares, and what holds for any collection."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given

from lexicept.analysis.rra_effect import Change, document_effect, rra_effect
from lexicept.errors import InputError
from lexicept.rra import reweight
from support.strategies import sparse_matrices

BEFORE = sp.csr_array([[4.0, 3, 1, 0], [2, 0, 2, 0]])
AFTER = sp.csr_array([[1.0, 3, 0, 0], [2, 0, 6, 0]])


def test_by_hand() -> None:
    effect = rra_effect(BEFORE, AFTER)
    assert effect.documents.tolist() == [2, 1, 2, 0]
    assert effect.share_before.tolist() == [0.5, 3 / 8, 5 / 16, 0]
    assert effect.share_after.tolist() == [0.25, 0.75, 0.375, 0]
    # Ranks in documents of three and of two: 1, 2/3, 1/3 and 1, 1/2, equal weights in order.
    assert effect.rank_before.tolist() == pytest.approx([1, 2 / 3, (1 / 3 + 1 / 2) / 2, 0])
    assert effect.rank_after.tolist() == pytest.approx([(2 / 3 + 1 / 2) / 2, 1, 2 / 3, 0])
    assert effect.rank_change.tolist() == pytest.approx([-5 / 12, 1 / 3, 1 / 4, 0])
    assert effect.most_frequent.tolist() == [0, 2, 1]
    assert document_effect(BEFORE, AFTER, 0) == [
        Change(0, 4.0, 1.0, 1, 2),
        Change(1, 3.0, 3.0, 2, 1),
        Change(2, 1.0, 0.0, 3, 3),
    ]


def test_a_frequent_word_falls_below_telling_ones() -> None:
    # 'and' is in all documents and outweighs the two words that each of them has for itself.
    N = 20
    own = np.kron(np.eye(N), [[1.1672, 1.0842]])
    before = sp.csr_array(np.hstack([np.full((N, 1), 1.2515), own]))
    after = reweight(before).weights
    first = document_effect(before, after, 0)
    assert [change.dimension for change in first] == [0, 1, 2]
    assert [change.rank_after for change in first] == [3, 1, 2]
    effect = rra_effect(before, after)
    assert effect.most_frequent[0] == 0
    assert effect.rank_change[0] == pytest.approx(1 / 3 - 1)
    assert (effect.rank_change[1:] > 0).all()


@given(sparse_matrices())
def test_the_same_weights_change_nothing(matrix: sp.csr_array) -> None:
    effect = rra_effect(matrix, 8 * matrix)
    assert (effect.rank_change == 0).all()
    assert effect.share_after == pytest.approx(effect.share_before, rel=1e-12)
    documents = np.count_nonzero(matrix.toarray().any(axis=1))
    assert effect.share_before @ effect.documents == pytest.approx(documents)


def test_weights_of_another_collection_are_refused() -> None:
    with pytest.raises(InputError, match=r"\(2, 3\)"):
        rra_effect(BEFORE, AFTER[:, :3])
    with pytest.raises(InputError, match="not before"):
        rra_effect(BEFORE, sp.csr_array(np.ones((2, 4))))
    with pytest.raises(InputError, match="not before"):
        rra_effect(sp.csr_array((2, 4)), AFTER)
