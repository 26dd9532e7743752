"""Callbacks of the trainer: the file of metrics and progress, and stopping early."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from lexicept.progress import Progress
from lexicept.storage.files import replace_file

_UNTOLD = ("epoch", "eval_samples_per_second", "eval_steps_per_second")
"""Logged values that are always the same here."""


class Metrics(TrainerCallback):  # type: ignore[misc]
    """Report progress, and write everything that is logged as JSON Lines, each step once."""

    def __init__(self, path: Path, progress: Progress) -> None:
        self._path = path
        self._progress = progress

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Keep the lines from before the checkpoint that the run resumes, and no others."""
        if not state.is_world_process_zero:
            return
        lines = [self._line(state, logs) for logs in state.log_history]
        replace_file(self._path, "".join(lines).encode())

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Log at every checkpoint: a mean that spans one would be lost with the process."""
        if state.global_step % args.save_steps == 0 or state.global_step >= state.max_steps:
            control.should_log = True

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Write one line."""
        values = logs or {}
        if "train_runtime" in values or not state.is_world_process_zero:
            return
        with self._path.open("a") as file:
            file.write(self._line(state, values))
        if "loss" in values:
            self._progress(
                "training", state.global_step, state.max_steps, f"loss {float(values['loss']):.4f}"
            )
        elif "eval_ndcg" in values:
            detail = f"nDCG@10 {values['eval_ndcg']:.4f} QD-FLOPs {values['eval_qd_flops']:.2f}"
            self._progress("training", state.global_step, state.max_steps, detail)

    @staticmethod
    def _line(state: Any, logs: dict[str, Any]) -> str:
        values = {name: value for name, value in logs.items() if name not in _UNTOLD}
        return json.dumps({"step": state.global_step, **values}) + "\n"


class Patience(TrainerCallback):  # type: ignore[misc]
    """Stop training after some validations without a better one, earlier processes' included."""

    def __init__(self, patience: int) -> None:
        self._patience = patience

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Check at once: the run may have been killed after its last step."""
        self._check(state, control)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Check after every validation, which a checkpoint follows."""
        self._check(state, control)

    def _check(self, state: Any, control: Any) -> None:
        validated = [logs["step"] for logs in state.log_history if "eval_selection" in logs]
        worse = [step for step in validated if step > (state.best_global_step or 0)]
        if len(worse) >= self._patience:
            control.should_training_stop = True
