"""Kernels as on processors that multiply 8-bit numbers, or on others."""

from types import ModuleType

import pytest
import torch

from lexicept.ops.rounding import multiplies_bytes


def use_bytes(patch: pytest.MonkeyPatch, module: ModuleType, wanted: bool) -> None:
    """Let a module's kernels find candidates by products of 8 bits, or not."""
    patch.setattr(module, "multiplies_bytes", lambda: wanted)
    if not multiplies_bytes():  # where products of some libraries are not exact
        patch.setattr(torch, "_int_mm", lambda a, b: a.int() @ b.int())
