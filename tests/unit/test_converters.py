"""Models of other libraries give the same vectors in lexicept, and back again."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file
from sentence_transformers import SparseEncoder

from lexicept.encoding.head_settings import HeadSettings
from lexicept.encoding.index_settings import IndexSettings
from lexicept.errors import InputError, LexiceptWarning
from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.backbones.loading import quiet_transformers
from lexicept.neural.converters.reading import ModelLayout, read_model, recognise
from lexicept.neural.converters.writing import write_model
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.heads.language import language_head
from lexicept.neural.heads.sae import SAEHead
from lexicept.neural.heads.vocabulary import VocabularyHead
from lexicept.neural.sae.model import SAE
from lexicept.neural.vectorizers.concepts import ConceptVectorizer
from support.commands import assert_error
from support.library_models import csr, inference_free, modules, save_library, save_masked
from support.tensors import assert_same
from support.tiny import WORDS, save_bert, save_decoder

TEXTS = ["bade kilo", "", " ".join(WORDS * 6), "kilo [SEP] muba", "? kiba"]
SHORT = [TEXTS[0], TEXTS[1], *TEXTS[3:]]


def both(encoder: SparseEncoder, texts: list[str] = TEXTS) -> torch.Tensor:
    """Vectors of queries and documents [2, n, size]."""
    sides = (encoder.encode_query(texts), encoder.encode_document(texts))
    return torch.stack([side.to_dense() for side in sides])


def read(folder: Path) -> Encoder:
    model_format = recognise(folder)
    assert model_format is not None
    return read_model(folder, model_format)


LEARNED = IndexSettings("splade")
PROMPTED = {"query": "kilo: ", "document": "ba de "}
SOURCES: dict[str, Callable[[Path, Path], Path]] = {
    "naver/splade": lambda folder, masked: Path(shutil.copytree(masked, folder)),
    "maximum": lambda folder, masked: save_library(folder, modules(masked)),
    "sum": lambda folder, masked: save_library(folder, modules(masked, "sum")),
    "two logarithms": lambda folder, masked: save_library(
        folder, modules(masked, "max", "log1p_relu")
    ),
    "default prompt": lambda folder, masked: changed(
        folder, masked, settings(prompts={"passage": "mumu"}, default_prompt_name="passage")
    ),
    "limited, with prompts": lambda folder, masked: changed(
        folder, masked, settings(prompts=PROMPTED, max_active_dims=7)
    ),
}


@pytest.mark.parametrize("source", SOURCES)
def test_vectors_are_those_of_the_library(source, masked, tmp_path):
    folder = SOURCES[source](tmp_path / "source", masked)
    encoder = read(folder)
    expected = both(SparseEncoder(str(folder)))
    assert_same(both(encoder), expected)
    encoder.save(str(tmp_path / "saved"), create_model_card=False)
    loaded = Encoder.load(tmp_path / "saved")
    assert_same(both(loaded), expected)
    limited = "limited" in source
    assert loaded.head.settings.query_max_active_dims == (7 if limited else None)
    if not limited:
        # What an index holds: with max pooling, what log1p makes the weights of.
        vectors = torch.from_numpy(ConceptVectorizer(loaded).documents(TEXTS).toarray())
        assert_same(vectors if source == "sum" else vectors.log1p(), expected[1])
    (tmp_path / "back").mkdir()
    write_model(loaded, ModelLayout.sentence_transformers, tmp_path / "back")
    assert_same(both(SparseEncoder(str(tmp_path / "back"))), expected)


def test_damaged_prompts_are_refused(masked, tmp_path):
    read(masked).save(str(tmp_path / "saved"), create_model_card=False)
    for values in ({"prompts": {"query": 5}}, {"prompts": [1]}, {"max_active_dims": "x"}):
        settings(**values)(tmp_path / "saved")
        with pytest.raises(InputError, match="can't be loaded"):
            Encoder.load(tmp_path / "saved")


@pytest.mark.parametrize(
    "name", ["DistilBertForMaskedLM", "ModernBertForMaskedLM", "ElectraForMaskedLM"]
)
def test_other_architectures_go_there_and_back(name, tmp_path):
    folder = save_masked(tmp_path / "masked", name)
    expected = both(SparseEncoder(str(folder)))
    encoder = read(folder)
    assert_same(both(encoder), expected)
    (tmp_path / "back").mkdir()
    write_model(encoder, ModelLayout.splade, tmp_path / "back")
    assert_same(both(SparseEncoder(str(tmp_path / "back"))), expected)


def test_a_model_as_the_hub_has_them(masked, tmp_path):
    """Modules by their old names, and a limit shorter than the model's."""
    folder = Path(shutil.copytree(masked, tmp_path / "hub"))
    old = "sentence_transformers.sparse_encoder.models"
    records = [
        {"idx": 0, "name": "0", "path": "", "type": f"{old}.MLMTransformer"},
        {"idx": 1, "name": "1", "path": "1_SpladePooling", "type": f"{old}.SpladePooling"},
    ]
    (folder / "modules.json").write_text(json.dumps(records))
    settings = {"model_type": "SparseEncoder", "prompts": {}, "similarity_fn_name": "dot"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 7}')
    (folder / "1_SpladePooling").mkdir()
    config = '{"pooling_strategy": "max", "word_embedding_dimension": null}'
    (folder / "1_SpladePooling" / "config.json").write_text(config)
    encoder = read(folder)
    assert encoder.backbone.max_query_tokens == encoder.backbone.max_document_tokens == 7
    assert_same(both(encoder), both(SparseEncoder(str(folder))))


def test_lengths_of_layouts_that_have_one(masked, tmp_path):
    encoder = read_model(masked, ModelLayout.splade)
    encoder.backbone.cut(9, 9)
    write_model(encoder, ModelLayout.sentence_transformers, tmp_path / "out")
    written = SparseEncoder(str(tmp_path / "out"))
    assert written.max_seq_length == 9
    assert_same(both(encoder), both(written))
    encoder.backbone.cut(5, 9)
    message = r"splade has one length: queries will be cut after 9 tokens like documents, not .* 5"
    with pytest.warns(LexiceptWarning, match=message):
        write_model(encoder, ModelLayout.splade, tmp_path / "out2")
    assert SparseEncoder(str(tmp_path / "out2")).max_seq_length == 9


@pytest.mark.parametrize("causal", [True, False])
def test_a_decoder(causal, tmp_path):
    encoder = read(Path(save_decoder(tmp_path / "llama", is_causal=causal)))
    assert encoder.backbone.bidirectional is not causal
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError, match="LlamaModel has no masked-language-model class"):
        write_model(encoder, ModelLayout.splade, tmp_path / "out")


WITHOUT_LEXICEPT = """
import sys
sys.modules["lexicept"] = None
import torch
from safetensors.torch import save_file
from sentence_transformers import SparseEncoder
texts = sys.argv[3:]
found = {}
for folder in sys.argv[2].split(","):
    encoder = SparseEncoder(folder, device="cpu")
    sides = [encoder.encode_query(texts), encoder.encode_document(texts)]
    found[folder] = torch.stack([side.to_dense() for side in sides])
save_file(found, sys.argv[1])
"""

ROUNDS = [
    ("sum", ModelLayout.sentence_transformers),
    ("maximum", ModelLayout.splade),
    ("two logarithms", ModelLayout.sentence_transformers),
]


def test_what_is_written_loads_without_lexicept_and_comes_back(masked, tmp_path):
    expected = {}
    for source, model_format in ROUNDS:
        encoder = read(SOURCES[source](tmp_path / f"{source} source", masked))
        out = tmp_path / source
        out.mkdir()
        write_model(encoder, model_format, out)
        expected[str(out)] = both(encoder)
        assert_same(both(read(out)), expected[str(out)])
    vectors = tmp_path / "vectors"
    script = [sys.executable, "-c", WITHOUT_LEXICEPT, str(vectors), ",".join(expected)]
    subprocess.run([*script, *TEXTS], check=True, capture_output=True)
    actual = load_file(vectors)
    for folder, vector in expected.items():
        assert_same(actual[folder], vector)
    alone = tmp_path / "maximum"
    for path in (alone / "modules.json", *alone.glob("*/"), *alone.glob("router_config.json")):
        shutil.rmtree(path) if path.is_dir() else path.unlink()  # others don't know these
    with quiet_transformers():
        model = transformers.AutoModelForMaskedLM.from_pretrained(alone)
    assert torch.equal(model.get_output_embeddings().weight, read(alone).head.rows.detach())


def own(masked: Path, **settings: Any) -> Encoder:
    """An encoder as lexicept trains them: special tokens are left out, rows are not tied."""
    head = language_head(str(masked))
    with torch.no_grad():
        head.weight.add_(0.1 * torch.randn_like(head.weight))
    head.settings = HeadSettings(**settings)
    return Encoder.of(Backbone.from_pretrained(str(masked)), head, LEARNED)


def test_special_tokens_stay_out(masked, tmp_path):
    encoder = own(masked, pooling="sum")
    expected = both(encoder, SHORT)
    assert not expected[:, 1].any()
    (tmp_path / "out").mkdir()
    write_model(encoder, ModelLayout.sentence_transformers, tmp_path / "out")
    written = SparseEncoder(str(tmp_path / "out"))
    assert_same(both(written, SHORT), expected)
    # Long texts are cut.
    limit = encoder.backbone.window
    words = TEXTS[2].split()
    assert_same(both(written, [TEXTS[2]]), both(written, [" ".join(words[: limit - 2])]))
    with pytest.raises(InputError, match="special tokens are left out"):
        write_model(encoder, ModelLayout.splade, tmp_path / "none")


def with_head(masked: Path, head: Any, weighting: IndexSettings = LEARNED) -> Encoder:
    return Encoder.of(Backbone(str(masked), special_tokens=True), head, weighting)


def head_of(masked: Path, **settings: Any) -> VocabularyHead:
    head = language_head(str(masked))
    head.settings = HeadSettings(**settings)
    return head


def prompted(encoder: SparseEncoder) -> SparseEncoder:
    encoder.prompts = PROMPTED
    return encoder


def made(**settings: Any) -> Callable[[Path], SparseEncoder]:
    return lambda masked: with_head(masked, head_of(masked, **settings))


LIMITED = {"query_max_active_dims": 3, "document_max_active_dims": 4, "pruning": "impact"}
LIBRARY, SPLADE = ModelLayout.sentence_transformers, ModelLayout.splade

REFUSED: list[tuple[str, Callable[[Path], SparseEncoder], ModelLayout]] = [
    ("latents, not sub-words", lambda masked: with_head(masked, SAEHead(SAE(32, 16, 4))), LIBRARY),
    (
        "not the backbone's own sub-words",
        lambda masked: with_head(masked, head_of(masked).expanded([[5, 6]], ["bade"])),
        SPLADE,
    ),
    (
        "weights in bfloat16",
        lambda masked: Encoder.of(
            Backbone(str(masked), special_tokens=True, dtype="bfloat16"), head_of(masked)
        ),
        LIBRARY,
    ),
    ("prompts have no place there", lambda masked: prompted(made()(masked)), SPLADE),
    ("document_k: limits", made(document_k=3), SPLADE),
    ("query_max_active_dims: limits", made(query_max_active_dims=3), LIBRARY),
    ("query_max_active_dims, document_max_active_dims, pruning: limits", made(**LIMITED), LIBRARY),
    ("query_scale", made(query_scale=2), LIBRARY),
    ("BM25 weighting", lambda masked: with_head(masked, head_of(masked), IndexSettings()), LIBRARY),
    ("take the maximum", made(pooling="sum"), SPLADE),
    ("no root of sums", made(pooling="sqrt_sum"), LIBRARY),
    ("second logarithm", made(double_log=True), SPLADE),
]


@pytest.mark.parametrize(("message", "make", "model_format"), REFUSED)
def test_what_can_not_be_expressed(message, make, model_format, masked, tmp_path):
    with pytest.raises(InputError, match=message):
        write_model(make(masked), model_format, tmp_path)
    assert not any(tmp_path.iterdir())


def test_a_head_of_another_form(masked, tmp_path):
    head = head_of(masked)
    changed = VocabularyHead(head.rows, head.bias, head.terms, activation="relu")
    with pytest.raises(InputError, match="its logits differ"):
        write_model(with_head(masked, changed), ModelLayout.splade, tmp_path)


def changed(folder: Path, masked: Path, change: Callable[[Path], None]) -> Path:
    save_library(folder, modules(masked))
    change(folder)
    return folder


def settings(**values: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "config_sentence_transformers.json"
        path.write_text(json.dumps({**json.loads(path.read_bytes()), **values}))

    return change


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def opensearch(folder: Path, masked: Path, file: str) -> Path:
    shutil.copytree(masked, folder)
    (folder / file).write_text('{"bade": 2.5}')
    return folder


TABLE = "a table of weights encodes its queries"
BROKEN: dict[str, tuple[str, Callable[[Path, Path], Path]]] = {
    "csr": ("reads one dense vector of a whole text", csr),
    "two logarithms of a sum": (
        "activation log1p_relu is read with the pooling max, not sum",
        lambda folder, masked: save_library(folder, modules(masked, "sum", "log1p_relu")),
    ),
    "cosine": (
        "compared by cosine",
        lambda f, m: changed(f, m, settings(similarity_fn_name="cosine")),
    ),
    "pickle": ("a pickle is not read", lambda f, m: changed(f, m, pickled)),
    "limit": (
        "max_active_dims must be a positive integer, got x",
        lambda f, m: changed(f, m, settings(max_active_dims="x")),
    ),
    "weights": (
        "model.safetensors: can't be read",
        lambda f, m: changed(f, m, lambda f: (f / "model.safetensors").write_bytes(b"x" * 40)),
    ),
    "modules": ("modules.json", lambda f, m: changed(f, m, lambda f: damage(f / "modules.json"))),
    "table": (TABLE, inference_free),
    "text of OpenSearch": (TABLE, lambda f, m: opensearch(f, m, "query_token_weights.txt")),
    "no head": (
        "BertModel has no masked or causal language-model head",
        lambda f, m: Path(save_bert(f)),
    ),
}


def damage(path: Path) -> None:
    path.write_text("{")


@pytest.mark.parametrize("what", BROKEN)
def test_sources_that_are_refused(what, masked, tmp_path, run):
    message, make = BROKEN[what]
    folder = make(tmp_path / "source", masked)
    assert_error(run("model", "convert", folder, "--out", tmp_path / "out"), message, "source")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source"]


def test_the_command(masked, tmp_path, run):
    source = save_library(tmp_path / "source", modules(masked))
    out, back = tmp_path / "out", tmp_path / "back"
    report = run("model", "convert", source, "--out", out, "--json").json
    assert report == {
        "found": "sentence-transformers",
        "source": str(source),
        "backbone": "BertModel",
        "layers": 2,
        "dimensions": 82,
        "pooling": "max",
        "long_texts": "cut after 64 tokens",
        "written": f"{out} (lexicept)",
    }
    assert run("model", "convert", out, "--to", "splade", "--out", back, "--json").json[
        "found"
    ] == ("lexicept")
    assert_same(both(SparseEncoder(str(back))), both(SparseEncoder(str(source))))
    assert not list(tmp_path.glob("*.partial"))
    new = tmp_path / "new"
    assert_error(run("model", "convert", source, "--layer", 2, "--out", new), "are options of SAEs")
    assert_error(
        run("model", "convert", source, "--to", "saelens", "--out", new), "is a layout of SAEs"
    )
    assert_error(run("model", "convert", out, "--out", new), "a model in lexicept's layout already")
    SAE(8, 4, 2).save(tmp_path / "sae")
    to = ("--to", "splade", "--out", new)
    assert_error(run("model", "convert", tmp_path / "sae", *to), "splade is a layout of models")
