"""Values of a configuration chosen by short trainings."""

import json
from dataclasses import asdict

import pytest
import yaml

from lexicept.errors import InputError
from lexicept.training.loop import NotFiniteError
from lexicept.training.ranking.config import load_config
from reproduction import tuning
from reproduction.tuning import tune
from support.runs import KilledError, configuration, metrics

pytestmark = pytest.mark.usefixtures("_hasty")

NDCG = {1.0: 0.3, 5.0: 0.9, 20.0: 0.6}
"""Scripted validations by temperature."""


@pytest.fixture
def config(inputs, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(asdict(configuration(inputs))))
    return path


@pytest.fixture
def trained(monkeypatch):
    """The configurations and shared folders of scripted trainings."""
    recorded = []

    def train(settings, folder, progress, prepared):
        recorded.append((settings, prepared))
        if settings.optimizer.learning_rate == 1e30:
            raise NotFiniteError("infinite")
        progress("training", 1, 3)
        (folder / "model").mkdir(parents=True)
        names = ("mrr", "qd_flops", "query_length", "document_length", "e2")
        line = {f"eval_{name}": 1.0 for name in names}
        ndcg = NDCG[settings.loss.temperature]
        values = {"eval_ndcg": ndcg, "eval_selection": ndcg}
        later = {"eval_ndcg": ndcg - 0.1, "eval_selection": ndcg - 0.1}
        lines = [{"step": 2, **line, **values}, {"step": 3, **line, **later}]
        if settings.validation.queries is None:
            lines = [{"step": 3, "loss": 1.0}]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    monkeypatch.setattr(tuning, "train", train)
    return recorded


def test_the_best_validation_wins(config, tmp_path, trained):
    """Trials are trainings with one value changed, in the order of the validation's measure."""
    out = tmp_path / "out"
    trials = tune(config, ["loss.temperature=1,5,20"], 3, out, ["data.negatives=1"])
    assert [(trial.changes, trial.step, trial.selection) for trial in trials] == [
        (["loss.temperature=5"], 2, 0.9),
        (["loss.temperature=20"], 2, 0.6),
        (["loss.temperature=1"], 2, 0.3),
    ]
    short = ["data.negatives=1", "optimizer.steps=3", "loss.temperature=1"]
    assert trained[0] == (load_config(config, short), out / "work")
    assert not list(out.glob("*/model"))
    best = load_config(out / "best.yaml")
    assert best == load_config(config, ["data.negatives=1", "loss.temperature=5"])


def test_what_trainings_prepare_is_shared_where_no_value_changes_it(config, tmp_path):
    trials = tune(config, ["loss.temperature=1,9"], 1, tmp_path / "out")
    assert (tmp_path / "out" / "work" / "lists.jsonl").exists()
    for trial in trials:
        folder = tmp_path / "out" / trial.changes[0]
        names = {path.name for path in folder.iterdir() if path.name[0] != "."}
        assert names == {"config.yaml", "metrics.jsonl", "settings.json"}
    alone = tmp_path / "alone"
    tuning.train(load_config(config, ["optimizer.steps=1", "loss.temperature=9"]), alone)
    assert metrics(alone) == metrics(tmp_path / "out" / "loss.temperature=9")


def test_values_that_change_the_data_prepare_their_own(config, tmp_path, trained):
    trials = tune(config, ["data.count=5,8", "optimizer.seed=0,1"], 1, tmp_path / "out")
    assert sorted(trial.changes for trial in trials) == [
        [f"data.count={count}", f"optimizer.seed={seed}"] for count in (5, 8) for seed in (0, 1)
    ]
    assert {prepared for _, prepared in trained} == {None}


def test_tuning_that_was_killed_goes_on(config, tmp_path, trained):
    out, vary = tmp_path / "out", ["loss.temperature=1,5"]
    whole = tune(config, vary, 4, tmp_path / "whole")

    def kill(stage, done, total, detail=""):
        if stage == "training" and (out / "trials.json").exists():
            raise KilledError

    with pytest.raises(KilledError):
        tune(config, vary, 4, out, progress=kill)
    trained.clear()
    assert tune(config, vary, 4, out) == whole
    assert len(tune(config, ["loss.temperature=1,5,20"], 4, out)) == 3
    assert [settings.loss.temperature for settings, _ in trained] == [5.0, 20.0]
    with pytest.raises(InputError, match=r"config\.optimizer\.steps was 4 and is now 5; --restart"):
        tune(config, vary, 5, out)


@pytest.mark.usefixtures("trained")
def test_trials_that_can_not_be_compared(config, tmp_path):
    trials = tune(config, ["optimizer.learning_rate=1e30,1e-3"], 3, tmp_path / "out")
    assert [trial.selection is None for trial in trials] == [False, True]
    assert trials[1].changes == ["optimizer.learning_rate=1e30"]
    with pytest.raises(InputError, match="no trial has a finite loss"):
        tune(config, ["optimizer.learning_rate=1e30"], 3, tmp_path / "none")
    with pytest.raises(InputError, match="tuning needs judged queries"):
        tune(config, ["loss.temperature=1"], 2, tmp_path / "out2", ["validation.queries=null"])


@pytest.mark.parametrize(
    ("vary", "message"),
    [
        ("loss.temperature", "is not of the form loss.temperature=10,20,50"),
        ("loss.temperature=1,,2", "is not of the form"),
        ("loss.temprature=1", "no setting 'loss.temprature'; perhaps temperature?"),
        ("loss.temperature=1,0", "loss.temperature must be above 0"),
    ],
)
def test_values_that_are_refused_before_any_training(config, tmp_path, vary, message):
    with pytest.raises(InputError, match=message):
        tune(config, [vary], 2, tmp_path / "out")
    assert not (tmp_path / "out").exists()
