from __future__ import annotations

import json
from pathlib import Path
from threading import Thread

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from lexicept.errors import InputError
from lexicept.models.backbone import Backbone
from lexicept.models.language_heads import language_head
from reproduction.query_generation import generate_queries
from support.tiny import save_bert

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
    """A model whose classes are in a file of its own."""
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
    weights = load_file(tmp_path / "model.safetensors")
    torch.save(weights, tmp_path / "pytorch_model.bin")
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
    seen: list[Tensor] = []
    with backbone.hooked(2, seen.append):
        other = Thread(target=backbone.states, args=(ids, mask))
        other.start()
        other.join()
        assert seen == []
        states = backbone.states(ids, mask)
    assert len(seen) == 1
    assert torch.equal(seen[0], states)
