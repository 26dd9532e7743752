"""Arguments of the library's trainer: lexicept's settings, and those passed on by name."""

from __future__ import annotations

from pathlib import Path

import torch
from sentence_transformers import SparseEncoderTrainingArguments
from transformers import Trainer, get_scheduler
from transformers.integrations import get_reporting_integration_callbacks
from transformers.trainer_utils import SchedulerType

from lexicept.errors import InputError, check_known, message_of
from lexicept.neural.backbones.blocks import has_bfloat16
from lexicept.training.ranking.config import TrainingConfig
from lexicept.training.ranking.validation import STEPS

LOGGING_STEPS = 10
"""Largest number of steps that a line of metrics averages."""

PASSED_ON = (
    *("report_to", "run_name", "project", "log_level", "fp16", "tf32", "full_determinism"),
    *("optim", "optim_args", "adam_beta1", "adam_beta2", "adam_epsilon"),
    *("lr_scheduler_kwargs", "torch_empty_cache_steps"),
)
"""Arguments that contradict no setting of lexicept's."""


def training_arguments(
    config: TrainingConfig, folder: Path, validates: bool
) -> SparseEncoderTrainingArguments:
    """Return the library's arguments of a configuration, with checkpoints in a folder. Raises
    InputError for a name in ``trainer`` that is not passed on, or a value that the library
    refuses."""
    schedules = [schedule.value for schedule in SchedulerType]
    check_known("optimizer.schedule", [config.optimizer.schedule], schedules)
    if refused := [name for name in config.trainer if name in _LIBRARY and name not in PASSED_ON]:
        raise InputError(f"trainer.{refused[0]} is not passed on: lexicept sets it")
    check_known("argument of trainer", config.trainer, PASSED_ON)
    try:
        arguments = _arguments(config, folder, validates)
        for reporter in get_reporting_integration_callbacks(arguments.report_to):
            reporter()  # an error if the package is missing
        arguments.get_process_log_level()
        optimizer, options = Trainer.get_optimizer_cls_and_kwargs(arguments)
        made = optimizer([torch.zeros(1, requires_grad=True)], **options)
        schedule, options = arguments.lr_scheduler_type, arguments.lr_scheduler_kwargs
        get_scheduler(schedule, made, 0, arguments.max_steps, options)
    except Exception as error:  # the library and its integrations raise many kinds
        raise InputError(f"trainer: {message_of(error)}") from None
    if arguments.fp16 and arguments.device.type == "cpu":
        raise InputError("trainer.fp16 needs a GPU")
    # Several devices without a launcher would split a batch's tensors of windows.
    arguments._n_gpu = min(arguments.n_gpu, 1)
    return arguments


_LIBRARY = SparseEncoderTrainingArguments.__dataclass_fields__


def _arguments(
    config: TrainingConfig, folder: Path, validates: bool
) -> SparseEncoderTrainingArguments:
    device = torch.accelerator.current_accelerator() or torch.device("cpu")
    settings, validation, loss = config.optimizer, config.validation, config.loss
    # The objective's factors have a learning rate of their own.
    factors = "log_scale|word_weight" if loss.words else "log_scale"
    own_rate = {f"^({factors})$": loss.scale_learning_rate} if loss.scale_learning_rate else {}
    # The library's schedule ``constant`` has no warm-up.
    constant = settings.schedule == "constant"
    passed_on = {"report_to": "none", **config.trainer}
    if settings.schedule in ("reduce_lr_on_plateau", "greedy"):  # of validation's measure
        of_schedule = {"mode": "max", **(passed_on.get("lr_scheduler_kwargs") or {})}
        passed_on |= {"lr_scheduler_kwargs": of_schedule}
    return SparseEncoderTrainingArguments(
        **passed_on,
        output_dir=str(folder),
        max_steps=settings.steps,
        per_device_train_batch_size=settings.batch_size,
        gradient_accumulation_steps=settings.accumulation,
        learning_rate=config.learning_rate,
        learning_rate_mapping=own_rate,
        warmup_steps=settings.warmup_steps,
        lr_scheduler_type="constant_with_warmup" if constant else settings.schedule,
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.max_grad_norm,
        bf16=settings.bf16 and has_bfloat16(device),
        seed=settings.seed,
        eval_strategy="steps" if validates else "no",
        eval_steps=validation.every or STEPS,
        save_strategy="steps",
        save_steps=validation.every or STEPS,
        restore_callback_states_from_checkpoint=True,
        metric_for_best_model="eval_selection",
        greater_is_better=True,
        logging_steps=LOGGING_STEPS,
        logging_nan_inf_filter=False,
        remove_unused_columns=False,
        dataloader_drop_last=True,
        dataloader_num_workers=settings.workers,
        dataloader_pin_memory=torch.cuda.is_available(),
        use_cpu=device.type == "cpu",
        disable_tqdm=True,
    )
