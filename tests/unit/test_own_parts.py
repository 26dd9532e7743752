"""Losses, regularisers, heads, teachers and readers of one's own, by path and by class."""

import re
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
import yaml

from lexicept.checks import from_mapping
from lexicept.corpora import read_documents
from lexicept.errors import InputError, LexiceptWarning
from lexicept.neural.encoders import encoder as encoder_module
from lexicept.neural.encoders.encoder import Encoder
from lexicept.training.own_parts import OwnLoss, OwnPart
from lexicept.training.ranking.config import TrainingConfig, load_config
from lexicept.training.ranking.run import train
from support import own_parts
from support.runs import configuration, metrics, tensors
from support.tiny import WORDS

pytestmark = pytest.mark.usefixtures("_hasty")

HINGE = {"class_path": "support.own_parts.Hinge", "init_args": {"margin": 0.5, "powers": [1, 2]}}
CONSTANT = {"class_path": "support.own_parts.Constant"}
LARGEST = {"class_path": "support.own_parts.Largest", "init_args": {"count": 3}}


def own_configuration(inputs, **sections):
    """A configuration with an own loss and two own regularisers, and nothing learned but these."""
    losses = {"kl": 0.0, "margin_mse": 0.0, "in_batch": 0.0, "words": 0.0}
    regularizer = {"kind": LARGEST, "weight": 0.01, "schedule": "constant"}
    return configuration(
        inputs,
        loss={**losses, "own": [{**HINGE, "weight": 2}]},
        query_regularizer=regularizer,
        document_regularizer=regularizer,
        **sections,
    )


def test_a_run_learns_by_an_own_loss_and_regularisers(inputs, tmp_path):
    optimizer = {"steps": 10, "learning_rate": 0.01}
    config = own_configuration(inputs, optimizer=optimizer, validation={"every": 5})
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump(asdict(config)))
    train(load_config(path), tmp_path / "run")
    lines = [line for line in metrics(tmp_path / "run") if "loss" in line]
    assert {"Hinge_0", "query_Largest", "document_Largest"} <= lines[0].keys()
    assert "kl" not in lines[0]
    assert lines[0]["Hinge_0"] > lines[-1]["Hinge_0"]
    checkpoint = tensors(tmp_path / "run" / "work" / "checkpoints" / "checkpoint-10")
    # The learned margin, of the loss, shrinks below its start.
    assert checkpoint["model.safetensors: objective.own_parts.0.margin"] < 0.5
    model = tensors(tmp_path / "run" / "model")
    assert not [name for name in model if "margin" in name]


def test_a_class_stands_for_its_path(inputs):
    in_python = {"class_path": own_parts.Hinge, "init_args": {"margin": 0.5, "powers": (1, 2)}}
    content = {"data": {"corpus": "x"}, "loss": {"own": [in_python]}}
    content["query_regularizer"] = {"kind": own_parts.NoPart}
    config = from_mapping(TrainingConfig, content)
    assert config.loss.own == (OwnLoss("support.own_parts.Hinge", in_python["init_args"]),)
    assert config.query_regularizer.kind == OwnPart("support.own_parts.NoPart")
    assert load_config(asdict(config)) == config
    made = config.loss.own[0].make()
    assert (made.margin.item(), made.powers) == (0.5, (1, 2))


def test_gradients_of_an_own_loss_do_not_depend_on_caching(inputs, tmp_path):
    """The same weights with and without gradient caching, without dropout."""
    for mini_batch in (None, 2):
        config = own_configuration(inputs, optimizer={"mini_batch": mini_batch, "steps": 3})
        train(config, tmp_path / str(mini_batch))
    one, other = (tensors(tmp_path / str(size) / "model") for size in (None, 2))
    for name, value in one.items():
        torch.testing.assert_close(other[name], value, atol=1e-5, rtol=1e-4, msg=name)


def test_an_own_head_is_trained_saved_and_loaded(inputs, tmp_path, monkeypatch):
    head = {"class_path": own_parts.LinearHead, "init_args": {"d_in": 32, "size": 20}}
    model = {"start": None, "backbone": str(inputs / "bert"), "head": head}
    folder = train(configuration(inputs, model=model), tmp_path / "run")
    encoder = Encoder.load(folder)
    assert type(encoder.head) is own_parts.LinearHead
    assert not torch.equal(encoder.head.weight.cpu(), own_parts.LinearHead(32, 20).weight)
    assert encoder.encode_query([WORDS[0]]).shape == (1, 20)
    # Without the module imported, only an installed package's entry point names the head.
    monkeypatch.setattr(encoder_module, "_subclasses", lambda _: iter(()))
    with pytest.raises(InputError, match=r"support\.own_parts\.LinearHead is neither imported"):
        Encoder.load(folder)

    class EntryPoint:
        @staticmethod
        def load():
            return own_parts.LinearHead

    monkeypatch.setattr(encoder_module, "entry_points", lambda group: [EntryPoint])
    assert Encoder.load(folder).head.size == 20


def test_an_own_teacher_and_an_own_reader(inputs, tmp_path):
    """Documents of an own reader, scored by an own teacher: 2 × the number of common letters."""
    texts = [document.text for document in read_documents(inputs / "beir")]
    (tmp_path / "lines.txt").write_text("\n".join(texts))
    corpus = {"class_path": "support.own_parts.Lines"}
    corpus["init_args"] = {"path": str(tmp_path / "lines.txt")}
    teacher = {"own": {"class_path": own_parts.CommonLetters}, "own_weight": 2, "bm25_weight": 0}
    content = asdict(configuration(inputs, teacher=teacher))
    content["data"] = {"corpus": corpus, "mining": "teacher", "seed": 1}
    content["data"]["queries"] = str(inputs / "beir")
    content["loss"] = {"kl": 1, "scale": 0.3}
    taught = []
    with pytest.MonkeyPatch.context() as patch:
        score = own_parts.CommonLetters.common

        def common(query, document):
            taught.append((query, document))
            return score(query, document)

        patch.setattr(own_parts.CommonLetters, "common", staticmethod(common))
        train(load_config(content), tmp_path / "run")
    assert {document for _, document in taught} == set(texts)
    assert metrics(tmp_path / "run")[0]["kl"] > 0


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"class_pat": "a.B"}, "class_pat'; perhaps class_path?"),
        ({"class_path": "Hinge"}, "'Hinge' can't be imported: the module's name is missing"),
        ({"class_path": "nowhere.Hinge"}, "'nowhere.Hinge' can't be imported: No module named"),
        (
            {"class_path": "support.own_parts.Hing"},
            "no class of support.own_parts 'Hing'; perhaps Hinge?",
        ),
        (
            {**HINGE, "init_args": {"margn": 1}},
            "no argument of support.own_parts.Hinge 'margn'; perhaps margin?",
        ),
        ({**HINGE, "init_args": {"margin": "wide"}}, "init_args.margin must be a"),
        ({**HINGE, "init_args": {"powers": 2}}, "init_args.powers must be"),
        ({**LARGEST, "init_args": {}}, "missing a required argument: 'count'"),
        ({"class_path": 3}, "class_path must be a text, not 3"),
    ],
)
def test_a_part_that_is_wrong_is_one_clear_error(part, message):
    for section in ({"query_regularizer": {"kind": part}}, {"model": {"head": part}}):
        with pytest.raises(InputError, match=re.escape(message)) as error:
            from_mapping(TrainingConfig, {"data": {"corpus": "x"}, **section})
        assert "\n" not in str(error.value)
        assert str(error.value).startswith(("query_regularizer.kind", "model.head", "no setting"))


def test_objects_of_another_kind_are_refused():
    for base, message in (
        (None, "support.own_parts.NoPart has no method __call__"),
        (own_parts.Head, "support.own_parts.NoPart is no lexicept.neural.heads.base.Head"),
    ):
        with pytest.raises(InputError, match=message):
            OwnPart("support.own_parts.NoPart").make(base)
    with pytest.raises(InputError, match=r"Failing can't be made: no such file"):
        OwnPart("support.own_parts.Failing").make()
    with pytest.raises(InputError, match="weight must be at least 0"):
        OwnLoss(**HINGE, weight=-1)


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"loss": {"own": [{"class_path": "support.own_parts.PerQuery"}]}}, "no single number"),
        ({"loss": {"own": [{"class_path": "support.own_parts.Failing"}]}}, "can't be made"),
        ({"teacher": {"own": CONSTANT}}, "prepare returned None, no function"),
        ({"teacher": {"own": {**CONSTANT, "init_args": {"scores": [0.5]}}}}, "9 scores of each"),
        ({"data": {"lists": "lists.txt"}}, "names the query 'typo', which is unknown"),
        ({"data": {"lists": "lists.txt"}, "validation": {"queries": None}}, ": 1, such as 'typo'"),
        ({"validation": {"corpus": "other.jsonl"}}, "no relevant document is in the corpus"),
    ],
)
def test_parts_and_data_that_do_not_fit(inputs, tmp_path, monkeypatch, sections, message):
    monkeypatch.chdir(tmp_path)
    Path("lists.txt").write_text("typo\td0\td1\n")
    Path("other.jsonl").write_text('{"id": "other", "text": "ba"}\n')
    with pytest.raises((InputError, LexiceptWarning), match=re.escape(message)):
        train(configuration(inputs, **sections), tmp_path / "run")
