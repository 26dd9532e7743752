"""Low-rank adapters (LoRA, Hu et al. 2022) of a transformer's linear layers, in peft's format."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn
from transformers import PreTrainedModel
from transformers.utils import ADAPTER_SAFE_WEIGHTS_NAME, find_adapter_config_file

from lexicept.errors import InputError
from lexicept.storage.files import read_json


def add_adapters(model: PreTrainedModel, base: str, rank: int) -> Any:
    """Return a frozen model with trainable adapters ``(alpha / r) B A x``, with A [r, in] random
    and B [out, r] zero at first, on ``meta`` for a model on ``meta``. ``base``, the hub name or
    folder of the weights, is saved with the adapters; alpha is twice the rank."""
    from peft import LoraConfig, get_peft_model

    settings = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear")
    with _quiet_peft():
        adapted = get_peft_model(model, settings, low_cpu_mem_usage=model.device.type == "meta")
    adapted.active_peft_config.base_model_name_or_path = (
        os.path.abspath(base) if os.path.isdir(base) else base
    )
    return adapted


def has_adapters(model: nn.Module) -> bool:
    """Return whether a model has adapters."""
    return hasattr(model, "merge_and_unload")


def merge_adapters(model: Any) -> PreTrainedModel:
    """Add adapters to the adapted weights; return a model without adapters unchanged."""
    return model.merge_and_unload() if has_adapters(model) else model


def save_adapters(model: Any, folder: str) -> None:
    """Write ``adapter_config.json``, ``adapter_model.safetensors`` and the base's configuration."""
    # Embeddings are not adapted; otherwise peft asks the hub how many the base has.
    model.save_pretrained(folder, save_embedding_layers=False)
    model.config.save_pretrained(folder)


def find_base(path: str, **where: Any) -> str | None:
    """Return the base of the adapters in a folder or hub repository; None without adapters. Raises
    InputError or IndexFormatError for a configuration that names no base."""
    config = find_adapter_config_file(path, **where)
    if config is None:
        return None
    base = read_json(Path(config)).get("base_model_name_or_path")
    if not isinstance(base, str):
        raise InputError(f"{config}: base_model_name_or_path must name a model, not {base!r:.80}")
    return base


def load_adapters(model: PreTrainedModel, path: str, **where: Any) -> PreTrainedModel:
    """Add a folder's or repository's adapters to the weights. Raises InputError for pickles."""
    from peft import PeftModel

    folder = Path(path, where.get("subfolder") or "")
    if folder.is_dir() and not (folder / ADAPTER_SAFE_WEIGHTS_NAME).exists():
        raise InputError(f"{folder}: no {ADAPTER_SAFE_WEIGHTS_NAME}; pickled adapters are not read")
    with _quiet_peft():
        return merge_adapters(PeftModel.from_pretrained(model, path, **where))


@contextmanager
def _quiet_peft() -> Iterator[None]:
    """Silence a deprecation warning of transformers for a name that peft uses."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
        yield
