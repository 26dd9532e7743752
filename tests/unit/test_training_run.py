"""Training runs from end to end, with a tiny encoder: a run takes a second."""

import json
import math
import re
import shutil
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
import yaml
from safetensors import SafetensorError
from safetensors.torch import load_file

from lexicept.candidates.lists import CandidateList, Lists, write_lists
from lexicept.corpora import read_documents, read_qrels, read_queries
from lexicept.encoding.head_settings import HeadSettings
from lexicept.encoding.index_settings import IndexSettings
from lexicept.errors import InputError, LexiceptError, LexiceptWarning
from lexicept.evaluation.effectiveness import JudgedQueries, evaluate_index
from lexicept.index.reader import IndexReader
from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.heads.language import language_head
from lexicept.neural.heads.vocabulary import VocabularyHead
from lexicept.neural.sae.states import backbone_reader
from lexicept.progress import silent
from lexicept.training.ranking import run as run_module
from lexicept.training.ranking.collection import RunFolder, read_run_data
from lexicept.training.ranking.config import DataSettings, load_config
from lexicept.training.ranking.data import Collator, Sampler
from lexicept.training.ranking.run import train
from lexicept.training.ranking.trainer import Trainer, last_checkpoint
from lexicept.training.ranking.validation import NamedTexts, RetrievalEvaluator
from lexicept.training.sae.trainer import train_on_states
from support.commands import assert_error
from support.runs import (
    KilledError,
    assert_same_model,
    assert_same_run,
    configuration,
    kill_at_the_end,
    kill_in_report,
    kill_in_step,
    kill_while_saving,
    killed_run,
    metrics,
    tensors,
)
from support.tiny import WORDS, save_collection, tiny_backbone

pytestmark = pytest.mark.usefixtures("_hasty")

TRAINED = pytest.mark.parametrize("trained", ["head", "all", "lora"])

SAE = {"num_latents": 40, "k": 4, "tokens": 600, "batch_size": 100, "warmup_steps": 1}


def new_sae(positions):
    """Return the settings of a model with an SAE trained first."""
    return {"start": None, "backbone": str(positions / "bert"), "sae": SAE}


def best_of(folder):
    """Return the line of the validation that selected the model."""
    validations = [line for line in metrics(folder) if "eval_ndcg" in line]
    return max(validations, key=lambda line: line["eval_selection"])


# What a run leaves


def test_a_run_leaves_a_model_and_its_story(unbroken, inputs):
    folder = unbroken("lora")
    lines = metrics(folder)
    assert [line["step"] for line in lines] == [2, 2, 4, 4, 5, 5]
    losses = ["kl", "margin_mse", "in_batch", "query_flops", "document_df_flops"]
    losses += ["joint_flops"]
    for told, validated in zip(lines[::2], lines[1::2], strict=True):
        keys = {"step", "loss", "grad_norm", "learning_rate", "scale", "scale_learning_rate"}
        assert set(told) == keys | {*losses}
        assert told["loss"] == pytest.approx(sum(told[name] for name in losses), abs=1e-3)
        assert 0 < validated["eval_ndcg"] <= 1
        assert validated["eval_selection"] == validated["eval_ndcg"]
    _, front, body = (folder / "model" / "README.md").read_text().split("---\n", 2)
    assert yaml.safe_load(front)["library_name"] == "sentence-transformers"
    metric_names = [line.split(" | ")[0] for line in body.splitlines() if line.startswith("|")]
    assert metric_names == ["| step", "| ---", "| 2", "| 4", "| 5"]
    assert load_config(folder / "config.yaml") == configuration(inputs, model={"trained": "lora"})
    assert body.count(str(inputs / "start")) == 2  # what it started from, in words and in the YAML


@TRAINED
def test_only_what_is_trained_has_changed(unbroken, inputs, trained):
    before, after = tensors(inputs / "start"), tensors(unbroken(trained) / "model")
    assert before.keys() == after.keys()
    changed = {name for name, value in before.items() if not torch.equal(after[name], value)}
    head = {name for name in before if name.startswith("1_")}
    backbone = {name for name in before if name not in head}
    assert head <= changed
    if trained == "head":
        assert changed == head
    elif trained == "lora":  # adapters sit on matrices of the blocks
        expected = {n for n in backbone if "encoder.layer" in n and n.endswith("weight")}
        assert changed == head | {n for n in expected if "LayerNorm" not in n}
    else:
        still = {n.rsplit("embeddings.", 1)[-1] for n in backbone - changed}
        assert still <= {"token_type_embeddings.weight"}


@pytest.mark.parametrize("trained", ["head", "lora"])
def test_a_model_is_what_the_run_validated(unbroken, inputs, trained, run, tmp_path):
    """Words and concepts in one index find the same as the best validation."""
    folder, index = unbroken(trained), tmp_path / "index"
    beir = str(inputs / "beir")
    report = run("build", beir, "--out", index, "--model", folder / "model", "--json").json
    own = Encoder.load(folder / "model")
    concepts = report["vocabularies"][1]
    assert own.index_settings == IndexSettings("splade")
    scale = own.head.settings.query_scale
    assert concepts["weighting"] == {"name": "splade", "query_scale": scale}
    opened = IndexReader.open(index)
    queries, qrels = list(read_queries(beir, "dev")), list(read_qrels(beir, "dev"))
    scores, best = evaluate_index(opened, JudgedQueries(queries, qrels)).values, best_of(folder)
    # States are cached in half precision where the head alone is trained.
    error = 0.02 if trained == "head" else 1e-6
    assert scores["nDCG@10"] == pytest.approx(best["eval_ndcg"], abs=error)
    assert scores["qd_flops"] == pytest.approx(best["eval_qd_flops"], rel=0.02)


def test_a_pruned_model_is_what_the_run_validated(inputs, run, tmp_path):
    limits = {"query_max_active_dims": 3, "document_max_active_dims": 8, "pruning": "impact"}
    lengths = {"max_query_tokens": 8, "max_document_tokens": 12}
    model = {"trained": "all", "pooling": "sqrt_sum", **limits, **lengths}
    train(configuration(inputs, model=model, loss={"words": 0.0}), tmp_path / "run")
    model_folder, best = tmp_path / "run" / "model", best_of(tmp_path / "run")
    backbone = Encoder.load(model_folder).backbone
    assert (backbone.max_query_tokens, backbone.max_document_tokens) == (8, 12)
    assert (best["eval_query_length"], best["eval_document_length"]) == (3, 8)
    index, beir = tmp_path / "index", str(inputs / "beir")
    arguments = ("--vocabulary", "concepts", "--json")
    assert run("build", beir, "--out", index, "--model", model_folder, *arguments).code == 0
    assert IndexReader.open(index).settings["concepts"].pruning == "impact"
    output = run("evaluate", index, beir, "--split", "dev", "--json").json
    output = output["systems"]["concepts"]["values"]
    assert output["nDCG@10"] == pytest.approx(best["eval_ndcg"], abs=1e-6)
    assert output["qd_flops"] == pytest.approx(best["eval_qd_flops"])


def test_the_scale_that_was_learned_is_the_model_s(unbroken, inputs):
    """Anew, whatever the scale of the encoder that training starts from."""
    folder, best = unbroken("head"), best_of(unbroken("head"))["step"]
    state = load_file(folder / "work" / "checkpoints" / f"checkpoint-{best}" / "model.safetensors")
    scale = math.exp(float(state["objective.log_scale"])) / float(state["objective.word_weight"])
    assert scale == pytest.approx(0.3 / 0.5, rel=0.3)
    assert scale != pytest.approx(0.3 / 0.5, rel=1e-3)
    assert Encoder.load(inputs / "start").head.settings.query_scale == 3.0
    assert Encoder.load(folder / "model").head.settings.query_scale == pytest.approx(scale)


def test_prompts_of_the_start_are_read_in_training_and_validation(inputs, tmp_path):
    """Cached states and texts give one loss and one nDCG, other ones than without prompts."""
    torch.manual_seed(3)
    head = VocabularyHead(torch.randn(50, 32) * 0.3, torch.zeros(50), ["w"] * 50)
    encoder = Encoder.of(tiny_backbone(tmp_path / "bert", dropout=0.0), head)
    prompts = {"without": {"query": "", "document": ""}}
    prompts["with"] = {"query": "bade kilo ", "document": "mulo "}
    for name, texts in prompts.items():
        encoder.prompts = texts
        encoder.save(str(tmp_path / name), create_model_card=False)
    once = {"steps": 1, "accumulation": 1, "learning_rate": 1e-9, "mini_batch": None}
    lines = {}
    for trained, start in (("head", "with"), ("all", "with"), ("none", "without")):
        model = {"start": str(tmp_path / start), "trained": trained.replace("none", "head")}
        config = configuration(inputs, model=model, optimizer=once, validation={"every": 1})
        folder = train(config, tmp_path / trained)
        lines[trained] = metrics(tmp_path / trained)
        assert Encoder.load(folder).prompts == prompts[start]
    for index, measure in ((0, "loss"), (1, "eval_ndcg"), (1, "eval_qd_flops")):
        expected = lines["head"][index][measure]
        assert lines["all"][index][measure] == pytest.approx(expected, rel=5e-3)
        assert lines["none"][index][measure] != pytest.approx(expected, rel=5e-3)


def test_documents_are_counted_in_every_step(unbroken, inputs):
    """The objective is in training mode after a validation too."""
    folder = unbroken("all")
    sampler = Sampler(_Rows(Lists.open(folder / "work" / "lists.jsonl")), 2, 1.0, 0)
    batches = [range(n, n + 3) for n in range(0, 30, 3)]
    expected = sum(len({d for n in batch for d in sampler[n].documents}) for batch in batches)
    state = load_file(folder / "work" / "checkpoints" / "checkpoint-5" / "model.safetensors")
    assert int(state["objective.df.document.count"]) == expected


class _Rows:
    """As much of training data as a sampler needs; ids stand for numbers."""

    def __init__(self, lists):
        self.lists = lists

    def query_index(self, name):
        return name

    def document_indices(self, names):
        return list(names)


CHECKPOINT_FILES = {
    *("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json")
}


def test_checkpoints_hold_no_code(unbroken):
    folder = unbroken("lora") / "work" / "checkpoints"
    remaining = [path for path in folder.iterdir() if path.name != "eval"]
    assert len(remaining) == 2
    for checkpoint in remaining:
        assert {path.name for path in checkpoint.iterdir()} == CHECKPOINT_FILES | {"checksums.json"}
        for name in ("optimizer.pt", "scheduler.pt"):
            assert torch.load(checkpoint / name, weights_only=True)


# Killed runs


def test_damaged_checkpoints_are_passed_over(unbroken, tmp_path):
    shutil.copytree(unbroken("head") / "work" / "checkpoints", tmp_path, dirs_exist_ok=True)
    older, newest = sorted(tmp_path.glob("checkpoint-*"), key=lambda path: path.name)
    for name in CHECKPOINT_FILES:
        assert last_checkpoint(tmp_path) == str(newest)
        data = (newest / name).read_bytes()
        for damaged in (b"", data[:-1], b"x" + data[1:]):
            (newest / name).write_bytes(damaged)
            with pytest.warns(LexiceptWarning, match=rf"{newest}: .*{name}.*not resumed from"):
                assert last_checkpoint(tmp_path) == str(older)
        (newest / name).write_bytes(data)
    (newest / "checksums.json").unlink()  # an interrupted write, as every kill leaves it
    assert last_checkpoint(tmp_path) == str(older)


def test_a_run_with_damaged_checkpoints_ends_as_an_unbroken_one(inputs, unbroken, tmp_path):
    folder = tmp_path / "run"
    killed_run(configuration(inputs), folder, kill_in_step, 4)
    for step in (2, 4):
        (folder / "work" / "checkpoints" / f"checkpoint-{step}" / "optimizer.pt").write_bytes(b"")
    (folder / "work" / "lists.jsonl").write_bytes(b"")
    with pytest.warns(LexiceptWarning) as told:
        train(configuration(inputs), folder)
    messages = [str(warning.message) for warning in told]
    assert len(messages) == 3
    assert "lists.jsonl has 0 bytes" in messages[0]
    assert messages[0].endswith("made again")
    for message in messages[1:]:
        assert "optimizer.pt has 0 bytes" in message
        assert message.endswith("not resumed from")
    assert_same_run(folder, unbroken("head"))


def test_a_full_disk_is_one_line(inputs, unbroken, tmp_path, monkeypatch, run):
    """torch, safetensors and tokenizers have errors of their own for it."""
    config, out = tmp_path / "config.yaml", tmp_path / "run"
    config.write_text(yaml.safe_dump(asdict(configuration(inputs))))

    def no_room(*_, **__):
        raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 3 vs 2")

    def no_room_in_rust(*_, **__):
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("shutil.disk_usage", lambda _: shutil._ntuple_diskusage(9, 9, 1000))
    checkpoint = out / "work" / "checkpoints" / "checkpoint-2"
    for owner, name, error, path in (
        (torch, "save", no_room, checkpoint),
        (Encoder, "save", no_room_in_rust, out / "model.unfinished"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, error)
            full = run("train", config, "--out", out)
        assert_error(full, f"{path}: No space left on device (")
        assert re.search(r"MB to write, 0\.0 MB free", full.err)
    assert not (out / "model.unfinished").exists()
    assert run("train", config, "--out", out).code == 0
    assert_same_model(out / "model", unbroken("head") / "model")


@pytest.mark.parametrize(
    ("trained", "kills"),
    [
        (
            "head",
            [
                *((kill_in_report, "mining"), (kill_in_report, "states"), (kill_in_step, 0.5)),
                *((kill_while_saving, 2), (kill_in_step, 3), (kill_while_saving, 4)),
                *((kill_in_step, 4.5), (kill_at_the_end, 0)),
            ],
        ),
        ("all", [(kill_in_step, 1.5), (kill_in_report, 2)]),
        ("lora", [(kill_in_step, 3.5), (kill_at_the_end, 0)]),
    ],
)
def test_a_run_that_was_killed_goes_on_to_the_same_end(inputs, unbroken, tmp_path, trained, kills):
    """Also where the folder was moved."""
    config, folder = configuration(inputs, model={"trained": trained}), tmp_path / "run"
    for how, step in kills:
        killed_run(config, folder, how, step)
    folder = folder.rename(tmp_path / "moved")
    assert train(config, folder) == folder / "model"
    assert_same_run(folder, unbroken(trained))


@pytest.mark.parametrize("trained", ["head", "all"])
def test_a_run_over_two_collections(inputs, tmp_path, monkeypatch, trained):
    """A document's id may be in both; after a kill the batches are the same."""
    other = {"corpus": save_collection(tmp_path / "other", 12, 9), "weight": 2.0, "negatives": 1}
    further = [{**other, "queries": other["corpus"]}]
    sizes, make = [], Collator.__call__
    monkeypatch.setattr(
        Collator,
        "__call__",
        lambda collator, rows: sizes.append(len(collator.data.documents)) or make(collator, rows),
    )
    one = configuration(inputs, model={"trained": trained})
    config = replace(one, more_data=load_config({**asdict(one), "more_data": further}).more_data)
    train(config, tmp_path / "unbroken")
    assert set(sizes) == {40, 12}
    killed_run(config, tmp_path / "run", kill_in_step, 3)
    train(config, tmp_path / "run")
    assert_same_run(tmp_path / "run", tmp_path / "unbroken")
    missing = replace(config, more_data=(DataSettings(str(tmp_path / "nowhere")),))
    with pytest.raises(InputError, match="nowhere"):
        train(missing, tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_queries_held_out_are_in_no_further_collection(inputs, tmp_path):
    run = configuration(inputs, validation={"queries": None})
    data = data_of(run, tmp_path / "run")
    further = data_of(run, tmp_path / "further", data.validation)
    assert len(data.validation.queries) == 2
    assert further.training.query_ids == data.training.query_ids
    assert {item.query_id for item in further.training.lists} == {*data.training.query_ids}


def test_adapters_start_the_same_after_a_kill_while_an_sae_is_trained(inputs, tmp_path):
    """Random draws of the SAE's training must not decide the adapters' start."""
    config = configuration(
        inputs, model={**new_sae(inputs), "trained": "lora"}, optimizer={"steps": 1}
    )
    train(config, tmp_path / "unbroken")
    killed_run(config, tmp_path / "run", kill_in_step, 0)
    train(config, tmp_path / "run")
    assert_same_run(tmp_path / "run", tmp_path / "unbroken")


# Which checkpoint

REPORTS = {1: (0.9, 9.0), 2: (0.3, 4.0), 3: (0.5, 5.0), 4: (0.4, 1.0), 5: (0.8, 5.1)}
"""Scripted validations by step: nDCG and QD-FLOPs."""


@pytest.mark.parametrize(
    ("validation", "best"),
    [({}, 1), ({"checkpoint": "last"}, 5)],
    ids=["best", "last, as in the papers"],
)
def test_the_checkpoint_that_is_saved(inputs, tmp_path, monkeypatch, validation, best):
    recorded = {}

    def validate(self, model, *_, steps, **__):
        recorded[steps] = {name: value.clone() for name, value in model[-1].state_dict().items()}
        ndcg, flops = REPORTS[steps]
        report = {"ndcg": ndcg, "mrr": ndcg, "qd_flops": flops, "e2": ndcg - 0.01 * flops}
        report |= {"query_length": 1.0, "document_length": 1.0}
        return report | {"selection": self.selection(report)}

    monkeypatch.setattr(RetrievalEvaluator, "__call__", validate)
    optimizer = {"accumulation": 1, "mini_batch": None, "batch_size": 2}
    config = configuration(inputs, optimizer=optimizer, validation={"every": 1, **validation})
    saved = Encoder.load(train(config, tmp_path / "run"))[1].state_dict()
    assert list(recorded) == [1, 2, 3, 4, 5]
    same = [
        step
        for step, state in recorded.items()
        if all(torch.equal(saved[name], value) for name, value in state.items())
    ]
    assert same == [best]


@pytest.mark.parametrize(
    ("settings", "best"),
    [({}, 1), ({"select": "E2"}, 5), ({"select": "R@10"}, 2), ({"select": "RR@10"}, 2)],
)
def test_selection(inputs, settings, best):
    evaluator = make_evaluator(inputs, **settings)
    selections = {
        step: evaluator.selection(
            {"ndcg": ndcg, "e2": ndcg - 0.05 * flops, "R@10": 1 - ndcg, "mrr": 1 - ndcg}
        )
        for step, (ndcg, flops) in REPORTS.items()
    }
    assert max(selections, key=lambda step: selections[step]) == best


# Validation


def make_evaluator(positions, **settings):
    queries = list(read_queries(positions / "beir", "dev"))
    documents = list(read_documents(positions / "beir"))
    return RetrievalEvaluator(
        NamedTexts([query.id for query in queries], [query.text for query in queries]),
        NamedTexts([document.id for document in documents], [d.text for d in documents]),
        list(read_qrels(positions / "beir", "dev")),
        configuration(positions, validation=settings).validation,
    )


@pytest.mark.parametrize("pooling", ["max", "sum", "sqrt_sum"])
def test_a_validation_prunes_as_the_model_or_as_it_is_told(inputs, pooling):
    encoder = Encoder.load(inputs / "start")
    encoder[1].configure(pooling=pooling)
    whole = make_evaluator(inputs)(encoder)
    assert whole["query_length"] > 9
    encoder[1].configure(query_max_active_dims=2, document_max_active_dims=3)
    own = make_evaluator(inputs)(encoder)
    assert (own["query_length"], own["document_length"]) == (2, 3)
    told = make_evaluator(inputs, query_max_active_dims=5, document_max_active_dims=9)(encoder)
    assert (told["query_length"], told["document_length"]) == (5, 9)
    assert own["qd_flops"] < told["qd_flops"] < whole["qd_flops"]


def test_a_validation_finds_what_scores_most(inputs):
    encoder = Encoder.load(inputs / "start")
    encoder.index_settings = IndexSettings("splade")
    evaluator = make_evaluator(inputs)
    vectors = encoder.encode_document(evaluator.documents.texts).to_dense()
    scores = encoder.encode_query(evaluator.queries.texts).to_dense() @ vectors.T
    positions = [evaluator.documents.ids.index(qrel.document_id) for qrel in evaluator.qrels]
    ranks = [
        1 + int((scores_of_query > scores_of_query[p]).sum())
        for scores_of_query, p in zip(scores, positions, strict=True)
    ]
    gains = [1 / math.log2(rank + 1) if rank <= 10 else 0.0 for rank in ranks]
    report = evaluator(encoder)
    assert report["ndcg"] == pytest.approx(float(np.mean(gains)))
    recalled = make_evaluator(inputs, select="R@3")(encoder)
    assert recalled["R@3"] == recalled["selection"] == pytest.approx(np.mean(np.array(ranks) <= 3))
    assert report["mrr"] == pytest.approx(np.mean([1 / r if r <= 10 else 0.0 for r in ranks]))
    assert 0 < report["ndcg"] < 1


def test_a_validation_over_some_of_other_documents_has_the_relevant_ones(
    inputs, tmp_path, monkeypatch
):
    recorded = []
    call = RetrievalEvaluator.__call__
    monkeypatch.setattr(
        RetrievalEvaluator,
        "__call__",
        lambda self, *_, **__: recorded.append(self) or call(self, *_),
    )
    other = save_collection(tmp_path / "beir", documents=30)
    validation = {"corpus": other, "count": 5, "documents": 15}
    train(configuration(inputs, optimizer={"steps": 1}, validation=validation), tmp_path / "run")
    (evaluator,) = recorded
    names = evaluator.documents.ids
    assert names == [d.id for d in read_documents(other) if d.id in names]
    assert {query.replace("q", "d") for query in evaluator.queries.ids} < {*names}
    assert len(names) == evaluator.words.documents.shape[0] == 15
    states = tmp_path / "run" / "work" / "states"
    starts = {path.parts[-3]: path for path in states.glob("*/*/000000.starts.npy")}
    assert {name: len(np.load(path)) - 1 for name, path in starts.items()} == {
        "queries": 20,
        "documents": 40,
        "validation-queries": 5,
        "validation-documents": 15,
    }


# Data


def data_of(config, folder, held_out=None):
    """Return the data that a run would read."""
    run = RunFolder(config, folder, folder / "work", silent, writes=True)
    return read_run_data(run, held_out)


def test_without_queries_pseudo_queries_are_made_and_some_are_held_out(inputs, tmp_path):
    config = configuration(
        inputs, data={"queries": None}, validation={"queries": None}, optimizer={"steps": 1}
    )
    folder = tmp_path / "run"
    train(config, folder)
    assert metrics(folder)[-1]["eval_ndcg"] > 0
    lists = [candidates.query_id for candidates in Lists.open(folder / "work" / "lists.jsonl")]
    held = {query.id for query in read_queries(folder / "held-out", "dev")}
    # 4 of each of 40 documents, but 3 of one, of which one tenth is held out.
    assert (len(lists), len(held)) == (144, 15)
    assert not held & set(lists)


def test_without_validation_the_last_step_is_the_model(inputs, tmp_path):
    """A tenth of few queries is none."""
    config = configuration(inputs, data={"count": 9}, validation={"queries": None})
    train(config, tmp_path / "run")
    lines = metrics(tmp_path / "run")
    assert [line["step"] for line in lines] == [2, 4, 5]
    assert all("loss" in line for line in lines)
    checkpoint = tmp_path / "run" / "work" / "checkpoints" / "checkpoint-5"
    last = load_file(checkpoint / "model.safetensors")
    saved = Encoder.load(tmp_path / "run" / "model")[1]
    assert torch.equal(saved.weight, last["model.0.weight"])
    assert "There was none." in (tmp_path / "run" / "model" / "README.md").read_text()


def test_lists_of_queries_that_are_held_out_are_left_out(inputs, tmp_path):
    lists = [CandidateList(f"q{n}", (f"d{n}", "d30", "d31"), 1) for n in range(20)]
    write_lists(tmp_path / "lists.jsonl", lists)
    config = configuration(
        inputs, data={"lists": str(tmp_path / "lists.jsonl")}, validation={"queries": None}
    )
    data = data_of(config, tmp_path / "run")
    held_out = data.validation.queries
    assert len(held_out) == 2
    assert list(data.training.lists) == [item for item in lists if item.query_id not in held_out]


def test_queries_without_relevant_documents(inputs, tmp_path):
    """They are learned from by their candidates, and not validated on."""
    shutil.copytree(inputs / "beir", tmp_path / "beir")
    qrels = "".join(f"q{n}\td{n}\t{int(n % 2 == 0)}\n" for n in range(20))
    (tmp_path / "beir" / "qrels" / "train.tsv").write_text(f"query-id\tcorpus-id\tscore\n{qrels}")
    config = configuration(
        inputs, data={"queries": str(tmp_path / "beir")}, validation={"queries": None}
    )
    lists = data_of(config, tmp_path / "run").training.lists
    assert len(lists) == 19  # one of ten with a relevant document is held out
    assert sum(candidates.relevant == 0 for candidates in lists) == 10


# What can go wrong


def test_a_loss_that_is_no_number_names_the_queries(inputs, tmp_path):
    config = configuration(inputs, optimizer={"learning_rate": 1e30, "warmup_steps": 0})
    with pytest.raises(LexiceptError, match="the loss is not finite at step 1: ") as error:
        train(config, tmp_path / "run")
    sampler = Sampler(_Rows(Lists.open(tmp_path / "run" / "work" / "lists.jsonl")), 2, 1.0, 0)
    expected = ", ".join(sampler[n].query for n in range(6, 9))
    assert str(error.value).endswith(f"queries of the batch: {expected}")


@pytest.mark.parametrize(("side", "checkpoint"), [("query", "best"), ("document", "last")])
def test_a_run_whose_vectors_are_all_empty_is_an_error(inputs, tmp_path, side, checkpoint):
    heavy = {"kind": "flops", "weight": 1e9, "schedule": "constant"}
    config = configuration(
        inputs,
        loss={"words": 0.0, "margin_mse": 0.0, "in_batch": 1e-6},
        optimizer={"learning_rate": 1.0, "steps": 8},
        validation={"checkpoint": checkpoint, "every": 8},
        **{f"{side}_regularizer": heavy},
    )
    message = r"collapsed: the vector of every \w+ is empty after 8 steps; a lower \w+_regularizer"
    for _ in range(2):  # a resumed run ends as the first one
        with pytest.raises(InputError, match=message):
            train(config, tmp_path / "run")
        assert not (tmp_path / "run" / "model").exists()


def test_another_configuration_needs_another_folder_or_a_restart(inputs, tmp_path, unbroken):
    config, folder = configuration(inputs), tmp_path / "run"
    killed_run(config, folder, kill_in_step, 0)
    before = (folder / "config.yaml").read_text()
    other = replace(config, optimizer=replace(config.optimizer, seed=1, steps=1))
    with pytest.raises(InputError, match=r"config\.optimizer\.steps was 5 and is now 1"):
        train(other, folder)
    assert (folder / "config.yaml").read_text() == before
    train(other, folder, restart=True)
    assert load_config(folder / "config.yaml").optimizer == other.optimizer
    with pytest.raises(InputError, match="this run is finished; name another folder, or --restart"):
        train(config, unbroken("head"))


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"teacher": {"bm25_weight": 0.0}}, r"loss\.margin_mse require teacher\.dense"),
        ({"model": {"start": "nowhere"}}, r"nowhere: no such folder"),
        ({"data": {"split": "test"}}, "no split 'test'"),
    ],
)
def test_inputs_that_are_not_there(inputs, tmp_path, sections, message):
    with pytest.raises(InputError, match=message):
        train(configuration(inputs, **sections), tmp_path / "run")


# The optimiser


@pytest.mark.parametrize(
    ("trained", "loss", "factors"),
    [
        ("head", {}, {"log_scale", "word_weight"}),
        ("lora", {"words": 0.0}, {"log_scale"}),
        ("all", {"scale_learning_rate": 0.0}, set()),
    ],
)
def test_the_optimiser_has_what_learns_and_nothing_else(
    inputs, tmp_path, monkeypatch, trained, loss, factors
):
    trainers = []

    class Kept(Trainer):
        def fit(self):
            self.create_optimizer()
            trainers.append(self)
            raise KilledError

    monkeypatch.setattr(run_module, "Trainer", Kept)
    model, optimizer = {"trained": trained}, {"weight_decay": 0.5}
    with pytest.raises(KilledError):
        train(configuration(inputs, model=model, loss=loss, optimizer=optimizer), tmp_path / "run")
    (trainer,) = trainers
    names = {id(value): name for name, value in trainer.objective.named_parameters()}
    rates = {}
    for group in trainer.optimizer.param_groups:
        for value in group["params"]:
            assert names[id(value)] not in rates
            rates[names[id(value)]] = group["lr"]
            assert group["weight_decay"] == (0.5 if value.ndim > 1 else 0.0)
    learns = {n for n, value in trainer.objective.named_parameters() if value.requires_grad}
    assert set(rates) == learns
    assert {name for name in learns if not name.startswith("model.")} == factors
    assert all(rates[name] == 0.02 for name in factors)
    assert {rates[name] for name in learns - factors} == {2e-5 if trained == "all" else 1e-3}
    backbone = {name for name in learns if name.startswith("model.0.model.")}
    if trained == "head":
        assert learns - factors == {f"model.0.{n}" for n, _ in trainer.model[0].named_parameters()}
    elif trained == "lora":
        assert backbone
        assert all("lora_" in name for name in backbone)
    else:
        assert len(backbone) == sum(1 for _ in trainer.model[0].parameters())


def test_low_precision_is_near(inputs, tmp_path, bfloat16):
    """Where the backbone is trained too, and passed twice."""
    results = []
    for bf16 in (True, False):
        config = configuration(
            inputs,
            model={"trained": "all"},
            optimizer={"bf16": bf16, "steps": 1},
            validation={"every": 1},
        )
        train(config, tmp_path / str(bf16))
        results.append(metrics(tmp_path / str(bf16))[0])
    assert results[0] != results[1]
    assert results[0] == pytest.approx(results[1], rel=0.05, abs=1e-4)


@pytest.mark.parametrize("rate", [2e-5, 0.0])
def test_the_factor_on_scores_is_logged_with_its_learning_rate(inputs, tmp_path, rate):
    """SAE-SPLADE's code: one learning rate, 2e-5, for all parameters."""
    loss = {"scale": 0.5, "scale_learning_rate": rate}
    optimizer = {"steps": 2, "warmup_steps": 0, "schedule": "constant", "learning_rate": 2e-5}
    train(configuration(inputs, loss=loss, optimizer=optimizer), tmp_path / "run")
    (line,) = [line for line in metrics(tmp_path / "run") if "loss" in line]
    if rate:
        assert line["scale_learning_rate"] == line["learning_rate"] == pytest.approx(2e-5)
        # Two steps of AdamW move the logarithm by at most two times the rate.
        assert 0 < abs(math.log(line["scale"] / 0.5)) <= 2 * 2e-5 * 1.01
    else:
        assert "scale_learning_rate" not in line
        assert line["scale"] == pytest.approx(0.5)


# New heads


@pytest.fixture
def read_states(monkeypatch):
    """The states that SAEs are trained on, and the decoders at the end of their trainings."""
    states, decoders = [], []

    def spy(reader, count, *arguments, **named):
        states.append(reader(range(count)))
        sae = train_on_states(reader, count, *arguments, **named)
        decoders.append(sae.W_dec.clone())
        return sae

    # From cached states, or from the backbone.
    for module in ("training.ranking.initial_encoder", "training.sae.trainer"):
        monkeypatch.setattr(f"lexicept.{module}.train_on_states", spy)
    return states, decoders


@pytest.mark.parametrize("trained", ["head", "all"])
def test_an_sae_on_transformed_states_of_documents_and_queries(
    inputs, tmp_path, read_states, trained
):
    model = {**new_sae(inputs), "sae_queries": True}
    model |= {"sae_input": "transformed", "trained": trained}
    train(configuration(inputs, model=model, optimizer={"steps": 1}), tmp_path / "run")
    texts = [document.content for document in read_documents(str(inputs / "beir"))]
    texts += [query.text for query in read_queries(str(inputs / "beir"), "train")]
    backbone = Backbone.from_pretrained(str(inputs / "bert"))
    transform = language_head(str(inputs / "bert")).transform
    expected = backbone_reader(backbone, texts, transform)(range(len(texts)))
    (states,), _ = read_states
    assert sorted(states.sum(dim=1).tolist()) == pytest.approx(
        sorted(expected.sum(dim=1).tolist()), rel=1e-2, abs=1e-2
    )  # in whatever order texts of one length came
    head = Encoder.load(tmp_path / "run" / "model")[1]
    assert head.inner.d_in == head.sae.d_in == 32
    assert head.sae.origin == {"bidirectional": True}  # no hook of a model has such states


@pytest.mark.parametrize(("trained", "weight"), [("head", 1.0), ("all", 0.0)])
def test_an_sae_is_trained_first(inputs, tmp_path, read_states, trained, weight):
    """Its decoder learns where the SAE also reconstructs; special tokens count in all of a run."""
    model = {**new_sae(inputs), "layer": 1, "trained": trained, "special_tokens": True}
    model |= {"pooling": "sum", "query_k": 0, "document_max_active_dims": 7}
    loss = {"words": 0.0, "reconstruction": weight}
    optimizer = {"steps": 2, "mini_batch": None}
    train(configuration(inputs, model=model, loss=loss, optimizer=optimizer), tmp_path / "run")
    encoder, lines = Encoder.load(tmp_path / "run" / "model"), metrics(tmp_path / "run")
    backbone, head = encoder.backbone, encoder.head
    assert (backbone.num_layers, head.size) == (1, 40)
    expected = HeadSettings("sum", None, 4, document_max_active_dims=7, query_scale=1.0)
    assert head.settings == expected
    assert encoder.index_settings == IndexSettings("splade")
    assert backbone.special_tokens
    assert backbone.preprocess(["baba"])["token_mask"].tolist() == [[True] * 3]
    documents = [document.content for document in read_documents(str(inputs / "beir"))]
    lengths = (encoder.encode_activations(documents).toarray() > 0).sum(axis=1)
    assert lines[-1]["eval_document_length"] == pytest.approx(np.minimum(lengths, 7).mean())
    origin = {"hook": "encoder.layer.0", "layer": 1, "bidirectional": True}
    if trained == "head":  # otherwise the states are those of a model of its own
        origin["model"] = str(inputs / "bert")
    assert head.sae.origin == origin
    (_, (decoder,)) = read_states
    assert torch.equal(head.sae.W_dec, decoder) is (weight == 0)
    assert any("reconstruction" in line for line in lines) is (weight > 0)


@pytest.mark.filterwarnings("ignore:the trained model can't be written")
@pytest.mark.parametrize(
    ("head", "size", "expected"), [("mlm", None, 82), ("random", 19, 19), ("expanded", 20, 20)]
)
def test_heads_that_are_made_for_a_run(inputs, tmp_path, head, size, expected):
    """The first begins with few active dimensions, by one shift of all biases."""
    model = {"start": None, "backbone": str(inputs / "bert"), "head": head, "size": size}
    model["initial_active_dims"] = 2 if head == "mlm" else None
    config = configuration(inputs, model=model, optimizer={"steps": 1, "learning_rate": 1e-12})
    trained = Encoder.load(train(config, tmp_path / "run"))[1]
    assert trained.size == expected
    if head == "mlm":
        shift = trained.bias - language_head(str(inputs / "bert")).bias
        assert shift.max() < 0
        assert torch.allclose(shift, shift[0], atol=1e-5)
    if head == "expanded":
        assert set(trained.terms) < set(WORDS)


# The command line


def test_the_command_prints_what_was_best(run, inputs, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps(asdict(configuration(inputs))))  # JSON is YAML
    changed = ["--set", "optimizer.steps=1", "--set", "validation.every=1"]
    report = run("train", path, "--out", tmp_path / "run", *changed, "--json").json
    assert load_config(tmp_path / "run" / "config.yaml").optimizer.steps == 1
    best = best_of(tmp_path / "run")
    names = ("step", "eval_ndcg", "eval_mrr", "eval_qd_flops", "eval_e2")
    assert report == {
        "model": str(tmp_path / "run" / "model"),
        **{name: best[name] for name in names},
    }
    assert_error(run("train", path, "--out", tmp_path / "run", *changed), "this run is finished")
