"""Loading models of transformers: where they are, quietly, and without code of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from transformers.utils import logging

from lexicept.errors import InputError


def places(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return those loading options that say where files are."""
    names = ("subfolder", "revision", "token", "cache_dir", "local_files_only")
    return {name: kwargs[name] for name in names if name in kwargs}


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence progress bars and the reports on weights that are left out on purpose."""
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
    """Turn transformers' refusal to run a model's own code into an InputError that names the model.

    The calls inside pass ``trust_remote_code=False``: without it transformers asks on the terminal.
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
    """Return arguments of sentence-transformers' ``Transformer`` under which it runs no code that
    comes with a model, and loads no pickle, which can run any.

    Args:
        kwargs: the arguments that were given, which win otherwise.
        dtype: the type of the weights.
    """
    given = kwargs.get("model_kwargs") or {}
    wanted = {"dtype": given.get("torch_dtype", dtype), **given, "use_safetensors": True}
    safe = {"trust_remote_code": False}
    others = {
        name: safe | (kwargs.get(name) or {}) for name in ("config_kwargs", "processor_kwargs")
    }
    return {**others, "model_kwargs": safe | wanted}
