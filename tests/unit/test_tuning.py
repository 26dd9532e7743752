"""Values of a configuration chosen by short trainings."""

from dataclasses import asdict

import pytest
import yaml

from lexicept.errors import InputError, LexiceptError
from lexicept.training.ranking.config import load_config
from lexicept.training.ranking.validation import RetrievalEvaluator
from reproduction import tuning
from reproduction.tuning import tune
from support.runs import KilledError, configuration, metrics

pytestmark = pytest.mark.usefixtures("_hasty")

VARY = ["loss.temperature=1,5,20"]


@pytest.fixture
def config(inputs, tmp_path):
    """A configuration as a file; changes of some sections are written into it."""

    def write(**sections):
        path = tmp_path / "config.yaml"
        path.write_text(yaml.safe_dump(asdict(configuration(inputs, **sections))))
        return path

    return write


def by_temperature(trials):
    return {float(trial.changes[0].partition("=")[2]): trial for trial in trials}


def test_the_best_validation_wins(config, tmp_path, monkeypatch):
    """Trials are trainings with one value changed, in the order of the validation's measure."""
    result = {1.0: 0.3, 5.0: 0.9, 20.0: 0.6}
    recorded = []

    def validate(self, model, *_, steps, **__):
        recorded.append((trained[-1].loss.temperature, steps))
        report = dict.fromkeys(("mrr", "qd_flops", "query_length", "document_length", "e2"), 1.0)
        ndcg = result[trained[-1].loss.temperature] - (steps == 3) / 10
        return {**report, "ndcg": ndcg, "selection": ndcg}

    trained = []
    real = tuning.train

    def train(settings, *arguments):
        trained.append(settings)
        return real(settings, *arguments)

    monkeypatch.setattr(RetrievalEvaluator, "__call__", validate)
    monkeypatch.setattr(tuning, "train", train)
    path, out = config(validation={"every": 2}), tmp_path / "out"
    trials = tune(path, VARY, 3, out, ["data.negatives=1"])
    assert [trial.changes for trial in trials] == [
        ["loss.temperature=5"],
        ["loss.temperature=20"],
        ["loss.temperature=1"],
    ]
    assert [(trial.step, trial.selection) for trial in trials] == [(2, 0.9), (2, 0.6), (2, 0.3)]
    assert recorded == [(t, step) for t in (1.0, 5.0, 20.0) for step in (2, 3)]
    expected = load_config(path, ["data.negatives=1", "optimizer.steps=3", "loss.temperature=1"])
    assert trained[0] == expected
    best = load_config(out / "best.yaml")
    assert best == load_config(path, ["data.negatives=1", "loss.temperature=5"])


def test_what_trainings_prepare_is_shared_where_no_value_changes_it(config, tmp_path):
    trials = tune(config(), ["loss.temperature=1,9"], 2, tmp_path / "out")
    shared = tmp_path / "out" / "work"
    assert (shared / "lists.jsonl").exists()
    for trial in trials:
        folder = tmp_path / "out" / trial.changes[0]
        assert {path.name for path in folder.iterdir() if path.name[0] != "."} == {
            "config.yaml",
            "metrics.jsonl",
            "settings.json",
        }
    alone = tmp_path / "alone"
    tuning.train(load_config(config(), ["optimizer.steps=2", "loss.temperature=9"]), alone)
    assert metrics(alone) == metrics(tmp_path / "out" / "loss.temperature=9")


def test_values_that_change_the_data_prepare_their_own(config, tmp_path):
    vary = ["data.count=5,8", "optimizer.seed=0,1"]
    trials = tune(config(), vary, 1, tmp_path / "out")
    assert sorted(trial.changes for trial in trials) == [
        [f"data.count={count}", f"optimizer.seed={seed}"] for count in (5, 8) for seed in (0, 1)
    ]
    assert not (tmp_path / "out" / "work").exists()


def test_tuning_that_was_killed_goes_on(config, tmp_path):
    path, out, vary = config(), tmp_path / "out", ["loss.temperature=1,9"]
    changes = ["validation.every=2"]
    whole = tune(path, vary, 4, tmp_path / "whole", changes)

    def kill(stage, done, total, detail=""):
        """In the second trial, after its first checkpoint."""
        if (stage, done) == ("training", 4) and (out / "trials.json").exists():
            raise KilledError

    with pytest.raises(KilledError):
        tune(path, vary, 4, out, changes, kill)
    stamp = (out / "loss.temperature=1" / "metrics.jsonl").stat()
    assert tune(path, vary, 4, out, changes) == whole
    assert (out / "loss.temperature=1" / "metrics.jsonl").stat() == stamp
    more = tune(path, ["loss.temperature=1,9,3"], 4, out, changes)
    assert len(more) == 3
    with pytest.raises(InputError, match=r"config\.optimizer\.steps was 4 and is now 5; --restart"):
        tune(path, vary, 5, out, changes)
    assert by_temperature(more)[9.0] in whole


def test_trials_that_can_not_be_compared(config, tmp_path):
    vary = ["optimizer.learning_rate=1e30,1e-3"]
    path = config(optimizer={"warmup_steps": 0})
    trials = tune(path, vary, 3, tmp_path / "out")
    assert [trial.selection is None for trial in trials] == [False, True]
    assert trials[1].changes == ["optimizer.learning_rate=1e30"]
    with pytest.raises(InputError, match="no trial has a finite loss"):
        tune(path, ["optimizer.learning_rate=1e30"], 3, tmp_path / "none")
    path = config(data={"count": 9}, validation={"queries": None})
    with pytest.raises(LexiceptError, match="tuning needs judged queries"):
        tune(path, VARY, 2, tmp_path / "out2")


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
        tune(config(), [vary], 2, tmp_path / "out")
    assert not (tmp_path / "out").exists()
