"""Weights, RRA and postings by shards, on disk and in memory: the same numbers."""

import pickle
from dataclasses import fields

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from lexicept import rra
from lexicept.errors import InputError
from lexicept.index.impacts import Derived, RRASettings, VocabularySettings
from lexicept.parallel import shards
from lexicept.storage.arrays import StoredRows, save_csr
from lexicept.vectors import prune_rows, stack_columns
from lexicept.weighting import BM25, Splade
from support.strategies import REALS, sparse_matrices

ROWS = st.shared(st.integers(0, 8), key="rows")
WORDS = VocabularySettings(BM25())
CONCEPTS = VocabularySettings(Splade(), document_max_active_dims=2)
REWEIGHTED = st.none() | st.builds(
    RRASettings,
    alpha=st.sampled_from([0.5, 1.0, 1.7]),
    iterations=st.integers(1, 3),
    transform=st.sampled_from(list(rra.TRANSFORMS)),
)


def arrays(derived):
    engine = {field.name: getattr(derived.engine, field.name) for field in fields(derived.engine)}
    return {**engine, "bounds": derived.bounds, "background": derived.background}


def over_processes(function, shards, *shared):
    """A map over shards, pickled as another process would get and return them."""
    for shard in shards:
        function_there, *arguments = pickle.loads(pickle.dumps((function, shard, *shared)))
        yield pickle.loads(pickle.dumps(function_there(*arguments)))


@settings(max_examples=25)
@given(sparse_matrices(ROWS, weights=REALS), sparse_matrices(ROWS, weights=REALS), REWEIGHTED)
def test_sharding_and_disk_change_nothing(tmp_path_factory, words, concepts, reweighting):
    settings_of = [WORDS, CONCEPTS]
    whole = Derived.compute([words, concepts], settings_of, reweighting)
    folder = tmp_path_factory.mktemp("derived")
    stored = []
    for name, matrix in (("words", words), ("concepts", concepts)):
        save_csr(folder / name, matrix)
        stored.append(StoredRows(folder / name, matrix.shape[1]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "SIZE", 5)
        Derived.compute(stored, settings_of, reweighting, folder / "postings", over=over_processes)
    result = arrays(Derived.load(folder / "postings"))
    for name, expected in arrays(whole).items():
        assert result[name].dtype == expected.dtype
        np.testing.assert_allclose(result[name], expected, rtol=1e-6, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    ("bits", "reweighting", "together"),
    [(8, None, 40), (8, RRASettings(1.25), 2**20), (32, RRASettings(1.25), 40)],
)
def test_segments_that_are_inverted_elsewhere_are_the_same_bytes(
    tmp_path, monkeypatch, bits, reweighting, together
):
    random = np.random.default_rng(0)
    density = [0.9, 0.4, 0.3, 0.3, 0.2, 0.1, 0.02, 0.0]  # rows of tables, lists, and nothing
    tf = random.integers(1, 5, (430, 8)) * (random.random((430, 8)) < density)
    tf[100:200] = 0  # a segment without postings
    tf[:, 3] *= random.random(430) < 0.1
    matrix = sp.csr_array(tf.astype(np.float32))
    for module in ("engines.exact", "index.impacts"):
        monkeypatch.setattr(f"lexicept.{module}.SEGMENT", 100)
    monkeypatch.setattr("lexicept.engines.inverted.TOGETHER", together)
    monkeypatch.setattr(shards, "SIZE", 100)
    to = ([matrix], [WORDS], reweighting)
    here = Derived.compute(*to, tmp_path / "here", bits)
    there = Derived.compute(*to, tmp_path / "there", bits, over_processes)
    for file in sorted((tmp_path / "here").iterdir()):
        assert (tmp_path / "there" / file.name).read_bytes() == file.read_bytes()
    assert there.engine.matrix().nnz == here.engine.num_postings


@settings(max_examples=25)
@given(sparse_matrices(ROWS, weights=REALS), sparse_matrices(ROWS, weights=REALS))
def test_what_is_derived_is_rra_of_pruned_weights(words, concepts):
    weights = stack_columns([BM25().documents(words), prune_rows(Splade().documents(concepts), 2)])
    plain = Derived.compute([words, concepts], [WORDS, CONCEPTS], None)
    assert plain.engine.matrix().toarray().tolist() == weights.toarray().tolist()
    assert plain.bounds.tolist() == weights.toarray().max(axis=0, initial=0).tolist()
    assert not plain.engine.offsets.any()
    changed = Derived.compute([words, concepts], [WORDS, CONCEPTS], RRASettings(1.7, 2))
    expected = rra.reweight(weights, 1.7, 2)
    close = {"rtol": 1e-6, "atol": 1e-6}
    np.testing.assert_allclose(
        changed.engine.matrix().toarray(), expected.weights.toarray(), **close
    )
    told = np.diff(weights.indptr) > 0
    np.testing.assert_allclose(changed.engine.offsets, expected.offsets * told, **close)
    np.testing.assert_allclose(changed.background, expected.background, **close)
    assert changed.bounds.tolist() == plain.bounds.tolist()


def test_what_is_refused_leaves_no_postings(tmp_path):
    frequencies = [sp.csr_array([[1000.0]])]
    unchanged = [VocabularySettings(Splade())]
    with pytest.raises(InputError, match="alpha"):
        Derived.compute(frequencies, unchanged, RRASettings(0.0), tmp_path / "index")
    assert list(tmp_path.rglob("*.npy")) == []
