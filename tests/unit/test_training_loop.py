"""The training loop step by step: AdamW, clipping, learning rates, and when checkpoints are due."""

from dataclasses import dataclass
from itertools import count
from math import sqrt
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from lexicept.errors import InputError, LexiceptWarning
from lexicept.training.loop import (
    CHECKPOINT,
    Checkpoint,
    Loop,
    NotFiniteError,
    StepLoss,
    learning_rate_at,
)


@pytest.fixture(autouse=True)
def unclipped(monkeypatch):
    monkeypatch.setattr("lexicept.training.loop.MAX_GRAD_NORM", 1e9)


@dataclass(frozen=True)
class Settings:
    steps: int = 5
    weight_decay: float = 0.0
    rate: float = 0.1
    warmup_steps: int = 0
    decay_steps: int | None = None
    schedule_steps: int | None = None


class Line(Loop):
    """Two parameters of one number each; a batch is their gradients."""

    title, stage = "Line", "going"

    def __init__(self, settings=None, epsilon=1e-3):
        self.epsilon = epsilon
        self.a, self.b = (nn.Parameter(torch.ones((), dtype=torch.float64)) for _ in range(2))
        groups = [{"params": [self.a]}, {"params": [self.b], "weight_decay": 0.0}]
        super().__init__(settings or Settings(), groups)

    def backward(self, batch):
        (batch[0] * self.a + batch[1] * self.b).backward()
        return StepLoss(sum(batch), 7)

    def after_step(self):
        return "fine"

    def done(self):
        return 2 * self.steps, 10

    def state(self):
        return {"a": self.a.detach().clone(), "b": self.b.detach().clone()}

    def restore(self, state):
        with torch.no_grad():
            self.a.copy_(state["a"])
            self.b.copy_(state["b"])

    @property
    def values(self):
        return [self.a.item(), self.b.item()]


def test_first_steps_by_hand():
    # Both of AdamW's moments are g's own then: w ← w − η g / (|g| + ε).
    loop = Line(epsilon=1e-3)
    loop.step([1e-3, -3e-3])  # shares 1/2 and 3/4 of the rate
    assert loop.values == pytest.approx([1 - 0.1 / 2, 1 + 0.1 * 3 / 4], rel=1e-12)
    loop = Line(Settings(weight_decay=0.5), epsilon=1e-3)
    loop.step([1e-3, 1e-3])
    assert loop.values == pytest.approx([1 - 0.1 * 0.5 - 0.1 / 2, 1 - 0.1 / 2], rel=1e-12)


def test_a_step_takes_gradients_that_are_clipped_together(monkeypatch):
    for most, expected in ((1.0, [0.6, 0.8]), (2.5, [1.5, 2.0]), (6.0, [3.0, 4.0])):
        monkeypatch.setattr("lexicept.training.loop.MAX_GRAD_NORM", most)
        loop = Line()
        loop.step([3.0, 4.0])
        assert [loop.a.grad.item(), loop.b.grad.item()] == pytest.approx(expected, rel=1e-5)
    monkeypatch.setattr("lexicept.training.loop.MAX_GRAD_NORM", 1e-3 * sqrt(2))
    loop = Line(epsilon=1e-3)
    loop.step([5.0, 5.0])  # clipped to 1e-3 each: half of the rate, as above
    assert loop.values == pytest.approx([1 - 0.1 / 2, 1 - 0.1 / 2], rel=1e-3)


def test_gradients_of_earlier_steps_are_forgotten():
    loop = Line()
    for gradients in ([3.0, 4.0], [2.0, -1.0]):
        loop.step(gradients)
        assert [loop.a.grad.item(), loop.b.grad.item()] == gradients


def test_every_step_has_its_own_rate():
    # Gradients of one sign and size move a weight by the whole rate.
    loop = Line(Settings(4, warmup_steps=2, decay_steps=2), epsilon=0.0)
    moved = []
    for _ in range(4):
        before = loop.values[0]
        loop.step([2.0, 2.0])
        moved.append(before - loop.values[0])
    assert moved == pytest.approx([0.05, 0.1, 0.1, 0.05], rel=1e-9)
    settings = Settings(10, rate=8.0, warmup_steps=4, decay_steps=4)
    rates = [learning_rate_at(settings, step) for step in range(10)]
    assert rates == [2, 4, 6, 8, 8, 8, 8, 6, 4, 2]
    stopped = Settings(4, rate=8.0, decay_steps=8, schedule_steps=8)
    assert [learning_rate_at(stopped, step) for step in range(4)] == [8, 7, 6, 5]
    flat = Settings(5, rate=8.0, warmup_steps=4)
    assert [learning_rate_at(flat, step) for step in range(5)] == [2, 4, 6, 8, 8]


@pytest.mark.parametrize("steps", [0, 1])
def test_a_warm_up_or_decay_of_one_step_is_none(steps):
    settings = Settings(4, rate=3.0, warmup_steps=steps, decay_steps=steps)
    assert [learning_rate_at(settings, step) for step in range(4)] == [3.0] * 4


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_changes_nothing(loss):
    loop = Line()
    loop.step([1.0, 1.0])
    before = loop.values
    with pytest.raises(NotFiniteError, match=f"Line: the loss is {loss} at step 1; a lower"):
        loop.step([loss, 0.0])
    assert loop.values == before
    assert loop.steps == 1


def batches(count=99):
    return (((i + 1, "x"), [1.0, 1.0]) for i in range(count))


def test_a_run_takes_the_steps_that_are_left():
    loop, recorded = Line(), []
    loop.steps = 2
    loop.run(batches(), None, lambda *report: recorded.append(report))
    assert loop.steps == 5
    assert [report[:3] for report in recorded] == [
        ("going", 6, 10),
        ("going", 8, 10),
        ("going", 10, 10),
    ]
    assert recorded[0][3].startswith("loss 2.000  fine  ")
    loop.run(batches(), None, lambda *report: recorded.append(report))  # nothing is left
    assert (len(recorded), loop.steps) == (3, 5)
    with pytest.raises(InputError, match="Line: the texts have no tokens"):
        Line().run(iter(()), None, lambda *report: None)


@pytest.mark.parametrize(("seconds", "times"), [(1e9, [5]), (0, [1, 2, 3, 4, 5])])
def test_checkpoints_are_written_when_due_and_after_the_last_step(
    monkeypatch, tmp_path, seconds, times
):
    monkeypatch.setattr("lexicept.training.loop.CHECKPOINT_SECONDS", seconds)
    saved, loop = [], Line()
    save = loop.save
    monkeypatch.setattr(loop, "save", lambda path, at: saved.append(at[0]) or save(path, at))
    loop.run(batches(), tmp_path, lambda *report: None)
    assert saved == times
    restored = Line()
    checkpoint = Checkpoint.find(tmp_path, restored.settings)
    assert checkpoint.path == tmp_path / CHECKPOINT
    assert restored.load(checkpoint) == (5, "x")
    assert (restored.steps, restored.values) == (5, loop.values)
    moments = [loop.optimizer.state_dict()["state"], restored.optimizer.state_dict()["state"]]
    assert str(moments[0]) == str(moments[1])


def test_a_checkpoint_is_due_more_than_so_many_seconds_after_the_last(monkeypatch, tmp_path):
    seconds = count(1000, 10)
    clock = SimpleNamespace(monotonic=lambda: next(seconds), perf_counter=lambda: next(seconds))
    monkeypatch.setattr("lexicept.training.loop.time", clock)
    monkeypatch.setattr("lexicept.training.loop.CHECKPOINT_SECONDS", 60)
    saved, loop = [], Line()
    monkeypatch.setattr(loop, "save", lambda path, at: saved.append(at[0]))
    loop.run(batches(), tmp_path, lambda *report: None)
    # Every step looks at the clock three times: 30, 60 and 90 seconds after the start.
    assert saved == [3, 5]


def test_a_checkpoint_of_other_settings_tells_which(tmp_path):
    Line(Settings(weight_decay=0.5)).save(tmp_path / CHECKPOINT, (1,))
    with pytest.raises(InputError, match=r"weight_decay was 0\.5 and is now 0\.25"):
        Checkpoint.find(tmp_path, Settings(weight_decay=0.25))


def test_a_damaged_checkpoint_is_passed_over(tmp_path):
    Line().save(tmp_path / CHECKPOINT, (1,))
    whole = (tmp_path / CHECKPOINT).read_bytes()
    for damaged in (b"", whole[:-1], whole[:400] + b"x" + whole[401:]):
        (tmp_path / CHECKPOINT).write_bytes(damaged)
        with pytest.warns(LexiceptWarning, match=r"checkpoint\.pt: .* starts from the beginning"):
            assert Checkpoint.find(tmp_path, Settings()) is None


class Touch:
    """An object that creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_checkpoint_runs_no_code(monkeypatch, tmp_path):
    loop = Line()
    monkeypatch.setattr(loop, "state", lambda: {"a": Touch(tmp_path / "ran")})
    loop.save(tmp_path / CHECKPOINT, (1,))
    with pytest.raises(InputError, match="this checkpoint can't be read"):
        Checkpoint.find(tmp_path, loop.settings)
    assert not (tmp_path / "ran").exists()
