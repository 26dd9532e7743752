"""Small training runs: their configuration, their files, and how they are killed."""

import json

import pytest
import torch
from safetensors.torch import load_file

from lexicept.checks import from_mapping
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.heads.vocabulary import VocabularyHead
from lexicept.training.ranking import run as run_module
from lexicept.training.ranking.config import TrainingConfig
from lexicept.training.ranking.run import train
from lexicept.training.ranking.trainer import Trainer
from support.processes import KilledError
from support.tiny import save_collection, tiny_backbone


def configuration(positions, **sections):
    """Everything at once: a teacher, words, all losses and regularisers, gradient caching."""
    beir = str(positions / "beir")
    data = {
        "data": {"corpus": beir, "queries": beir, "negatives": 2},
        "model": {"start": str(positions / "start"), "lora_rank": 2},
        "teacher": {"bm25_weight": 0.5},
        "loss": {"words": 0.5, "in_batch": 0.5, "margin_mse": 0.1, "scale": 0.3},
        "query_regularizer": {"weight": 0.01, "steps": 5},
        "document_regularizer": {"kind": "df_flops", "weight": 0.01, "steps": 5},
        "joint_regularizer": {"weight": 0.01, "steps": 5},
        "optimizer": {
            "steps": 10,
            "batch_size": 3,
            "accumulation": 2,
            "mini_batch": 2,
            "warmup_steps": 2,
        },
        "validation": {"queries": beir, "every": 4},
    }
    for name, values in sections.items():
        data[name] = {**data.get(name, {}), **values}
    return from_mapping(TrainingConfig, data)


def launched_configuration(folder):
    """Of a training by several processes, with its collection and its start saved beside it."""
    beir = save_collection(folder / "beir")
    torch.manual_seed(3)
    head = VocabularyHead(torch.randn(50, 32) * 0.3, torch.zeros(50), ["w"] * 50)
    # Every batch has its own dropout, which one process would draw otherwise.
    bert = tiny_backbone(folder / "bert", dropout=0.0)
    Encoder.of(bert, head).save(str(folder / "start"), create_model_card=False)
    return {
        "data": {"corpus": beir, "queries": beir, "negatives": 2},
        "model": {"start": str(folder / "start"), "trained": "all"},
        "teacher": {"bm25_weight": 0.5},
        "loss": {"words": 0.5, "in_batch": 0.5, "scale": 0.3},
        "document_regularizer": {"weight": 0.01, "schedule": "constant"},
        "optimizer": {"steps": 5, "batch_size": 3, "mini_batch": 2, "warmup_steps": 2},
        "validation": {"queries": beir, "every": 2},
    }


def metrics(folder):
    """The lines of metrics, as they are but for how long a validation took."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        line.pop("eval_runtime", None)
    return lines


def tensors(model):
    """Every tensor of a saved model, by file and name."""
    results = {}
    for path in sorted(model.rglob("*.safetensors")):
        named = load_file(path)
        results |= {f"{path.relative_to(model)}: {name}": value for name, value in named.items()}
    return results


def assert_same_model(left, right):
    ours, expected = tensors(left), tensors(right)
    assert ours.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(ours[name], value), name
    (config,) = left.glob("1_*/config.json")
    assert config.read_text() == (right / config.relative_to(left)).read_text()


def kill_in_step(monkeypatch, step):
    """Raises in the first batch of a step, or in the second of a step of two halves."""
    compute = Trainer.compute_loss
    recorded = []

    def killed(self, model, inputs, **more):
        if self.state.global_step == int(step):
            recorded.append(step)
            if len(recorded) > 2 * (step % 1):
                raise KilledError
        return compute(self, model, inputs, **more)

    monkeypatch.setattr(Trainer, "compute_loss", killed)


def kill_while_saving(monkeypatch, step):
    """Raises when weights and optimiser are written and the rest is not."""
    save = Trainer._save_rng_state

    def killed(self, folder):
        if self.state.global_step == step:
            raise KilledError
        save(self, folder)

    monkeypatch.setattr(Trainer, "_save_rng_state", killed)


def kill_in_report(monkeypatch, step):
    """Raises in the progress callback."""


def kill_at_the_end(monkeypatch, _):
    def killed(*_):
        raise KilledError

    monkeypatch.setattr(run_module, "write_card", killed)


def killed_run(config, folder, how, step):
    def progress(stage, done, total, detail=""):
        if how is kill_in_report and (stage, done) == ("training", step):
            raise KilledError

    with pytest.MonkeyPatch.context() as patch:
        how(patch, step)
        with pytest.raises(KilledError):
            train(config, folder, progress)
    assert not (folder / "model").exists()
