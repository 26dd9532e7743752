"""Training runs from end to end, with a tiny encoder: a run takes a second."""

import json
import math
import re
import shutil
from dataclasses import asdict, replace
from pathlib import Path

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
from lexicept.training.ranking import run as run_module
from lexicept.training.ranking.config import load_config
from lexicept.training.ranking.data import Sampler
from lexicept.training.ranking.run import train
from lexicept.training.ranking.trainer import Trainer, last_checkpoint
from lexicept.training.ranking.validation import NamedTexts, RetrievalEvaluator
from lexicept.training.sae.trainer import train_on_states
from support.commands import assert_error
from support.runs import (
    KilledError,
    assert_same_model,
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


@pytest.fixture(scope="module")
def unbroken(inputs, tmp_path_factory):
    """Uninterrupted runs, by trained parts."""
    results = {}

    def get(trained):
        if trained not in results:
            folder = tmp_path_factory.mktemp("unbroken") / "run"
            train(configuration(inputs, model={"trained": trained}), folder)
            results[trained] = folder
        return results[trained]

    return get


def assert_same_run(left, right):
    assert metrics(left) == metrics(right)
    assert_same_model(left / "model", right / "model")


# What a run leaves


@TRAINED
def test_a_run_leaves_a_model_and_its_story(unbroken, inputs, trained):
    folder = unbroken(trained)
    lines = metrics(folder)
    assert [line["step"] for line in lines] == [4, 4, 8, 8, 10, 10]
    losses = ["kl", "margin_mse", "in_batch", "query_flops", "document_df_flops"]
    losses += ["joint_flops"]
    for told, validated in zip(lines[::2], lines[1::2], strict=True):
        keys = {"step", "loss", "grad_norm", "learning_rate", "scale", "scale_learning_rate"}
        assert set(told) == keys | {*losses}
        assert told["loss"] == pytest.approx(sum(told[name] for name in losses), abs=1e-3)
        assert 0 < validated["eval_ndcg"] <= 1
        assert validated["eval_selection"] == validated["eval_ndcg"]
    card = (folder / "model" / "README.md").read_text()
    _, front, body = card.split("---\n", 2)
    assert yaml.safe_load(front)["library_name"] == "sentence-transformers"
    metric_names = [line.split(" | ")[0] for line in body.splitlines() if line.startswith("|")]
    assert metric_names == ["| step", "| ---", "| 4", "| 8", "| 10"]
    assert load_config(folder / "config.yaml") == configuration(inputs, model={"trained": trained})
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


@TRAINED
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
    scores = evaluate_index(opened, JudgedQueries(queries, qrels)).values
    best = max(metrics(folder)[1::2], key=lambda line: line["eval_selection"])
    # States are cached in half precision where the head alone is trained.
    assert scores["nDCG@10"] == pytest.approx(best["eval_ndcg"], abs=0.02)
    assert scores["qd_flops"] == pytest.approx(best["eval_qd_flops"], rel=0.02)
    if trained != "head":
        assert scores["nDCG@10"] == pytest.approx(best["eval_ndcg"], abs=1e-6)
    assert opened.search([queries[0].text], 3)[0]


@pytest.mark.parametrize(("pooling", "pruning"), [("sum", "weight"), ("sqrt_sum", "impact")])
def test_a_pruned_model_is_what_the_run_validated(inputs, run, tmp_path, pooling, pruning):
    limits = {"query_max_active_dims": 3, "document_max_active_dims": 8, "pruning": pruning}
    lengths = {"max_query_tokens": 8, "max_document_tokens": 12}
    model = {"trained": "all", "pooling": pooling, **limits, **lengths}
    config = configuration(inputs, model=model, loss={"words": 0.0})
    train(config, tmp_path / "run")
    backbone = Encoder.load(tmp_path / "run" / "model").backbone
    assert (backbone.max_query_tokens, backbone.max_document_tokens) == (8, 12)
    best = max(metrics(tmp_path / "run")[1::2], key=lambda line: line["eval_selection"])
    assert (best["eval_query_length"], best["eval_document_length"]) == (3, 8)
    index, beir = tmp_path / "index", str(inputs / "beir")
    arguments = ("--vocabulary", "concepts", "--json")
    model_folder = tmp_path / "run" / "model"
    assert run("build", beir, "--out", index, "--model", model_folder, *arguments).code == 0
    assert IndexReader.open(index).settings["concepts"].pruning == pruning
    output = run("evaluate", index, beir, "--split", "dev", "--json").json
    output = output["systems"]["concepts"]["values"]
    assert output["nDCG@10"] == pytest.approx(best["eval_ndcg"], abs=1e-6)
    assert output["qd_flops"] == pytest.approx(best["eval_qd_flops"])


def test_the_scale_that_was_learned_is_the_model_s(unbroken):
    folder = unbroken("head")
    best = max(metrics(folder)[1::2], key=lambda line: line["eval_selection"])["step"]
    state = load_file(folder / "work" / "checkpoints" / f"checkpoint-{best}" / "model.safetensors")
    scale = math.exp(float(state["objective.log_scale"])) / float(state["objective.word_weight"])
    assert scale != pytest.approx(0.3 / 0.5, rel=1e-3)
    assert Encoder.load(folder / "model")[1].settings.query_scale == pytest.approx(scale)


def test_a_scale_of_the_encoder_it_starts_from_is_learned_anew(inputs, unbroken, tmp_path):
    encoder = Encoder.load(inputs / "start")
    encoder[1].configure(query_scale=3.0)
    encoder.save(str(tmp_path / "start"), create_model_card=False)
    train(configuration(inputs, model={"start": str(tmp_path / "start")}), tmp_path / "run")
    assert_same_run(tmp_path / "run", unbroken("head"))


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
    for trained, start in (("head", "with"), ("lora", "with"), ("all", "without")):
        model = {"start": str(tmp_path / start), "trained": trained}
        config = configuration(inputs, model=model, optimizer=once, validation={"every": 1})
        folder = train(config, tmp_path / trained)
        lines[trained] = metrics(tmp_path / trained)
        assert Encoder.load(folder).prompts == prompts[start]
    for index, measure in ((0, "loss"), (1, "eval_ndcg"), (1, "eval_qd_flops")):
        expected = lines["head"][index][measure]
        assert lines["lora"][index][measure] == pytest.approx(expected, rel=5e-3)
        assert lines["all"][index][measure] != pytest.approx(expected, rel=5e-3)


def test_documents_are_counted_in_every_step(unbroken, inputs):
    """The objective is in training mode after a validation too."""
    folder = unbroken("all")
    data = configuration(inputs)
    lists = Lists.open(folder / "work" / "lists.jsonl")
    sampler = Sampler(_Rows(lists), data.data.negatives, 1.0, 0)
    batches = [range(n, n + 3) for n in range(0, 60, 3)]
    expected = sum(len({d for n in batch for d in sampler[n].documents}) for batch in batches)
    state = load_file(folder / "work" / "checkpoints" / "checkpoint-10" / "model.safetensors")
    assert int(state["objective.df.document.count"]) == expected


class _Rows:
    """As much of training data as a sampler needs; ids stand for numbers."""

    def __init__(self, lists):
        self.lists = lists

    def query_index(self, name):
        return name

    def document_indices(self, names):
        return list(names)


def test_checkpoints_hold_no_code(unbroken):
    folder = unbroken("lora") / "work" / "checkpoints"
    names = {"model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth"}
    remaining = [path for path in folder.iterdir() if path.name != "eval"]
    assert len(remaining) == 2
    for checkpoint in remaining:
        assert {path.name for path in checkpoint.iterdir()} == names | {
            "trainer_state.json",
            "checksums.json",
        }
        for name in ("optimizer.pt", "scheduler.pt"):
            assert torch.load(checkpoint / name, weights_only=True)


# Killed runs


@pytest.mark.parametrize(
    "name",
    ["model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"],
)
def test_damaged_checkpoints_are_passed_over(unbroken, tmp_path, name):
    shutil.copytree(unbroken("head") / "work" / "checkpoints", tmp_path, dirs_exist_ok=True)
    (older, newest) = sorted(tmp_path.glob("checkpoint-*"), key=lambda p: int(p.name[11:]))
    assert last_checkpoint(tmp_path) == str(newest)
    data = (newest / name).read_bytes()
    for damaged in (b"", data[:-1], b"x" + data[1:]):
        (newest / name).write_bytes(damaged)
        with pytest.warns(LexiceptWarning, match=rf"{newest}: .*{name}.*not resumed from"):
            assert last_checkpoint(tmp_path) == str(older)
    (newest / "checksums.json").unlink()  # an interrupted write, as every kill leaves it
    assert last_checkpoint(tmp_path) == str(older)


def test_a_run_with_damaged_checkpoints_ends_as_an_unbroken_one(inputs, unbroken, tmp_path):
    folder = tmp_path / "run"
    killed_run(configuration(inputs), folder, kill_in_step, 9)
    for step in (4, 8):
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
    with monkeypatch.context() as patch:
        patch.setattr("torch.save", no_room)
        full = run("train", config, "--out", out)
    needed = r"MB to write, 0\.0 MB free"
    checkpoint = out / "work" / "checkpoints" / "checkpoint-4"
    assert_error(full, f"{checkpoint}: No space left on device (")
    assert re.search(needed, full.err)
    with monkeypatch.context() as patch:
        patch.setattr(Encoder, "save", no_room_in_rust)
        full = run("train", config, "--out", out)
    assert_error(full, f"{out}/model.unfinished: No space left on device (")
    assert re.search(needed, full.err)
    assert not (out / "model.unfinished").exists()
    assert run("train", config, "--out", out).code == 0
    assert_same_model(out / "model", unbroken("head") / "model")


@pytest.mark.parametrize(
    ("trained", "kills"),
    [
        ("head", [(kill_in_step, step + 0.5) for step in range(10)]),
        ("head", [(kill_while_saving, 4), (kill_while_saving, 8), (kill_at_the_end, 0)]),
        ("all", [(kill_in_step, 3.5), (kill_in_report, 4), (kill_in_step, 5), (kill_in_step, 9)]),
        ("lora", [(kill_in_step, 2), (kill_in_step, 7.5), (kill_at_the_end, 0)]),
    ],
)
def test_a_run_that_was_killed_goes_on_to_the_same_end(inputs, unbroken, tmp_path, trained, kills):
    config, folder = configuration(inputs, model={"trained": trained}), tmp_path / "run"
    for how, step in kills:
        killed_run(config, folder, how, step)
    assert train(config, folder) == folder / "model"
    assert_same_run(folder, unbroken(trained))


def test_a_run_killed_before_its_first_step_goes_on_to_the_same_end(inputs, unbroken, tmp_path):
    config, folder = configuration(inputs), tmp_path / "run"
    for stage in ("mining", "states"):

        def kill(now, done, total, detail="", stage=stage):
            if now == stage:
                raise KilledError

        with pytest.raises(KilledError):
            train(config, folder, kill)
    train(config, folder)
    assert_same_run(folder, unbroken("head"))


def test_a_run_goes_on_where_its_folder_was_moved(inputs, unbroken, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = configuration(inputs)
    killed_run(config, Path("before"), kill_in_step, 9)
    Path("before").rename("after")
    train(config, Path("after"))
    assert_same_run(Path("after"), unbroken("head"))


def test_adapters_start_the_same_after_a_kill_while_an_sae_is_trained(inputs, tmp_path):
    """Random draws of the SAE's training must not decide the adapters' start."""
    config = configuration(
        inputs, model={**new_sae(inputs), "trained": "lora"}, optimizer={"steps": 2}
    )
    train(config, tmp_path / "unbroken")
    killed_run(config, tmp_path / "run", kill_in_step, 0)
    train(config, tmp_path / "run")
    assert_same_run(tmp_path / "run", tmp_path / "unbroken")


# Which checkpoint


def quick(positions, **validation):
    """A run of ten short steps."""
    optimizer = {"accumulation": 1, "mini_batch": None, "batch_size": 2}
    return configuration(positions, optimizer=optimizer, validation={"every": 2, **validation})


def scripted(monkeypatch, reports):
    """Validations return scripted values, by step; the states of the model at each are returned."""
    recorded = {}

    def validate(self, model, *_, steps, **__):
        recorded[steps] = {name: value.clone() for name, value in model[-1].state_dict().items()}
        ndcg, flops = reports[steps]
        report = {"ndcg": ndcg, "mrr": ndcg, "qd_flops": flops, "e2": ndcg - 0.01 * flops}
        report |= {"query_length": 1.0, "document_length": 1.0}
        return report | {"selection": self.selection(report)}

    monkeypatch.setattr(RetrievalEvaluator, "__call__", validate)
    return recorded


def saved_step(folder, recorded):
    """The step of the saved model's weights."""
    saved = Encoder.load(folder / "model")[1].state_dict()
    same = [
        step
        for step, state in recorded.items()
        if all(torch.equal(saved[name], value) for name, value in state.items())
    ]
    assert len(same) == 1
    return same[0]


REPORTS = {2: (0.9, 9.0), 4: (0.3, 4.0), 6: (0.5, 5.0), 8: (0.4, 1.0), 10: (0.8, 5.1)}


@pytest.mark.parametrize(
    ("validation", "best"),
    [({}, 2), ({"checkpoint": "last"}, 10)],
    ids=["best", "last, as in the papers"],
)
def test_the_checkpoint_that_is_saved(inputs, tmp_path, monkeypatch, validation, best):
    recorded = scripted(monkeypatch, REPORTS)
    train(quick(inputs, **validation), tmp_path / "run")
    assert list(recorded) == [2, 4, 6, 8, 10]
    assert saved_step(tmp_path / "run", recorded) == best


@pytest.mark.parametrize(
    ("settings", "best"), [({}, 2), ({"select": "E2"}, 10), ({"select": "R@10"}, 4)]
)
def test_selection(inputs, settings, best):
    evaluator = make_evaluator(inputs, **settings)
    selections = {
        step: evaluator.selection(
            {"ndcg": ndcg, "qd_flops": flops, "e2": ndcg - 0.05 * flops, "R@10": 1 - ndcg}
        )
        for step, (ndcg, flops) in REPORTS.items()
    }
    assert max(selections, key=lambda step: selections[step]) == best


# Validation


def make_evaluator(positions, **settings):
    queries = list(read_queries(positions / "beir", "dev"))
    lines = (positions / "beir" / "corpus.jsonl").read_text().splitlines()
    documents = [json.loads(line) for line in lines]
    return RetrievalEvaluator(
        NamedTexts([query.id for query in queries], [query.text for query in queries]),
        NamedTexts([d["_id"] for d in documents], [d["text"] for d in documents]),
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


# Data


def test_without_queries_pseudo_queries_are_made_and_some_are_held_out(inputs, tmp_path):
    config = configuration(inputs, data={"queries": None}, validation={"queries": None})
    folder = tmp_path / "run"
    train(config, folder)
    assert metrics(folder)[-1]["eval_ndcg"] > 0
    lists = [candidates.query_id for candidates in Lists.open(folder / "work" / "lists.jsonl")]
    held = {query.id for query in read_queries(tmp_path / "run" / "held-out", "dev")}
    # 4 of each of 40 documents, but 3 of one, of which one tenth is held out.
    assert (len(lists), len(held)) == (144, 15)
    assert not held & set(lists)


def test_without_validation_the_last_step_is_the_model(inputs, tmp_path, monkeypatch):
    """A tenth of few queries is none."""
    config = configuration(inputs, data={"count": 9}, validation={"queries": None})
    train(config, tmp_path / "run")
    lines = metrics(tmp_path / "run")
    assert [line["step"] for line in lines] == [4, 8, 10]
    assert all("loss" in line for line in lines)
    checkpoint = tmp_path / "run" / "work" / "checkpoints" / "checkpoint-10"
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
    train(config, tmp_path / "run")
    kept = list(Lists.open(tmp_path / "run" / "work" / "lists.jsonl"))
    assert len(kept) == 18
    assert [candidates for candidates in lists if candidates in kept] == kept
    assert metrics(tmp_path / "run")[-1]["eval_ndcg"] > 0


def test_some_queries_with_candidates_of_the_teacher(inputs, tmp_path):
    config = configuration(inputs, data={"mining": "teacher", "count": 7, "mining_depth": 5})
    train(config, tmp_path / "run")
    lists = list(Lists.open(tmp_path / "run" / "work" / "lists.jsonl"))
    assert len({candidates.query_id for candidates in lists}) == 7
    for candidates in lists:
        assert (candidates.documents[0], candidates.relevant) == (
            candidates.query_id.replace("q", "d"),
            1,
        )
        assert len(candidates.documents) == 6


def test_candidates_of_words_and_of_the_teacher(inputs, dense_encoder, tmp_path):
    """Each finds its own; together they are the words' and the teacher's others."""
    results = {}
    for mining in ("words", "teacher", "both"):
        config = configuration(
            inputs,
            data={"mining": mining, "mining_depth": 4},
            teacher={"dense": str(dense_encoder), "bm25_weight": 0.0},
            optimizer={"steps": 1},
        )
        train(config, tmp_path / mining)
        results[mining] = list(Lists.open(tmp_path / mining / "work" / "lists.jsonl"))
    assert [item.query_id for item in results["both"]] == [i.query_id for i in results["teacher"]]
    words = {item.query_id: item.documents for item in results["words"]}
    for both, teacher in zip(results["both"], results["teacher"], strict=True):
        documents = (*words.get(both.query_id, ()), *teacher.documents)
        assert both.documents == tuple(dict.fromkeys(documents))
        assert both.relevant == teacher.relevant
    assert any(len(item.documents) > 5 for item in results["both"])


@pytest.mark.parametrize("trained", ["head", "all"])
def test_a_validation_over_some_documents_has_the_relevant_ones(
    inputs, tmp_path, monkeypatch, trained
):
    recorded = []
    call = RetrievalEvaluator.__call__
    monkeypatch.setattr(
        RetrievalEvaluator,
        "__call__",
        lambda self, *_, **__: recorded.append(self) or call(self, *_),
    )
    config = configuration(
        inputs, model={"trained": trained}, optimizer={"steps": 1}, validation={"documents": 15}
    )
    train(config, tmp_path / "run")
    (evaluator,) = recorded
    relevant = {f"d{n}" for n in range(20, 30)}
    everything = [document.id for document in read_documents(str(inputs / "beir"))]
    remaining = [name for name in everything if name in evaluator.documents.ids]
    assert evaluator.documents.ids == remaining
    assert relevant < set(remaining)
    assert (
        len(remaining) == len(evaluator.documents.texts) == evaluator.words.documents.shape[0] == 15
    )


def test_queries_without_relevant_documents(inputs, tmp_path):
    """They are learned from by their candidates, and not validated on."""
    shutil.copytree(inputs / "beir", tmp_path / "beir")
    qrels = "".join(f"q{n}\td{n}\t{int(n % 2 == 0)}\n" for n in range(20))
    (tmp_path / "beir" / "qrels" / "train.tsv").write_text(f"query-id\tcorpus-id\tscore\n{qrels}")
    config = configuration(
        inputs, data={"queries": str(tmp_path / "beir")}, validation={"queries": None}
    )
    train(config, tmp_path / "run")
    lists = list(Lists.open(tmp_path / "run" / "work" / "lists.jsonl"))
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


@pytest.mark.parametrize("trained", ["head", "lora"])
@pytest.mark.parametrize("side", ["query", "document"])
@pytest.mark.parametrize("checkpoint", ["best", "last"])
def test_a_run_whose_vectors_are_all_empty_is_an_error(inputs, tmp_path, trained, side, checkpoint):
    heavy = {"kind": "flops", "weight": 1e9, "schedule": "constant"}
    config = configuration(
        inputs,
        model={"trained": trained},
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


def test_a_run_that_found_no_documents_can_be_put_right(inputs, tmp_path):
    config, folder = configuration(inputs, optimizer={"steps": 1}), tmp_path / "run"
    with pytest.raises(InputError, match="no such file or folder"):
        train(replace(config, data=replace(config.data, corpus="nowhere")), folder)
    assert train(config, folder).is_dir()


def test_another_configuration_needs_another_folder(inputs, tmp_path, unbroken):
    config, folder = configuration(inputs), tmp_path / "run"
    killed_run(config, folder, kill_in_step, 0)
    before = (folder / "config.yaml").read_text()
    with pytest.raises(InputError, match=r"config\.optimizer\.seed was 0 and is now 1"):
        train(replace(config, optimizer=replace(config.optimizer, seed=1)), folder)
    assert (folder / "config.yaml").read_text() == before
    with pytest.raises(InputError, match="this run is finished; name another folder"):
        train(config, unbroken("head"))


def test_one_process_at_a_time(inputs, tmp_path):
    config, folder = configuration(inputs), tmp_path / "run"

    def progress(*_, **__):
        with pytest.raises(InputError, match="another process is writing here"):
            train(config, folder)
        raise KilledError

    with pytest.raises(KilledError):
        train(config, folder, progress)


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
    models = []

    class Kept(Trainer):
        def fit(self):
            super().fit()
            models.append(self)
            raise KilledError

    monkeypatch.setattr(run_module, "Trainer", Kept)
    config = configuration(
        inputs,
        model={"trained": trained},
        loss=loss,
        optimizer={"steps": 1, "weight_decay": 0.5, "warmup_steps": 0},
    )
    with pytest.raises(KilledError):
        train(config, tmp_path / "run")
    (trainer,) = models
    names = {id(value): name for name, value in trainer.objective.named_parameters()}
    rates = {}
    for group in trainer.optimizer.param_groups:
        for value in group["params"]:
            assert names[id(value)] not in rates
            rates[names[id(value)]] = group["initial_lr"]
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


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [0.5, 1, 1, 1, 1]),
        ("cosine", [0.5, 1, *(0.5 + 0.5 * math.cos(math.pi * s / 4) for s in (1, 2, 3))]),
    ],
)
def test_the_learning_rate_warms_up(inputs, tmp_path, schedule, expected):
    """After each step, of 6 of which 2 warm up; the last line is not 0 but after the last step."""
    config = configuration(
        inputs, optimizer={"steps": 6, "schedule": schedule}, validation={"every": 1}
    )
    train(config, tmp_path / "run")
    rates = [line["learning_rate"] for line in metrics(tmp_path / "run")[::2]]
    assert rates[1:] == pytest.approx([1e-3 * share for share in expected])


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


@pytest.mark.parametrize("trained", ["head", "all"])
def test_an_sae_on_transformed_states_of_documents_and_queries(
    inputs, tmp_path, monkeypatch, trained
):
    recorded = []

    def spy(reader, count, *arguments, **named):
        recorded.append(reader(range(count)))
        return train_on_states(reader, count, *arguments, **named)

    # From cached states, or from the backbone.
    for module in ("training.ranking.initial_encoder", "training.sae.trainer"):
        monkeypatch.setattr(f"lexicept.{module}.train_on_states", spy)
    model = {**new_sae(inputs), "sae_queries": True}
    model |= {"sae_input": "transformed", "trained": trained}
    train(configuration(inputs, model=model, optimizer={"steps": 1}), tmp_path / "run")
    texts = [document.content for document in read_documents(str(inputs / "beir"))]
    texts += [query.text for query in read_queries(str(inputs / "beir"), "train")]
    backbone = Backbone.from_pretrained(str(inputs / "bert"))
    transform = language_head(str(inputs / "bert")).transform
    expected = backbone_reader(backbone, texts, transform)(range(len(texts)))
    (states,) = recorded
    assert sorted(states.sum(dim=1).tolist()) == pytest.approx(
        sorted(expected.sum(dim=1).tolist()), rel=1e-2, abs=1e-2
    )  # in whatever order texts of one length came
    head = Encoder.load(tmp_path / "run" / "model")[1]
    assert head.inner.d_in == head.sae.d_in == 32
    assert head.sae.origin == {"bidirectional": True}  # no hook of a model has such states


@pytest.mark.parametrize("trained", ["head", "all"])
def test_an_sae_says_which_states_it_reads(inputs, tmp_path, trained):
    model = {**new_sae(inputs), "layer": 1, "trained": trained}
    train(configuration(inputs, model=model, optimizer={"steps": 1}), tmp_path / "run")
    expected = {"hook": "encoder.layer.0", "layer": 1, "bidirectional": True}
    if trained == "head":  # otherwise the states are those of a model of its own
        expected["model"] = str(inputs / "bert")
    assert Encoder.load(tmp_path / "run" / "model")[1].sae.origin == expected


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


@pytest.mark.parametrize("trained", ["head", "all"])
def test_special_tokens_count_in_all_of_a_run_that_wants_them(inputs, tmp_path, trained):
    model = {**new_sae(inputs), "special_tokens": True, "trained": trained}
    train(configuration(inputs, model=model, optimizer={"steps": 1}), tmp_path / "run")
    encoder = Encoder.load(tmp_path / "run" / "model")
    assert encoder.backbone.special_tokens
    assert encoder.backbone.preprocess(["baba"])["token_mask"].tolist() == [[True] * 3]
    lengths = [line["eval_document_length"] for line in metrics(tmp_path / "run")[-1:]]
    documents = [document.content for document in read_documents(str(inputs / "beir"))]
    vectors = (encoder.encode_activations(documents).toarray() > 0).sum(axis=1).mean()
    assert lengths == [pytest.approx(vectors, rel=1e-6)]


def test_an_sae_is_trained_first(inputs, tmp_path):
    model = {**new_sae(inputs), "layer": 1, "pooling": "sum", "query_k": 0}
    model |= {"document_max_active_dims": 7}
    train(configuration(inputs, model=model, loss={"words": 0.0}), tmp_path / "run")
    encoder = Encoder.load(tmp_path / "run" / "model")
    assert encoder[0].num_layers == 1
    assert encoder[1].size == 40
    assert encoder[1].settings == HeadSettings(
        "sum", None, 4, document_max_active_dims=7, query_scale=1.0
    )
    assert encoder.index_settings == IndexSettings("splade")
    assert metrics(tmp_path / "run")[-1]["eval_document_length"] <= 7


@pytest.mark.filterwarnings("ignore:the trained model can't be written")
def test_a_head_may_begin_with_few_dimensions(inputs, tmp_path):
    lengths = []
    for dims in (None, 2):
        model = {"start": None, "backbone": str(inputs / "bert"), "head": "mlm"}
        model["initial_active_dims"] = dims
        folder = tmp_path / f"run{dims}"
        train(configuration(inputs, model=model, optimizer={"steps": 1}), folder)
        lengths.append(metrics(folder)[-1]["eval_document_length"])
    assert lengths[1] < lengths[0] / 1.5


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_a_decoder_learns_where_an_sae_also_reconstructs(inputs, tmp_path, monkeypatch, weight):
    trained = []

    def spy(*arguments, **named):
        sae = train_on_states(*arguments, **named)
        trained.append(sae.W_dec.clone())
        return sae

    monkeypatch.setattr("lexicept.training.ranking.initial_encoder.train_on_states", spy)
    changed = {"loss": {"reconstruction": weight}, "optimizer": {"steps": 2, "mini_batch": None}}
    train(configuration(inputs, model=new_sae(inputs), **changed), tmp_path / "run")
    decoder = Encoder.load(tmp_path / "run" / "model")[1].sae.W_dec
    assert torch.equal(decoder, trained[0]) is (weight == 0)
    logged = [line for line in metrics(tmp_path / "run") if "reconstruction" in line]
    assert bool(logged) is (weight > 0)


@pytest.mark.filterwarnings("ignore:the trained model can't be written")
@pytest.mark.parametrize(
    ("head", "size", "expected"), [("mlm", None, 82), ("random", 19, 19), ("expanded", 20, 20)]
)
def test_heads_that_are_made_for_a_run(inputs, tmp_path, head, size, expected):
    model = {"start": None, "backbone": str(inputs / "bert"), "head": head, "size": size}
    train(configuration(inputs, model=model, optimizer={"steps": 2}), tmp_path / "run")
    encoder = Encoder.load(tmp_path / "run" / "model")[1]
    assert encoder.size == expected
    if head == "expanded":
        assert set(encoder.terms) < set(WORDS)


def test_validation_on_other_documents(inputs, tmp_path):
    save_collection(tmp_path / "beir", documents=30)
    config = configuration(inputs, validation={"corpus": str(tmp_path / "beir"), "count": 5})
    train(config, tmp_path / "run")
    states = tmp_path / "run" / "work" / "states"
    starts = {path.parts[-3]: path for path in states.glob("*/*/000000.starts.npy")}
    sizes = {name: len(np.load(path)) - 1 for name, path in starts.items()}
    assert sizes == {
        "queries": 20,
        "documents": 40,
        "validation-queries": 5,
        "validation-documents": 30,
    }


# The command line


def test_the_command_prints_what_was_best(run, inputs, unbroken, tmp_path):
    path = tmp_path / "config.yaml"
    shutil.copy(unbroken("head") / "config.yaml", path)
    report = run("train", path, "--out", tmp_path / "run", "--json").json
    best = max(metrics(unbroken("head"))[1::2], key=lambda line: line["eval_selection"])
    names = ("step", "eval_ndcg", "eval_mrr", "eval_qd_flops", "eval_e2")
    assert report == {
        "model": str(tmp_path / "run" / "model"),
        **{name: best[name] for name in names},
    }
    assert_error(run("train", path, "--out", tmp_path / "run"), "this run is finished")
    changed = ["--set", "optimizer.steps=1", "--set", "validation.every=1"]
    result = run("train", path, "--out", tmp_path / "other", *changed)
    assert result.code == 0, result.err
    assert "eval_ndcg" in result.out
    assert load_config(tmp_path / "other" / "config.yaml").optimizer.steps == 1
