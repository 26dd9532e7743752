"""Overlap of translations by hand and by brute force."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from lexicept.errors import InputError
from lexicept.vectors import SparseVectors, Vocabulary
from reproduction.data import Data
from reproduction.jobs import OverlapJob, PublishedLatents
from reproduction.overlap import overlap, run_overlap, shifted
from support.sae_files import save_config, save_tensors
from support.strategies import sparse_matrices
from support.tiny import save_bert


def vectors(matrix: sp.csr_array, names: str = "abcdefgh") -> SparseVectors:
    height, columns = matrix.shape
    return SparseVectors(matrix, list(names[:height]), [Vocabulary("v", columns)])


ENGLISH = sp.csr_array([[1.0, 2, 3, 0], [1, 0, 0, 0], [0, 0, 0, 0]])
GERMAN = sp.csr_array([[5.0, 0, 1, 7], [0, 1, 1, 1], [1, 1, 0, 0]])


def test_by_hand():
    counted = overlap([vectors(ENGLISH), vectors(GERMAN)])
    assert counted.shared.tolist() == [2, 0, 0]
    assert counted.lengths.tolist() == [[3, 1, 0], [3, 3, 2]]


def test_a_vocabulary_that_grew_and_another_order():
    wider = sp.csr_array(np.array([[1.0, 1, 0, 0, 9], [1, 0, 0, 0, 9], [1, 1, 1, 1, 9]])[::-1])
    assert overlap([vectors(ENGLISH), vectors(wider, "cba")]).shared.tolist() == [2, 1, 0]


@given(st.lists(sparse_matrices(st.just(5), 6), min_size=1, max_size=4))
def test_against_brute_force(matrices):
    expected = np.all([matrix.toarray() > 0 for matrix in matrices], axis=0).sum(axis=1)
    counted = overlap([vectors(matrix) for matrix in matrices])
    assert counted.shared.tolist() == expected.tolist()


def test_different_documents_are_refused():
    with pytest.raises(InputError, match="'c'"):
        overlap([vectors(ENGLISH), vectors(GERMAN, "abd")])
    with pytest.raises(InputError, match="no collections"):
        overlap([])


def test_the_share_of_a_document_s_mean_length():
    assert overlap([vectors(ENGLISH), vectors(GERMAN)]).shares.tolist() == [2 / 3, 0, 0]
    empty = sp.csr_array((2, 3))
    assert overlap([vectors(empty), vectors(empty)]).shares.tolist() == [0, 0]


def test_strangers_are_documents_that_do_not_translate_each_other():
    moved = shifted([vectors(sp.csr_array(np.eye(6)))] * 3)
    assert [system.ids for system in moved] == [list("abcdef")] * 3
    largest = [system.weights.toarray().argmax(axis=1).tolist() for system in moved]
    assert largest == [[0, 1, 2, 3, 4, 5], [4, 5, 0, 1, 2, 3], [2, 3, 4, 5, 0, 1]]
    assert overlap(moved).shared.tolist() == [0] * 6
    with pytest.raises(InputError, match="4 languages need as many documents, not 3"):
        shifted([vectors(ENGLISH)] * 4)


TEXTS = {
    "en": {"a": "Panthers won 24 games", "b": "Vienna, Vienna", "c": "rivers"},
    "de": {"a": "Panthers: 24 Siege", "b": "Wien", "c": ""},
}
QUERIES = {"en": {"q": "panthers"}, "de": {"q": "siege"}}


@pytest.fixture
def data(tmp_path):
    for language, documents in TEXTS.items():
        folder = tmp_path / "pairs" / language
        (folder / "qrels").mkdir(parents=True)
        lines = [json.dumps({"_id": name, "text": text}) for name, text in documents.items()]
        (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n")
        lines = [json.dumps({"_id": name, "text": t}) for name, t in QUERIES[language].items()]
        (folder / "queries.jsonl").write_text("\n".join(lines) + "\n")
        (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\ta\t1\n")
    return Data(tmp_path, {}, tmp_path / "work")


def test_words_that_languages_share(data, tmp_path):
    result = run_overlap(OverlapJob(dataset="pairs", languages=("en", "de")), data)
    # a shares 24 of 4 and 3 stems (German keeps panthers); moved by a document, a meets c.
    assert result.per_query["pairs share"] == {"a": 1 / 3.5, "b": 0, "c": 0}
    assert result.per_query["pairs share beyond chance"] == {"a": 1 / 3.5, "b": 0, "c": 0}
    assert result.values["pairs overlap"] == 1 / 3
    assert result.values["pairs share by chance"] == 0
    assert result.values["pairs share"] == pytest.approx(1 / 3.5 / 3)
    # Each language is searched in itself, and both queries find the document that they are of.
    assert result.per_query["pairs nDCG@10"] == {"en/q": 1, "de/q": 1}


@pytest.mark.parametrize("system", ["subwords", "latents", "untrained"])
def test_texts_that_are_the_same_share_all_dimensions(data, tmp_path, system):
    """A document and its copy share everything; searching the copies is searching the document."""
    shutil.copytree(tmp_path / "pairs" / "en", tmp_path / "pairs" / "copy")
    model, layer = tmp_path / "model", tmp_path / "sae" / "layers.1"
    save_bert(model)
    layer.mkdir(parents=True)
    weights = np.random.default_rng(0).normal(size=(64, 32)).astype(np.float32)
    save_config(layer / "cfg.json", k=4, num_latents=64, d_in=32, expansion_factor=2)
    save_tensors(
        layer / "sae.safetensors",
        **{"encoder.weight": weights, "encoder.bias": np.zeros(64, np.float32)},
        W_dec=weights,
        b_dec=np.zeros(32, np.float32),
    )
    seeds = (0, 1) if system == "untrained" else ()
    choice: dict = {"subwords": "model"}
    if system != "subwords":
        choice = {"latents": PublishedLatents(backbone="model", sae="sae", k=2, untrained=seeds)}
    job = OverlapJob(dataset="pairs", languages=("en", "copy"), **choice)
    result = run_overlap(job, data)
    assert [training["seed"] for training in result.trainings] == list(seeds)
    for measured in [training["per_query"] for training in result.trainings] or [result.per_query]:
        assert measured["pairs share"] == {"a": 1, "b": 1, "c": 1}
        across = measured["pairs across nDCG@10"]
        assert list(across) == ["en-copy/q", "copy-en/q"]
        assert list(across.values()) == list(measured["pairs nDCG@10"].values())
    limited = run_overlap(replace(job, document_max_active_dims=1), data)
    assert limited.values["pairs mean length"] == 1
