"""Training under a launcher: two processes do the work of one with twice as many batches a step."""

from dataclasses import asdict

import pytest
import torch
import yaml
from safetensors.torch import load_file

from lexicept.neural.encoders.encoder import Encoder
from lexicept.training.ranking.config import load_config
from lexicept.training.ranking.run import train
from lexicept.training.ranking.trainer import Trainer
from support.processes import launch
from support.runs import configuration, metrics
from support.tiny import save_bert

pytestmark = pytest.mark.usefixtures("_hasty")

PROGRAM = """
import os, sys
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
run.train(load_config(sys.argv[1]), sys.argv[2])
"""


def test_two_processes_are_one_with_twice_as_many_batches(inputs, tmp_path, monkeypatch):
    """The first trains the SAE. Frequencies, which have no weight here, are of both together."""
    # Every batch has its own dropout, which one process would draw otherwise.
    backbone = save_bert(tmp_path / "bert", dropout=0.0)
    sae = {"num_latents": 40, "k": 4, "tokens": 600, "batch_size": 100}
    config = configuration(
        inputs,
        model={"start": None, "backbone": backbone, "sae": sae, "trained": "all"},
        query_regularizer={"schedule": "constant"},
        document_regularizer={"weight": 0},
        optimizer={"accumulation": 1},
    )
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(asdict(config)))
    both = tmp_path / "both"
    launch(PROGRAM, tmp_path, path, both)
    states = [load_file(both / "work" / f"checkpoints.{rank}.safetensors") for rank in range(2)]
    assert {"log_scale", "word_weight"} <= states[0].keys() == states[1].keys()
    for name, value in states[0].items():
        assert torch.equal(value, states[1][name]), name
        assert value.isfinite().all()
    assert Encoder.load(both / "model").head.size == 40

    fit, trained = Trainer.fit, {}

    def fit_and_keep(self):
        fit(self)
        trained.update({n: value.clone() for n, value in self.objective.state_dict().items()})

    monkeypatch.setattr(Trainer, "fit", fit_and_keep)
    train(load_config(path, ["optimizer.accumulation=2"]), tmp_path / "alone")
    assert states[0].keys() == trained.keys()
    for name, value in trained.items():
        if name.endswith("key.bias"):  # of a gradient that is 0 but for rounding AdamW makes steps
            continue
        torch.testing.assert_close(states[0][name], value, atol=1e-5, rtol=1e-5, msg=name)
    assert int(trained["df.document.count"]) > 5 * 2 * 3
    for ours, other in zip(metrics(tmp_path / "alone"), metrics(both), strict=True):
        assert ours == pytest.approx(other, abs=2e-3)
