"""Pretrained SAEs on the command line: convert, and an index built from one."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lexicept
from lexicept.errors import InputError
from lexicept.index.impacts import VocabularySettings
from lexicept.index.reader import IndexReader
from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.heads.sae import SAEHead
from lexicept.neural.sae.model import SAE
from lexicept.neural.sae.quality import report_sae
from lexicept.neural.sae_formats.libraries import save_saelens
from lexicept.neural.sae_formats.pretrained import find_pretrained_sae
from lexicept.neural.vectorizers.concepts import ConceptVectorizer
from lexicept.training.sae.settings import SAESettings
from lexicept.training.sae.trainer import train_concepts
from lexicept.weighting import BM25
from support import sae_files
from support.commands import assert_error
from support.indexes import build_of
from support.sae_files import D, K, M
from support.tiny import save_bert

MINI_FOLDER = Path(lexicept.__file__).with_name("mini")


def acts(sae: SAE) -> np.ndarray:
    with torch.no_grad():
        values, latents = sae.encode(torch.from_numpy(sae_files.states()).float())
    return torch.zeros(40, M).scatter_reduce(1, latents, values, "amax").numpy()


def test_a_pickle_becomes_an_sae_that_can_be_loaded(run, tmp_path):
    checkpoint, out = sae_files.dictionary_learning(tmp_path), tmp_path / "out"
    report = run("model", "convert", tmp_path, "--out", out, "--json").json
    assert report == {
        "found": "dictionary_learning",
        "source": str(checkpoint.folder),
        "latents": M,
        "state_size": D,
        "active": f"the {K} largest",
        "hook": "blocks.8.hook_resid_post",
        "layer": 9,
        "written": f"{out} (lexicept)",
    }
    sae = find_pretrained_sae(out).load()
    expected = checkpoint.activations(sae_files.states())
    np.testing.assert_allclose(acts(sae), expected, rtol=1e-5, atol=1e-5)
    assert sae.origin["layer"] == 9
    assert not list(tmp_path.glob("*.partial"))


def test_the_sae_of_a_model_is_written_for_other_libraries(run, tmp_path):
    backbone = Backbone.from_pretrained(save_bert(tmp_path / "bert"), 1)
    texts = ["bade kilo muba"] * 20
    settings = SAESettings(num_latents=16, k=2, tokens=100, batch_size=20)
    concepts = train_concepts(texts, backbone, settings)
    concepts.encoder.save(str(tmp_path / "model"))
    expected = acts_of(concepts, texts)
    for to in ("saelens", "dictionary-learning"):
        out = tmp_path / to
        report = run("model", "convert", tmp_path / "model", "--to", to, "--out", out, "--json")
        assert report.json["layer"] == 1
        result = find_pretrained_sae(out, pickles=True)
        assert result.layer == 1
        again = ConceptVectorizer(Encoder.of(backbone, SAEHead(result.load(backbone=backbone))))
        np.testing.assert_allclose(acts_of(again, texts), expected, rtol=1e-5, atol=1e-6)
    metadata = json.loads((tmp_path / "saelens" / "cfg.json").read_text())["metadata"]
    assert metadata["hook_name"] == "encoder.layer.0"
    assert metadata["model_name"] == str(tmp_path / "bert")
    # A decoder that was not saved is fitted to the documents of an index.
    sae = concepts.encoder.head.autoencoder
    sae.decoder, sae.origin = False, {}
    documents = {str(i): text for i, text in enumerate(texts)}
    build_of(tmp_path / "index", documents, (concepts, VocabularySettings(BM25())))
    index, out = tmp_path / "index", tmp_path / "fitted"
    report = run("model", "convert", index, "--to", "saelens", "--out", out, "--json").json
    assert (report["hook"], report["layer"]) == ("encoder.layer.0", 1)
    result = find_pretrained_sae(out).load(backbone=backbone)
    again = ConceptVectorizer(Encoder.of(backbone, SAEHead(result)))
    np.testing.assert_allclose(acts_of(again, texts), expected, rtol=1e-5, atol=1e-6)
    quality = report_sae(backbone, result, texts)
    assert quality.fvu == pytest.approx(report["fvu"], rel=1e-3)
    assert quality.tokens == report["fvu_tokens"]
    mini = ("model", "convert", MINI_FOLDER, "--to", "saelens", "--out", tmp_path / "mini")
    assert_error(run(*mini), "saved without its decoder")
    assert not (tmp_path / "mini").exists()


def acts_of(concepts: ConceptVectorizer, texts: list[str]) -> np.ndarray:
    return concepts.documents(texts).toarray()


def test_what_convert_refuses(run, tmp_path):
    checkpoint, out = sae_files.sparsify(tmp_path / "in"), tmp_path / "out"
    convert = ("model", "convert", checkpoint.folder, "--out", out)
    assert_error(run(*convert, "--width", 99), f"{M} latents, not 99")
    assert_error(run("model", "convert", tmp_path / "none", "--out", out), "none: no such folder")
    assert_error(run(*convert, "--to", "splade"), "splade is a layout of models")
    (checkpoint.folder / "sae.safetensors").write_bytes(b"x" * 40)
    assert_error(run(*convert), "sae.safetensors: can't be read")
    assert not out.exists()


# An index from a backbone and a pretrained SAE.

WORDS = ("bade", "kilo", "muba")


@pytest.fixture
def inputs(tmp_path):
    """A corpus, a backbone of two blocks, an SAE for the first, and explanations of its latents."""
    corpus, names = tmp_path / "corpus.jsonl", tmp_path / "names.jsonl"
    records = [{"_id": word, "text": f"{word} {word}"} for word in WORDS]
    corpus.write_text("".join(json.dumps(record) + "\n" for record in records))
    torch.manual_seed(0)
    sae = SAE(32, 24, None, centred=False)
    sae.origin = {"hook": "blocks.0.hook_resid_post"}
    save_saelens(sae, tmp_path / "sae")
    described = [
        {"layer": "0-tiny", "index": str(latent), "description": f"meaning {latent}"}
        for latent in range(0, 24, 2)
    ]
    names.write_text("".join(json.dumps(concept) + "\n" for concept in described))
    backbone = Path(save_bert(tmp_path / "bert"))
    return {"corpus": corpus, "sae": tmp_path / "sae", "names": names, "backbone": backbone}


@pytest.fixture
def build(run, inputs, tmp_path):
    def call(*arguments, sae=inputs["sae"]):
        out = ("--vocabulary", "concepts", "--out", tmp_path / "index")
        models = ("--backbone", inputs["backbone"], "--sae", sae)
        return run("build", inputs["corpus"], *out, *models, *arguments)

    return call


def test_an_index_with_explained_concepts(build, run, inputs, tmp_path):
    assert build("--explanations", inputs["names"]).code == 0
    index = IndexReader.open(tmp_path / "index")
    (vocabulary,) = index.vocabularies
    terms = list(vocabulary.terms or ())
    assert len(terms) == 24
    assert terms[:3:2] == ["meaning 0", "meaning 2"]
    assert all("meaning" not in term for term in terms[1::2])
    assert index.atlas is not None
    sources = [index.atlas.source(n) for n in range(24)]
    assert sources[::2] == ["explanations"] * 12
    for i in range(1, 24, 2):  # latents of a random SAE may fire on words without a meaning
        assert sources[i] == ("none" if terms[i] == f"#{i}" else "one text")
    hits = run("search", tmp_path / "index", "kilo", "--explain", "--json").json["results"]
    shown = {contribution["term"] for result in hits for contribution in result["contributions"]}
    assert shown <= set(terms)
    assert any(term.startswith("meaning ") for term in shown)
    # The layer is the SAE's: one block of two.
    config = json.loads(next((tmp_path / "index").glob("*/concepts/model/config.json")).read_text())
    assert config["num_hidden_layers"] == 1
    saved = next((tmp_path / "index").glob("*/concepts/model/*/sae.json"))
    assert json.loads(saved.read_text())["origin"]["layer"] == 1


def test_models_are_refused_before_a_document_is_read(inputs, tmp_path):
    def documents():
        pytest.fail("a document was read")
        yield "text"

    pickled = sae_files.dictionary_learning(tmp_path / "pickled").folder
    backbone, nowhere = inputs["backbone"], tmp_path / "nowhere"
    cases: list[tuple[dict[str, Any], str]] = [
        ({"sae": pickled, "backbone": backbone}, "ae.pt is a pickle"),
        ({"sae": nowhere}, "nowhere"),
        ({"sae": inputs["sae"], "backbone": nowhere}, "nowhere"),
        ({"train": True, "backbone": nowhere}, "nowhere"),
        ({"model": nowhere}, "nowhere"),
        ({"model": nowhere, "explanations": inputs["names"]}, "nowhere"),
    ]
    for arguments, message in cases:
        with pytest.raises(InputError, match=message):
            lexicept.build(
                documents(),
                tmp_path / "index",
                model=arguments.pop("model", None),
                concepts=lexicept.ConceptSettings(**arguments),
            )
    assert not list(tmp_path.glob("index*"))


def test_what_build_refuses_of_an_sae(build, inputs, tmp_path):
    assert_error(build("--layer", 2), "the state after 1 blocks, not 2")
    assert_error(build("--width", 8), "24 latents, not 8")
    assert_error(build("--model", tmp_path), "--model and --sae")
    assert_error(build(sae=sae_files.sparsify(tmp_path).folder), "layer 6", "blocks 1 to 2")
    SAE(D, M, K).save(tmp_path / "small")
    assert_error(build(sae=tmp_path / "small"), "name the layer")
    assert_error(build("--layer", 1, sae=tmp_path / "small"), f"of size {D}", "of size 32")
    inputs["names"].write_text('{"layer": "3-tiny", "index": 1, "description": "x"}\n')
    wrong = ("--explanations", inputs["names"])
    assert_error(build(*wrong), "line 1", "'3-tiny'", "block 0")
    assert_error(build(*wrong, "--vocabulary", "words"), "--sae requires concepts")
    assert not (tmp_path / "index").exists()
