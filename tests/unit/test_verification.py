"""``lexicept index verify`` finds every altered byte, and parts that do not fit together."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lexicept.corpora import Document
from lexicept.errors import IndexFormatError
from lexicept.index import verification
from lexicept.index.impacts import RRASettings, VocabularySettings
from lexicept.index.reader import IndexReader
from lexicept.index.updates import update
from lexicept.index.verification import verify
from lexicept.weighting import BM25
from support.indexes import build, build_described, edit_manifest, redescribe

PART = "parts/000001"
TEXTS = {"a": "cat owl", "b": "cat dog yak", "c": ""}


@pytest.fixture
def path(tmp_path, _vowels):
    concepts = VocabularySettings(BM25(k3=1.0))
    build(tmp_path / "index", TEXTS, concepts=concepts, rra=RRASettings())
    return tmp_path / "index"


def files(path: Path) -> list[Path]:
    return sorted(file for file in (path / "generation-000001").rglob("*") if file.is_file())


def test_a_whole_index_before_and_after_a_change(path):
    stages: list[tuple[str, int, int]] = []
    message = verify(path, lambda *call: stages.append(call))
    assert message.problems == []
    assert message.files == len(files(path)) > 20
    size = sum(file.stat().st_size for file in files(path))
    assert [call for call in stages if call[0] == "checksums"][-1] == ("checksums", size, size)
    assert stages[-1] == ("parts", 8, 8)
    update(path, [])
    assert verify(path).problems == []
    with pytest.raises(IndexFormatError, match="there is no index here"):
        verify(path / "manifest.json")


def test_each_file_is_named_once(path):
    generation = path / "generation-000001"
    part_folder = generation / "parts" / "000001"
    (part_folder / "ids.bin").unlink()
    (part_folder / "texts.bin").write_bytes(b"")
    (generation / "stray").write_bytes(b"")
    size = len("".join(TEXTS.values()))
    assert verify(path).problems == [
        "generation-000001/parts/000001/ids.bin is missing",
        f"generation-000001/parts/000001/texts.bin has 0 bytes instead of {size}",
        "generation-000001/stray is not in the manifest",
    ]


def change(name: str, edit: Callable[[Any], None]) -> Callable[[Path], None]:
    def apply(generation: Path) -> None:
        array = np.load(generation / name)
        edit(array)
        np.save(generation / name, array)

    return apply


def negative(array: Any) -> None:
    array[-1] = -1


def infinite(array: Any) -> None:
    array[-1] = np.inf


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda g: (g / PART / "texts.bin").write_bytes(b"\xff" * 18), "texts.bin: text 0"),
        (lambda g: (g / PART / "titles.bin").unlink(), "titles.bin: missing"),
        (lambda g: (g / PART / "ids.bin").write_bytes(b"aab"), "two documents have one id"),
        (lambda g: (g / "words" / "tokenizer.json").write_text("{}"), "no language 'None'"),
        (
            lambda g: (g / "words" / "tokenizer.json").write_text(
                '{"language": "en", "query_stop_words": "en_long"}'
            ),
            "no list of stop words 'en_long'",
        ),
        (
            change(f"{PART}/words.frequencies.data.npy", negative),
            "generation-000001: weight -1.0 in row 1",
        ),
        (change("postings/table.npy", infinite), "generation-000001: weight inf in row"),
        (change(f"{PART}/words.frequencies.indices.npy", negative), "do not fit together"),
        (change("postings/offsets.npy", infinite), "offsets that are not finite"),
        (change("postings/df.npy", negative), "document frequencies that are not the postings'"),
        (change("postings/background.npy", infinite), "background that are not finite"),
    ],
)
def test_parts_that_do_not_fit_although_the_manifest_agrees(path, damage, message):
    damage(path / "generation-000001")
    redescribe(path)
    (result,) = verify(path).problems
    assert message in result


@pytest.mark.parametrize("alike", [lambda name: 0, lambda name: ord(name) % 2, ord])
def test_ids_whose_hashes_are_equal_are_compared(path, monkeypatch, alike):
    monkeypatch.setattr(verification, "hash", alike, raising=False)
    assert verify(path).problems == []
    generation = path / "generation-000001"
    for ids in (b"aab", b"aba", b"baa", b"aaa"):
        (generation / PART / "ids.bin").write_bytes(ids)
        redescribe(path)
        assert verify(path).problems == [f"{generation}: two documents have one id"]


@pytest.mark.usefixtures("_vowels")
def test_examples_of_concepts_are_in_their_documents(tmp_path):
    path = build_described(tmp_path / "index")
    assert verify(path).problems == []
    generation = path / "generation-000001"
    change("concepts/atlas/spans.npy", negative)(generation)
    redescribe(path)
    assert verify(path).problems == [f"{generation}: an example of 3 is outside"]
    update(path, [Document("d/0", "x"), Document("d/1", "x"), Document("d/2", "x")])
    assert verify(path).problems == []  # examples of texts that were replaced are none


@pytest.mark.usefixtures("_vowels")
@pytest.mark.parametrize("file_name", ["histogram", "log_odds", "nearest", "examples"])
def test_findings_that_are_not_finite_are_refused(tmp_path, file_name):
    path = build_described(tmp_path / "index")
    change(f"concepts/atlas/{file_name}.data.npy", infinite)(path / "generation-000001")
    redescribe(path)
    message = "the files of this atlas do not fit together"
    (result,) = verify(path).problems
    assert message in result
    with pytest.raises(IndexFormatError, match=message):
        IndexReader.open(path)


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../index/generation-000001/ids.bin", "generation-000001/../../x"]
)
def test_names_outside_of_the_index_are_refused(path, name):
    described = {name: {"size": 3, "sha256": "0" * 64}}
    edit_manifest(path, lambda manifest: manifest["files"].update(described))
    (message,) = verify(path).problems
    assert message.startswith(f"its manifest is damaged: {name!r} is described by")
