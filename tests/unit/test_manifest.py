"""The manifest of an index: allowed values, and unreadable indexes that can be replaced."""

import json
import os
import shutil
import warnings
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lexicept
from lexicept.errors import IndexFormatError, LexiceptError, LexiceptWarning
from lexicept.index.builder import IndexBuilder
from lexicept.index.impacts import RRASettings, VocabularySettings
from lexicept.index.manifest import VERSION
from lexicept.index.reader import IndexReader
from lexicept.index.verification import verify
from lexicept.pipelines import serve
from lexicept.weighting import BM25
from support.indexes import build, contents, edit_manifest

TEXTS = {"a": "cats sleep", "b": "dogs bark at cats", "c": "bees hum"}
LIMITS = VocabularySettings(
    BM25(k3=2.0),
    query_max_active_dims=5,
    document_max_active_dims=5,
    query_max_qd_flops=9.0,
    adapted={"steps": 1},
    pruning="impact",
)
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-2, 3),
        st.sampled_from([2**31, 2**63, 2**64, -(2**70), 10**400]),
        st.floats(),
        st.text(max_size=3),
        st.sampled_from(
            ["words", "concepts", "texts", "generation-000001", "../x", "\0", "\ud800"]
        ),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


WRONG_WEIGHTINGS = [{"name": "tf"}, *({"name": "bm25", k: -1} for k in ("k1", "k9")), 3]


def keys_of(manifest, above=()):
    """The paths of all members of JSON objects and lists."""
    if isinstance(manifest, dict | list):
        pairs = manifest.items() if isinstance(manifest, dict) else enumerate(manifest)
        for key, value in pairs:
            yield (*above, key)
            yield from keys_of(value, (*above, key))


def put(manifest, keys, value):
    for key in keys[:-1]:
        manifest = manifest[key]
    manifest[keys[-1]] = value


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("index") / "index"
    build(path, TEXTS, words=LIMITS, concepts=LIMITS, rra=RRASettings())
    return path


@pytest.fixture(scope="module")
def members(path):
    manifest = json.loads((path / "manifest.json").read_bytes())
    files = sorted(manifest["files"])[2:]
    hashed = [keys for keys in keys_of(manifest) if not {*keys} & {*files, "sha256"}]
    return [*hashed, ("missing",), ("another",)]


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "ants.md").write_text("Some ants sleep.")
    return folder


@settings(max_examples=50)
@given(data=st.data())
def test_any_value_of_any_member_is_refused_or_read(path, members, data):
    keys, value = data.draw(st.sampled_from(members)), data.draw(VALUES)
    whole = (path / "manifest.json").read_bytes()
    edit_manifest(path, lambda manifest: put(manifest, keys, value))
    try:
        with warnings.catch_warnings(), suppress(LexiceptError):
            warnings.simplefilter("ignore", LexiceptWarning)
            index = IndexReader.open(path)
            index.search(["cats and bees"], explain=True, vocabulary="words")
            index.matching("cats", "words")
            index.release()
            verify(path)
    finally:
        (path / "manifest.json").write_bytes(whole)


@pytest.mark.parametrize(
    "changes",
    [
        {"missing": [[1]]},
        {"missing": [None]},
        {"missing": "words"},
        {"missing": {"words": 1}},
        {"missing": None},
        {"missing": ["colours"]},
        {"documents": True},
        {"documents": 3.0},
        {"documents": "3"},
        {"documents": None},
        {"vocabularies": {}},
        {"vocabularies": [[]]},
        {"rra": {"alpha": "1"}},
        {"rra": {"iterations": True}},
        {"vocabularies": ["words"]},
        *({"rra": rra} for rra in ([], "auto", {"beta": 1})),
        *({"generation": generation} for generation in ("../x", "/etc", 1)),
        {"files": []},
        {"lexicept": 1},
        {"version": float(VERSION)},
        {"another": 1},
        *({("vocabularies", 0, "size"): size} for size in (True, 4.0, -1)),
        {("vocabularies", 0, "adapted"): 3},
        *({("vocabularies", 0, "name"): name} for name in ("concepts", "colours", 5)),
        *({("vocabularies", 0, "weighting"): weighting} for weighting in WRONG_WEIGHTINGS),
    ],
)
def test_a_manifest_of_other_types_is_damaged(path, tmp_path, changes):
    def change(manifest):
        for name, value in changes.items():
            put(manifest, name if isinstance(name, tuple) else (name,), value)

    shutil.copytree(path, tmp_path / "copy")
    edit_manifest(tmp_path / "copy", change)
    for work in (lexicept.open, verify, lambda path: lexicept.sync(os.curdir, path)):
        with pytest.raises(IndexFormatError, match=r"copy/manifest\.json is damaged: "):
            work(tmp_path / "copy")


# Indexes that can't be read.


def older(path):
    edit_manifest(path, lambda manifest: manifest.update(version=VERSION - 1))


def newer(path):
    edit_manifest(path, lambda manifest: manifest.update(version=VERSION + 1))


def renamed(path):
    older(path)
    (path / "generation-000001").rename(path / "generation-000041")


DAMAGES = [
    older,
    newer,
    renamed,
    lambda path: edit_manifest(path, lambda manifest: manifest.update(missing=5)),
    lambda path: (path / "manifest.json").write_bytes(b"\0" * 100),
    lambda path: (path / "manifest.json").write_bytes(b"{"),
    lambda path: (path / "manifest.json").unlink(),
    lambda path: shutil.rmtree(path / "generation-000001" / "postings"),
    lambda path: shutil.rmtree(path / "generation-000001"),
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_or_was_an_index_is_replaced_at_the_end(folder, tmp_path, damage):
    path = tmp_path / "index"
    lexicept.build(["old text"], path, vocabulary="words")
    damage(path)
    with pytest.raises(IndexFormatError):
        lexicept.open(path)
    before = contents(path)
    with IndexBuilder(path, overwrite=True):
        pass
    assert contents(path) == before
    index = lexicept.build(folder, path, vocabulary="words", overwrite=True)
    assert [hit.id for hit in index.search("ants old")] == ["ants.md"]
    assert verify(path).problems == []
    assert len(list(path.glob("generation-*"))) == 1


@pytest.mark.parametrize(
    "payloads",
    [
        {},
        {"manifest.json": "{}"},
        {"manifest.json": '{"format": "a web app"}', "generation-000001/index.html": "x"},
        {"manifest.json": "", "generation-000001/parts": "a file"},
        {"generation-1/parts/000001/x": "a number of another form"},
        {"notes.txt": "mine"},
    ],
)
def test_a_folder_that_is_no_index_is_never_replaced(folder, tmp_path, payloads):
    path = tmp_path / "mine"
    path.mkdir()
    for name, data in payloads.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(data)
    with pytest.raises(IndexFormatError, match="mine: no index, and not replaced"):
        lexicept.build(folder, path, vocabulary="words", overwrite=True)
    there = {str(f.relative_to(path)): f.read_text() for f in path.rglob("*") if f.is_file()}
    assert there == payloads
    assert not (tmp_path / "mine.partial").exists()


def test_files_of_others_in_an_older_index_stay(folder, tmp_path):
    path = tmp_path / "index"
    lexicept.build(["old text"], path, vocabulary="words")
    older(path)
    (path / "notes.txt").write_text("mine")
    with pytest.warns(LexiceptWarning, match=r"no part of the index: notes\.txt"):
        lexicept.build(folder, path, vocabulary="words", overwrite=True)
    assert (path / "notes.txt").read_text() == "mine"


def test_sync_builds_an_older_index_again_as_it_was(folder, tmp_path):
    path = tmp_path / "index"
    lexicept.sync(folder, path, vocabulary="words", language="de")
    older(path)
    (folder / "bees.md").write_text("Die Bienen schlafen.")
    with pytest.warns(LexiceptWarning) as warned:
        done = lexicept.sync(folder, path)
    (warning,) = warned
    note = f"version {VERSION - 1} of an older lexicept: built again from {folder} alone"
    assert str(warning.message) == f"{path}: {note}"
    assert done.added == 2
    index = lexicept.open(path)
    assert list(index.vocabularies) == ["words"]
    assert [hit.id for hit in index.search("Biene")] == ["bees.md"]  # by the German stemmer
    assert lexicept.sync(folder, path).unchanged == 2


@pytest.mark.parametrize("damage", [newer, *DAMAGES[3:7]])
def test_sync_and_serve_leave_other_indexes_with_one_error(folder, tmp_path, damage, monkeypatch):
    path = tmp_path / "files.index"
    lexicept.sync(folder, path, vocabulary="words")
    damage(path)
    before = contents(path)
    monkeypatch.setattr(serve.subprocess, "Popen", None)  # no process begins
    for work in (lambda: lexicept.sync(folder, path), lambda: lexicept.serve(folder, port=0)):
        with pytest.raises(LexiceptError):
            work()
    assert contents(path) == before


def test_serve_waits_for_an_older_index_to_be_built_again(folder, tmp_path, monkeypatch):
    path = tmp_path / "files.index"
    lexicept.sync(folder, path, vocabulary="words")
    older(path)
    served = []
    monkeypatch.setattr(
        "uvicorn.run",
        lambda *_, **__: served.extend(hit.id for hit in lexicept.open(path).search("ants")),
    )
    lexicept.serve(folder, port=0)
    assert served == ["ants.md"]
