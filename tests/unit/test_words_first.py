"""An index of words, published by a build before it reads the documents for concepts."""

import warnings
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

import lexicept
from lexicept.corpora import Document
from lexicept.encoding.words import WordVectorizer
from lexicept.errors import InputError, LexiceptWarning
from lexicept.index.builder import IndexBuilder
from lexicept.index.impacts import RRASettings, VocabularySettings
from lexicept.index.reader import IndexReader
from lexicept.index.updates import reweight
from lexicept.index.verification import verify
from lexicept.pipelines import serve
from lexicept.pipelines.concept_source import ConceptSource
from lexicept.server.app import create_app
from lexicept.weighting import BM25
from support.vowels import Vowels

FIRST = [Document("a", "an ant"), Document("b", "a bee")]


def begin(path: Path, documents: list[Document] = FIRST, **options: bool) -> IndexBuilder:
    """Publish words, and keep the concepts' term frequencies as unfinished work."""
    builder = IndexBuilder(path, **options)
    builder.add_documents(documents, {"language": "en", "documents of": "a test"})
    builder.add_vocabulary(WordVectorizer(), VocabularySettings(BM25()))
    assert builder.publish_early(["concepts"])
    builder.add_vocabulary(Vowels(), VocabularySettings(BM25(k3=1.0)))
    return builder


def test_a_build_that_is_interrupted_leaves_words_and_goes_on(tmp_path, monkeypatch):
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lexicept.pipelines.snapshot.LOOK_SECONDS", 0)
    folder, path = tmp_path / "files", tmp_path / "index"
    folder.mkdir()
    for name in ("ants", "bees", "cats"):
        (folder / f"{name}.md").write_text(f"Some {name} sleep.")
    reports = []
    with monkeypatch.context() as patch:
        patch.setattr(ConceptSource, "load", interrupted)
        with pytest.raises(KeyboardInterrupt) as stopped:
            lexicept.sync(folder, path, progress=lambda *report: reports.append(report))
    assert "index can be searched" in stopped.value.__notes__[0]
    assert ("searchable by words", 0, 0, f"lexicept search {path} …") in reports
    with pytest.warns(LexiceptWarning, match="by words alone so far; concepts follow"):
        index = lexicept.open(path)
    assert index.info()["missing"] == ["concepts"]
    assert [hit.id for hit in index.search("bees")] == ["bees.md"]
    for change in (lambda: index.delete(["ants.md"]), lambda: index.add(["new"]), index.reweight):
        with pytest.raises(InputError, match="before its build has added concepts"):
            change()
    (folder / "dogs.md").write_text("Some dogs sleep.")  # the work on the older files is discarded
    assert lexicept.sync(folder, path).added == 4
    assert not path.with_name("index.partial").exists()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert index.search("dogs")[0].id == "dogs.md"
    assert [*index.vocabularies] == ["words", "concepts"]
    assert index.info()["missing"] == []


@pytest.mark.usefixtures("_vowels")
def test_unfinished_work_is_resumed_with_equal_settings_alone(tmp_path):
    path = tmp_path / "index"
    begin(path).close()
    with IndexBuilder(path) as builder, pytest.raises(InputError, match="language was"):
        builder.add_documents(FIRST, {"language": "de"})
    assert IndexReader.open(path).missing == ["concepts"]
    assert verify(path).problems == []
    Vowels.encoded.clear()
    begin(path).commit()
    assert Vowels.encoded == []
    index = IndexReader.open(path)
    assert (index.folder.name, index.missing) == ("generation-000002", [])
    assert not path.with_name("index.partial").exists()
    with pytest.raises(InputError, match="exists already"):
        IndexBuilder(path)


@pytest.mark.usefixtures("_vowels")
def test_words_of_other_documents_are_replaced(tmp_path):
    path = tmp_path / "index"
    begin(path).close()
    builder = begin(path, [*FIRST, Document("c", "a cat")], restart=True)
    early = IndexReader.open(path)
    assert (early.num_documents, early.missing) == (3, ["concepts"])
    with pytest.raises(InputError, match="can't be changed before its build has added concepts"):
        reweight(path, tmp_path / "copy", RRASettings())
    builder.commit()
    with IndexBuilder(path, overwrite=True) as builder:  # a complete index stays until the end
        builder.add_documents(FIRST, {})
        builder.add_vocabulary(WordVectorizer(), VocabularySettings(BM25()))
        assert not builder.publish_early(["concepts"])
        assert IndexReader.open(path).num_documents == 3
        builder.commit()
    assert IndexReader.open(path).num_documents == 2


@pytest.mark.usefixtures("_vowels")
def test_the_server_serves_concepts_when_they_come(tmp_path, monkeypatch):
    builder = begin(tmp_path / "index")
    with TestClient(create_app(tmp_path / "index"), base_url="http://127.0.0.1") as client:
        health = client.get("/health").json()
        assert health["missing"] == ["concepts"]
        builder.commit()
        client.portal.call(client.app.state.reader.check)  # type: ignore[call-arg]
        health = client.get("/health").json()
        assert health["missing"] == []
        assert [vocabulary["name"] for vocabulary in health["vocabularies"]] == [
            "words",
            "concepts",
        ]


def test_a_folder_is_indexed_beside_the_server(tmp_path, monkeypatch):
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "ants.md").write_text("Some ants sleep.")
    (folder / "ants.py").write_text(
        "ants = 1 # and this text is much longer than the other, of ants"
    )
    served = []

    def look(*_: object, **options: object) -> None:
        path = tmp_path / "files.index"
        served.extend(hit.id for hit in IndexReader.open(path).search(["ants"], 9, "words")[0])

    monkeypatch.setattr("uvicorn.run", look)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LexiceptWarning)
        serve.serve(folder, port=0, include=["*.py"])
    assert sorted(served) == ["ants.md", "ants.py"]
    with pytest.raises(InputError, match="include chooses among files, and this is an index"):
        serve.serve(tmp_path / "files.index", port=0, include=["*.py"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="none could be built"):
        serve.serve(tmp_path / "empty", port=0)
