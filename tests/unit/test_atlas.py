"""The stored atlas: it reads what was found, and follows its index."""

from pathlib import Path

import numpy as np
import pytest

from lexicept.corpora import Document
from lexicept.errors import IndexFormatError, InputError
from lexicept.index.atlas import Atlas, Concept, Example, unique_labels
from lexicept.index.impacts import RRASettings, VocabularySettings
from lexicept.index.manifest import CurrentManifest
from lexicept.index.reader import IndexReader
from lexicept.index.updates import delete, relabel, reweight, update
from lexicept.weighting import BM25
from support.indexes import DESCRIBED, build_described, build_of
from support.vowels import AY, Vowels

pytestmark = pytest.mark.usefixtures("_vowels")


@pytest.fixture
def path(tmp_path):
    return build_described(tmp_path / "index")


def atlas_of(path: Path) -> Atlas:
    atlas = IndexReader.open(path, checksums=True).atlas
    assert atlas is not None
    return atlas


def test_concepts_are_read_listed_and_written_as_json(path):
    index = IndexReader.open(path, checksums=True)
    assert index.atlas is not None
    assert len(index.atlas) == 5
    assert index.atlas[0] == AY
    nothing = ((), (), (), (), None, ())
    assert index.atlas[2] == Concept(2, "#2", "words", 1, 0.0, *nothing)
    assert index.atlas[1].histogram == ((2**1.5, 1),)
    assert (index.atlas[1].detection, index.atlas[3].detection) == (0.75, 1)
    assert [concept.label for concept in index.atlas] == ["Ay", "ee", "#2", "oh", "#4"]
    assert list(index.vocabularies[1].terms or ()) == list(index.atlas.labels)
    example = index.atlas[3].examples[0]
    config = index.document(example.document_id).content
    assert config[example.start : example.end] == "o"
    for outside in (5, -1):
        with pytest.raises(IndexError, match=f"no concept {outside}"):
            index.atlas[outside]
    atlas = atlas_of(path)
    config = atlas[0].to_json()
    assert config["words"][0] == {"word": "a", "z": 4.0}
    assert config["examples"][1] == {"document_id": "d/0", "start": 4, "end": 5, "activation": 5.0}
    assert config["nearest"] == [{"number": 3, "cosine": 0.5}, {"number": 1, "cosine": -0.25}]
    assert config["histogram"] == [{"activation": 2, "words": 1}]
    assert (config["label"], config["firing_frequency"]) == ("Ay", 0.25)
    # df · idf² is .44 of two documents and .96 of one; #3 is detected without error.
    assert atlas.useful == [3, 2, 0, 1]
    assert atlas.document_counts.tolist() == [2, 2, 1, 1, 0]
    assert atlas.most_frequent() == [0, 1, 2, 3]
    assert atlas.search("BEE") == [1]  # a word
    assert atlas.search("oh") == [3]  # a label
    assert atlas.search("a") == [0]
    assert atlas.search(" ") == atlas.useful
    assert atlas.search("unused") == []
    assert atlas.firing_frequencies.tolist() == [0.25, 0.05, 0, 0.025, 0]


def test_an_index_without(tmp_path):
    index = build_of(tmp_path / "index", DESCRIBED, (Vowels(), VocabularySettings(BM25())))
    assert index.atlas is None
    with pytest.raises(InputError, match="index: its concepts were not described"):
        relabel(index.path, {0: "x"}, "llm")


def test_examples_follow_the_documents(path):
    delete(path, ["d/2"])
    atlas = atlas_of(path)
    assert atlas[0].examples == (Example("d/0", 4, 5, 5.0),)
    assert (atlas[0].documents, atlas[1].documents) == (1, 1)
    update(path, [Document("d/2", "one bee"), Document("new", "aaa")])
    atlas = atlas_of(path)
    assert atlas[0].examples == (Example("d/0", 4, 5, 5.0),)  # another text than was read
    assert (atlas[0].documents, atlas[1].documents) == (2, 2)
    assert atlas[0].words == AY.words
    update(path, [DESCRIBED[2]])
    assert atlas_of(path)[0].examples == AY.examples


def test_a_reweighted_index_has_it(path, tmp_path):
    index = reweight(path, tmp_path / "other", RRASettings())
    assert index.atlas is not None
    assert index.atlas[0] == AY


@pytest.mark.parametrize("concept", [-1, 5])
def test_unknown_concepts_get_no_label(path, concept):
    with pytest.raises(InputError, match=f"has no concept {concept}; it has 5"):
        relabel(path, {1: "bees", concept: "x"}, "llm")
    with pytest.raises(InputError, match="unknown source of labels 'me'"):
        relabel(path, {1: "bees"}, "me")
    assert atlas_of(path)[1].label == "ee"


def test_relabel(path):
    before = IndexReader.open(path)
    relabel(path, {1: "a\nbee \x1b[31m", 3: "Ay"}, "llm")
    index = IndexReader.open(path, checksums=True)
    assert index.atlas is not None
    labels = ["Ay", "a bee [31m", "#2", "Ay #3", "#4"]  # 0 was not to change
    assert list(index.atlas.labels) == labels
    assert [index.atlas.source(n) for n in range(5)] == [
        *("explanations", "llm", "words", "llm", "words")
    ]
    assert index.atlas[0].examples == AY.examples
    assert (index.atlas[0].alike, index.atlas[3].alike) == ((3,), (0,))
    assert index.atlas.search("ay") == [3]  # for both: usefulness decides
    assert index.atlas[1].detection is None  # of another label
    assert before.atlas is not None
    assert before.atlas[1].label == "ee"
    hits = before.search(["cat a bee"])[0]
    assert index.search(["cat a bee"])[0] == hits
    terms = {c.term for c in index.explain("a", "d/0", "concepts", spans=False).contributions}
    assert terms == {"Ay"}
    before.release()
    relabel(path, {3: "oh"}, "llm")
    assert list(IndexReader.open(path).vocabularies[1].terms or ())[3] == "oh"
    index.release()
    relabel(path, {}, "llm")
    assert [item.name for item in path.iterdir() if item.is_dir()] == ["generation-000004"]


def test_unique_labels():
    assert unique_labels(["a", "b", "A", "", "#4", " c  d\n", "b #1"]) == [
        *("a #0", "b", "A #2", "#3", "#4", "c d", "b #1 #6")
    ]
    once = unique_labels(["x", "x", "x #0", "\u202etxt", "\ud800"])
    assert once == ["x #0", "x #1", "x #0 #2", "txt", "#4"]
    assert unique_labels(once) == once
    terms = ["##s", "##s", "", "a\tb", "x #9"]
    assert unique_labels(terms, []) == terms
    assert unique_labels([*terms, "##S", "new\n", "", "x #9"], [5, 6, 7, 8]) == [
        *(*terms, "##S #5", "new", "#7", "x #9 #8")
    ]


@pytest.mark.parametrize("name", ["spans", "digests", "sources", "firings", "detection"])
def test_parts_that_do_not_fit(path, name):
    file = path / "generation-000001" / "concepts" / "atlas" / f"{name}.npy"
    array = np.load(file)
    np.save(file, np.concatenate([array, array[:1]]))
    with pytest.raises(IndexFormatError, match=f"{name}.npy has"):
        IndexReader.open(path)
    with pytest.raises(IndexFormatError, match="atlas do not fit together"):
        IndexReader(path, CurrentManifest(path))
