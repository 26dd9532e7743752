"""Training at full size: no index without need, all is checked first, and workers tokenise."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from lexicept.checks import from_mapping
from lexicept.errors import InputError
from lexicept.pipelines.pretrain import pretrain
from lexicept.training.ranking import collection
from lexicept.training.ranking.config import TrainingConfig
from lexicept.training.ranking.run import train
from support.runs import assert_same_run, configuration
from support.tiny import save_bert

pytestmark = pytest.mark.usefixtures("_hasty")


@pytest.fixture
def lists(inputs, tmp_path):
    """Lists with scores, in ColBERT's layout: each query's document and the two after it."""
    lines = [
        [f"q{n}", [f"d{n}", 9.0], [f"d{n + 1}", 2.0 + n / 10], [f"d{n + 2}", 1.0]]
        for n in range(20)
    ]
    path = tmp_path / "lists.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def scored(positions: Path, lists: str, **sections: dict[str, Any]) -> TrainingConfig:
    """Return the configuration of a run that learns from scored lists alone."""
    beir = str(positions / "beir")
    data: dict[str, dict[str, Any]] = {
        "data": {"corpus": beir, "queries": beir, "lists": lists, "negatives": 2},
        "model": {"start": str(positions / "start"), "trained": "all"},
        "optimizer": {"steps": 1, "batch_size": 3},
        "validation": {"queries": beir, "every": 1},
    }
    for name, values in sections.items():
        data[name] = {**data.get(name, {}), **values}
    return from_mapping(TrainingConfig, data)


def never(*_: Any, **__: Any) -> None:
    raise AssertionError("minutes of work")


@pytest.fixture
def _no_work(monkeypatch):
    """Fail if documents are stored or indexed."""
    monkeypatch.setattr(collection, "write_documents", never)
    monkeypatch.setattr(collection, "IndexBuilder", never)


def test_words_are_not_indexed_where_lists_have_scores(inputs, lists, tmp_path, monkeypatch):
    monkeypatch.setattr(collection, "IndexBuilder", never)
    train(scored(inputs, lists), tmp_path / "run")
    assert not (tmp_path / "run" / "work" / "words").exists()
    assert (tmp_path / "run" / "work" / "documents" / "parts" / "000001" / "texts.bin").exists()
    with pytest.raises(AssertionError, match="minutes of work"):
        train(scored(inputs, lists, teacher={"bm25_weight": 1.0}), tmp_path / "taught")


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        ({}, True),
        ({"data": {"lists": "x"}}, False),
        ({"data": {"mining": "teacher"}}, False),
        ({"data": {"negatives": 0}}, False),
        ({"data": {"negatives": 0, "positive_share": 0.5}}, True),
        ({"data": {"lists": "x"}, "teacher": {"bm25_weight": 0.5}}, True),
        ({"data": {"lists": "x"}, "loss": {"words": 0.5}}, True),
    ],
)
def test_what_needs_words(sections, expected):
    config = {"teacher": {"dense": "x"}, **sections}
    config["data"] = {"corpus": "x", **sections.get("data", {})}
    assert collection.needs_words(from_mapping(TrainingConfig, config)) == expected


def pickled(folder: Path) -> str:
    """Save a BERT as a pickle alone."""
    save_bert(folder)
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    return str(folder)


@pytest.mark.usefixtures("_no_work")
@pytest.mark.parametrize(
    ("section", "name", "message"),
    [
        ("model", "backbone", "backbone '.*pickled' can't be loaded"),
        ("model", "pretrained", "nowhere"),
        ("teacher", "dense", "teacher '.*nowhere' can't be loaded"),
        ("data", "lists", "nowhere"),
        ("data", "queries", "nowhere"),
        ("data", "corpus", "nowhere"),
        ("validation", "queries", "nowhere"),
        ("validation", "corpus", "nowhere"),
    ],
)
def test_what_is_missing_is_found_before_any_work(inputs, lists, tmp_path, section, name, message):
    bad = pickled(tmp_path / "pickled") if "pickled" in message else str(tmp_path / "nowhere")
    sections: dict[str, dict[str, Any]] = {section: {name: bad}}
    if section == "model":
        sections["model"] |= {"start": None, "head": "mlm" if name == "backbone" else "sae"}
        sections["model"].setdefault("backbone", str(inputs / "bert"))
    with pytest.raises(InputError, match=message):
        train(scored(inputs, lists, **sections), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_pretraining_loads_its_model_before_it_stores_texts(tmp_path):
    def texts():
        raise AssertionError("minutes of work")
        yield ""

    with pytest.raises(InputError, match="can't be loaded"):
        pretrain(texts(), tmp_path / "out", backbone=pickled(tmp_path / "bert"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("old", "new"), [("d7", "document 'e7'"), ("q7", "query 'e7'")])
def test_lists_of_another_collection_are_found_before_training(inputs, lists, tmp_path, old, new):
    Path(lists).write_text(Path(lists).read_text().replace(f'"{old}"', '"e7"'))
    with pytest.raises(InputError, match=f"names the {new}, which is unknown"):
        train(scored(inputs, lists), tmp_path / "run")
    assert not (tmp_path / "run" / "work" / "checkpoints").exists()


def test_workers_make_the_same_batches(inputs, unbroken, tmp_path):
    config = configuration(inputs, model={"trained": "all"}, optimizer={"workers": 2})
    train(config, tmp_path / "run")
    assert_same_run(tmp_path / "run", unbroken("all"))
