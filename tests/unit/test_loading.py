import json
import shutil
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from torch import Tensor

from lexicept.errors import InputError, LexiceptError
from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.backbones.lora import add_adapters
from lexicept.neural.converters.reading import find_model, open_encoder
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.heads.language import language_head
from lexicept.neural.sae_formats.pretrained import find_pretrained_sae
from reproduction.query_generation import generate_queries
from support import sae_files
from support.heads import make_head
from support.library_models import modules, save_library, save_masked
from support.tiny import save_bert, save_decoder, tiny_backbone

CODE = """
from pathlib import Path
Path(__file__).with_name("ran").touch()
from transformers import BertConfig, BertModel
class OwnConfig(BertConfig):
    model_type = "own"
class OwnModel(BertModel):
    config_class = OwnConfig
"""


@pytest.fixture
def with_code(tmp_path: Path) -> Path:
    """A model with classes in a Python file."""
    folder = tmp_path / "own"
    save_bert(folder)
    config = json.loads((folder / "config.json").read_bytes())
    classes = {"AutoConfig": "own.OwnConfig", "AutoModel": "own.OwnModel"}
    config |= {"model_type": "own", "architectures": ["OwnModel"], "auto_map": classes}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "own.py").write_text(CODE)
    return folder


@pytest.mark.parametrize(
    "load",
    [
        Backbone.from_pretrained,
        Backbone,
        Backbone.load,
        language_head,
        lambda name: generate_queries(name, [], Path(name).with_name("queries")),
    ],
)
def test_a_model_s_own_code_is_never_run(with_code, load, monkeypatch):
    def asked(*_: object) -> str:
        raise AssertionError("asked on the terminal")

    monkeypatch.setattr("builtins.input", asked)
    with pytest.raises(InputError, match="own needs Python code of its own"):
        load(str(with_code))
    assert not (with_code / "ran").exists()


@pytest.mark.parametrize(
    "name", ["config_kwargs", "model_kwargs", "processor_kwargs", "model_args"]
)
def test_a_model_s_configuration_does_not_allow_its_code(with_code, name):
    settings = {name: {"trust_remote_code": True}}
    (with_code / "sentence_bert_config.json").write_text(json.dumps(settings))
    for load in (Backbone.load, Backbone.from_pretrained):
        with pytest.raises(InputError, match="own needs Python code of its own"):
            load(str(with_code))
    assert not (with_code / "ran").exists()


@pytest.mark.parametrize("name", ["model_kwargs", "model_args"])
def test_a_model_s_configuration_does_not_allow_pickles(tmp_path, name):
    save_bert(tmp_path)
    torch.save(load_file(tmp_path / "model.safetensors"), tmp_path / "pytorch_model.bin")
    (tmp_path / "model.safetensors").unlink()
    settings = {name: {"use_safetensors": False}}
    (tmp_path / "sentence_bert_config.json").write_text(json.dumps(settings))
    with pytest.raises(InputError, match="can't be loaded"):
        Backbone.from_pretrained(str(tmp_path))
    with pytest.raises(OSError, match="safetensors"):
        Backbone.load(str(tmp_path))


def test_threads_do_not_see_each_other_s_states(backbone):
    ids = torch.tensor([[101, 2204, 102]])
    mask = torch.ones_like(ids)
    recorded: list[Tensor] = []
    with backbone.hooked(2, recorded.append):
        other = Thread(target=backbone.states, args=(ids, mask))
        other.start()
        other.join()
        assert recorded == []
        states = backbone.states(ids, mask)
    assert len(recorded) == 1
    assert torch.equal(recorded[0], states)


# Incomplete folders

Load = Callable[[Path], Any]
OPTIONAL = {
    "": ("tokenizer_config.json", "generation_config.json"),
    "dense model": ("config_sentence_transformers.json", "sentence_bert_config.json"),
    "adapters": ("sentence_bert_config.json",),
}
"""Files whose absence has defaults, of all models and of some."""


def dense(folder: Path) -> None:
    parts = [Transformer(save_bert(folder.with_name("dense-bert"))), Pooling(32)]
    SentenceTransformer(modules=parts).save(str(folder), create_model_card=False)


def words(folder: Path) -> None:
    """A BERT with its tokens in ``vocab.txt`` alone, as in older models."""
    save_bert(folder)
    tokens = json.loads((folder / "tokenizer.json").read_bytes())["model"]["vocab"]
    (folder / "vocab.txt").write_text("\n".join(sorted(tokens, key=tokens.get)))
    (folder / "tokenizer.json").unlink()


def encoder(head_type: str) -> Callable[[Path], None]:
    def save(folder: Path) -> None:
        backbone = tiny_backbone(folder.with_name(f"{folder.name}-bert"))
        Encoder.of(backbone, make_head(head_type)).save(str(folder), create_model_card=False)

    return save


def adapters(folder: Path) -> None:
    bert = save_bert(folder.with_name("base"))
    backbone = Backbone(bert)
    backbone.model = add_adapters(backbone.model, bert, 2)
    backbone.save(str(folder))


def library(folder: Path) -> None:
    save_library(folder, modules(save_masked(folder.with_name("masked"))))


def sae(make: Callable[[Path], Any]) -> Callable[[Path], None]:
    def save(folder: Path) -> None:
        folder.mkdir()
        make(folder)

    return save


def as_backbone(folder: Path) -> object:
    return Backbone.from_pretrained(str(folder))


def as_head(folder: Path) -> object:
    return language_head(str(folder))


def as_sae(folder: Path) -> object:
    return find_pretrained_sae(folder, pickles=True).load()


FOLDERS: dict[str, tuple[Callable[[Path], object], Load]] = {
    "backbone": (lambda folder: save_bert(folder), as_backbone),
    "backbone with vocab.txt": (words, as_backbone),
    "decoder": (lambda folder: save_decoder(folder), as_backbone),
    "dense model": (dense, as_backbone),
    "adapters": (adapters, as_backbone),
    "head": (save_masked, as_head),
    "naver/splade": (save_masked, open_encoder),
    "decoder as a model": (lambda folder: save_decoder(folder), open_encoder),
    "sentence-transformers": (library, open_encoder),
    "lexicept": (encoder("vocabulary"), open_encoder),
    "lexicept, SAE": (encoder("sae"), open_encoder),
    "Llama Scope": (sae(sae_files.llama_scope), as_sae),
    "Gemma Scope": (sae(sae_files.gemma_scope), as_sae),
    "Gemma Scope 2": (sae(sae_files.gemma_scope_2), as_sae),
    "SAELens": (sae(sae_files.saelens), as_sae),
    "sparsify": (sae(sae_files.sparsify), as_sae),
    "dictionary_learning": (sae(sae_files.dictionary_learning), as_sae),
}


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def be_another_type(path: Path) -> None:
    path.write_bytes(b"[5]" if path.suffix == ".json" else b"x" * 60)


def be_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "truncated": halve,
    "another type": be_another_type,
    "a folder": be_a_folder,
}


@pytest.mark.parametrize("name", FOLDERS)
def test_a_missing_or_damaged_file_of_a_model_is_named(name, tmp_path):
    make, load = FOLDERS[name]
    whole, tried = tmp_path / "whole", tmp_path / "tried"
    make(whole)
    load(whole)
    for path in sorted(path for path in whole.rglob("*") if path.is_file()):
        for damage, change in DAMAGES.items():
            absent = damage in ("missing", "a folder")
            # Half of a list of tokens is a list of tokens.
            texts = path.suffix == ".txt" and damage in ("truncated", "another type")
            optional = path.name in OPTIONAL[""] + OPTIONAL.get(name, ())
            if (optional and absent) or path.name == "README.md" or texts:
                continue
            shutil.copytree(whole, tried)
            change(tried / path.relative_to(whole))
            # Without tokenizer.json, the name of vocab.txt stands for both.
            named = "tokenizer.json" if path.name == "vocab.txt" and absent else path.name
            with pytest.raises(LexiceptError) as caught:
                load(tried)
            assert named in str(caught.value), (path.name, damage)
            shutil.rmtree(tried)


@pytest.mark.parametrize("name", ["1_Pooling", "1_SpladePooling"])
def test_a_folder_of_documents_is_no_model(tmp_path, name):
    """Other files pass, whatever they hold."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "list.json").write_text("[1")
    (tmp_path / "vocab.txt").write_text("a")
    (tmp_path / "data_config.json").write_text("[1]")
    assert find_model(tmp_path) == (tmp_path, None)
    (tmp_path / name).mkdir()
    with pytest.raises(InputError, match=r"modules\.json: this model's file is missing"):
        find_model(tmp_path)
