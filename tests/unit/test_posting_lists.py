"""Lengths of posting lists by hand; empty ones count."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given

from lexicept.analysis.posting_lists import posting_lists
from lexicept.errors import InputError
from support.strategies import sparse_matrices

DOCUMENTS = sp.csr_array([[1.0, 0, 2, 0], [3, 0, 0, 0], [1, 0, 1, 0], [1, 0, 0, 0]])


def test_by_hand() -> None:
    lists = posting_lists(DOCUMENTS)
    assert lists.lengths.tolist() == [4, 2, 0, 0]
    assert (lists.num_documents, lists.mean, lists.empty) == (4, 1.5, 0.5)
    assert (lists.variance, lists.std) == (2.75, pytest.approx(2.75**0.5))
    assert lists.quantiles([0, 0.5, 0.51, 0.75, 1]).tolist() == [0, 0, 2, 2, 4]
    assert lists.cumulative_share([0, 0.25, 0.5, 1]).tolist() == [0, 4 / 6, 1, 1]
    one_to_seventy = posting_lists(sp.csr_array(np.tri(70)))
    assert one_to_seventy.quantiles([0.1, 0.3, 0.9]).tolist() == [7, 21, 63]


@given(sparse_matrices())
def test_any_collection(matrix: sp.csr_array) -> None:
    lists = posting_lists(matrix)
    lengths = np.sort(np.count_nonzero(matrix.toarray(), axis=0))
    assert lists.lengths.tolist() == lengths[::-1].tolist()
    shares = np.linspace(0, 1, 11)
    curve = lists.cumulative_share(shares)
    assert curve[0] == 0
    assert curve[-1] == (1 if matrix.nnz else 0)
    assert (np.diff(curve) >= 0).all()
    for share, length in zip(shares, lists.quantiles(shares), strict=True):
        if lengths.size:
            # The smallest length that is enough.
            assert (lengths <= length).mean() >= share - 1e-12
            assert share == 0 or (lengths < length).mean() < share


def test_shares_out_of_range_are_refused() -> None:
    with pytest.raises(InputError, match=r"1\.5"):
        posting_lists(DOCUMENTS).quantiles([0.5, 1.5])
    with pytest.raises(InputError, match="nan"):
        posting_lists(DOCUMENTS).cumulative_share([np.nan])
