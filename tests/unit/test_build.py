"""lexicept.build: accepted documents, and the same bytes from the command."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import lexicept
from lexicept.corpora import Document
from lexicept.errors import InputError, LexiceptWarning
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.heads.vocabulary import VocabularyHead
from support.indexes import contents
from support.tiny import tiny_backbone

TEXTS = ["Cats sleep all day.", "Dogs bark.", "A kitten naps on the sofa."]
ROWS = [{"_id": f"d{n}", "title": f"On {n}", "text": text} for n, text in enumerate(TEXTS)]


def words(documents: Any, path: Path, **arguments: Any) -> lexicept.Index:
    return lexicept.build(documents, path, vocabulary="words", **arguments)


def test_texts_are_numbered_and_may_be_mixed_with_documents(tmp_path):
    index = words(TEXTS, tmp_path / "index")
    assert list(index.documents()) == [Document(str(n), t) for n, t in enumerate(TEXTS, 1)]
    (hit,) = index.search("sleeping")
    assert (hit.rank, hit.id, hit.title, hit.text) == (1, "1", "", TEXTS[0])
    assert hit.explanation is None
    assert repr(hit).startswith("Hit(rank=1, score=")
    items = [Document("a", "ant"), {"id": 7, "text": "bee", "title": "On bees"}, "cow"]
    index = words(items, tmp_path / "index2")
    expected = [Document("a", "ant"), Document("7", "bee", "On bees"), Document("3", "cow")]
    assert list(index.documents()) == expected


def test_a_data_frame(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"id": [5, 6], "title": ["On ants", None], "text": ["ant", "bee"]})
    index = words(frame, tmp_path / "index")
    assert list(index.documents()) == [Document("5", "ant", "On ants"), Document("6", "bee")]
    with pytest.raises(InputError, match="no column 'text', only: id"):
        words(frame[["id"]], tmp_path / "other")


def test_an_index_is_replaced_when_the_new_one_is_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(lexicept.pipelines.snapshot, "LOOK_SECONDS", 0)
    path = tmp_path / "index"
    old, idle = words(["ant"], path), lexicept.open(path)
    assert [hit.text for hit in old.search("ant")] == ["ant"]
    with pytest.raises(InputError, match="exists"):
        words(["bee"], path)
    with pytest.raises(InputError, match="already used"):
        words([Document("a", "bee"), Document("a", "bee")], path, overwrite=True, strict=True)
    assert [hit.id for hit in lexicept.open(path).search("ant")] == ["1"]
    new = words(["bee"], path, overwrite=True)
    assert [hit.text for hit in new.search("bee")] == ["bee"]
    for opened in (old, idle):  # idle had not read its words
        with pytest.warns(LexiceptWarning, match="has changed since it was opened"):
            assert [hit.text for hit in opened.search("ant")] == ["ant"]
    assert old.refresh()
    assert old.search("bee")


@pytest.mark.parametrize("vocabulary", ["words", "all"])
def test_the_command_gives_the_same_bytes(vocabulary, run, tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("\n".join(map(json.dumps, ROWS)))
    arguments = ("--vocabulary", vocabulary, "--out", tmp_path / "command")
    assert run("build", corpus, *arguments).code == 0
    lexicept.build(corpus, tmp_path / "path", vocabulary=vocabulary)
    lexicept.build(ROWS, tmp_path / "dicts", vocabulary=vocabulary)
    expected = contents(tmp_path / "command")
    assert len(expected) > 20
    assert contents(tmp_path / "path") == expected
    assert contents(tmp_path / "dicts") == expected


@pytest.mark.parametrize("texts", [["the"], ["of the", "and"], ["!!!", ""], ["", " "]])
def test_an_index_of_no_words_is_defined_and_told(tmp_path, texts):
    with pytest.warns(LexiceptWarning) as caught:
        index = words(texts, tmp_path / "index")
    expected = "no words in any document: searches by words find nothing"
    assert [str(warning.message) for warning in caught] == [expected]
    assert (len(index), list(index.search("the owl"))) == (len(texts), [])


def collapsed(folder: Path) -> str:
    """A saved model with empty vectors only."""
    head = VocabularyHead(torch.zeros(50, 32), torch.full((50,), -1.0), ["w"] * 50)
    encoder = Encoder.of(tiny_backbone(folder / "bert"), head)
    encoder.save(str(folder / "model"), create_model_card=False)
    return str(folder / "model")


@pytest.mark.parametrize("vocabulary", ["concepts", "all"])
def test_a_model_of_empty_vectors_is_an_error(tmp_path, vocabulary):
    model = collapsed(tmp_path)
    with pytest.raises(InputError, match="concepts in any document: the model gives empty vectors"):
        lexicept.build(TEXTS, tmp_path / "index", vocabulary=vocabulary, model=model)


def test_texts_without_a_letter_have_no_concepts(tmp_path):
    with pytest.warns(LexiceptWarning, match="^no concepts in any document: searches by concepts"):
        index = lexicept.build(
            ["", "!"], tmp_path / "i", vocabulary="concepts", model=collapsed(tmp_path)
        )
    assert list(index.search("owls")) == []
