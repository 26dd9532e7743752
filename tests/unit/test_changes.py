"""Changes of a damaged index, of an index with other files, and changes that fail halfway."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lexicept.corpora import Document
from lexicept.encoding.words import WordVectorizer
from lexicept.errors import IndexFormatError, InputError, LexiceptWarning
from lexicept.index import builder as builder_module
from lexicept.index import generations, updates
from lexicept.index.builder import IndexBuilder
from lexicept.index.impacts import Derived, RRASettings, VocabularySettings
from lexicept.index.reader import IndexReader
from lexicept.index.verification import verify
from lexicept.storage import files
from lexicept.storage.manifest import load_manifest, save_manifest
from lexicept.weighting import BM25
from support.indexes import build, contents, redescribe

pytestmark = pytest.mark.usefixtures("_no_leaks")

TEXTS = {"a": "cat owl", "b": "cat dog yak", "c": "dog dog elk"}

CHANGES: dict[str, Callable[[Path], object]] = {
    "update": lambda path: updates.update(path, [Document("d", "emu")]),
    "delete": lambda path: updates.delete(path, ["a"]),
    "reweight": lambda path: updates.reweight_in_place(path, RRASettings()),
    "reweighted copy": lambda path: updates.reweight(path, path.parent / "out", RRASettings()),
}


@pytest.fixture
def path(tmp_path, _vowels):
    return build(tmp_path / "index", TEXTS, concepts=VocabularySettings(BM25(k3=1.0))).path


def names(path: Path) -> list[str]:
    return sorted(os.listdir(path))


# The manifest's own checksum.


def test_every_flipped_bit_of_a_manifest_is_seen(tmp_path):
    file = tmp_path / "manifest.json"
    told = {"format": "x", "version": 1, "é": {"alpha": 1e-05}}
    save_manifest(file, told)
    assert load_manifest(file, "x", 1, "build it again") == told
    whole = file.read_bytes()
    assert json.loads(whole) == {"sha256": json.loads(whole)["sha256"], **told}
    for bit in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        file.write_bytes(flipped)
        with pytest.raises(IndexFormatError, match=str(tmp_path)):
            load_manifest(file, "x", 1, "build it again")
    for other in (whole[:-1], whole + b"\n", whole.replace(b": ", b":"), b" " + whole, b""):
        file.write_bytes(other)
        with pytest.raises(IndexFormatError, match=str(tmp_path)):
            load_manifest(file, "x", 1, "build it again")


# Damage.


UNREAD = ("/postings/", "/titles.", "/texts.")
"""What changes of documents do not read."""


@pytest.mark.parametrize("name", ["texts.bin", "texts.offsets.npy", "titles.offsets.npy"])
def test_damage_in_linked_parts_is_found_after_a_change(path, name):
    part_folder = path / "generation-000001" / "parts" / "000001"
    whole = (part_folder / name).read_bytes()
    if name == "texts.bin":  # of the same size, and whole by all that opening looks at
        (part_folder / name).write_bytes(b"x" + whole[1:])
        updates.update(path, [Document("z", "gnu")])
        message = (
            f"the content of generation-000002/parts/000001/{name} does not match its checksum"
        )
        assert verify(path).problems == [message]
    else:
        (part_folder / name).write_bytes(whole[:-1] + b"\x7f")
        with pytest.raises(IndexFormatError, match=name.partition(".")[0]):
            updates.update(path, [Document("z", "gnu")])
        assert path.joinpath("generation-000001").is_dir()


@pytest.mark.parametrize("name", CHANGES)
def test_a_damaged_index_is_refused_and_left_as_it_was(path, name):
    changed = 0
    for file in sorted((path / "generation-000001").rglob("*.*")):
        whole = file.read_bytes()
        if not whole:
            continue
        file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        before = contents(path.parent)
        message = f"the content of {file.relative_to(path)} does not match its checksum"
        assert verify(path).problems == [message]
        if name in ("update", "delete") and any(file_name in str(file) for file_name in UNREAD):
            file.write_bytes(whole)
            continue
        with pytest.raises(IndexFormatError, match=f"^{path}: {message}$"):
            CHANGES[name](path)
        assert contents(path.parent) == before
        file.write_bytes(whole)
        changed += 1
    assert changed > 10
    CHANGES[name](path)
    assert verify(path).problems == []


def test_what_is_carried_over_keeps_its_description(path, monkeypatch):
    """Damage done between the check and the copy shows in ``verify`` afterwards."""
    carry_over = generations.carry_over

    def damage_first(index, *rest):
        file = index.folder / "words" / "tokenizer.json"
        file.write_bytes(file.read_bytes().replace(b'"en"', b'"de"'))
        return carry_over(index, *rest)

    monkeypatch.setattr(updates, "carry_over", damage_first)
    updates.delete(path, ["a"])
    message = "the content of generation-000002/words/tokenizer.json does not match its checksum"
    assert verify(path).problems == [message]


# A new index in the place of an old one.


def new_index(path: Path) -> IndexBuilder:
    builder = IndexBuilder(path, overwrite=True)
    builder.add_documents([Document("new", "gnu")], {})
    builder.add_vocabulary(WordVectorizer("en"), VocabularySettings(BM25()))
    return builder


def test_an_overwritten_index_is_the_next_generation(path):
    link = path.parent / "link"
    link.symlink_to(path)
    before = IndexReader.open(path)
    assert list(new_index(link).commit().ids) == ["new"]
    assert link.is_symlink()
    assert before.stale()
    assert [hit.id for hit in before.search(["owl"], vocabulary="words")[0]] == [
        "a"
    ]  # loads words now
    assert list(before.documents()) == [Document(name, text) for name, text in TEXTS.items()]
    before.release()
    assert new_index(path).commit().folder.name == "generation-000003"
    assert names(path) == [".lock", "generation-000003", "manifest.json"]
    assert names(path.parent) == ["index", "link"]
    assert verify(path).problems == []


@pytest.mark.parametrize("call", ["move", "save_manifest", "_clean_up"])
def test_an_overwrite_that_is_killed_leaves_the_old_index_or_the_new_one(path, call, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    builder = new_index(path)
    with monkeypatch.context() as patch:
        commit = builder_module.replace_generation

        def killed_there(*arguments):
            patch.setattr(generations, call, killed)
            commit(*arguments)

        patch.setattr(builder_module, "replace_generation", killed_there)
        with pytest.raises(KeyboardInterrupt):
            builder.commit()
    builder.close()
    assert verify(path).problems == []
    if call != "_clean_up":
        assert names(path) == [".lock", "generation-000001", "manifest.json"]
    now = ["new"] if call == "_clean_up" else ["a", "b", "c"]
    assert list(IndexReader.open(path).ids) == now
    assert list(new_index(path).commit().ids) == ["new"]
    assert len(names(path)) == 3
    assert names(path.parent) == ["index"]


def test_a_damaged_index_can_be_overwritten(path):
    (path / "generation-000001" / "parts" / "000001" / "texts.bin").unlink()
    assert list(new_index(path).commit().ids) == ["new"]
    assert verify(path).problems == []


def test_a_folder_that_another_index_has_taken_is_not_read(path):
    idle = IndexReader.open(path)
    path.rename(path.parent / "elsewhere")
    build(path, {"new": "gnu"})
    with pytest.raises(IndexFormatError, match="another index has taken its place: open it again"):
        idle.search(["owl"], vocabulary="words")[0]  # had not read its words


# What is not the index's.


@pytest.mark.parametrize("name", ["update", "delete", "reweight"])
def test_what_is_no_part_of_the_index_stays(path, name, run):
    for folder in ("2024", "000002", "generation-000002.bak"):
        (path / folder).mkdir()
        (path / folder / "file").write_text("precious")
    (path / ".DS_Store").touch()
    told = "index: left as it is, being no part of the index: 000002, 2024, generation-000002.bak"
    with pytest.warns(LexiceptWarning, match=told):
        CHANGES[name](path)
    unknown = ["000002", "2024", "generation-000002.bak"]
    assert [(path / folder / "file").read_text() for folder in unknown] == 3 * ["precious"]
    assert names(path) == sorted(
        [".DS_Store", ".lock", *unknown, "generation-000002", "manifest.json"]
    )
    assert verify(path).problems == []
    assert verify(path).unknown == unknown
    output = run("index", "verify", path)
    assert output.code == 0
    assert output.out.splitlines()[:3] == [f"no part of the index: {name}" for name in unknown]


# Failures.


@pytest.mark.parametrize("name", ["update", "delete", "reweight"])
def test_a_change_that_fails_leaves_no_folder(path, name, monkeypatch):
    before = contents(path)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Derived, "compute", full)
        with pytest.raises(OSError, match="No space left"):
            CHANGES[name](path)
    assert contents(path) == before
    assert names(path) == [".lock", "generation-000001", "manifest.json"]


def test_a_failure_after_the_manifest_was_replaced_keeps_what_it_names(path, monkeypatch):
    def failing(_):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(generations, "sync_folder", lambda _: None)
        patch.setattr(files, "sync", failing)
        with pytest.raises(OSError, match="Input/output error"):
            updates.delete(path, ["a"])
    assert list(IndexReader.open(path, checksums=True).ids) == ["b", "c"]


# Weights that are not finite, or no longer there.

PETS = {
    "a": "Cats sleep all day.",
    "b": "Dogs bark loud.",
    "c": "A kitten naps on the sofa.",
    "d": "cats and dogs bark all day",
    "e": "the sofa of a dog",
    "f": "loud owls",
    "g": "a kitten sleeps, a cat naps",
}


def test_alphas_that_lose_matches_are_told_or_refused(tmp_path):
    texts = {str(n): f"{text} n{n}" for n, text in enumerate([PETS[p] for p in "abc"] * 3)}
    path = build(tmp_path / "index", texts).path
    before = contents(path)
    for change in (
        lambda: updates.reweight(path, tmp_path / "out", RRASettings(700.0)),
        lambda: updates.reweight_in_place(path, RRASettings(700.0)),
    ):
        with pytest.raises(InputError, match="alpha 700 is too large for this collection"):
            change()
    assert contents(path) == before
    assert names(tmp_path) == ["index"]
    assert names(path) == [".lock", "generation-000001", "manifest.json"]
    path = build(tmp_path / "index2", PETS).path
    told = "RRA with alpha 10 and 3 iterations makes the weights of 1 of 23 postings too small"
    with pytest.warns(LexiceptWarning, match=told):
        index = updates.reweight(path, tmp_path / "out2", RRASettings(10.0, 3))
    assert index.engine.num_postings == 22
    assert updates.reweight(path, tmp_path / "usual", RRASettings(3.0)).engine.num_postings == 23


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_weights_of_a_file_that_are_not_finite_are_refused(tmp_path, value):
    """Whatever the checksums say; weights of postings when they are used."""
    path = build(tmp_path / "index", {"a": "cat", "b": "dog", "c": "dog owl"}).path
    folder = path / "generation-000001" / "postings"
    for name in ("weights", "table", "offsets", "scales", "bounds", "background"):
        whole = np.load(folder / f"{name}.npy")
        np.save(folder / f"{name}.npy", np.full_like(whole, value))
        redescribe(path)
        if name in ("weights", "table"):
            index = IndexReader.open(path)
            query = {"weights": "cat", "table": "dog"}[name]
            message = "a score is not a finite number"
            with pytest.raises(InputError, match=message):
                index.search([query])[0]
            with pytest.raises(InputError, match=message):
                index.explain(query, {"weights": "a", "table": "b"}[name])
            (reason,) = verify(path).problems
            assert "weights must be finite" in reason
        else:
            with pytest.raises(IndexFormatError, match=f"{name} that are not finite"):
                IndexReader.open(path)
        np.save(folder / f"{name}.npy", whole)
    redescribe(path)
    assert IndexReader.open(path).search(["cat"])[0]
