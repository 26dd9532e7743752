"""Changes of large indexes leave the postings of other documents alone."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from lexicept.corpora import Document
from lexicept.encoding.words import WordVectorizer
from lexicept.engines import ExactEngine
from lexicept.engines.joined import JoinedEngine
from lexicept.engines.mask import Mask
from lexicept.errors import IndexFormatError, InputError
from lexicept.index import added_postings, updates
from lexicept.index.impacts import RRASettings, VocabularySettings
from lexicept.index.reader import IndexReader
from lexicept.index.verification import verify
from lexicept.storage.arrays import load_array, save_array
from lexicept.vectors import largest_weights
from lexicept.weighting import BM25
from support.indexes import build, build_of, redescribe

pytestmark = pytest.mark.usefixtures("_large", "_no_leaks")

WORDS = ["ant", "bee", "cat", "dog", "elk", "fox", "gnu", "hen", "ibis", "jay", "kite", "lynx"]
TEXTS = {f"t{i}": f"{WORDS[i % 6]} {WORDS[i % 4]}" for i in range(24)}


@pytest.fixture
def _large(monkeypatch):
    """Every index is large, and no changes are too many; segments have 5 documents."""
    monkeypatch.setattr(added_postings, "LARGE", 1)
    monkeypatch.setattr(added_postings, "STALE", 0)
    for module in ("engines.exact", "engines.joined", "engines.mask", "index.impacts"):
        monkeypatch.setattr(f"lexicept.{module}.SEGMENT", 5)


def texts_of(index: IndexReader) -> list[Document]:
    return [Document(name, text) for name, text in zip(index.ids, index.texts, strict=True)]


def check(index: IndexReader) -> None:
    """Everything the engine says of its postings agrees with its matrix."""
    engine = index.engine
    matrix = engine.matrix()
    whole = ExactEngine.build(matrix)
    assert matrix.shape == (len(index), sum(v.size for v in index.vocabularies))
    assert engine.df.tolist() == whole.df.tolist()
    assert engine.num_postings == matrix.nnz
    largest = largest_weights(matrix)
    assert (index.derived.bounds * (1 + 1e-6) >= largest).all()  # of 8 bits, one ulp
    assert engine.largest * (1 + 1e-6) >= largest.max(initial=0)  # of deleted documents too
    for i in range(len(index)):
        weights = engine.document_weights(i, np.arange(engine.num_dimensions))
        assert weights.tolist() == matrix[[i]].toarray()[0].tolist()
    dimensions = np.arange(engine.num_dimensions)
    for chosen in (dimensions, dimensions[::-2], dimensions[:0]):
        lists = zip(engine.posting_lists(chosen), whole.posting_lists(chosen), strict=True)
        assert all(own.tolist() == expected.tolist() for own, expected in lists)
    random = np.random.default_rng(len(index))
    queries = sp.csr_array(
        random.integers(0, 3, (6, engine.num_dimensions))
        * (random.random((6, engine.num_dimensions)) < 0.4),
        dtype=np.float32,
    )
    masks = [None, Mask(random.random(len(index)) < 0.5), Mask(np.zeros(len(index), bool))]
    for mask in masks:
        for top_k in (3, 100):
            results = engine.search(queries, top_k, mask=mask)
            expected = whole.search(queries, top_k, threads=1, mask=mask)
            for (actual, scores), (documents, weights) in zip(results, expected, strict=True):
                assert actual.tolist() == documents.tolist()
                assert scores.tolist() == weights.tolist()
    for search in (engine.search, engine.scores):
        with pytest.raises(InputError, match="dimensions"):
            search(sp.csr_array((1, engine.num_dimensions + 1)))
    for i in range(6):
        scores = engine.scores(queries[[i]])
        assert scores.tolist() == whole.scores(queries[[i]]).tolist()


def test_a_change_writes_its_own_postings_alone(tmp_path):
    before = build(tmp_path / "index", TEXTS)
    weights = before.engine.matrix().toarray()
    files = before.folder / "postings"
    assert updates.update(before.path, [Document("new", "ant ant zebra")]) == (1, 0)
    index = IndexReader.open(before.path)
    assert isinstance(index.engine, JoinedEngine)
    for file in files.glob("*.npy"):
        assert file.samefile(index.folder / "postings" / file.name)
    # The weights of others, and the statistics of the collection, are as they were.
    matrix = index.engine.matrix().toarray()
    assert matrix[:24, : weights.shape[1]].tolist() == weights.tolist()
    df = np.count_nonzero(weights[:, 0])  # ant
    length = 3 / 2  # relative to a mean of 2
    pivot = 1.5 * (0.25 + 0.75 * length)
    assert matrix[24, 0] == np.float32(np.log1p((24 - df + 0.5) / (df + 0.5)) * 2 / (2 + pivot))
    assert matrix[24, -1] == np.float32(np.log1p((24 - 1 + 0.5) / (1 + 0.5)) / (1 + pivot))  # zebra
    assert verify(index.path).problems == []
    check(index)


def test_what_is_merged_is_what_a_build_makes(tmp_path):
    path = build(tmp_path / "index", TEXTS).path
    updates.update(path, [Document("new", "ant ant zebra"), Document("t3", "yak")])
    updates.delete(path, ["t5", "t6"])
    assert updates.merge(path)
    index = IndexReader.open(path)
    assert isinstance(index.engine, ExactEngine)
    assert not (index.folder / "postings" / "added").exists()
    built = build(tmp_path / "built", {d.id: d.text for d in texts_of(index)})
    # Words that are gone stay in the vocabulary.
    terms = list(index.vocabularies[0].terms or ())
    positions = [terms.index(term) for term in built.vocabularies[0].terms or ()]
    merged = index.engine.matrix().toarray()
    assert merged[:, positions].tolist() == built.engine.matrix().toarray().tolist()
    assert merged.sum() == pytest.approx(merged[:, positions].sum())
    assert not updates.merge(path)
    assert IndexReader.open(path).folder == index.folder


Step = tuple[str, list[int], list[int]]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "delete"]),
        st.lists(st.integers(0, 40), min_size=1, max_size=8, unique=True),
        st.lists(st.integers(0, len(WORDS) - 1), min_size=1, max_size=6),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=6, deadline=None)
@given(bits=st.sampled_from([32, 8]), steps=STEPS)
def test_any_changes(tmp_path_factory, bits, steps):
    path = tmp_path_factory.mktemp("changes") / "index"
    limited = WordVectorizer(), VocabularySettings(BM25(), document_max_active_dims=3)
    build_of(path, TEXTS, limited, weight_bits=bits)
    expected = dict(TEXTS)
    for change, numbers, words in steps:
        ids = [f"t{n}" for n in numbers]
        if change == "add":
            text = " ".join(WORDS[word] for word in words)
            updates.update(path, [Document(name, text) for name in ids])
            expected |= dict.fromkeys(ids, text)
        else:
            there = [name for name in ids if name in expected][: len(expected) - 1]
            updates.delete(path, there)
            for name in there:
                del expected[name]
        index = IndexReader.open(path)
        assert {d.id: d.text for d in texts_of(index)} == expected
        check(index)
        index.release()
    assert verify(path).problems == []


def test_all_is_weighed_again_once_enough_has_changed(tmp_path, monkeypatch):
    monkeypatch.setattr(added_postings, "STALE", 12)  # of 24 documents, 2 may change
    path = build(tmp_path / "index", TEXTS).path
    types = []
    for i in range(4):
        updates.update(path, [Document(f"new{i}", "ant bee")])
        types.append(type(IndexReader.open(path).engine))
    assert types == [JoinedEngine, JoinedEngine, ExactEngine, JoinedEngine]
    updates.delete(path, ["t1", "t2"])
    assert isinstance(IndexReader.open(path).engine, ExactEngine)


def test_a_new_word_counts_as_often_as_it_came(tmp_path):
    path = build(tmp_path / "index", TEXTS).path
    texts = [Document(f"new{i}", "zebra") for i in range(6)]
    for text in texts:
        updates.update(path, [text])
    index = IndexReader.open(path)
    assert isinstance(index.engine, JoinedEngine)
    assert (index.engine.kept.num_documents, index.engine.added.num_documents) == (24, 6)
    pivot = 1.5 * (0.25 + 0.75 / 2)
    weight = np.float32(np.log1p((24 - 6 + 0.5) / (6 + 0.5)) / (1 + pivot))
    documents, weights, _ = index.engine.posting_lists(np.array([6]))
    assert documents.tolist() == [*range(24, 30)]
    assert set(weights.tolist()) == {weight}


@pytest.mark.parametrize(
    ("name", "joined"), [("df", False), ("bounds", False), ("offsets", True), ("sizes", True)]
)
def test_a_change_of_damaged_postings_is_refused(tmp_path, name, joined):
    path = build(tmp_path / "index", TEXTS).path
    if joined:
        updates.update(path, [Document("new", "ant zebra")])
    file = IndexReader.open(path).folder / "postings" / f"{name}.npy"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    before = (path / "manifest.json").read_bytes()
    with pytest.raises(IndexFormatError, match=r"checksum|fit|vocabularies"):
        updates.update(path, [Document("newer", "ant")])
    assert (path / "manifest.json").read_bytes() == before


def test_small_indexes_and_those_with_rra_are_weighed_again(tmp_path, monkeypatch):
    path = build(tmp_path / "rra", TEXTS, rra=RRASettings()).path
    updates.update(path, [Document("new", "ant")])
    assert isinstance(IndexReader.open(path).engine, ExactEngine)
    assert not updates.merge(path)
    monkeypatch.setattr(added_postings, "LARGE", 100)
    path = build(tmp_path / "small", TEXTS).path
    updates.update(path, [Document("new", "ant")])
    assert isinstance(IndexReader.open(path).engine, ExactEngine)


@pytest.mark.usefixtures("_vowels")
def test_concepts_beside_words_that_grow(tmp_path):
    path = build(tmp_path / "index", TEXTS, concepts=VocabularySettings(BM25(k3=1.0))).path
    updates.update(path, [Document("new", "ant yak ibis"), Document("t2", "emu emu")])
    updates.delete(path, ["t0", "t23"])
    index = IndexReader.open(path)
    assert isinstance(index.engine, JoinedEngine)
    check(index)
    hits = index.search(["emu yak"], 5)[0]
    assert {hit.id for hit in hits} >= {"new", "t2"}
    assert verify(path).problems == []


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("kept", lambda documents: documents[:-1], "do not fit the others"),
        ("kept", lambda documents: documents * 0, "do not fit the others"),
        ("kept", lambda documents: documents + 2, "do not fit the others"),
        ("kept.df", lambda df: df[:-1], "do not fit the others"),
        ("kept.df", lambda df: df + 1, "frequencies"),
        ("sizes", lambda sizes: sizes - 1, "vocabularies"),
        ("bounds", lambda bounds: bounds * np.nan, "not finite"),
    ],
)
def test_damaged_parts_are_refused(tmp_path, name, change, said):
    path = build(tmp_path / "index", TEXTS).path
    updates.update(path, [Document("new", "ant")])
    file = IndexReader.open(path).folder / "postings" / "added" / f"{name}.npy"
    dtype = {"kept": np.int32, "bounds": np.float32}.get(name, np.int64)
    assert callable(change)
    values = change(np.array(load_array(file, dtype)))
    file.unlink()
    save_array(file, values)
    redescribe(path)
    messages = verify(path).problems
    assert len(messages) == 1
    assert said in messages[0]
    if said != "frequencies":
        with pytest.raises(IndexFormatError, match=said):
            IndexReader.open(path)
