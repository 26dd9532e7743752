"""The trainer of sentence-transformers, with lexicept's batches, objective and checkpoints."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from datasets import Dataset
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as to_safetensors
from sentence_transformers import SparseEncoderTrainer
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler
from transformers import PrinterCallback, TrainerCallback, TrainerState
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import rotate_checkpoints

from lexicept.errors import IndexFormatError, InputError, LexiceptWarning
from lexicept.kernels.compiled import num_processors
from lexicept.neural.encoders.encoder import Encoder
from lexicept.storage.cached import check_recorded
from lexicept.storage.files import disk_errors, remove, replace_file, sync, sync_folder, write_json
from lexicept.storage.manifest import describe_files
from lexicept.training.loop import NotFiniteError
from lexicept.training.ranking.arguments import training_arguments
from lexicept.training.ranking.config import TrainingConfig
from lexicept.training.ranking.data import Collator, Mixture
from lexicept.training.ranking.objective import Objective
from lexicept.training.ranking.validation import RetrievalEvaluator

CHECKSUMS = "checksums.json"
"""Name of a checkpoint's list of files, written last; without it a checkpoint is incomplete."""

CHECKPOINTS = 2
"""Number of checkpoints on disk: the newest, and the best or, if it is the newest, the previous."""

SIDES: tuple[Literal["query", "document"], ...] = ("query", "document")
"""The two kinds of texts, in the order of a batch's features."""

CHECKED = 64
"""Queries, and documents, that are encoded at the end to see that vectors have weights."""


class Trainer(SparseEncoderTrainer):  # type: ignore[misc]
    """The library's trainer, with its mixed precision, accumulation and schedules; call ``fit``.

    A batch is a function of the batch's number alone (see ``Mixture``), and a checkpoint holds the
    learned parameters and the objective's state, so that an interrupted run resumes to the same
    losses. Under a launcher, batch i belongs to process i modulo the number of processes, and
    gradients are averaged over the processes before a step, as in one process with as many
    accumulated batches.

    Args:
        folder: the folder of checkpoints.
    """

    def __init__(
        self,
        model: Encoder,
        objective: Objective,
        collators: list[Collator],
        config: TrainingConfig,
        folder: Path,
        evaluator: RetrievalEvaluator | None,
        callbacks: Sequence[TrainerCallback],
    ) -> None:
        self.objective = objective
        self._counted: dict[str, int] = {}
        """Step of each side's last count of document frequencies."""
        self._keep_best = config.validation.checkpoint == "best"
        arguments = training_arguments(config, folder, evaluator is not None)
        # The data set is the numbers of samples; the collator makes a batch of them.
        per_step = arguments.train_batch_size * arguments.gradient_accumulation_steps
        count = int(arguments.max_steps * per_step * arguments.world_size)
        size, seed = arguments.train_batch_size, config.optimizer.seed
        weights = [each.data.weight for each in config.collections]
        self.collator = Mixture(collators, weights, size, count // size, seed)
        self._texts_at_once = config.optimizer.mini_batch or size
        samples = Dataset.from_dict({"number": range(count)})
        super().__init__(
            model,
            arguments,
            samples,
            loss=objective,
            evaluator=evaluator,
            data_collator=self.collator,
            callbacks=list(callbacks),
        )
        self.remove_callback(PrinterCallback)
        # No DistributedDataParallel: a step passes the model several times, or backwards by hand
        # (gradient caching), and the objective's factors are outside of it.
        self.accelerator.prepare_model = partial(
            self.accelerator.prepare_model, evaluation_mode=True
        )

    def fit(self) -> None:
        """Train from the last checkpoint, if any, and return to the best checkpoint unless
        ``validation.checkpoint`` is ``last``. Raises NotFiniteError if the loss is not finite; the
        message has the ids of the queries. Raises InputError if the model has learned to give
        queries or documents empty vectors."""
        folder = Path(self.args.output_dir)
        checkpoint = last_checkpoint(folder)
        if checkpoint and (ended := _state_at_end(checkpoint)):
            self.state = ended
            self._load_from_checkpoint(checkpoint)
        else:
            try:
                self.train(resume_from_checkpoint=checkpoint)
            except AssertionError as error:  # of a callback that needs validations
                reason = "" if self.evaluator else "; no queries are held out for validation"
                raise InputError(f"callbacks: {error}{reason}") from None
        self.accelerator.wait_for_everyone()  # the first process may still be writing
        if self._keep_best and self.state.best_global_step:
            self._load_from_checkpoint(str(folder / f"checkpoint-{self.state.best_global_step}"))
        for side_index, side in enumerate(SIDES):
            vectors = self.objective.encode(side, self._sample(side_index, CHECKED))
            count = sum(map(torch.count_nonzero, vectors), torch.zeros((), device=self.args.device))
            if not self.accelerator.reduce(count, "sum"):
                raise InputError(
                    f"the training collapsed: the vector of every {side} is empty after "
                    f"{self.state.global_step} steps; a lower {side}_regularizer.weight (now "
                    f"{self.objective.sides[side].weight:g}) or optimizer.learning_rate (now "
                    f"{self.args.learning_rate:g}) may help"
                )

    def _sample(self, side_index: int, count: int) -> Iterator[dict[str, Any]]:
        """Yield batches of this process's share of a sample of texts; see ``Collator.sample``."""
        share = (self.accelerator.process_index, self.accelerator.num_processes)
        for features in self.collator.sample(
            side_index, count, self._texts_at_once, share, self.args.seed
        ):
            yield self._prepare_inputs(features)

    def log(self, logs: dict[str, float], *arguments: Any, **named: Any) -> None:
        """Log, with the factor on the student's scores and the factor's learning rate."""
        if "loss" in logs:
            factor = self.objective.log_scale
            logs = {**logs, "scale": float(factor.detach().exp())}
            for group in self.optimizer.param_groups:
                if any(parameter is factor for parameter in group["params"]):
                    logs["scale_learning_rate"] = group["lr"]
        super().log(logs, *arguments, **named)

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """Return the names of matrices; biases, norms and the objective's factors do not decay."""
        return [name for name, value in model.named_parameters() if value.ndim > 1]

    def get_train_dataloader(self) -> Any:
        """Return batches in order, as the collator's sampler shuffles."""
        sampler = SequentialSampler(self.train_dataset)
        batches = BatchSampler(sampler, self.args.train_batch_size, drop_last=True)
        workers = min(self.args.dataloader_num_workers, num_processors())
        options: dict[str, Any] = {}
        if workers:
            # Forked workers share the texts and the tokenizer; a forked tokenizer's threads hang.
            os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
            options = {"multiprocessing_context": "fork", "worker_init_fn": _one_thread}
        loader = DataLoader(
            self.train_dataset,
            batch_sampler=batches,
            collate_fn=self.data_collator,
            num_workers=workers,
            pin_memory=self.args.dataloader_pin_memory,
            **options,
        )
        return self.accelerator.prepare(loader)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Return the sum of the objective's losses. Raises NotFiniteError; see ``fit``."""
        self.objective.step = self.state.global_step
        for query, side in enumerate(SIDES):
            self._count_frequencies(query, side)
        weighted = self.objective(inputs)
        total = torch.stack(list(weighted.values())).sum()
        if not math.isfinite(float(total.detach())):
            terms = {name: float(loss.detach()) for name, loss in weighted.items()}
            raise NotFiniteError(
                f"the loss is not finite at step {self.state.global_step}: {terms}; "
                f"queries of the batch: {', '.join(inputs['targets']['query_ids'])}"
            )
        self.track_loss_components(weighted)
        return (total, {}) if return_outputs else total

    def _count_frequencies(self, side_index: int, side: Literal["query", "document"]) -> None:
        """Recount the document frequencies of a side with a sample due at this step."""
        step, settings = self.state.global_step, self.objective.sides[side]
        sampled = settings.kind == "df_flops" and settings.df_source == "sample"
        # The mark keeps accumulated batches of one step from counting twice.
        if not sampled or step % settings.df_every or self._counted.get(side) == step:
            return
        self.objective.recount(side, self._sample(side_index, settings.df_texts))
        self._counted[side] = step

    def training_step(self, *arguments: Any, **named: Any) -> Tensor:
        """Compute gradients; after the last batch of a step, average over processes."""
        loss: Tensor = super().training_step(*arguments, **named)
        if self.accelerator.num_processes > 1 and self.accelerator.sync_gradients:
            for parameter in self.objective.parameters():
                if parameter.requires_grad:
                    gradient = parameter.grad
                    gradient = torch.zeros_like(parameter) if gradient is None else gradient
                    parameter.grad = self.accelerator.reduce(gradient, "mean")
        return loss

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """Do nothing; ``metrics.write_card`` writes the card."""

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """Write a checkpoint, ``CHECKSUMS`` last; remove earlier checkpoints but the best."""
        folder = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
        if self.args.should_save:
            remove(folder)
        self.accelerator.wait_for_everyone()
        weights = sum(value.nbytes for value in self._learned().values())
        with disk_errors(folder, 3 * weights):  # AdamW has two more numbers for each
            super()._save_checkpoint(model, trial)
        self.accelerator.wait_for_everyone()
        # The order on disk: files, their checksums, and only then the removal of older checkpoints.
        if self.args.should_save:
            sync_folder(folder)
            write_json(folder / CHECKSUMS, {"files": describe_files(folder, folder)})
            sync(folder.parent)
            best = folder.with_name(f"checkpoint-{self.state.best_global_step}")
            rotate_checkpoints(str(folder.parent), CHECKPOINTS, str(best))

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Write the learned parameters and the objective's state."""
        tensors = {f"model.{name}": value for name, value in self._learned().items()}
        state = self.objective.own_state().items()
        tensors |= {f"objective.{name}": value for name, value in state}
        if self.args.should_save:
            folder = Path(output_dir or self.args.output_dir)
            folder.mkdir(parents=True, exist_ok=True)
            saved = {
                name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()
            }
            replace_file(folder / "model.safetensors", to_safetensors(saved))

    def _load_from_checkpoint(self, checkpoint_path: str) -> None:
        path = Path(checkpoint_path) / "model.safetensors"
        try:
            tensors = load_file(path)
        except (OSError, SafetensorError) as error:
            raise InputError(f"{path}: this checkpoint can't be read: {error}") from None
        saved, learned = _with_prefix(tensors, "model."), self._learned()
        if saved.keys() != learned.keys():
            raise InputError(f"{path}: a checkpoint of another model")
        with torch.no_grad():
            for name, value in learned.items():
                value.copy_(saved[name])
        self.objective.load_own_state(_with_prefix(tensors, "objective."))

    def _learned(self) -> dict[str, Tensor]:
        return {name: value for name, value in self.model.named_parameters() if value.requires_grad}


def _state_at_end(checkpoint: str) -> TrainerState | None:
    """Return a checkpoint's state if training ended there, by its steps or by a callback."""
    state = TrainerState.load_from_json(f"{checkpoint}/{TRAINER_STATE_NAME}")
    control = state.stateful_callbacks["TrainerControl"]["args"]
    return state if control["should_training_stop"] else None


def _one_thread(_: int) -> None:
    """Let the tokenizer of a forked process run without threads."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


def last_checkpoint(folder: Path) -> str | None:
    """Return the newest complete checkpoint, or None. Damaged checkpoints are skipped with a
    warning, interrupted ones (without ``CHECKSUMS``) without."""
    paths = folder.glob("checkpoint-*")
    for path in sorted(paths, key=lambda path: int(path.name.split("-")[1]), reverse=True):
        if not (path / CHECKSUMS).exists():
            continue
        try:
            check_recorded(path, path / CHECKSUMS)
        except IndexFormatError as error:
            message = f"{error}: this checkpoint is not resumed from"
            warnings.warn(message, LexiceptWarning, stacklevel=2)
        else:
            return str(path)
    return None


def _with_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): value for n, value in tensors.items() if n.startswith(prefix)}
