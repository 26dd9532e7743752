"""Arguments and callbacks of the library's trainer, passed on by name."""

import re
from dataclasses import replace
from shutil import rmtree

import pytest

from lexicept.errors import InputError
from lexicept.training.own_parts import OwnPart
from lexicept.training.ranking.arguments import PASSED_ON, training_arguments
from lexicept.training.ranking.run import train
from support import own_parts
from support.runs import configuration, metrics

pytestmark = pytest.mark.usefixtures("_hasty")


def test_values_reach_the_library(inputs, tmp_path):
    optimizer = {"schedule": "cosine_with_restarts", "learning_rate": 0.02}
    trainer = {"lr_scheduler_kwargs": {"num_cycles": 2}, "adam_beta2": 0.9}
    config = configuration(inputs, optimizer=optimizer, trainer=trainer)
    arguments = training_arguments(config, tmp_path, True)
    assert arguments.lr_scheduler_type == "cosine_with_restarts"
    assert arguments.lr_scheduler_kwargs == {"num_cycles": 2}
    assert (arguments.learning_rate, arguments.adam_beta2) == (0.02, 0.9)
    assert arguments.report_to == []
    constant = configuration(inputs, optimizer={"schedule": "constant"})
    arguments = training_arguments(constant, tmp_path, False)
    assert arguments.lr_scheduler_type == "constant_with_warmup"
    falling = configuration(inputs, optimizer={"schedule": "reduce_lr_on_plateau"})
    assert training_arguments(falling, tmp_path, True).lr_scheduler_kwargs == {"mode": "max"}
    assert arguments.eval_strategy == "no"


def test_every_name_is_an_argument_of_the_library():
    assert set(PASSED_ON) <= training_arguments.__globals__["_LIBRARY"].keys()


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"trainer": {"optm": "adafactor"}}, "no argument of trainer 'optm'; perhaps optim"),
        ({"trainer": {"max_steps": 3}}, "trainer.max_steps is not passed on: lexicept sets it"),
        ({"trainer": {"optim": "adamm"}}, "trainer: adamm is not a valid OptimizerNames"),
        ({"trainer": {"report_to": "nowhere"}}, "trainer: nowhere is not supported"),
        ({"trainer": {"fp16": True}}, "trainer.fp16 needs a GPU"),
        ({"trainer": {"adam_beta1": 2.0}}, "trainer: Invalid beta parameter at index 0: 2.0"),
        ({"optimizer": {"schedule": "warmup_stable_decay"}}, "trainer: get_wsd_schedule() missing"),
        ({"optimizer": {"schedule": "liner"}}, "no optimizer.schedule 'liner'; perhaps linear?"),
    ],
)
def test_names_and_values_that_are_refused(inputs, tmp_path, sections, message):
    config = configuration(inputs, **sections)
    with pytest.raises(InputError, match=re.escape(message)) as error:
        training_arguments(config, tmp_path, True)
    assert "\n" not in str(error.value)


def test_another_optimiser_and_callbacks(inputs, tmp_path, monkeypatch):
    """A validation every 2 of 5 steps; the second is no better at a rate of almost 0."""
    monkeypatch.setattr(own_parts.Watcher, "seen", [])
    early = {"early_stopping_patience": 1}
    config = configuration(
        inputs,
        trainer={"optim": "adafactor"},
        optimizer={"learning_rate": 1e-12, "schedule": "cosine"},
        loss={"scale_learning_rate": 0},
    )
    callbacks = (
        OwnPart("support.own_parts.Watcher"),
        OwnPart("transformers.EarlyStoppingCallback", early),
    )
    run, config = tmp_path / "run", replace(config, callbacks=callbacks)
    train(config, run)
    assert own_parts.Watcher.seen == [("Adafactor", "SchedulerType.COSINE")]
    rmtree(run / "model")  # as if killed before it was written
    train(config, run)
    assert not (run / "work/checkpoints/checkpoint-5").exists()
    assert [line["step"] for line in metrics(run)] == [2, 2, 4, 4]
