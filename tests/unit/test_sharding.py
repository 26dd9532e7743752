"""Processes that divide a backbone train it as one process that holds all of it."""

import json
import subprocess
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from lexicept.errors import InputError, LexiceptError
from lexicept.neural.encoders.encoder import Encoder
from lexicept.progress import silent
from lexicept.training.ranking import sharding
from lexicept.training.ranking.config import TrainingConfig, load_config
from lexicept.training.ranking.run import train
from lexicept.training.settings import from_mapping
from reproduction import launch
from support import processes
from support.runs import launched_configuration, metrics, tensors
from support.tiny import save_decoder

pytestmark = [pytest.mark.usefixtures("_hasty"), pytest.mark.timeout(900)]  # a busy machine

PASS_TOKENS = 40
"""Tokens in a pass: the documents of a mini-batch need one or two of them."""

PROGRAM = """
import json, shutil, sys
from pathlib import Path
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from lexicept.neural.backbones import backbone
from lexicept.training import run, sharding
from lexicept.training.ranking.config import load_config
from lexicept.training.ranking.trainer import Trainer

class Killed(Exception):
    pass

backbone.BATCH_TOKENS = int(sys.argv[1])
run.write_curves = lambda _, path: path.write_bytes(b"")
compute, fit, rounds = Trainer.compute_loss, Trainer.fit, sharding.Shards.rounds
kept, repeated = {}, []

def compute_or_die(self, *arguments, **named):
    if self.state.global_step == kept.get("last"):
        raise Killed
    return compute(self, *arguments, **named)

def fit_and_look(self):
    fit(self)
    parameters = list(self.model.backbone.parameters())
    assert all(isinstance(one, DTensor) for one in parameters)
    kept["own"] = sum(one.to_local().numel() for one in parameters)
    kept["all"] = sum(one.numel() for one in parameters)
    moments = [state["exp_avg"] for state in self.optimizer.state.values()]
    kept["moments"] = sum(isinstance(one, DTensor) for one in moments)

def count_rounds(self, own):
    repeated.append(rounds(self, own) - own)
    return own + repeated[-1]

Trainer.compute_loss, Trainer.fit = compute_or_die, fit_and_look
sharding.Shards.rounds = count_rounds
for config in map(Path, sys.argv[2:]):
    for last in ((2, None) if config.stem == "lora" else (None,)):
        kept["last"] = last
        try:
            run.train(load_config(config), config.with_suffix(""))
        except Killed:
            assert last is not None
            dist.barrier()
            if dist.get_rank() == 0:
                shutil.copytree(config.with_suffix(""), config.with_suffix(".killed"))
            dist.barrier()
    found = {**kept, "repeated": sum(repeated)}
    config.with_suffix(f".{dist.get_rank()}.json").write_text(json.dumps(found))
    repeated.clear()
"""


@pytest.fixture(scope="module")
def launched(tmp_path_factory):
    """The folder of runs of two processes each, beside their configurations."""
    folder = tmp_path_factory.mktemp("launched")
    save_decoder(folder / "llama")
    content = launched_configuration(folder)
    content["optimizer"]["steps"] = 3
    content["document_regularizer"] |= {"kind": "df_flops", "df_source": "sample"}
    content["document_regularizer"] |= {"df_texts": 9, "df_every": 2}
    content["optimizer"] |= {"sharded": True, "max_grad_norm": 0.1}
    (folder / "all.yaml").write_text(yaml.safe_dump(content))
    sae = {"num_latents": 40, "k": 4, "tokens": 600, "batch_size": 100}
    content["model"] = {"backbone": str(folder / "llama"), "sae": sae, "trained": "lora"}
    content["model"] |= {"freeze_head": True, "lora_rank": 2}
    content["optimizer"] |= {"mini_batch": None, "gradient_checkpointing": True}
    (folder / "lora.yaml").write_text(yaml.safe_dump(content))
    content["model"] |= {"dtype": "bfloat16", "freeze_head": False}
    content["optimizer"] |= {"mini_batch": 2, "bf16": True}
    (folder / "half.yaml").write_text(yaml.safe_dump(content))
    files = [folder / f"{name}.yaml" for name in ("all", "lora", "half")]
    processes.launch(PROGRAM, folder, PASS_TOKENS, *files)
    return folder


def seen(launched: Path, name: str) -> list[dict[str, Any]]:
    """What each process saw of its parts."""
    return [json.loads((launched / f"{name}.{rank}.json").read_text()) for rank in range(2)]


def layout(model: Path) -> dict[str, Any]:
    """The files of a saved model, with the settings of those that have some."""
    found: dict[str, Any] = {}
    for path in sorted(model.rglob("*")):
        if path.is_file():
            read = json.loads(path.read_text()) if path.suffix == ".json" else None
            if path.name == "adapter_config.json":
                read["target_modules"].sort()  # a set
            found[str(path.relative_to(model))] = read
    return found


@pytest.mark.parametrize("name", ["all", "lora"])
def test_two_processes_with_parts_are_one_that_is_whole(launched, name, tmp_path, monkeypatch):
    """With gradient caching and unequal numbers of passes; or adapters under a frozen head,
    checkpointed blocks, killed and resumed."""
    monkeypatch.setattr("lexicept.neural.backbones.backbone.BATCH_TOKENS", PASS_TOKENS)
    alone = ["optimizer.accumulation=2", "optimizer.sharded=false"]
    train(load_config(launched / f"{name}.yaml", alone), tmp_path / "run")
    kinds = ("model", "adapter") if name == "lora" else ("model",)
    for kind in kinds:
        found, expected = launched / name / kind, tmp_path / "run" / kind
        assert layout(found) == layout(expected)
        ours, theirs = tensors(found), tensors(expected)
        assert ours.keys() == theirs.keys()
        for key, value in theirs.items():
            if key.endswith("key.bias"):  # of a gradient that is 0 but for rounding
                continue
            torch.testing.assert_close(ours[key], value, atol=1e-5, rtol=1e-5, msg=key)
    lines = metrics(launched / name)
    assert [line["step"] for line in lines] == [2, 2, 3, 3]
    for one, other in zip(metrics(tmp_path / "run"), lines, strict=True):
        assert one == pytest.approx(other, rel=1e-5, abs=1e-5)
    assert max(line.get("grad_norm", 0.0) for line in lines) > 0.1


@pytest.mark.parametrize("name", ["all", "lora", "half"])
def test_every_process_keeps_half_of_the_backbone(launched, name):
    first, second = seen(launched, name)
    assert first["own"] + second["own"] == first["all"] == second["all"]
    assert abs(first["own"] - second["own"]) < 0.1 * first["all"]
    assert first["moments"] == second["moments"] > 0


def test_passes_are_repeated_for_the_processes_that_have_more(launched):
    found = [one["repeated"] for name in ("all", "lora") for one in seen(launched, name)]
    assert min(found) >= 0
    assert sum(found) > 0


def test_types_of_weights_stay(launched):
    """bfloat16 under float32 adapters, trained in mixed precision."""
    encoder = Encoder.load(launched / "half" / "model")
    assert encoder.backbone.dtype == "bfloat16"
    assert encoder.encode_activations(["bade kilo"]).nnz > 0
    adapters = tensors(launched / "half" / "adapter")
    learned = [value for name, value in adapters.items() if "lora_B" in name]
    assert all(value.dtype == torch.float32 and value.abs().sum() > 0 for value in learned)


def test_one_process_resumes_what_two_began(launched):
    """A checkpoint has whole tensors, in an order that the number of processes does not change."""
    run = launched / "lora.killed"
    state = torch.load(run / "work/checkpoints/checkpoint-2/optimizer.pt", weights_only=True)
    assert all(type(one["exp_avg"]) is torch.Tensor for one in state["state"].values())
    before = metrics(run / "work")
    train(load_config(launched / "lora.yaml"), run)
    assert [line["step"] for line in metrics(run)] == [2, 2, 3, 3]
    assert metrics(run)[:2] == before[:2]
    assert Encoder.load(run / "model").head.size == 40


def test_only_a_backbone_that_learns_is_divided(launched):
    with pytest.raises(InputError, match=r"optimizer.sharded requires model.trained: lora or all"):
        load_config(launched / "all.yaml", ["model.trained=head"])


def test_one_process_clips_as_torch_does():
    torch.manual_seed(0)
    ours = [torch.nn.Parameter(torch.randn(3, 2)) for _ in range(3)]
    theirs = [torch.nn.Parameter(value.detach().clone()) for value in ours]
    for one, other in zip(ours[:2], theirs[:2], strict=True):  # the third has no gradient
        one.grad, other.grad = one.detach().clone(), one.detach().clone()
    norm = sharding.clip_gradients(ours, 0.5)
    assert norm == torch.nn.utils.clip_grad_norm_(theirs, 0.5)
    for one, other in zip(ours[:2], theirs[:2], strict=True):
        assert torch.equal(one.grad, other.grad)
    assert sharding.clip_gradients(ours, float("inf")) == pytest.approx(0.5)
    assert sharding.clip_gradients(ours[2:], 0.5) == 0


@pytest.mark.parametrize(
    ("gpus", "sharded", "batch_size", "own"),
    [(8, True, 128, 16), (3, True, 128, 64), (8, False, 128, 128), (0, True, 128, 128)],
)
def test_recipes_start_a_process_for_each_gpu(
    tmp_path, monkeypatch, gpus, sharded, batch_size, own
):
    started: list[Any] = []
    monkeypatch.setattr("torch.accelerator.device_count", lambda: gpus)

    def run(command, **_):
        count = command[command.index("--nproc-per-node") + 1]
        started.append((int(count), load_config(command[-3])))
        monkeypatch.setattr("sys.argv", ["launch", *command[-3:]])
        with pytest.raises(SystemExit):
            launch.main()
        return subprocess.CompletedProcess(command, 1)

    def fail(config, *_):
        if config.optimizer.batch_size < batch_size:
            raise InputError("no such model")
        started.append((1, config))

    monkeypatch.setattr(launch, "train", fail)
    monkeypatch.setattr("subprocess.run", run)
    optimizer = {"sharded": sharded, "batch_size": batch_size}
    content = {"data": {"corpus": "x"}, "model": {"trained": "lora"}, "optimizer": optimizer}
    config = from_mapping(TrainingConfig, content)
    failing = pytest.raises(LexiceptError, match="its training failed: no such model")
    with failing if own < batch_size else nullcontext():
        launch.train_on_all(config, tmp_path / "run", silent, tmp_path / "prepared")
    ((count, given),) = started
    assert count * given.optimizer.batch_size == batch_size
    assert given == replace(config, optimizer=replace(config.optimizer, batch_size=own))


def test_nothing_is_left_beside_what_was_trained(tmp_path, monkeypatch):
    monkeypatch.setattr("torch.accelerator.device_count", lambda: 2)
    ended = subprocess.CompletedProcess([], 0)
    monkeypatch.setattr("subprocess.run", lambda *_, **__: ended)
    content = {"data": {"corpus": "x"}, "optimizer": {"sharded": True, "batch_size": 4}}
    config = from_mapping(TrainingConfig, content | {"model": {"trained": "lora"}})
    launch.train_on_all(config, tmp_path / "run", silent, tmp_path / "prepared")
    assert not list(tmp_path.iterdir())
