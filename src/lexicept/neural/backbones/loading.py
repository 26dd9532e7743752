"""Loading models of transformers quietly, and without Python code from their folders."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from transformers.utils import logging

from lexicept.errors import InputError, message_of
from lexicept.storage.files import read_json

_NEEDED = {
    "adapter_*": "adapter_config.json adapter_model.safetensors|adapter_model.bin",
    "lexicept.json": "modules.json config_sentence_transformers.json",
    "1_*Head": "sentence_bert_config.json",
    "1_Pooling": "modules.json 1_Pooling/config.json",
    "1_SpladePooling": "modules.json sentence_bert_config.json config_sentence_transformers.json",
    "*_SpladePooling": "*_SpladePooling/config.json",
    "document_0_*": "router_config.json document_0_*/sentence_bert_config.json",
    "router_config.json": "modules.json config_sentence_transformers.json",
    "sentence_bert_config.json": "config.json|adapter_config.json",
    "tokenizer_config.json": "config.json|adapter_config.json tokenizer.json|vocab.*|*.model "
    "model.safetensors|*.safetensors|*.bin|backbone.json",
}
"""Files and folders of a model → files, or alternatives, that must stand beside them."""

_OBJECTS = "adapter_config|cfg|config|config_sentence_transformers|generation_config|lexicept|"
_OBJECTS += "router_config|sae|sentence_bert_config|tokenizer|tokenizer_config"


def modules_of(folder: Path) -> list[tuple[str, Path]]:
    """Return type and folder of each module that ``modules.json`` and, for a router, then
    ``router_config.json`` list; [] without the files."""
    path = folder / "modules.json"
    if not path.exists():
        return []
    try:
        listed = json.loads(path.read_bytes())
        modules = [(str(module["type"]), folder / str(module["path"])) for module in listed]
        path = modules[0][1] / "router_config.json"
        behind = json.loads(path.read_bytes())["types"] if path.exists() else {}
        return modules + [(str(type_), modules[0][1] / name) for name, type_ in behind.items()]
    except (
        OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError
    ) as error:  # fmt: skip
        raise InputError(f"{path}: not a list of modules: {message_of(error)}") from None


def check_files(folder: Path) -> None:
    """Raise InputError for a missing or damaged file of a model's folder or its modules': the
    libraries' errors don't name the file, and some make an empty tokenizer in its place."""
    modules_of(folder)
    folders = (folder, *folder.glob("*/"), *folder.glob("*/*/")) if folder.is_dir() else ()
    for folder in folders:
        for sign, needed in _NEEDED.items():
            for names in needed.split() if any(folder.glob(sign)) else ():
                choices = names.split("|")
                if not any(file.is_file() for name in choices for file in folder.glob(name)):
                    raise InputError(f"{folder / choices[0]}: this model's file is missing")
        for path in sorted(folder.iterdir()):
            _check_content(path)


def _check_content(path: Path) -> None:
    """Raise InputError for a damaged file of a model; other files pass."""
    try:
        if path.suffix == ".safetensors":
            with safe_open(path, "pt"):
                return
        filled = path.name != "vocab.txt" or path.stat().st_size > 0
        if re.fullmatch(rf"({_OBJECTS})\.json", path.name):
            filled = bool(read_json(path, InputError))
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path}: can't be read: {error}") from None
    # For a transformer's empty configuration, the libraries would take defaults.
    beside = path.name == "config.json" and (path.parent / "tokenizer_config.json").exists()
    if not filled and (beside or path.name in ("tokenizer.json", "sae.json", "vocab.txt")):
        raise InputError(f"{path}: this model's file has no values")


def location_options(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the loading options that say where files are."""
    names = ("subfolder", "revision", "token", "cache_dir", "local_files_only")
    return {name: kwargs[name] for name in names if name in kwargs}


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence progress bars and reports on weights left out on purpose."""
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


@contextmanager
def no_remote_code(name: str) -> Iterator[None]:
    """Turn transformers' refusal to run a model's code into an InputError with the model's name.

    Calls inside pass ``trust_remote_code=False``; else transformers asks on the terminal.
    """
    try:
        yield
    except ValueError as error:
        if "trust_remote_code" not in str(error):
            raise
        raise InputError(
            f"{name} needs Python code of its own, which lexicept does not run: "
            "choose a model that transformers has a class for"
        ) from None


def data_alone(kwargs: Mapping[str, Any], dtype: str) -> dict[str, Any]:
    """Return arguments for sentence-transformers' ``Transformer`` without code from the model's
    folder and without pickles, which can run any code; ``kwargs`` override all defaults."""
    safe = {"trust_remote_code": False}
    safe_kwargs = {
        name: safe | (kwargs.get(name) or {}) for name in ("config_kwargs", "processor_kwargs")
    }
    options = kwargs.get("model_kwargs") or {}
    options = {"dtype": options.get("torch_dtype", dtype), **options, "use_safetensors": True}
    return {**safe_kwargs, "model_kwargs": safe | options}
