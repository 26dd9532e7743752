"""bfloat16, on devices that multiply it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache

import torch

from lexicept.ops.rounding import has_instructions

DTYPES = ("float32", "bfloat16", "float16")
"""Types of weights."""

PRECISIONS = ("float32", "bfloat16")
"""Types in which matrices are multiplied."""


@cache
def multiplies_bfloat16() -> bool:
    """Return whether this CPU has instructions that multiply bfloat16."""
    return has_instructions("avx512_bf16", "amx_bf16")


def has_bfloat16(device: torch.device) -> bool:
    """Return whether a device multiplies bfloat16; others emulate it, a CPU five times slower than
    single precision."""
    return multiplies_bfloat16() if device.type == "cpu" else torch.cuda.is_bf16_supported(False)


def autocast(device: torch.device, wanted: bool = True) -> AbstractContextManager[object]:
    """Multiply matrices in bfloat16 where that is wanted and the device has it."""
    if not (wanted and has_bfloat16(device)):
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16)
