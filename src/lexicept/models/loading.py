"""Loading models of transformers quietly, and without Python code from their folders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from transformers.utils import logging

from lexicept.errors import InputError


def places(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the loading options for the place of files."""
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
    folder and without pickles, which can run any code; the caller's arguments override all
    defaults."""
    safe = {"trust_remote_code": False}
    safe_kwargs = {
        name: safe | (kwargs.get(name) or {}) for name in ("config_kwargs", "processor_kwargs")
    }
    options = kwargs.get("model_kwargs") or {}
    options = {"dtype": options.get("torch_dtype", dtype), **options, "use_safetensors": True}
    return {**safe_kwargs, "model_kwargs": safe | options}
