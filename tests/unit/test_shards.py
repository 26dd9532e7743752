"""Shards: all rows, in order and of bounded size, in memory and on disk; the map over them."""

import pickle
from collections.abc import Iterator
from itertools import count

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from lexicept.parallel import shards
from lexicept.parallel.shards import over, shards_of
from lexicept.storage.arrays import StoredRows, save_csr
from support.strategies import sparse_matrices

ROWS = st.shared(st.integers(0, 8), key="rows")


@given(sparse_matrices(ROWS), sparse_matrices(ROWS), st.integers(1, 9))
def test_shards_hold_all_rows_in_order(tmp_path_factory, a, b, size):
    prefix = tmp_path_factory.mktemp("matrix") / "b"
    save_csr(prefix, b)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "SIZE", size)
        result = pickle.loads(pickle.dumps(shards_of([a, StoredRows(prefix, b.shape[1])])))
    parts = [shard.load() for shard in result]
    for whole, fragments in zip((a, b), zip(*parts, strict=True), strict=True):
        assert sp.vstack(fragments).toarray().tolist() == whole.toarray().tolist()
    largest_row = max(np.diff(a.indptr) + np.diff(b.indptr), default=0)
    for x, y in parts:
        assert x.shape[0] == y.shape[0]
        assert x.nnz + y.nnz + x.shape[0] <= size + largest_row
        assert x.shape[0] > 0 or len(parts) == 1


def test_a_shard_takes_no_more_with_it_than_its_rows():
    matrix = sp.csr_array(np.ones((1000, 10), np.float32))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "SIZE", 110)
        result = shards_of([matrix])
    assert len(result) == 100
    assert len(pickle.dumps(result[0])) < len(pickle.dumps(matrix)) / 20
    assert np.shares_memory(result[0].load()[0].data, matrix.data)


def test_results_come_in_order_until_an_error():
    assert list(over(pow, range(50), 2)) == [n**2 for n in range(50)]
    assert list(over(pow, [3], 2)) == [9]
    with pytest.raises(ZeroDivisionError):
        list(over(lambda n: 1 // n, [2, 1, 0, 1]))


def test_few_results_wait(monkeypatch):
    monkeypatch.setattr(shards, "num_processors", lambda: 2)
    counter: Iterator[int] = count(1)
    done = 0

    def work(_):
        nonlocal done
        done = next(counter)

    for taken, _ in enumerate(over(work, range(100)), 1):
        assert done <= taken + 3
    assert done == 100
