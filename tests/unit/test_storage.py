"""Files on disk: round trips, damage of every kind, and replacement in one step."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from lexicept.errors import IndexFormatError
from lexicept.storage.arrays import CSRWriter, let_go, load_array, load_csr, save_array, save_csr
from lexicept.storage.files import read_json, sync_folder
from lexicept.storage.manifest import check_files, describe_files
from lexicept.storage.texts import TextStore
from support.strategies import sparse_matrices

# Texts


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), max_size=8))
def test_texts_come_back(tmp_path_factory, texts):
    prefix = tmp_path_factory.mktemp("texts") / "t"
    assert TextStore.write(prefix, iter(texts)) == len(texts)
    store = TextStore(prefix)
    assert len(store) == len(texts)
    assert list(store) == texts
    assert [store[i] for i in range(-len(texts), len(texts))] == texts * 2
    assert store[1:] == texts[1:]
    assert store[::-1] == texts[::-1]
    for outside in (len(texts), -len(texts) - 1):
        with pytest.raises(IndexError):
            store[outside]


@pytest.fixture
def texts(tmp_path):
    TextStore.write(tmp_path / "t", ["one", "", "zwölf", "猫"])
    return tmp_path / "t"


def truncate(path: Path, size: int = -1) -> None:
    path.write_bytes(path.read_bytes()[:size])


@pytest.mark.parametrize("name", ["t.bin", "t.offsets.npy"])
@pytest.mark.parametrize("size", [-1, 0, 5, None])
def test_truncated_and_missing_texts_are_refused(texts, name, size):
    path = texts.with_name(name)
    if size is None:
        path.unlink()
    else:
        truncate(path, size)
    with pytest.raises(IndexFormatError, match=name):
        TextStore(texts)


@pytest.mark.parametrize("offsets", [[], [3, 12], [0, 9, 3, 12], [0, -1, 12]])
def test_offsets_that_do_not_fit_are_refused(texts, offsets):
    assert texts.with_name("t.bin").stat().st_size == 12
    save_array(texts.with_name("t.offsets.npy"), np.array(offsets, np.int64))
    with pytest.raises(IndexFormatError, match=r"t\.bin"):
        TextStore(texts)


def test_bytes_that_are_no_text_are_refused_when_read(texts):
    path = texts.with_name("t.bin")
    path.write_bytes(path.read_bytes().replace("ö".encode(), b"\xff\xff"))
    store = TextStore(texts)
    assert store[0] == "one"
    with pytest.raises(IndexFormatError, match=r"t\.bin: text 2"):
        store[2]


# Arrays and matrices


def test_arrays_are_read_again_and_in_threads(tmp_path):
    save_array(tmp_path / "a.npy", np.arange(10_000))
    stored, here = load_array(tmp_path / "a.npy", np.int64), np.arange(3)
    for array in (stored[5:], stored, here):
        let_go(array)
    assert (stored == np.arange(10_000)).all()
    assert here.tolist() == [0, 1, 2]
    save_array(tmp_path / "a2.npy", range(3))

    def read(_):
        return list(load_array(tmp_path / "a2.npy", np.int64).tolist())

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(read, range(2000))) == [[0, 1, 2]] * 2000


def test_many_texts_are_read_to_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr("lexicept.storage.texts.MANY", 2)
    texts = [f"{i} é" for i in range(7)]
    TextStore.write(tmp_path / "t", texts)
    store = TextStore(tmp_path / "t")
    assert [*store] == [*store] == texts
    assert [*store.between(1, 6)] == texts[1:6]


def test_missing_files_and_arrays_of_another_type_are_refused(tmp_path):
    with pytest.raises(IndexFormatError, match=r"none\.json"):
        read_json(tmp_path / "none.json")
    save_array(tmp_path / "a.npy", np.zeros(3, np.int32))
    with pytest.raises(IndexFormatError, match=r"a.npy: int32 \[1-d\]"):
        load_array(tmp_path / "a.npy", np.int64)
    save_array(tmp_path / "b.npy", np.zeros((3, 3)))
    with pytest.raises(IndexFormatError, match=r"float64 \[2-d\]"):
        load_array(tmp_path / "b.npy", np.float64)
    assert load_array(tmp_path / "b.npy", np.float64, ndim=2).shape == (3, 3)


@settings(max_examples=40)
@given(sparse_matrices())
def test_matrices_come_back(tmp_path_factory, matrix):
    prefix = tmp_path_factory.mktemp("matrix") / "m"
    save_csr(prefix, matrix)
    loaded = load_csr(prefix, matrix.shape[1])
    assert loaded.shape == matrix.shape
    assert loaded.toarray().tolist() == matrix.toarray().tolist()


@pytest.fixture
def matrix(tmp_path):
    save_csr(tmp_path / "m", sp.csr_array([[1.0, 0, 2], [0, 0, 0], [0, 3, 0]]))
    return tmp_path / "m"


@pytest.mark.parametrize("array_name", ["indptr", "indices", "data"])
def test_truncated_and_missing_parts_are_refused(matrix, array_name):
    path = matrix.with_name(f"m.{array_name}.npy")
    truncate(path)
    with pytest.raises(IndexFormatError, match=path.name):
        load_csr(matrix, 3)
    path.unlink()
    with pytest.raises(IndexFormatError, match=path.name):
        load_csr(matrix, 3)


@pytest.mark.parametrize(
    ("array_name", "array"),
    [
        ("indptr", np.array([], np.int64)),
        ("indptr", np.array([1, 2, 2, 3])),
        ("indptr", np.array([0, 3, 2, 3])),
        ("indptr", np.array([0, 2, 2, 4])),
        ("indices", np.array([0, 3, 1], np.int32)),
        ("indices", np.array([0, -1, 1], np.int32)),
        ("indices", np.array([0, 2], np.int32)),
        ("data", np.ones(4, np.float32)),
    ],
)
def test_inconsistent_parts_are_refused(matrix, array_name, array):
    save_array(matrix.with_name(f"m.{array_name}.npy"), array)
    with pytest.raises(IndexFormatError, match="do not fit together"):
        load_csr(matrix, 3)


def test_indices_that_do_not_fit(matrix):
    with pytest.raises(IndexFormatError, match="do not fit together"):
        load_csr(matrix, 2)
    save_array(matrix.with_name("m.indices.npy"), np.array([0, 2, 9], np.int32))
    assert load_csr(matrix, 3, slice(0, 2)).toarray().tolist() == [[1, 0, 2], [0, 0, 0]]
    with pytest.raises(IndexFormatError, match="do not fit together"):
        load_csr(matrix, 3, slice(2, 3))


def test_object_arrays_are_not_unpickled(matrix):
    class Bomb:
        def __reduce__(self):
            return os.mkdir, (str(matrix.with_name("exploded")),)

    np.save(matrix.with_name("m.data.npy"), np.array([Bomb()] * 3), allow_pickle=True)
    with pytest.raises(IndexFormatError, match=r"m\.data\.npy"):
        load_csr(matrix, 3)
    assert not matrix.with_name("exploded").exists()


# Files


def test_check_files_finds_every_damage(tmp_path):
    (tmp_path / "part" / "deep").mkdir(parents=True)
    path = tmp_path / "part" / "deep" / "f"
    path.write_bytes(b"abc")
    files = describe_files(tmp_path / "part", tmp_path)
    assert list(files) == ["part/deep/f"]
    checksum = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert files["part/deep/f"] == {"size": 3, "sha256": checksum}
    check_files(tmp_path, files, checksums=True)

    path.write_bytes(b"abd")
    check_files(tmp_path, files, checksums=False)
    with pytest.raises(IndexFormatError, match="part/deep/f does not match its checksum"):
        check_files(tmp_path, files, checksums=True)
    path.write_bytes(b"ab")
    with pytest.raises(IndexFormatError, match="part/deep/f has 2 bytes instead of 3"):
        check_files(tmp_path, files, checksums=False)
    path.unlink()
    with pytest.raises(IndexFormatError, match="part/deep/f is missing"):
        check_files(tmp_path, files, checksums=False)


def test_sync_folder_visits_every_file_and_folder(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "f").write_bytes(b"x")
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    sync_folder(tmp_path)
    assert set(synced) == {p.stat().st_ino for p in (tmp_path, tmp_path / "a", tmp_path / "a/f")}


# Matrices in pieces


@settings(max_examples=40)
@given(st.lists(sparse_matrices(columns=4), max_size=4))
def test_blocks_are_written_as_the_whole(tmp_path_factory, blocks):
    folder = tmp_path_factory.mktemp("blocks")
    whole = sp.csr_array(sp.vstack([sp.csr_array((0, 4), dtype=np.float32), *blocks]))
    with CSRWriter(folder / "blocks") as writer:
        for block in blocks:
            writer.append(block)
    save_csr(folder / "whole", whole)
    for array_name in ("indptr", "indices", "data"):
        written, expected = (
            (folder / f"{n}.{array_name}.npy").read_bytes() for n in ("blocks", "whole")
        )
        assert written == expected
