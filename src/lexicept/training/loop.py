"""The training loop of sparse autoencoders and masked pretraining.

The loop has the optimiser (AdamW), the learning rate, gradient clipping, the check for losses that
are not finite, checkpoints and progress. A subclass has the loss of a batch and the parameters.
"""

from __future__ import annotations

import math
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar
from zipfile import ZipFile

import torch
from torch import nn

from lexicept.errors import InputError, LexiceptError, LexiceptWarning, message_of
from lexicept.progress import Progress
from lexicept.storage.files import first_difference, replacing

CHECKPOINT_SECONDS = 60
"""Seconds between two checkpoints."""

CHECKPOINT = "checkpoint.pt"
"""The checkpoint's file name."""

MAX_GRAD_NORM = 1.0
"""Norm that the gradients of all parameters together are clipped to."""

Batch = TypeVar("Batch")


class LoopSettings(Protocol):
    """The settings that the loop reads, a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def steps(self) -> int: ...
    @property
    def warmup_steps(self) -> int: ...
    @property
    def decay_steps(self) -> int | None: ...
    @property
    def schedule_steps(self) -> int | None: ...
    @property
    def rate(self) -> float: ...  # learning rate after warm-up
    @property
    def weight_decay(self) -> float: ...


class NotFiniteError(LexiceptError):
    """A loss that is infinite or NaN."""


def learning_rate_at(settings: LoopSettings, step: int) -> float:
    """Return the learning rate of a step, counted from 0: warm-up, constant, decay."""
    rate = settings.rate * min(1.0, (step + 1) / max(1, settings.warmup_steps))
    if settings.decay_steps is not None:
        end = settings.schedule_steps or settings.steps
        rate *= min(1.0, (end - step) / max(1, settings.decay_steps))
    return rate


class StepLoss(NamedTuple):
    """The loss of a batch, after the backward pass."""

    loss: float
    tokens: int
    """Tokens of the batch, for the speed in progress reports."""


class Loop(ABC, Generic[Batch]):
    """A training: the optimiser, the number of steps so far, and the loss of a batch.

    Args:
        groups: AdamW's parameter groups.
    """

    title: ClassVar[str]
    """The training's name in errors."""
    stage: ClassVar[str]
    """The training's name in progress reports."""
    advice: ClassVar[str] = "a lower learning rate may help"
    """Advice in the error of an infinite loss."""
    epsilon: ClassVar[float] = 1e-8
    """AdamW's ε."""
    settings: LoopSettings

    def __init__(self, settings: LoopSettings, groups: list[dict[str, Any]]) -> None:
        self.settings = settings
        self.steps = 0
        self._tokens_per_second = 0.0
        self.optimizer = torch.optim.AdamW(
            groups,
            lr=settings.rate,
            eps=self.epsilon,
            weight_decay=settings.weight_decay,
            fused=True,
        )

    @property
    def parameters(self) -> list[nn.Parameter]:
        """All parameters that learn."""
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    @abstractmethod
    def backward(self, batch: Batch) -> StepLoss:
        """Compute the gradients of a batch's loss."""

    @abstractmethod
    def after_step(self) -> str:
        """Update other state than the optimiser's; return details for progress."""

    @abstractmethod
    def done(self) -> tuple[int, int]:
        """Return the amounts of finished and total work, in the training's unit."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return the tensors and numbers of a checkpoint."""

    @abstractmethod
    def restore(self, state: dict[str, Any]) -> None:
        """Continue from ``state``. Raises InputError for the state of another model."""

    def run(
        self, batches: Iterable[tuple[Any, Batch]], checkpoints: Path | None, progress: Progress
    ) -> None:
        """Take the remaining steps, with batches after their next positions in the stream, tuples
        of numbers; a checkpoint is written every ``CHECKPOINT_SECONDS`` and after the last step.
        Raises InputError if the batches end before: the texts have no tokens. Raises NotFiniteError
        if the loss is not finite; the last checkpoint is kept."""
        total = self.settings.steps
        if self.steps >= total:
            return
        saved = time.monotonic()
        for position, batch in batches:
            detail = self.step(batch)
            progress(self.stage, *self.done(), detail)
            finished = self.steps >= total
            due = finished or time.monotonic() - saved > CHECKPOINT_SECONDS
            if checkpoints is not None and due:
                self.save(checkpoints / CHECKPOINT, position)
                saved = time.monotonic()
            if finished:
                return
        raise InputError(f"{self.title}: the texts have no tokens")

    def step(self, batch: Batch) -> str:
        """Take one optimiser step; return details for progress. Raises NotFiniteError if the loss
        is not finite; no weight has changed."""
        began = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        loss, tokens = self.backward(batch)
        if not math.isfinite(loss):
            raise NotFiniteError(
                f"{self.title}: the loss is {loss} at step {self.steps}; {self.advice}"
            )
        torch.nn.utils.clip_grad_norm_(self.parameters, MAX_GRAD_NORM)
        learning_rate = learning_rate_at(self.settings, self.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.optimizer.step()
        detail = self.after_step()
        self.steps += 1
        speed = tokens / (time.perf_counter() - began)
        # An exponential average, for a readable number.
        self._tokens_per_second = 0.9 * (self._tokens_per_second or speed) + 0.1 * speed
        return f"loss {loss:.3f}  {detail}  {self._tokens_per_second:,.0f} tokens/s"

    def save(self, path: Path, position: tuple[Any, ...]) -> None:
        """Write a checkpoint atomically: a zip archive with checksums, of ``torch.save``."""
        state = {
            "settings": asdict(self.settings),
            "position": list(position),
            "steps": self.steps,
            "task": self.state(),
            "optimizer": self.optimizer.state_dict(),
        }
        weights = sum(parameter.nbytes for parameter in self.parameters)
        with replacing(path, 3 * weights) as file:  # AdamW has two moments for each weight
            torch.save(state, file)

    def load(self, checkpoint: Checkpoint) -> tuple[Any, ...]:
        """Continue from a checkpoint; return the position in the stream of batches. Raises
        InputError for a checkpoint of another model."""
        with checkpoint.reading() as state:
            self.restore(state["task"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.steps = state["steps"]
            return tuple(state["position"])


class Checkpoint:
    """A checkpoint of ``Loop.save``; see ``find``. Raises InputError for an unreadable file, or a
    checkpoint of other settings."""

    def __init__(
        self, path: Path, settings: LoopSettings, device: torch.device | None = None
    ) -> None:
        self.path = path
        self._state: dict[str, Any] = {}
        with self.reading():
            self._state = torch.load(path, map_location=device, weights_only=True)
            if difference := first_difference(self._state["settings"], asdict(settings)):
                raise InputError(f"a checkpoint of other settings: {difference}")

    @classmethod
    def find(
        cls, folder: Path | None, settings: LoopSettings, device: torch.device | None = None
    ) -> Checkpoint | None:
        """Return the checkpoint of a folder, with tensors on a device; None without a checkpoint
        and, with a warning, for a damaged file."""
        if folder is None or not (folder / CHECKPOINT).exists():
            return None
        path = folder / CHECKPOINT
        try:
            with ZipFile(path) as archive:
                sound = archive.testzip() is None
        except Exception:  # zipfile raises many kinds
            sound = False
        if sound:
            return cls(path, settings, device)
        message = f"{path}: this checkpoint is damaged; training starts from the beginning"
        warnings.warn(message, LexiceptWarning, stacklevel=2)
        return None

    @contextmanager
    def reading(self) -> Iterator[dict[str, Any]]:
        """Yield the content; turn errors of the block into InputError with the file's path."""
        try:
            yield self._state
        except InputError as error:
            raise InputError(f"{self.path}: {error}") from None
        except Exception as error:  # torch raises many kinds
            raise InputError(
                f"{self.path}: this checkpoint can't be read: {message_of(error)}"
            ) from None
