"""The trainer of sentence-transformers, with lexicept's batches, objective and checkpoints."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from safetensors.torch import load_file
from safetensors.torch import save as to_safetensors
from sentence_transformers import (
    SparseEncoder,
    SparseEncoderTrainer,
    SparseEncoderTrainingArguments,
)
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler
from transformers import EarlyStoppingCallback, PrinterCallback, TrainerCallback

from lexicept.errors import LexiceptError
from lexicept.progress import Progress
from lexicept.storage import replace_file
from lexicept.training.config import TrainingConfig
from lexicept.training.data import Collator
from lexicept.training.objective import Objective
from lexicept.training.validation import RetrievalEvaluator

CHECKPOINTS = 2
"""The newest ones that are kept, besides the best."""


class Trainer(SparseEncoderTrainer):  # type: ignore[misc]
    """Multi-GPU, mixed precision, loggers and resuming are the library's.

    A batch is a function of its number alone (see ``Sampler``), and a checkpoint holds the
    objective's own state too, so that a killed run goes on to the same losses.

    Args:
        query_id: the id of a query's row, to name what made a loss NaN.
    """

    def __init__(
        self,
        model: SparseEncoder,
        objective: Objective,
        collator: Collator,
        config: TrainingConfig,
        folder: Path,
        evaluator: RetrievalEvaluator | None,
        progress: Progress,
        query_id: Callable[[int], str],
    ) -> None:
        self.objective = objective
        self._query_id = query_id
        settings, validation = config.optimizer, config.validation
        arguments = SparseEncoderTrainingArguments(
            output_dir=str(folder / "checkpoints"),
            max_steps=settings.steps,
            per_device_train_batch_size=settings.batch_size,
            gradient_accumulation_steps=settings.accumulation,
            learning_rate=settings.learning_rate,
            learning_rate_mapping={r"log_scale|word_weight": config.loss.scale_learning_rate},
            warmup_steps=settings.warmup_steps,
            lr_scheduler_type=settings.schedule,
            weight_decay=settings.weight_decay,
            max_grad_norm=settings.max_grad_norm,
            bf16=settings.bf16,
            seed=settings.seed,
            eval_strategy="no" if evaluator is None else "steps",
            eval_steps=validation.every,
            save_strategy="steps",
            save_steps=validation.every,
            save_total_limit=CHECKPOINTS,
            load_best_model_at_end=evaluator is not None,
            metric_for_best_model="eval_selection",
            greater_is_better=True,
            logging_steps=min(10, validation.every),
            logging_nan_inf_filter=False,
            remove_unused_columns=False,
            dataloader_pin_memory=torch.cuda.is_available(),
            use_cpu=not torch.accelerator.is_available(),
            report_to="none",
            disable_tqdm=True,
        )
        callbacks: list[TrainerCallback] = [Metrics(folder / "metrics.jsonl", progress)]
        if evaluator is not None and validation.patience is not None:
            callbacks.append(EarlyStoppingCallback(validation.patience))
        numbers = Dataset.from_dict({"number": range(self._samples(arguments))})
        super().__init__(
            model=model,
            args=arguments,
            train_dataset=numbers,
            loss=objective,
            evaluator=evaluator,
            data_collator=collator,
            callbacks=callbacks,
        )
        self.remove_callback(PrinterCallback)

    @staticmethod
    def _samples(arguments: SparseEncoderTrainingArguments) -> int:
        per_step = arguments.train_batch_size * arguments.gradient_accumulation_steps
        return int(arguments.max_steps * per_step * arguments.world_size)

    def get_train_dataloader(self) -> Any:
        """In order: the sampler behind the collator shuffles."""
        sampler = SequentialSampler(self.train_dataset)
        batches = BatchSampler(sampler, self.args.train_batch_size, drop_last=True)
        loader = DataLoader(
            self.train_dataset, batch_sampler=batches, collate_fn=self.data_collator
        )
        return self.accelerator.prepare(loader)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """The sum of the objective's parts.

        Raises:
            LexiceptError: a loss that is not finite, with the ids of the batch's queries.
        """
        if model is self.model_wrapped and self.objective.model is not model:
            self.objective.model = model
        self.objective.step = self.state.global_step
        found = self.objective(inputs)
        total = torch.stack(list(found.values())).sum()
        if not math.isfinite(float(total.detach())):
            ids = [self._query_id(row) for row in inputs["targets"]["queries"].tolist()]
            parts = {name: float(loss.detach()) for name, loss in found.items()}
            raise LexiceptError(
                f"the loss is not finite at step {self.state.global_step}: {parts}; "
                f"queries of the batch: {', '.join(ids)}"
            )
        self.track_loss_components(found)
        return (total, {}) if return_outputs else total

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """None: a run writes its own card."""

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        folder = Path(output_dir or self.args.output_dir)
        folder.mkdir(parents=True, exist_ok=True)
        model = self.accelerator.unwrap_model(self.model)
        tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
        own = self.objective.own_state().items()
        tensors |= {f"objective.{name}": value for name, value in own}
        contiguous = {name: value.detach().contiguous() for name, value in tensors.items()}
        replace_file(folder / "model.safetensors", to_safetensors(contiguous))

    def _load_from_checkpoint(self, checkpoint_path: str) -> None:
        tensors = load_file(Path(checkpoint_path) / "model.safetensors")
        model = self.accelerator.unwrap_model(self.model)
        model.load_state_dict(_part(tensors, "model."))
        self.objective.load_own_state(_part(tensors, "objective."))


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): value for n, value in tensors.items() if n.startswith(prefix)}


class Metrics(TrainerCallback):  # type: ignore[misc]
    """Progress, and everything that is logged as JSON Lines, each step once."""

    def __init__(self, path: Path, progress: Progress) -> None:
        self._path = path
        self._progress = progress

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Forget what was logged after the checkpoint that the run goes on from."""
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        kept = [line for line in lines if json.loads(line)["step"] <= state.global_step]
        replace_file(self._path, "".join(f"{line}\n" for line in kept).encode())

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """One line."""
        values = {name: value for name, value in (logs or {}).items() if name != "epoch"}
        if "train_runtime" in values:
            return
        with self._path.open("a") as file:
            file.write(json.dumps({"step": state.global_step, **values}) + "\n")
        if "loss" in values:
            self._progress(
                "training", state.global_step, state.max_steps, f"loss {float(values['loss']):.4f}"
            )
        elif "eval_ndcg" in values:
            detail = f"nDCG@10 {values['eval_ndcg']:.4f} QD-FLOPs {values['eval_qd_flops']:.2f}"
            self._progress("training", state.global_step, state.max_steps, detail)
