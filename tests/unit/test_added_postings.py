"""Changes of large indexes, which leave the postings of other documents as they are."""

from __future__ import annotations

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
from lexicept.errors import IndexFormatError, InputError, LexiceptWarning
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
TEXTS = {f"t{number}": f"{WORDS[number % 6]} {WORDS[number % 4]}" for number in range(24)}


@pytest.fixture
def _large(monkeypatch):
    """Every index is large, and no changes are too many; segments have 5 documents."""
    monkeypatch.setattr(added_postings, "LARGE", 1)
    monkeypatch.setattr(added_postings, "STALE", 0)
    for module in ("exact", "inverted", "joined"):
        monkeypatch.setattr(f"lexicept.engines.{module}.SEGMENT", 5)
    for module in ("impacts", "added_postings"):
        monkeypatch.setattr(f"lexicept.index.{module}.SEGMENT", 5)


def texts_of(index: IndexReader) -> list[Document]:
    return [Document(name, text) for name, text in zip(index.ids, index.texts, strict=True)]


def parts_on_disk(index: IndexReader) -> list[str]:
    return [folder.name for folder in added_postings.added_folders(index.folder / "postings")]


def check(index: IndexReader) -> None:
    """Everything that the engine says of its postings is what its matrix says."""
    engine = index.engine
    matrix = engine.matrix()
    whole = ExactEngine.build(matrix)
    assert matrix.shape == (len(index), sum(v.size for v in index.vocabularies))
    assert engine.df.tolist() == whole.df.tolist()
    assert engine.num_postings == matrix.nnz
    largest = largest_weights(matrix)
    assert (index.derived.bounds * (1 + 1e-6) >= largest).all()  # of 8 bits, one ulp
    assert engine.largest == pytest.approx(largest.max(initial=0), rel=1e-6)
    every = slice(0, engine.num_dimensions)
    for found, expected in zip(engine.postings(every), whole.postings(every), strict=True):
        assert found.tolist() == expected.tolist()
    some = slice(1, engine.num_dimensions - 1)
    assert engine.postings(some)[0].tolist() == whole.postings(some)[0].tolist()
    for row in range(len(index)):
        own = engine.document_weights(row, np.arange(engine.num_dimensions))
        assert own.tolist() == matrix[[row]].toarray()[0].tolist()
    dimensions = np.arange(engine.num_dimensions)
    assert engine.present(dimensions).tolist() == whole.present(dimensions).tolist()
    random = np.random.default_rng(len(index))
    queries = sp.csr_array(
        random.integers(0, 3, (6, engine.num_dimensions))
        * (random.random((6, engine.num_dimensions)) < 0.4),
        dtype=np.float32,
    )
    masks = [None, Mask(random.random(len(index)) < 0.5), Mask(np.zeros(len(index), bool))]
    for mask in masks:
        for top_k in (1, 3, 100):
            for threads in (1, 2):
                results = engine.search(queries, top_k, threads=threads, mask=mask)
                expected = whole.search(queries, top_k, threads=1, mask=mask)
                for (found, scores), (documents, own) in zip(results, expected, strict=True):
                    assert found.tolist() == documents.tolist()
                    assert scores.tolist() == own.tolist()
    for search in (engine.search, engine.scores):
        with pytest.raises(InputError, match="dimensions"):
            search(sp.csr_array((1, engine.num_dimensions + 1)))
    for row in range(6):
        scores = engine.scores(queries[[row]])
        assert scores.tolist() == whole.scores(queries[[row]]).tolist()


def test_a_change_writes_its_own_postings_alone(tmp_path):
    before = build(tmp_path / "index", TEXTS)
    weights = before.engine.matrix().toarray()
    files = before.folder / "postings"
    assert updates.update(before.path, [Document("new", "ant ant zebra")]) == (1, 0)
    index = IndexReader.open(before.path)
    assert isinstance(index.engine, JoinedEngine)
    for file in files.glob("*.npy"):
        assert file.samefile(index.folder / "postings" / file.name)
    assert parts_on_disk(index) == ["000001"]
    # The weights of others, and the statistics of the collection, are as they were.
    own = index.engine.matrix().toarray()
    assert own[:24, : weights.shape[1]].tolist() == weights.tolist()
    df = np.count_nonzero(weights[:, 0])  # ant
    length = 3 / 2  # relative to a mean of 2
    pivot = 1.5 * (0.25 + 0.75 * length)
    assert own[24, 0] == np.float32(np.log1p((24 - df + 0.5) / (df + 0.5)) * 2 / (2 + pivot))
    assert own[24, -1] == np.float32(np.log1p((24 - 1 + 0.5) / (1 + 0.5)) / (1 + pivot))  # zebra
    assert verify(index.path).problems == []
    check(index)


def test_what_is_merged_is_what_a_build_makes(tmp_path):
    path = build(tmp_path / "index", TEXTS).path
    updates.update(path, [Document("new", "ant ant zebra"), Document("t3", "yak")])
    updates.delete(path, ["t5", "t6"])
    assert updates.merge(path)
    index = IndexReader.open(path)
    assert isinstance(index.engine, ExactEngine)
    assert not (index.folder / "postings" / "joined").exists()
    built = build(tmp_path / "built", {d.id: d.text for d in texts_of(index)})
    # Words that are gone stay in the vocabulary.
    terms = list(index.vocabularies[0].terms or ())
    places = [terms.index(term) for term in built.vocabularies[0].terms or ()]
    merged = index.engine.matrix().toarray()
    assert merged[:, places].tolist() == built.engine.matrix().toarray().tolist()
    assert merged.sum() == pytest.approx(merged[:, places].sum())
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


@pytest.mark.parametrize("bits", [32, 8])
@settings(max_examples=10, deadline=None)
@given(steps=STEPS)
def test_any_changes(tmp_path_factory, bits, steps):
    path = tmp_path_factory.mktemp("changes") / "index"
    limited = WordVectorizer(), VocabularySettings(BM25(), document_max_active_dims=3)
    build_of(path, TEXTS, limited, weight_bits=bits)
    expected = dict(TEXTS)
    for kind, numbers, words in steps:
        ids = [f"t{number}" for number in numbers]
        if kind == "add":
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


def test_parts_are_merged_so_that_they_stay_few(tmp_path):
    path = build(tmp_path / "index", TEXTS).path
    counts = []
    for number in range(20):
        updates.update(path, [Document(f"new{number}", "ant bee")])
        index = IndexReader.open(path)
        assert isinstance(index.engine, JoinedEngine)
        counts.append([part.num_documents for part in index.engine.engines])
    assert counts[:6] == [[24, 1], [24, 2], [24, 3], [24, 4], [24, 4, 1], [24, 6]]
    assert max(map(len, counts)) <= 4
    assert all(sum(own) == 25 + number for number, own in enumerate(counts))


def test_all_is_weighed_again_once_enough_has_changed(tmp_path, monkeypatch):
    monkeypatch.setattr(added_postings, "STALE", 12)  # of 24 documents, 2 may change
    path = build(tmp_path / "index", TEXTS).path
    kinds, generations = [], []
    for number in range(4):
        updates.update(path, [Document(f"new{number}", "ant bee")])
        index = IndexReader.open(path)
        kinds.append(type(index.engine))
        generations.append(index.manifest["generation"][-1])
    assert kinds == [JoinedEngine, JoinedEngine, ExactEngine, JoinedEngine]
    # The third is found before all is weighed again.
    assert generations == ["2", "3", "5", "6"]
    updates.delete(path, ["t1", "t2", "t3"])  # too many at once
    index = IndexReader.open(path)
    assert isinstance(index.engine, ExactEngine)
    assert index.manifest["generation"].endswith("7")


def test_a_change_stays_where_all_can_not_be_weighed_again(tmp_path, monkeypatch):
    monkeypatch.setattr(added_postings, "STALE", 12)
    path = build(tmp_path / "index", TEXTS).path
    updates.update(path, [Document("one", "ant"), Document("two", "ant")])

    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("lexicept.index.impacts.Derived.compute", fail)
        with pytest.warns(LexiceptWarning, match="the change is made, but .* No space left"):
            assert updates.update(path, [Document("three", "ant")]) == (1, 0)
    index = IndexReader.open(path)
    assert "three" in index
    assert isinstance(index.engine, JoinedEngine)
    assert verify(path).problems == []
    assert updates.merge(path)


def test_a_new_word_counts_as_often_as_it_came(tmp_path):
    path = build(tmp_path / "index", TEXTS).path
    texts = [Document(f"new{number}", "zebra") for number in range(6)]
    for text in texts:
        updates.update(path, [text])
    index = IndexReader.open(path)
    assert isinstance(index.engine, JoinedEngine)
    assert [part.num_documents for part in index.engine.engines] == [24, 6]
    pivot = 1.5 * (0.25 + 0.75 / 2)
    weight = np.float32(np.log1p((24 - 6 + 0.5) / (6 + 0.5)) / (1 + pivot))
    documents, weights = index.engine.postings(slice(6, 7))
    assert documents.tolist() == [*range(24, 30)]
    assert set(weights.tolist()) == {weight}


@pytest.mark.parametrize("name", ["df", "bounds", "offsets", "sizes", "statistics.df"])
@pytest.mark.parametrize("joined", [False, True])
def test_a_change_of_damaged_postings_is_refused(tmp_path, name, joined):
    path = build(tmp_path / "index", TEXTS).path
    if joined:
        updates.update(path, [Document("new", "ant zebra")])
    file = IndexReader.open(path).folder / "postings" / f"{name}.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    before = (path / "manifest.json").read_bytes()
    with pytest.raises(IndexFormatError, match=r"checksum|fit together|vocabularies"):
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
        ("numbers", lambda numbers: numbers[:-1], "do not fit together"),
        ("numbers", lambda numbers: numbers * 0, "do not fit together"),
        ("numbers", lambda numbers: numbers + 1, "do not fit together"),
        ("df", lambda df: df[:-1], "do"),
        ("df", lambda df: df + 1, "frequencies"),
        ("sizes", lambda sizes: sizes - 1, "vocabularies"),
        ("bounds", lambda bounds: bounds * np.nan, "not finite"),
    ],
)
def test_damaged_parts_are_refused(tmp_path, name, change, said):
    path = build(tmp_path / "index", TEXTS).path
    updates.update(path, [Document("new", "ant")])
    file = IndexReader.open(path).folder / "postings" / "joined" / f"{name}.npy"
    kind = {"numbers": np.int32, "bounds": np.float32}.get(name, np.int64)
    assert callable(change)
    values = change(np.array(load_array(file, kind)))
    file.unlink()
    save_array(file, values)
    redescribe(path)
    problems = verify(path).problems
    assert len(problems) == 1
    assert said in problems[0]
    if name != "df":
        with pytest.raises(IndexFormatError, match=said):
            IndexReader.open(path)
