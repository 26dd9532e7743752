"""Training under a launcher: two processes do the work of one with twice as many batches a step."""

import pytest
import torch
import yaml
from safetensors.torch import load_file

from lexicept.neural.encoders.encoder import Encoder
from lexicept.training.ranking.config import load_config
from lexicept.training.ranking.run import train
from lexicept.training.ranking.trainer import Trainer
from support.processes import launch
from support.runs import launched_configuration, metrics

pytestmark = pytest.mark.usefixtures("_hasty")

PROGRAM = """
import os, sys
from pathlib import Path
from safetensors.torch import save_file
from lexicept.training.ranking import run
from lexicept.training.ranking.config import load_config
from lexicept.training.ranking.trainer import Trainer

fit = Trainer.fit

def fit_and_save(self):
    fit(self)
    state = {name: value.contiguous() for name, value in self.objective.state_dict().items()}
    save_file(state, f"{self.args.output_dir}.{os.environ['RANK']}.safetensors")

Trainer.fit = fit_and_save
for config in sys.argv[1:]:
    run.train(load_config(config), Path(config).with_suffix(""))
"""


@pytest.fixture(scope="module")
def launched(tmp_path_factory):
    """The folder of two runs of two processes each, and their configurations."""
    folder = tmp_path_factory.mktemp("launched")
    config = launched_configuration(folder)
    (folder / "all.yaml").write_text(yaml.safe_dump(config))
    sae = {"num_latents": 40, "k": 4, "tokens": 600, "batch_size": 100}  # the first one trains it
    config["model"] = {"backbone": str(folder / "bert"), "sae": sae, "trained": "lora"}
    config["model"] |= {"freeze_head": True, "lora_rank": 2}
    config["document_regularizer"] |= {"kind": "df_flops"}
    config["optimizer"] |= {"mini_batch": None}
    (folder / "lora.yaml").write_text(yaml.safe_dump(config))
    launch(PROGRAM, folder, folder / "all.yaml", folder / "lora.yaml")
    return folder


def states(run):
    names = [f"checkpoints.{rank}.safetensors" for rank in range(2)]
    return [load_file(run / "work" / name) for name in names]


@pytest.mark.parametrize(("name", "size"), [("all", 50), ("lora", 40)])
def test_both_processes_end_with_the_same_weights_and_factors(launched, name, size):
    first, second = states(launched / name)
    assert first.keys() == second.keys()
    assert {"log_scale", "word_weight"} <= first.keys()
    for key, value in first.items():
        assert torch.equal(value, second[key]), key
        assert value.isfinite().all()
    lines = metrics(launched / name)
    assert [line["step"] for line in lines] == [2, 2, 4, 4, 5, 5]
    assert Encoder.load(launched / name / "model")[1].size == size


def test_two_processes_are_one_with_twice_as_many_batches(launched, tmp_path, monkeypatch):
    fit, trainers = Trainer.fit, []

    def fit_and_keep(self):
        fit(self)
        trainers.append({n: value.clone() for n, value in self.objective.state_dict().items()})

    monkeypatch.setattr(Trainer, "fit", fit_and_keep)
    config = load_config(launched / "all.yaml", ["optimizer.accumulation=2"])
    train(config, tmp_path / "run")
    actual = states(launched / "all")[0]
    assert actual.keys() == trainers[0].keys()
    for key, value in trainers[0].items():
        if key.endswith("key.bias"):  # of a gradient that is 0 but for rounding AdamW makes steps
            continue
        torch.testing.assert_close(actual[key], value, atol=1e-5, rtol=1e-5, msg=key)
    for left, other in zip(metrics(tmp_path / "run"), metrics(launched / "all"), strict=True):
        assert left == pytest.approx(other, abs=2e-3)


def test_documents_of_both_processes_are_counted(launched):
    """A batch of 3 has 3 to 9 documents; 5 steps of 2 batches were seen by both counters."""
    first, _ = states(launched / "lora")
    count = int(first["df.document.count"])
    assert 5 * 2 * 3 <= count <= 5 * 2 * 9
    ratios = first["df.document.ratios"]
    torch.testing.assert_close(ratios * count, (ratios * count).round(), atol=1e-3, rtol=0)
    assert ratios.max() > 0
