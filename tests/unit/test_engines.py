"""Every engine against the exact product: one fixture, one set of checks."""

from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from lexicept.corpora import Document
from lexicept.engines import Engine, ExactEngine, store
from lexicept.engines.mask import Mask
from lexicept.engines.offset_dimension import LARGEST, OffsetDimension
from lexicept.errors import IndexFormatError, InputError
from lexicept.index import updates
from lexicept.index.impacts import RRASettings
from lexicept.index.reader import IndexReader
from lexicept.storage.manifest import describe, generations
from support.commands import assert_error
from support.indexes import build, edit_manifest
from support.strategies import collections

PRECISION = {"exact": 1e-6, "seismic": 2.0**-10}
"""Relative error of a score."""

PACKAGES = {"exact": "numpy", "seismic": "seismic"}

ONE_DOCUMENT = sp.csr_array([[1.0, 2.0]])

Make = Callable[..., Engine]


@pytest.fixture(params=list(PACKAGES))
def name(request):
    pytest.importorskip(PACKAGES[request.param], reason=f"needs lexicept[{request.param}]")
    return str(request.param)


@pytest.fixture
def make(name, tmp_path):
    """Builds an engine in exact mode, and opens it."""

    def call(documents, offsets=None):
        if name == "exact":
            return ExactEngine.build(documents, offsets)
        folder = tmp_path / "engines" / name
        store.build(folder, name, "p", {"documents": documents, "offsets": offsets})
        return store.open_engine(folder, name, "p")

    return call


def random_matrix(rows, columns, per_row, seed):
    """Weights from .25 to 4.25; the first and the last row are empty, and so are columns."""
    random = np.random.default_rng(seed)
    dense = np.zeros((rows, columns), np.float32)
    for row in range(1, rows - 1):
        chosen = random.choice(columns - 1, per_row, replace=False)
        dense[row, chosen] = random.random(per_row) * 4 + 0.25
    return sp.csr_array(dense)


def assert_exact(engine, documents, queries, top_k, offsets, factors):
    """Scores are the product's at every rank, and those of the documents that are named."""
    tolerance = PRECISION[engine.name]
    product = (queries @ documents.T).toarray() + np.outer(factors, offsets)
    matched = ((queries > 0).astype(int) @ (documents > 0).astype(int).T).sum(axis=1) > 0
    found = engine.search(queries, top_k, factors)
    assert len(found) == queries.shape[0]
    for scores, matches, (numbers, found_scores) in zip(product, matched, found, strict=True):
        best = np.sort(scores[scores > 0])[::-1][:top_k] if matches else []
        assert len(set(numbers.tolist())) == len(numbers) == len(best)
        np.testing.assert_allclose(found_scores, best, rtol=tolerance)
        np.testing.assert_allclose(found_scores, scores[numbers], rtol=tolerance)
        order = list(zip(-found_scores, numbers, strict=True))
        assert order == sorted(order)


@pytest.mark.parametrize("columns", [9, 2**16 + 3])
@pytest.mark.parametrize("rra", [False, True])
def test_search_is_the_product(make, columns, rra):
    documents = random_matrix(40, 9, 4, seed=0)
    documents.resize((40, columns))
    random = np.random.default_rng(1)
    offsets = random.random(40) * 3 if rra else np.zeros(40)
    engine = make(documents, offsets if rra else None)
    assert (engine.num_documents, engine.num_dimensions, engine.exact) == (40, columns, True)
    assert engine.size
    # The first and last queries are empty but for a prior, and the last column is in no document.
    queries = random_matrix(8, 9, 3, seed=2).tolil()
    queries[1] = 0
    queries[1, 8] = 2
    queries = sp.csr_array(queries)
    queries.resize((8, columns))
    factors = random.random(8) if rra else np.zeros(8)
    for top_k in (1, 3, 1000):
        assert_exact(engine, documents, queries, top_k, offsets, factors)


@pytest.mark.parametrize("allowed", [0.0, 0.05, 0.5, 1.0])
def test_a_mask_leaves_the_results_that_it_allows(make, allowed):
    documents = random_matrix(80, 9, 4, seed=0)
    engine = make(documents)
    mask = Mask(np.random.default_rng(5).random(80) < allowed)
    queries = random_matrix(8, 9, 3, seed=2)
    everything = engine.search(queries, 80)
    for top_k in (1, 3, 80):
        found = engine.search(queries, top_k, mask=mask)
        for (numbers, scores), (kept, own) in zip(everything, found, strict=True):
            assert kept.tolist() == numbers[mask.allowed[numbers]][:top_k].tolist()
            np.testing.assert_allclose(own, scores[mask.allowed[numbers]][:top_k], rtol=1e-6)


def test_an_engine_that_prunes_refuses_a_mask(tmp_path):
    pytest.importorskip("seismic", reason="needs lexicept[seismic]")
    from lexicept.engines.seismic import SeismicEngine

    documents = random_matrix(80, 9, 4, seed=0)
    facts = SeismicEngine.build(tmp_path, documents)
    engine = SeismicEngine.open(tmp_path, {**facts, "exact": False})
    with pytest.raises(InputError, match="seismic prunes, so that a filter would miss documents"):
        engine.search(documents, mask=Mask([True] * 80))


def test_no_offset_counts_without_a_factor(make):
    engine = make(sp.csr_array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]), [0.0, 2.0, 1.0])
    query = sp.csr_array([[3.0, 0.0]])
    ((numbers, scores),) = engine.search(query)
    assert (numbers.tolist(), scores.tolist()) == ([0], [3.0])
    ((numbers, scores),) = engine.search(query, 10, [1.0])
    assert (numbers.tolist(), scores.tolist()) == ([0, 1, 2], [3.0, 2.0, 1.0])


def test_untidy_queries(make):
    engine = make(sp.csr_array([[1.0, 0.0, 4.0], [0.0, 2.0, 0.0]]))
    parts = (np.array([1.0, 0.0, 2.0, 0.5]), np.array([2, 1, 0, 2]), np.array([0, 4]))
    ((numbers, scores),) = engine.search(sp.csr_array(parts, shape=(1, 3)))
    assert (numbers.tolist(), scores.tolist()) == ([0], [8.0])


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (2, 0), (2, 3)])
def test_nothing_to_find(make, shape):
    engine = make(sp.csr_array(shape, dtype=np.float32))
    assert (engine.num_documents, engine.num_dimensions) == shape
    for numbers, scores in engine.search(sp.csr_array(np.ones((2, shape[1])))):
        assert numbers.size == scores.size == 0
    assert engine.search(sp.csr_array((0, shape[1]))) == []


def test_large_weights_keep_their_digits(make):
    documents = sp.csr_array([[5e6, 0.0], [3e6, 2.0]])
    engine = make(documents, [0.0, 1e-7])
    queries = sp.csr_array([[1.0, 0.0], [0.0, 1.0]])
    assert_exact(engine, documents, queries, 10, np.array([0.0, 1e-7]), np.array([2.0, 0.0]))


def test_bad_queries_are_refused(make):
    engine = make(sp.csr_array([[1.0, 2.0]]))
    for bad in (np.nan, np.inf, -1.0):
        with pytest.raises(InputError, match="row 1: weights must be finite and not negative"):
            engine.search(sp.csr_array([[1.0, 0.0], [bad, 1.0]]))
    with pytest.raises(InputError, match="single precision"):
        engine.search(sp.csr_array([[1e300, 1.0]]))
    with pytest.raises(InputError, match="3 dimensions for an index of 2"):
        engine.search(sp.csr_array([[1.0, 1.0, 1.0]]))
    query = sp.csr_array([[1.0, 1.0]])
    for top_k in (0, -1):
        with pytest.raises(InputError, match=f"top_k must be at least 1, not {top_k}"):
            engine.search(query, top_k)
    for offsets in ([], [np.nan], [1.0, 1.0], [[1.0]]):
        with pytest.raises(InputError, match="query offsets"):
            engine.search(query, 1, offsets)
    with pytest.raises(InputError, match=r"a mask of \(3,\) for 1 documents"):
        engine.search(query, mask=Mask([True] * 3))


def test_bad_documents_are_refused(make):
    for bad in (np.nan, np.inf, -1.0):
        with pytest.raises(InputError, match="row 0: weights must be finite and not negative"):
            make(sp.csr_array([[bad, 1.0]]))
    with pytest.raises(InputError, match="single precision"):
        make(sp.csr_array([[1e300]]))
    for offsets in ([1.0, 2.0], [[1.0]], [np.nan], [np.inf]):
        with pytest.raises(InputError, match="offsets"):
            make(sp.csr_array([[1.0]]), offsets)


@given(collections(), st.data())
def test_offsets_as_a_dimension_keep_every_score(pair, data):
    queries, documents = pair
    number = st.integers(0, 4000).map(lambda n: n / 8)
    offsets = np.array(data.draw(st.lists(number, min_size=0, max_size=12)))
    offsets = np.resize(offsets if offsets.size else np.zeros(1), documents.shape[0])
    factors = np.full(queries.shape[0], 0.5)
    huge = sp.csr_array(documents * np.float32(2.0**14))
    offset_dimension, extended = OffsetDimension.of(huge, offsets)
    assert extended.data.max(initial=0) <= LARGEST
    products = (queries.astype(float) @ huge.T.astype(float)).toarray()
    for vector, product in zip(offset_dimension.extend(queries, factors), products, strict=True):
        if vector is None:
            assert not product.any()
        else:
            scores = extended.astype(float)[:, vector.dimensions] @ vector.weights.astype(float)
            assert (scores / offset_dimension.scale == product + 0.5 * offsets).all()


def test_negative_offsets_are_for_the_exact_engine_only():
    with pytest.raises(InputError, match="document offsets must be at least 0"):
        OffsetDimension.of(sp.csr_array([[1.0]]), [-1.0])


TEXTS = {"e": "", **{f"d{n}": f"cat{n % 7} dog{n % 5} bird{n % 3}" for n in range(30)}, "z": ""}


@pytest.mark.parametrize("rra", [None, RRASettings(1.25)])
def test_an_index_is_searched_by_another_engine(name, rra, tmp_path):
    exact = build(tmp_path / "index", TEXTS, rra=rra)
    if name != "exact":
        updates.add_engine(exact.path, name, {})
    other = IndexReader.open(exact.path, engine=name)
    assert other.searcher.name == name
    queries = ["cat1 dog2", "bird1", "", "unknown", "cat3"]
    for expected, found in zip(exact.search(queries), other.search(queries), strict=True):
        scores = [hit.score for hit in expected]
        assert [hit.score for hit in found] == pytest.approx(scores, rel=PRECISION[name])


@pytest.mark.parametrize("name", ["seismic"], indirect=True)
def test_an_engine_of_an_older_index_is_refused(name, tmp_path, run):
    path = build(tmp_path / "index", TEXTS).path
    with pytest.raises(
        InputError, match=f"has no engine {name}; build it with: lexicept index engine"
    ):
        IndexReader.open(path, engine=name)
    built = run("index", "engine", path, name, "--recall", 1, "--json").json
    assert built["documents"] == len(TEXTS)
    found = run("search", path, "cat1", "--engine", name, "--json").json
    assert found["results"][0]["id"] == "d1"
    updates.update(path, [Document("new", "cat1")])
    assert_error(
        run("search", path, "cat1", "--engine", name), "has changed", "lexicept index engine"
    )
    run("index", "engine", path, name, "--recall", 1)
    assert run("search", path, "cat1", "--engine", name, "--json").json["results"]
    assert [p.name for p in generations(path / "engines" / name)] == ["generation-000002"]


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(store.ENGINES, "seismic", ("nosuchpackage", "Engine"))
    path = build(tmp_path / "index", TEXTS).path
    with pytest.raises(InputError, match="nosuchpackage missing: pip install"):
        updates.add_engine(path, "seismic", {})


def test_a_build_that_fails_leaves_the_old_engine(seismic_folder):
    folder, documents = seismic_folder, ONE_DOCUMENT
    with pytest.raises(InputError, match=r"a recall of 0.9 requires queries"):
        store.build(folder, "seismic", "new", {"documents": documents, "recall": 0.9})
    with pytest.raises(InputError, match="recall must be above 0 and at most 1, not 2"):
        store.build(folder, "seismic", "new", {"documents": documents, "recall": 2})
    assert store.open_engine(folder, "seismic", "p").num_dimensions == 2


def test_a_damaged_engine_is_refused(seismic_folder):
    folder = seismic_folder
    file = folder / "generation-000001" / "documents.index.seismic"
    content = bytearray(file.read_bytes())
    content[-9] ^= 1
    file.write_bytes(content)
    with pytest.raises(IndexFormatError, match="does not match its checksum"):
        store.open_engine(folder, "seismic", "p")
    for told, problem in (
        ('{"format": "lexicept engine", "version": 1}', "version 1; this lexicept reads version 2"),
        ('{"format": "lexicept engine", "version": 2}', "does not match its checksum"),
        ('{"format": "zip"}', "not a lexicept engine"),
    ):
        (folder / "manifest.json").write_text(told)
        with pytest.raises(IndexFormatError, match=problem):
            store.open_engine(folder, "seismic", "p")


@pytest.fixture
def seismic_folder(tmp_path):
    """A folder with an engine of one document."""
    pytest.importorskip("seismic", reason="needs lexicept[seismic]")
    store.build(tmp_path / "seismic", "seismic", "p", {"documents": ONE_DOCUMENT})
    return tmp_path / "seismic"


class PanicException(BaseException):
    """What pyo3 raises where Rust panics; the real one can't be imported."""


@pytest.mark.parametrize(
    ("hits", "problem"),
    [
        (PanicException("index out of bounds"), "Seismic can't read its file: index out of bounds"),
        ([[("0", 0.5, "one")]], "Seismic can't read its file: .*'one'"),
        ([[("0", 0.5, "1")]], "the engine seismic returns a document that is not there"),
    ],
)
def test_altered_files_whose_checksums_agree_end_in_one_error(
    seismic_folder, monkeypatch, hits, problem
):
    folder = seismic_folder
    file = folder / "generation-000001" / "documents.index.seismic"
    content = file.read_bytes()
    for damaged in (content[: len(content) // 2], b""):
        file.write_bytes(damaged)
        described = describe([file], folder)
        edit_manifest(folder, lambda m, described=described: m["files"].update(described))
        with pytest.raises(IndexFormatError, match="generation-000001: Failed to load index"):
            store.open_engine(folder, "seismic", "p")

    class Opened:
        def batch_search(self, **_):
            if isinstance(hits, PanicException):
                raise hits
            return hits

    def load(_):
        if not opens:
            raise PanicException("capacity overflow")
        return Opened()

    monkeypatch.setattr("seismic.SeismicIndex", type("Index", (), {"load": staticmethod(load)}))
    opens = False
    with pytest.raises(IndexFormatError, match="Seismic can't read its file: capacity overflow"):
        store.open_engine(folder, "seismic", "p")
    opens = True
    engine = store.open_engine(folder, "seismic", "p")
    with pytest.raises(IndexFormatError, match=problem):
        engine.search(ONE_DOCUMENT)


def test_seismic_is_tuned_to_a_recall(tmp_path, capfd):
    pytest.importorskip("seismic", reason="needs lexicept[seismic]")
    documents, queries = random_matrix(600, 300, 30, seed=3), random_matrix(60, 300, 6, seed=4)
    arguments = {"documents": documents, "queries": queries, "recall": 0.8}
    facts = store.build(tmp_path, "seismic", "p", arguments)["facts"]
    assert 0.7 <= facts["recall"] <= 1
    assert facts["exact"] is False
    assert capfd.readouterr().out == ""  # which Seismic writes its log to
    engine = store.open_engine(tmp_path, "seismic", "p")
    assert not engine.exact
    exact = ExactEngine.build(documents)
    pairs = zip(engine.search(queries), exact.search(queries), strict=True)
    shares = [len(set(a.tolist()) & set(b.tolist())) / 10 for (a, _), (b, _) in pairs if b.size]
    assert np.mean(shares) >= 0.7
    empty = sp.csr_array((4, 300), dtype=np.float32)
    with pytest.raises(InputError, match="at least 2 queries that match"):
        store.build(tmp_path, "seismic", "p", {**arguments, "queries": empty})
