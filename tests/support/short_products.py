"""Kernels as on processors that multiply 8-bit numbers, or on others."""

import pytest
import torch

from lexicept.neural.kernels import quantisation
from lexicept.neural.kernels.quantisation import multiplies_bytes


def use_bytes(patch: pytest.MonkeyPatch, wanted: bool) -> None:
    """Let kernels find candidates by products of 8 bits, or not."""
    patch.setattr(quantisation, "multiplies_bytes", lambda: wanted)
    if not multiplies_bytes():  # where products of some libraries are not exact
        patch.setattr(torch, "_int_mm", lambda a, b: a.int() @ b.int())
